-- What admins have changed of the limits: where there is no row, the setting counts.
CREATE TABLE limit_changes (
    name          TEXT PRIMARY KEY,   -- of the setting, such as "MAX_PER_DAY"
    value         TEXT NOT NULL,      -- as it would stand there
    changed_by    TEXT NOT NULL,
    changed_at    BIGINT NOT NULL
);
