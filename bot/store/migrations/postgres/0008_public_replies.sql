-- Flag: it was posted in a public channel, and says that something was made.
ALTER TABLE deliveries ADD COLUMN public INTEGER NOT NULL DEFAULT 0;
-- For a search among the newest.
CREATE INDEX deliveries_public ON deliveries (id) WHERE public = 1;
