-- No statement of the bot looks for what was done to one job: the export of a single request alone
-- does, and it may read the whole table. All other indexes are used where rows are many.
DROP INDEX audit_of_job;
