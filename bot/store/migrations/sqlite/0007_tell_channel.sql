-- Flag: the closing reply is shown in the channel too, when what was asked for is ready.
ALTER TABLE jobs ADD COLUMN tell_channel INTEGER NOT NULL DEFAULT 0;
