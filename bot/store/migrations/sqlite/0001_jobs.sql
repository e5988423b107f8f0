-- Times are milliseconds since 1970, UTC. Values of more than one part are JSON.

CREATE TABLE jobs (
    id          TEXT PRIMARY KEY,
    request_key TEXT NOT NULL UNIQUE,  -- one job per submission
    kind        TEXT NOT NULL,
    params      TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    channel     TEXT NOT NULL,
    thread_ts   TEXT,
    created_at  BIGINT NOT NULL,
    state       TEXT NOT NULL,
    due_at      BIGINT,                -- leave it alone until then; NULL: for good
    claim       INTEGER NOT NULL DEFAULT 0,
    claimed     INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    remote_id   TEXT,
    snapshot    TEXT,
    failure     TEXT,
    reason      TEXT NOT NULL DEFAULT '',
    late        INTEGER NOT NULL DEFAULT 0,
    usual       BIGINT,
    started_at  BIGINT,
    read_at     BIGINT,
    woken_at    BIGINT,
    asked_at    BIGINT,
    asked       INTEGER NOT NULL DEFAULT 0,
    strays      TEXT NOT NULL DEFAULT '[]',
    ended_at    BIGINT,
    erased      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_of_user ON jobs (user_id, kind, created_at);
CREATE INDEX jobs_done ON jobs (kind, ended_at) WHERE state = 'succeeded';
CREATE INDEX jobs_to_erase ON jobs (ended_at) WHERE erased = 0 AND ended_at IS NOT NULL;

-- One create call that may have cost money.
CREATE TABLE attempts (
    id          INTEGER PRIMARY KEY,
    job_id      TEXT NOT NULL REFERENCES jobs (id),
    kind        TEXT NOT NULL,
    token_hash  TEXT NOT NULL UNIQUE,  -- of the token in its callback_url
    made_at     BIGINT NOT NULL,
    outcome     TEXT,                  -- NULL: under way, or cut off
    remote_id   TEXT,
    hint        TEXT,
    vouched     INTEGER NOT NULL DEFAULT 0,  -- a person gave the hint, no callback
    UNIQUE (kind, remote_id)           -- what the service made belongs to one attempt
);
CREATE INDEX attempts_of_job ON attempts (job_id);

-- The outbox.
CREATE TABLE deliveries (
    id          INTEGER PRIMARY KEY,
    job_id      TEXT NOT NULL REFERENCES jobs (id),
    role        TEXT NOT NULL,
    posting     TEXT NOT NULL,
    channel     TEXT NOT NULL,
    thread_ts   TEXT,
    ts          TEXT,
    wanted      INTEGER NOT NULL DEFAULT 1,
    shown       INTEGER NOT NULL DEFAULT 0,
    due_at      BIGINT,
    claim       INTEGER NOT NULL DEFAULT 0,
    claimed     INTEGER NOT NULL DEFAULT 0,
    failures    INTEGER NOT NULL DEFAULT 0,
    direct      INTEGER NOT NULL DEFAULT 0,
    plain       INTEGER NOT NULL DEFAULT 0,
    sent_at     BIGINT,
    UNIQUE (job_id, role)
);
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;

-- The replicas that a create call of this workspace was accepted with.
CREATE TABLE replicas (
    id          TEXT PRIMARY KEY,
    used_at     BIGINT NOT NULL
);
CREATE INDEX replicas_used ON replicas (used_at);
