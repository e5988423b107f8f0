-- Why the create call of a queued job is held back, and when the first try since then was due.
ALTER TABLE jobs ADD COLUMN held_by TEXT;
ALTER TABLE jobs ADD COLUMN held_until BIGINT;
