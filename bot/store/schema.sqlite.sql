-- All tables, as the first numbered migration finds them: bot/store/migrations/README.md says how
-- to change them. The file for the other engine differs from this one in few words.
--
-- A moment (its column ends in _at or _until) is in milliseconds since 1970, UTC; a duration (_ms)
-- in milliseconds. A flag is 0 or 1. What has more than one part is JSON. Ids of people, channels
-- and messages (ts) are Slack's. The words in state, role, failure, settled_as and verdict are
-- explained in bot/model.py. An index is named after its table and what looks through it.

-- ── Requests ──────────────────────────────────────────────────────────────────────────────────

-- One thing that a person asked for, once.
CREATE TABLE jobs (
    -- Written once, by the form that stores the job.
    id              TEXT PRIMARY KEY,
    request_key     TEXT NOT NULL UNIQUE,  -- Slack's id of the submission: one job for each
    kind            TEXT NOT NULL,         -- 'video' or 'replica'
    params          TEXT NOT NULL,         -- the form's values, an object of texts; see erased
    user_id         TEXT NOT NULL,         -- who asked
    channel         TEXT NOT NULL,         -- where the card goes
    thread_ts       TEXT,                  -- the thread it goes into, if any
    created_at      BIGINT NOT NULL,
    retry_of        TEXT REFERENCES jobs (id) ON DELETE SET NULL,  -- the failed job it retries
    fingerprint     TEXT,                  -- hash of what two equal requests share; NULL: none
    script_band     INTEGER,               -- length of the script, in doubling steps
    typical_ms      BIGINT,                -- median of recent jobs like it; NULL: too few
    slow_ms         BIGINT,                -- what 9 of 10 of them did not exceed; NULL: too few

    -- How far it is: written by the engine, and by people who cancel, stop or create again.
    state           TEXT NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,       -- create calls that were begun
    remote_id       TEXT,                             -- the service's id of what was created
    snapshot        TEXT,                             -- what the service said of it last
    waits_for       TEXT,                             -- remote id that has to be finished first
    started_at      BIGINT,                           -- when the service could begin
    late            INTEGER NOT NULL DEFAULT 0,       -- flag: longer than its schedule expects
    slow            INTEGER NOT NULL DEFAULT 0,       -- flag: longer than slow_ms
    missing_since   BIGINT,                           -- since when the service knows nothing of it
    orphaned_ids    TEXT NOT NULL DEFAULT '[]',       -- what earlier attempts made after all
    held_by         TEXT,                             -- the failure that holds its create call
    held_until      BIGINT,                           -- when the first try since then was due
    asked           INTEGER NOT NULL DEFAULT 0,       -- how often a person was asked, in vain
    asked_at        BIGINT,                           -- when a person was asked last
    failure         TEXT,                             -- why it failed
    reason          TEXT NOT NULL DEFAULT '',         -- the same, in others' words
    ended_at        BIGINT,                           -- once; NULL: it is open

    -- Its approval, written by the form and by who decides; all NULL where it needs none.
    approval_asked  TEXT,                             -- list: a channel's id, or those of people
    approval_until  BIGINT,
    decided_by      TEXT,
    decided_at      BIGINT,

    -- When it is worked on: written by each claim, release, callback and click.
    due_at          BIGINT,                           -- leave it alone until then; NULL: for good
    wait_ms         BIGINT NOT NULL DEFAULT 0,        -- how far ahead due_at was when it was set
    turn_at         BIGINT NOT NULL DEFAULT 0,        -- queued jobs are created in this order
    claim           INTEGER NOT NULL DEFAULT 0,       -- grows with each claim: the fencing token
    claimed         INTEGER NOT NULL DEFAULT 0,       -- flag: due_at is a lease
    failures        INTEGER NOT NULL DEFAULT 0,       -- calls in a row without a usable answer
    read_at         BIGINT,                           -- when it was polled last
    woken_at        BIGINT,                           -- when a poll was last asked for
    wake_at         BIGINT,                           -- due then: it was woken while claimed
    set_aside       INTEGER NOT NULL DEFAULT 0,       -- flag: unreadable, until the next start

    erased          INTEGER NOT NULL DEFAULT 0,       -- flag, by the sweep: params lost their texts
    copied          INTEGER NOT NULL DEFAULT 0        -- flag, by a backup: messages may be posted
);
-- For claims, with all that they look at.
CREATE INDEX jobs_due ON jobs (due_at, state, turn_at, id) WHERE due_at IS NOT NULL;
-- For a start, which ends the leases of the process before.
CREATE INDEX jobs_claimed ON jobs (claimed) WHERE claimed = 1;
-- For a start, which tries them again.
CREATE INDEX jobs_set_aside ON jobs (set_aside) WHERE set_aside = 1;
-- For limits, and for the turns of a person's waiting jobs.
CREATE INDEX jobs_open ON jobs (state, user_id, turn_at) WHERE ended_at IS NULL;
-- For lists of a person's jobs.
CREATE INDEX jobs_of_user ON jobs (user_id, kind, created_at);
-- For the videos that wait for a replica.
CREATE INDEX jobs_waiting ON jobs (waits_for) WHERE waits_for IS NOT NULL AND ended_at IS NULL;
-- One retry for each job.
CREATE UNIQUE INDEX jobs_retrying ON jobs (retry_of) WHERE retry_of IS NOT NULL;
-- For the same request, made before.
CREATE INDEX jobs_same ON jobs (fingerprint, created_at) WHERE fingerprint IS NOT NULL;
-- For typical durations, with all that is read: the rest of a row may be large.
CREATE INDEX jobs_finished ON jobs (kind, ended_at, started_at) WHERE state = 'succeeded';
CREATE INDEX jobs_finished_by_length ON jobs (kind, script_band, ended_at, started_at)
    WHERE state = 'succeeded';
-- For the sweep.
CREATE INDEX jobs_to_erase ON jobs (ended_at) WHERE erased = 0 AND ended_at IS NOT NULL;
CREATE INDEX jobs_to_delete ON jobs (ended_at) WHERE erased = 1 AND due_at IS NULL;

-- One create call that may have cost money. Written by the engine before the call, then with what
-- came of it.
CREATE TABLE attempts (
    id              INTEGER PRIMARY KEY,
    job_id          TEXT NOT NULL REFERENCES jobs (id),
    user_id         TEXT NOT NULL DEFAULT '',   -- who pays for it in limits and sums
    kind            TEXT NOT NULL,
    token_hash      TEXT NOT NULL UNIQUE,       -- SHA-256 of the token in its callback_url
    made_at         BIGINT NOT NULL,            -- when it was begun
    spoken_ms       BIGINT,                     -- about how long its script takes to speak
    outcome         TEXT,                       -- 'created', 'uncertain', a failure; NULL: none yet
    remote_id       TEXT,                       -- what it made
    candidate_id    TEXT,                       -- what it may have made: named by somebody
    user_supplied   INTEGER NOT NULL DEFAULT 0, -- flag: by a person, not by a callback
    named_by        TEXT,                       -- who
    named_at        BIGINT,
    UNIQUE (kind, remote_id)                    -- what the service made belongs to one attempt
);
CREATE INDEX attempts_of_job ON attempts (job_id);
-- For other attempts with an id, in whatever case it is written.
CREATE INDEX attempts_of_remote_id ON attempts (lower(remote_id)) WHERE remote_id IS NOT NULL;
CREATE INDEX attempts_with_candidate ON attempts (lower(candidate_id))
    WHERE candidate_id IS NOT NULL;
-- For limits and sums: those that may have cost money, of a person and of all.
CREATE INDEX attempts_charged_to_user ON attempts (user_id, made_at)
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'));
CREATE INDEX attempts_charged ON attempts (made_at)
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'));

-- ── Messages ──────────────────────────────────────────────────────────────────────────────────

-- The outbox: the messages that the bot owes. Written with what owes them, then by the messenger.
CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY,
    job_id          TEXT NOT NULL REFERENCES jobs (id),
    role            TEXT NOT NULL,
    number          INTEGER NOT NULL DEFAULT 0, -- from 1 where a job has several of a role, else 0
    state           TEXT NOT NULL,
    channel         TEXT NOT NULL,
    thread_ts       TEXT,
    ts              TEXT,                       -- Slack's id of the message, once it is posted
    file_id         TEXT,                       -- Slack's id of a file, before it is shared
    addressee       TEXT,                       -- gets it directly, if not who asked
    direct          INTEGER NOT NULL DEFAULT 0, -- flag: goes to a person, not to the channel
    rewrites        INTEGER NOT NULL DEFAULT 0, -- how often Slack refused its form
    version         INTEGER NOT NULL DEFAULT 1, -- grows with each change to show
    shown_version   INTEGER NOT NULL DEFAULT 0, -- what of it the message says
    settled_as      TEXT,                       -- how a question was settled; NULL: it is open
    settled_by      TEXT,                       -- who settled it; NULL: nobody did

    -- When it is worked on, as in jobs.
    due_at          BIGINT,
    wait_ms         BIGINT NOT NULL DEFAULT 0,
    claim           INTEGER NOT NULL DEFAULT 0,
    claimed         INTEGER NOT NULL DEFAULT 0,
    failures        INTEGER NOT NULL DEFAULT 0, -- calls in a row that found Slack out of reach
    refusals        INTEGER NOT NULL DEFAULT 0, -- refusals in a row with nowhere else to send it
    sent_at         BIGINT,                     -- when the last post was begun
    set_aside       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (job_id, role, number)
);
-- For claims; posts go before edits.
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_to_post ON deliveries (role, due_at)
    WHERE due_at IS NOT NULL AND state <> 'posted';
-- For a start, as in jobs.
CREATE INDEX deliveries_claimed ON deliveries (claimed) WHERE claimed = 1;
CREATE INDEX deliveries_set_aside ON deliveries (set_aside) WHERE set_aside = 1;

-- Messages to the bot that it has answered with help: Slack may report one more than once.
CREATE TABLE answered_messages (
    channel         TEXT NOT NULL,
    ts              TEXT NOT NULL,
    answered_at     BIGINT NOT NULL,
    PRIMARY KEY (channel, ts)
);
-- For the sweep.
CREATE INDEX answered_messages_by_time ON answered_messages (answered_at);

-- ── Replicas ──────────────────────────────────────────────────────────────────────────────────

-- What the picker shows: replicas that people added, used or trained, or that the service lists.
CREATE TABLE replicas (
    id              TEXT PRIMARY KEY,           -- the service's
    name            TEXT NOT NULL DEFAULT '',
    search_name     TEXT NOT NULL DEFAULT '',   -- the name, without capitals
    status          TEXT NOT NULL DEFAULT '',   -- the service's own word
    verdict         TEXT NOT NULL DEFAULT '',   -- what that means; '': it was never read
    reason          TEXT NOT NULL DEFAULT '',   -- why it cannot be used
    read_at         BIGINT,                     -- when the service was last asked for it
    used_at         BIGINT NOT NULL,            -- when a video was last made with it
    listed_at       BIGINT,                     -- when the list last had it; NULL: not from there
    revision        BIGINT NOT NULL DEFAULT 0   -- the one that changed it last
);
-- For processes that read what has changed.
CREATE INDEX replicas_revision ON replicas (revision);

-- The replica that is chosen beforehand in the create form of a channel.
CREATE TABLE channel_defaults (
    channel         TEXT PRIMARY KEY,
    replica_id      TEXT NOT NULL REFERENCES replicas (id)
);

-- Grows with each change of a cached table: a process reads again what has changed since.
CREATE TABLE revisions (
    name            TEXT PRIMARY KEY,           -- of the table
    revision        BIGINT NOT NULL
);
INSERT INTO revisions (name, revision) VALUES ('replicas', 0);

-- When the service is to be asked for a list next: by one process.
CREATE TABLE lists (
    kind            TEXT PRIMARY KEY,
    due_at          BIGINT NOT NULL
);

-- ── Limits, sums, and who did what ────────────────────────────────────────────────────────────

-- What admins have changed of the limits: where there is no row, the setting counts.
CREATE TABLE limit_changes (
    name            TEXT PRIMARY KEY,           -- of the setting, such as 'MAX_PER_DAY'
    value           TEXT NOT NULL,              -- as it would stand there
    changed_by      TEXT NOT NULL,
    changed_at      BIGINT NOT NULL
);

-- Rows that a transaction locks to be the only one that does something.
CREATE TABLE locks (
    name            TEXT PRIMARY KEY
);
INSERT INTO locks (name) VALUES ('limits');

-- What the attempts of deleted jobs add to the sums of their months. Written by the sweep.
CREATE TABLE spending (
    month           TEXT NOT NULL,              -- of UTC, such as '2026-11'
    user_id         TEXT NOT NULL,
    kind            TEXT NOT NULL,
    created         BIGINT NOT NULL,            -- attempts that may have cost money
    spoken_ms       BIGINT NOT NULL,
    PRIMARY KEY (month, user_id, kind)
);

-- Who did what: all that may cost money, shows something to others, or changes what people may do.
-- Written in the transaction that does it.
CREATE TABLE audit (
    id              INTEGER PRIMARY KEY,
    at              BIGINT NOT NULL,
    action          TEXT NOT NULL,
    user_id         TEXT,                       -- NULL: nobody did it
    job_id          TEXT,                       -- the job may be deleted before
    kind            TEXT,                       -- of the job
    detail          TEXT NOT NULL DEFAULT ''    -- such as a reason, in a person's words
);
-- For the sweep, which erases details, then deletes rows.
CREATE INDEX audit_to_erase ON audit (at) WHERE detail <> '';
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_of_job ON audit (job_id) WHERE job_id IS NOT NULL;
-- For the last changes of limits, among much else.
CREATE INDEX audit_of_limits ON audit (action, at, id)
    WHERE action = 'limit_changed' AND detail <> '';

-- ── The installation ──────────────────────────────────────────────────────────────────────────

-- The workspace and the app that the database belongs to: one row, once Slack has said so.
CREATE TABLE installation (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    team_id         TEXT NOT NULL,
    enterprise_id   TEXT,                       -- of an organisation on Enterprise Grid
    app_id          TEXT,                       -- NULL without the scope that says it
    uninstalled_at  BIGINT                      -- since then nothing is sent; NULL: it is there
);

-- A row while erased texts may still be readable in the file. Written by the sweep.
CREATE TABLE compactions (
    id              INTEGER PRIMARY KEY CHECK (id = 1)
);
