-- How much people asked for, in each calendar day and month (UTC): what limits look at, and what
-- admins see. Written in the transaction that stores a job, and in the one that ends it where
-- certainly nothing was charged. Days go after a while, months stay.
CREATE TABLE usage (
    who             TEXT NOT NULL,              -- a person; '' for the whole workspace
    period          TEXT NOT NULL,              -- '2026-11-24' or '2026-11'
    videos          BIGINT NOT NULL,            -- create calls of all kinds but trainings
    spoken_ms       BIGINT NOT NULL,            -- about how long their scripts take to speak; not in
                                                -- minutes: most scripts take less than one
    trainings       BIGINT NOT NULL,
    changed_at      BIGINT NOT NULL,            -- for processes that read what has changed
    PRIMARY KEY (period, who)
);
-- The day in which the create call is counted that a job waits for, or makes now. Once that is made
-- or may have been made, nothing is given back.
ALTER TABLE jobs ADD COLUMN counted_on TEXT;
-- The revision of limit_changes.
INSERT INTO revisions (name, revision) VALUES ('limits', 0);

-- What is there already. The spoken time of what waits was stored nowhere: it is left out.
UPDATE jobs SET counted_on = to_char(to_timestamp(created_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
WHERE ended_at IS NULL AND state IN ('queued', 'waiting_for_approval');
UPDATE jobs SET counted_on = (
    SELECT to_char(to_timestamp(max(made_at) / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM attempts
    WHERE job_id = jobs.id AND outcome IS NULL)
WHERE ended_at IS NULL AND state = 'creating';
CREATE TABLE counted (who TEXT, period TEXT, kind TEXT, created BIGINT, spoken_ms BIGINT);
INSERT INTO counted
SELECT user_id, to_char(to_timestamp(made_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), kind, 1,
    coalesce(spoken_ms, 0)
FROM attempts WHERE outcome IS NULL OR outcome IN ('created', 'uncertain');
INSERT INTO counted
SELECT user_id, counted_on, kind, 1, 0 FROM jobs
WHERE ended_at IS NULL AND state IN ('queued', 'waiting_for_approval');
INSERT INTO counted SELECT user_id, month, kind, created, spoken_ms FROM spending;
INSERT INTO usage (who, period, videos, spoken_ms, trainings, changed_at)
SELECT who, period, sum(CASE WHEN kind = 'replica' THEN 0 ELSE created END), sum(spoken_ms),
    sum(CASE WHEN kind = 'replica' THEN created ELSE 0 END), 0
FROM (
    SELECT who, period, kind, created, spoken_ms FROM counted WHERE length(period) > 7
    UNION ALL SELECT '', period, kind, created, spoken_ms FROM counted WHERE length(period) > 7
    UNION ALL SELECT who, substr(period, 1, 7), kind, created, spoken_ms FROM counted
    UNION ALL SELECT '', substr(period, 1, 7), kind, created, spoken_ms FROM counted
) AS each_period
WHERE period IS NOT NULL GROUP BY who, period;
DROP TABLE counted;
DROP TABLE spending;
DROP INDEX attempts_charged_to_user;
DROP INDEX attempts_charged;
