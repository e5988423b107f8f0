-- Who chose that a share is posted, and where: it is a direct message to them if it is refused.
ALTER TABLE deliveries ADD COLUMN shared_by TEXT;
ALTER TABLE deliveries ADD COLUMN shared_to TEXT;
-- The Slack id of the submission that chose it: one share each.
ALTER TABLE deliveries ADD COLUMN request_key TEXT;
CREATE UNIQUE INDEX deliveries_by_request ON deliveries (request_key)
    WHERE request_key IS NOT NULL;
