-- Posts that are due are found by role, without reading the edits that are due.
CREATE INDEX deliveries_to_post ON deliveries (role, due_at)
    WHERE due_at IS NOT NULL AND state <> 'posted';
