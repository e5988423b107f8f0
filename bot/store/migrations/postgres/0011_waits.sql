-- When a job is due that was woken while it was claimed; NULL: it was not.
ALTER TABLE jobs ADD COLUMN wake_at BIGINT;
-- How long the row was to wait when due_at was written: if it waits longer, the clock was set back.
ALTER TABLE jobs ADD COLUMN wait_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN wait_ms BIGINT NOT NULL DEFAULT 0;
UPDATE jobs SET wait_ms = 3600000 WHERE due_at IS NOT NULL;
UPDATE deliveries SET wait_ms = 3600000 WHERE due_at IS NOT NULL;
