-- The Home tabs of those who have opened theirs. Each change of a person's jobs makes it due.
CREATE TABLE homes (
    user_id       TEXT PRIMARY KEY,
    page          INTEGER NOT NULL DEFAULT 0,
    due_at        BIGINT,                       -- when it is published next; NULL until a change
    not_before    BIGINT NOT NULL DEFAULT 0,    -- at most one in a few seconds
    claim         INTEGER NOT NULL DEFAULT 0,
    claimed       INTEGER NOT NULL DEFAULT 0,
    changed       INTEGER NOT NULL DEFAULT 0,   -- since it was claimed
    failures      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX homes_due ON homes (due_at) WHERE due_at IS NOT NULL;
