-- A row that cannot be read: no worker claims it before the next start.
ALTER TABLE jobs ADD COLUMN set_aside INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN set_aside INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_set_aside ON jobs (set_aside) WHERE set_aside = 1;
CREATE INDEX deliveries_set_aside ON deliveries (set_aside) WHERE set_aside = 1;
