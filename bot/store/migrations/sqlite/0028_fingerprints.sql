-- What makes a request the same as another: a hash of its script, replica and background.
ALTER TABLE jobs ADD COLUMN fingerprint TEXT;
CREATE INDEX jobs_same ON jobs (fingerprint, created_at) WHERE fingerprint IS NOT NULL;
