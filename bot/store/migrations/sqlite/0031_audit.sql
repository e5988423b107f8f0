-- Who did what: all that may cost money, shows something to others, or changes what people may do.
CREATE TABLE audit (
    id          INTEGER PRIMARY KEY,
    at          BIGINT NOT NULL,
    action      TEXT NOT NULL,
    user_id     TEXT,                     -- NULL: nobody did it
    job_id      TEXT,                     -- the job may be deleted before
    kind        TEXT,                     -- of the job
    detail      TEXT NOT NULL DEFAULT ''  -- such as a reason, in a person's words
);
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_of_job ON audit (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX audit_to_erase ON audit (at) WHERE detail <> '';
