-- The person whose face it is. NULL: nobody owns it yet.
ALTER TABLE replicas ADD COLUMN owner TEXT;
-- What it is called here. NULL: what the service calls it.
ALTER TABLE replicas ADD COLUMN own_name TEXT;
-- 1: what somebody else asks for with it needs its owner's approval.
ALTER TABLE replicas ADD COLUMN asks_owner INTEGER NOT NULL DEFAULT 0;
-- 1: its owner is not told in messages what is made with it.
ALTER TABLE replicas ADD COLUMN muted INTEGER NOT NULL DEFAULT 0;
-- When it was removed here. It stays, so that it stays removed.
ALTER TABLE replicas ADD COLUMN removed_at BIGINT;
-- For submissions: an id may be written in another case.
CREATE INDEX replicas_kept ON replicas (lower(id))
    WHERE owner IS NOT NULL OR removed_at IS NOT NULL;
-- The owner of the replica that a job uses or trains, if somebody else asked for it.
ALTER TABLE jobs ADD COLUMN owner TEXT;
-- 1: the approval that it waits for is the owner's.
ALTER TABLE jobs ADD COLUMN asks_owner INTEGER NOT NULL DEFAULT 0;
-- For what was made with a person's face.
CREATE INDEX jobs_of_owner ON jobs (owner, created_at) WHERE owner IS NOT NULL;
-- Of a notice about what was made in a day: the number of that day. NULL for all else.
ALTER TABLE deliveries ADD COLUMN day BIGINT;
-- A person is told at most once about a day.
CREATE UNIQUE INDEX deliveries_of_day ON deliveries (day, addressee) WHERE day IS NOT NULL;

-- Who asked for a training has confirmed the consent: they own what there is already.
UPDATE replicas SET owner = (
    SELECT jobs.user_id FROM attempts JOIN jobs ON jobs.id = attempts.job_id
    WHERE lower(attempts.remote_id) = lower(replicas.id) AND attempts.kind = 'replica'
        AND attempts.remote_id IS NOT NULL
);
