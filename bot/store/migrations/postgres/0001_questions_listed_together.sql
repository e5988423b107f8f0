-- The question in whose message this one is listed: it has none of its own. NULL: it has one.
ALTER TABLE deliveries ADD COLUMN listed_in BIGINT REFERENCES deliveries (id) ON DELETE SET NULL;
-- For what a message lists.
CREATE INDEX deliveries_listed ON deliveries (listed_in) WHERE listed_in IS NOT NULL;
-- For questions: two that come at once would both find no message that could list them.
INSERT INTO locks (name) VALUES ('questions');
