-- What the service lists that the job's create call may have made, and when it was created.
ALTER TABLE jobs ADD COLUMN offered_id TEXT;
ALTER TABLE jobs ADD COLUMN offered_at BIGINT;
