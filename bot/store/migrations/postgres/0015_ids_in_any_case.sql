-- An id is found in whatever case it is written; two that differ in nothing else are one.
CREATE INDEX attempts_of_remote_id ON attempts (kind, lower(remote_id)) WHERE remote_id IS NOT NULL;
CREATE INDEX attempts_with_candidate ON attempts (kind, lower(candidate_id))
    WHERE candidate_id IS NOT NULL;
