-- For Home: a person's open jobs first, then the others, newest first.
CREATE INDEX jobs_of_home
    ON jobs (user_id, (CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END), created_at DESC);
