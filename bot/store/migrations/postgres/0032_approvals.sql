-- Whom a job was asked of that needs approval (JSON, the id of a channel or those of people), until
-- when, and who decided; all NULL for others.
ALTER TABLE jobs ADD COLUMN approval_asked TEXT;
ALTER TABLE jobs ADD COLUMN approval_until BIGINT;
ALTER TABLE jobs ADD COLUMN decided_by TEXT;
ALTER TABLE jobs ADD COLUMN decided_at BIGINT;
-- Who gets a message directly that is for another person than who asked or shared.
ALTER TABLE deliveries ADD COLUMN addressee TEXT;
