"""The database, on both engines."""
