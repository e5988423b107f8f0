-- When Slack said that the app was uninstalled: nothing is sent until a token works again.
ALTER TABLE installation ADD COLUMN uninstalled_at BIGINT;
