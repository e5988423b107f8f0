-- The last changes of limits, among much else. SQLite takes it for the equality of its first column.
CREATE INDEX audit_of_limits ON audit (action, at, id) WHERE action = 'limit_changed' AND detail <> '';
