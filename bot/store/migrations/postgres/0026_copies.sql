-- A job that was in a backup when that was made: its messages may have been posted since.
ALTER TABLE jobs ADD COLUMN copied INTEGER NOT NULL DEFAULT 0;
