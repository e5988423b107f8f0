-- Replicas are sought in memory: nobody reads this, and each use of a replica wrote it.
DROP INDEX replicas_used;
