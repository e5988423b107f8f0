-- No statement of the bot looks for what was done to one job: the export of a single request alone
-- does, and it may read the whole table.
DROP INDEX audit_of_job;
