-- A row while erased texts may still be readable in the file.
CREATE TABLE compactions (
    id            INTEGER PRIMARY KEY CHECK (id = 1)
);
-- Those of an older version, that ended before they were made unreadable.
INSERT INTO compactions (id) SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE erased = 1);
