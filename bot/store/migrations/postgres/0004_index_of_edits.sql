-- For claims: edits apart from posts, of which thousands may be due.
CREATE INDEX deliveries_to_edit ON deliveries (due_at)
    WHERE due_at IS NOT NULL AND state = 'posted';
