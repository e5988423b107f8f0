-- Run once in a database that was restored, before a bot starts on it: what was done after the copy
-- was made must not be done twice. `:now` is in milliseconds. It is the same for both engines, and
-- has a semicolon only at the end of each statement.

-- A job that waits to be created may have been created since: its create call has begun, as after a
-- kill. What that made is found out by asking, and no token has this hash.
INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at)
SELECT id, user_id, kind, 'restored ' || id || ' ' || attempts, :now
FROM jobs WHERE state = 'queued';

UPDATE jobs SET state = 'creating', attempts = attempts + 1, claim = claim + 1, claimed = 0,
    wait_ms = 0, due_at = CASE WHEN set_aside = 0 THEN 0 END
WHERE state = 'queued';

-- What waited to be posted may have been posted since, and so may replies to what runs: the bot
-- looks for them before it posts any.
UPDATE jobs SET copied = 1 WHERE ended_at IS NULL OR id IN (
    SELECT job_id FROM deliveries WHERE state IN ('pending', 'sending', 'uncertain'));

UPDATE deliveries SET sent_at = NULL WHERE state = 'pending';

-- A file without an id cannot be looked for. Its reply says where the whole text is.
UPDATE deliveries SET state = 'undeliverable', due_at = NULL, claim = claim + 1, claimed = 0
WHERE role IN ('transcript', 'clip') AND state = 'pending' AND file_id IS NULL;

-- What is posted is edited: it says again what is true then, and a question has its buttons.
UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, 0)
WHERE state = 'posted' AND set_aside = 0 AND settled_as IS NULL
    AND role IN ('card', 'question', 'approval')
    AND job_id IN (SELECT id FROM jobs WHERE ended_at IS NULL);

-- So is what may list a question that is open, whether or not its own one is. An older version may
-- have made the database, without the column that says where one is listed.
UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, 0)
WHERE state = 'posted' AND set_aside = 0 AND role = 'question' AND job_id IN (
    SELECT other.id FROM deliveries AS listed JOIN jobs AS own ON own.id = listed.job_id
    JOIN jobs AS other ON other.user_id = own.user_id AND other.channel = own.channel
    WHERE listed.state = 'listed' AND listed.settled_as IS NULL);
