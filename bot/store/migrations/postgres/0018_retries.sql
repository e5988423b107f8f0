-- Which failed job a job retries: each is retried once. A retry outlives it.
ALTER TABLE jobs ADD COLUMN retry_of TEXT REFERENCES jobs (id) ON DELETE SET NULL;
CREATE UNIQUE INDEX jobs_retrying ON jobs (retry_of) WHERE retry_of IS NOT NULL;
