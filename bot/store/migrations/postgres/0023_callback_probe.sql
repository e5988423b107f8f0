-- How doctor finds out whether a callback reaches the bot of this database: it calls with this
-- token, which belongs to no job, and the bot counts it.
CREATE TABLE callback_probe (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    token    TEXT NOT NULL,   -- as long as that of a job's callback
    received BIGINT NOT NULL DEFAULT 0
);
INSERT INTO callback_probe (id, token) VALUES
    (1, substr(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 1, 43));
