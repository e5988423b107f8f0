-- A reply that waits for its card has no time of its own: whoever claims what is due never meets it.
UPDATE deliveries SET due_at = NULL WHERE role = 'reply' AND posting = 'owed' AND job_id IN (
    SELECT job_id FROM deliveries WHERE role = 'card' AND posting NOT IN ('posted', 'lost'));

-- What the process before this one had in hand is found without a look at all that is open.
CREATE INDEX jobs_claimed ON jobs (claimed) WHERE claimed = 1;
CREATE INDEX deliveries_claimed ON deliveries (claimed) WHERE claimed = 1;
