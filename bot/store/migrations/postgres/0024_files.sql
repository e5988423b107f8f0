-- Slack's id of a file whose content is there, stored before the file is shared.
ALTER TABLE deliveries ADD COLUMN file_id TEXT;
