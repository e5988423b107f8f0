-- The workspace and the app that the database belongs to: one row, once Slack has said so.
CREATE TABLE installation (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    team_id       TEXT NOT NULL,
    enterprise_id TEXT,    -- of an organisation on Enterprise Grid
    app_id        TEXT     -- NULL without the scope that says it
);
