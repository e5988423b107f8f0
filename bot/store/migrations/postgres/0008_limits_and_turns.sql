-- Whose create call it was: limits count those of the last 24 hours that may have cost money.
ALTER TABLE attempts ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
UPDATE attempts SET user_id = (SELECT user_id FROM jobs WHERE jobs.id = attempts.job_id);
CREATE INDEX attempts_charged_to_user ON attempts (user_id, made_at)
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'));
CREATE INDEX attempts_charged ON attempts (made_at)
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'));

-- Rows that a transaction locks to be the only one that does something.
CREATE TABLE locks (
    name        TEXT PRIMARY KEY
);
INSERT INTO locks (name) VALUES ('limits');

-- Queued jobs are created in this order, so that everybody's first comes before anybody's second.
ALTER TABLE jobs ADD COLUMN turn_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX jobs_open ON jobs (state, user_id, turn_at) WHERE ended_at IS NULL;

-- With all that a claim looks at, so that it reads only the rows that it takes.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (due_at, state, turn_at, id) WHERE due_at IS NOT NULL;
