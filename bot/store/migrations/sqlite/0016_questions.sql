-- A job's question may be asked more than once, each time in a message of its own. SQLite cannot
-- change a UNIQUE constraint, so the table is copied.
CREATE TABLE deliveries_with_questions (
    id            INTEGER PRIMARY KEY,
    job_id        TEXT NOT NULL REFERENCES jobs (id),
    role          TEXT NOT NULL,
    number        INTEGER NOT NULL DEFAULT 0,  -- of a question, from 1; 0: there is one per job
    state         TEXT NOT NULL,
    channel       TEXT NOT NULL,
    thread_ts     TEXT,
    ts            TEXT,
    version       INTEGER NOT NULL DEFAULT 1,  -- grows with each change to show
    shown_version INTEGER NOT NULL DEFAULT 0,  -- what of it the message says
    due_at        BIGINT,
    claim         INTEGER NOT NULL DEFAULT 0,
    claimed       INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    direct        INTEGER NOT NULL DEFAULT 0,
    text_only     INTEGER NOT NULL DEFAULT 0,  -- sent without blocks
    sent_at       BIGINT,
    refusals      INTEGER NOT NULL DEFAULT 0,
    wait_ms       BIGINT NOT NULL DEFAULT 0,
    set_aside     INTEGER NOT NULL DEFAULT 0,
    settled_as    TEXT,                        -- how a question was settled; NULL: it is open
    settled_by    TEXT,                        -- who settled it; NULL: nobody did
    UNIQUE (job_id, role, number)
);
INSERT INTO deliveries_with_questions (id, job_id, role, state, channel, thread_ts, ts, version,
    shown_version, due_at, claim, claimed, failures, direct, text_only, sent_at, refusals, wait_ms,
    set_aside)
SELECT id, job_id, role, state, channel, thread_ts, ts, version,
    shown_version, due_at, claim, claimed, failures, direct, text_only, sent_at, refusals, wait_ms,
    set_aside
FROM deliveries;
DROP TABLE deliveries;
ALTER TABLE deliveries_with_questions RENAME TO deliveries;
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_claimed ON deliveries (claimed) WHERE claimed = 1;
CREATE INDEX deliveries_set_aside ON deliveries (set_aside) WHERE set_aside = 1;

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
