-- How often a message was refused where nowhere else is left to send it: waits do not count.
ALTER TABLE deliveries ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;
