-- How long the script takes to speak, by its words. NULL: there is none, or an older version began
-- the attempt.
ALTER TABLE attempts ADD COLUMN spoken_ms BIGINT;

-- What the attempts of deleted jobs add to the sums of their months.
CREATE TABLE spending (
    month       TEXT NOT NULL,     -- of UTC, such as "2026-11"
    user_id     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    created     BIGINT NOT NULL,   -- attempts that may have cost money
    spoken_ms   BIGINT NOT NULL,
    PRIMARY KEY (month, user_id, kind)
);
