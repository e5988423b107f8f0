"""All that concerns PostgreSQL alone. What it is made with is an extra."""

from bot.store.database import DatabaseError

try:
    import psycopg  # noqa: F401
except ImportError as error:
    raise DatabaseError(
        "PostgreSQL needs psycopg, which is not installed: install it with all that "
        "requirements-postgres.txt lists (.venv/bin/pip install --require-hashes "
        "--requirement requirements-postgres.txt)"
    ) from error
