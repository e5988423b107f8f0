-- An id is looked up alone: the kind is compared afterwards.
DROP INDEX attempts_of_remote_id;
DROP INDEX attempts_with_candidate;
CREATE INDEX attempts_of_remote_id ON attempts (lower(remote_id)) WHERE remote_id IS NOT NULL;
CREATE INDEX attempts_with_candidate ON attempts (lower(candidate_id))
    WHERE candidate_id IS NOT NULL;
