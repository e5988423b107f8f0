-- Ended jobs are deleted some time after their texts were erased.
CREATE INDEX jobs_to_delete ON jobs (ended_at) WHERE erased = 1 AND due_at IS NULL;
