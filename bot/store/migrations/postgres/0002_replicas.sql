-- What the service said of a replica when it was last read.
ALTER TABLE replicas ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN sought TEXT NOT NULL DEFAULT '';   -- the name, without capitals
ALTER TABLE replicas ADD COLUMN status TEXT NOT NULL DEFAULT '';   -- the service's own word
ALTER TABLE replicas ADD COLUMN verdict TEXT NOT NULL DEFAULT '';  -- '': it was never read
ALTER TABLE replicas ADD COLUMN reason TEXT NOT NULL DEFAULT '';   -- why it cannot be used
ALTER TABLE replicas ADD COLUMN read_at BIGINT;

-- The replica that is chosen beforehand in the create form of a channel.
CREATE TABLE channel_defaults (
    channel     TEXT PRIMARY KEY,
    replica_id  TEXT NOT NULL REFERENCES replicas (id)
);

-- The replica whose training a running video waits for.
ALTER TABLE jobs ADD COLUMN waits_for TEXT;
CREATE INDEX jobs_waiting ON jobs (waits_for) WHERE waits_for IS NOT NULL AND ended_at IS NULL;
