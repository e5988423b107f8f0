-- How the video service's answers differed from its interface: few rows, counted now and then.
CREATE TABLE drift (
    kind          TEXT NOT NULL,
    what          TEXT NOT NULL,     -- such as "new_field"
    field         TEXT NOT NULL,     -- its name, or an unknown status; "" for a whole answer
    count         BIGINT NOT NULL,
    first_at      BIGINT NOT NULL,
    last_at       BIGINT NOT NULL,
    PRIMARY KEY (kind, what, field)
);
CREATE INDEX drift_by_time ON drift (last_at);
