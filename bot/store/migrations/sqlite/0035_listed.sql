-- When the service listed it last; NULL for one that people added, used or trained.
ALTER TABLE replicas ADD COLUMN listed_at INTEGER;
-- When the service is to be asked for a list next: by one process.
CREATE TABLE lists (
    kind    TEXT PRIMARY KEY,
    due_at  INTEGER NOT NULL
);
