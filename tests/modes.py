"""The ways in which a bot can run, for tests that run in several of them."""

from typing import Final

import pytest

HTTP: Final = "HTTP"
SOCKET_MODE: Final = "Socket Mode"
SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
#: Runs a test, or those of a file, in both modes; what starts no bot runs once.
in_both_modes: Final = pytest.mark.in_both_modes
#: Runs a test, or those of a file, on SQLite and on PostgreSQL; what starts no bot runs once.
on_both_engines: Final = pytest.mark.on_both_engines
#: Runs a test, or those of a file, on SQLite alone, also with ``--database postgres``: it is about
#: the file.
on_sqlite_alone: Final = pytest.mark.on_sqlite_alone
#: Has the bot of the fixture ``world`` run with these settings; ``{ben}`` stands for Ben's id.
bot_with: Final = pytest.mark.bot_with
