"""What libpq does for a URL of PostgreSQL: encryption, several hosts."""

import ssl
from pathlib import Path
from typing import Final

import pytest

from bot.store import DatabaseError, DatabaseUnavailable
from bot.store.postgres.engine import PostgresDatabase
from tests.postgres_proxy import PostgresProxy
from tests.store.test_postgres_failures import add

# For 127.0.0.1, signed by itself, with its key.
_CERTIFICATE: Final = Path(__file__).parent.parent / "data" / "tls" / "loopback.pem"


async def test_a_connection_is_encrypted_and_verified_as_its_url_says(postgres_url: str) -> None:
    async with PostgresProxy(postgres_url).running() as proxy:
        with pytest.raises(DatabaseError, match="offers no encryption: switch it on there"):
            async with PostgresDatabase.open(f"{proxy.url}?sslmode=require"):
                pass  # the server offers none
        proxy.encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        proxy.encryption.load_cert_chain(_CERTIFICATE)
        verified = f"{proxy.url}?sslmode=verify-full&sslrootcert={_CERTIFICATE}"
        async with PostgresDatabase.open(verified) as database:
            assert await database.run(add) == 1
        other = _CERTIFICATE.with_name("missing.pem")
        with pytest.raises(DatabaseError, match="cannot be verified: set sslrootcert") as raised:
            async with PostgresDatabase.open(
                f"{proxy.url}?sslmode=verify-full&sslrootcert={other}"
            ):
                pass
        assert not isinstance(raised.value, DatabaseUnavailable), "no waiting helps"
