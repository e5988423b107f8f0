-- A job's question may be asked more than once, each time in a message of its own.
ALTER TABLE deliveries ADD COLUMN number INTEGER NOT NULL DEFAULT 0;  -- of a question, from 1
ALTER TABLE deliveries ADD COLUMN settled_as TEXT;  -- how a question was settled; NULL: it is open
ALTER TABLE deliveries ADD COLUMN settled_by TEXT;  -- who settled it; NULL: nobody did
ALTER TABLE deliveries DROP CONSTRAINT deliveries_job_id_role_key;
ALTER TABLE deliveries ADD UNIQUE (job_id, role, number);

-- Jobs whose card asks get their question as a message, and their card is edited.
INSERT INTO deliveries (job_id, role, number, state, channel, thread_ts, due_at)
SELECT jobs.id, 'question', 1, 'pending', jobs.channel, jobs.thread_ts,
    CASE WHEN cards.state IN ('posted', 'undeliverable') THEN 0 END
FROM jobs JOIN deliveries AS cards ON cards.job_id = jobs.id AND cards.role = 'card'
WHERE jobs.state = 'unconfirmed' AND jobs.asked > 0;
UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, 0)
WHERE role = 'card' AND state <> 'undeliverable' AND job_id IN (
    SELECT id FROM jobs WHERE state = 'unconfirmed' AND asked > 0);

-- Who named an attempt's candidate, if a person did.
ALTER TABLE attempts ADD COLUMN named_by TEXT;
