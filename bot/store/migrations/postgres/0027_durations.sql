-- How long jobs like it took, as known when it was stored: the median is typical_ms.
ALTER TABLE jobs ADD COLUMN slow_ms BIGINT;         -- what 9 of 10 of them did not exceed
ALTER TABLE jobs ADD COLUMN slow INTEGER NOT NULL DEFAULT 0;   -- it takes longer than that
ALTER TABLE jobs ADD COLUMN script_band INTEGER;    -- how long its script is, in doubling steps
-- With all that is read of a finished job: the rest of its row may be large.
CREATE INDEX jobs_finished ON jobs (kind, ended_at, started_at) WHERE state = 'succeeded';
CREATE INDEX jobs_finished_by_length ON jobs (kind, script_band, ended_at, started_at)
    WHERE state = 'succeeded';
DROP INDEX jobs_done;
