-- Since when the service has not found what a job made; NULL: it found it at the last read.
ALTER TABLE jobs ADD COLUMN missing_since BIGINT;
-- When an attempt's candidate was named.
ALTER TABLE attempts ADD COLUMN named_at BIGINT;
UPDATE attempts SET named_at = made_at WHERE candidate_id IS NOT NULL;
