"""The PostgreSQL server of the tests ends with the last process that uses it."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres_server
from tests.postgres import database_url
from tests.postgres_server import NoServer, Server

_TIMEOUT_S: Final = 30.0
_USER: Final = """
import sys
from pathlib import Path
from tests.postgres_server import shared_server
print(shared_server(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def _user(among: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _USER, str(among)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_share_a_server_that_ends_once_all_of_them_were_killed(tmp_path: Path) -> None:
    with _user(tmp_path) as first, _user(tmp_path) as second:
        assert first.stdout is not None
        assert second.stdout is not None
        url = first.stdout.readline().strip()
        assert second.stdout.readline().strip() == url
        folder = Path(json.loads((tmp_path / "postgres.json").read_text())[0])
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        first.kill()
        first.wait()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        second.kill()
    until = time.monotonic() + _TIMEOUT_S
    while (folder.exists() or _is_alive(server)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not folder.exists()
    assert not _is_alive(server)


def test_a_server_whose_keeper_is_asked_to_end_ends_too(memory: Path) -> None:
    command = [sys.executable, "-m", postgres_server.__name__, str(memory)]
    (memory / "users").touch()
    with (memory / "users").open() as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
            assert keeper.stdout is not None
            assert "url" in json.loads(keeper.stdout.readline())
            server = int((memory / "data" / "postmaster.pid").read_text().split()[0])
            keeper.terminate()
    assert not _is_alive(server)
    assert not memory.exists()


def test_without_the_server_that_the_requirements_bring_a_test_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "_WHEEL", "no_such_wheel")
    with pytest.raises(NoServer, match=r"install what requirements-dev\.txt lists"):
        Server(tmp_path).create()


def test_a_test_finds_nothing_that_another_one_left_in_its_database() -> None:
    with database_url() as url, psycopg.connect(url) as connection:
        before = connection.execute("SELECT * FROM callback_probe").fetchall()
        connection.execute("INSERT INTO replicas (id, used_at) VALUES ('r-1', 0)")
        connection.execute("UPDATE revisions SET revision = 7")
        connection.execute("UPDATE callback_probe SET token = 'another'")
    with database_url() as again, psycopg.connect(again) as connection:
        assert again == url
        assert connection.execute("SELECT * FROM replicas").fetchall() == []
        assert connection.execute("SELECT revision FROM revisions").fetchall() == [(0,)]
        assert connection.execute("SELECT * FROM callback_probe").fetchall() == before
        connection.execute("ALTER TABLE replicas ADD COLUMN other TEXT")
    with database_url() as new:
        assert new != url
