-- The names that the code uses, for columns and for stored values.
ALTER TABLE jobs RENAME COLUMN usual TO typical_ms;      -- how long such jobs took lately
ALTER TABLE jobs RENAME COLUMN strays TO orphaned_ids;   -- what earlier create calls made after all
ALTER TABLE attempts RENAME COLUMN hint TO candidate_id;      -- named by somebody, not verified
ALTER TABLE attempts RENAME COLUMN vouched TO user_supplied;  -- the candidate came from a person
ALTER TABLE deliveries RENAME COLUMN posting TO state;
ALTER TABLE deliveries RENAME COLUMN wanted TO version;         -- grows with each change to show
ALTER TABLE deliveries RENAME COLUMN shown TO shown_version;    -- what of it the message says
ALTER TABLE deliveries RENAME COLUMN plain TO text_only;        -- sent without blocks
ALTER TABLE replicas RENAME COLUMN sought TO search_name;       -- the name, without capitals

UPDATE jobs SET failure = CASE failure
    WHEN 'broken' THEN 'service_failed'
    WHEN 'key' THEN 'key_rejected'
    WHEN 'credit' THEN 'out_of_credit'
    WHEN 'forgotten' THEN 'not_found'
    WHEN 'endless' THEN 'timed_out'
    WHEN 'given_up' THEN 'cancelled'
    ELSE failure END
WHERE failure IN ('broken', 'key', 'credit', 'forgotten', 'endless', 'given_up');
-- Of an attempt that has no id, how its job failed.
UPDATE attempts SET outcome = CASE outcome
    WHEN 'broken' THEN 'service_failed'
    WHEN 'key' THEN 'key_rejected'
    WHEN 'credit' THEN 'out_of_credit'
    WHEN 'forgotten' THEN 'not_found'
    WHEN 'endless' THEN 'timed_out'
    WHEN 'given_up' THEN 'cancelled'
    ELSE outcome END
WHERE outcome IN ('broken', 'key', 'credit', 'forgotten', 'endless', 'given_up');
UPDATE deliveries SET state = CASE state
    WHEN 'owed' THEN 'pending'
    WHEN 'lost' THEN 'undeliverable'
    ELSE state END
WHERE state IN ('owed', 'lost');

-- Grows with each change of a cached table: a process reads again what has changed since.
CREATE TABLE revisions (
    name        TEXT PRIMARY KEY,
    revision    BIGINT NOT NULL
);
INSERT INTO revisions (name, revision) VALUES ('replicas', 0);
ALTER TABLE replicas ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;  -- the one that changed it last
CREATE INDEX replicas_revision ON replicas (revision);
