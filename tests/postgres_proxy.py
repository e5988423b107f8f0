"""A proxy between the bot and a PostgreSQL server, which fails at chosen statements."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from enum import Enum
from urllib.parse import parse_qs, urlsplit

from tests.tcp import listening

_MAX_CHUNK = 1 << 16
# https://www.postgresql.org/docs/current/protocol-message-formats.html: SSLRequest
_ENCRYPT = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
# Of psycopg's prepared statements: Parse with name and text, and Bind with the name.
_PARSE = re.compile(rb"P....(_pg3_[0-9]+)\x00([^\x00]+)\x00", re.DOTALL)
_BIND = re.compile(rb"B....\x00(_pg3_[0-9]+)\x00", re.DOTALL)
# How an answer ends after which no transaction is open: ReadyForQuery with the status I. What only
# parses a COMMIT is answered with the status T.
_IDLE = b"Z\x00\x00\x00\x05I"


class Fault(Enum):
    """What happens to a statement."""

    CUT_BEFORE = "cut before"
    """The connection ends before the server has received it."""
    CUT_AFTER = "cut after"
    """The connection ends once the server has answered it, and before the answer arrives."""
    STALL = "stall"
    """Its answer never arrives, and the connection stays open."""


class Hold:
    """A statement is held back, or the answer to its commit, which the server has carried out."""

    def __init__(self, statement: str) -> None:
        self.statement = statement.encode()
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()


class PostgresProxy:
    """A proxy on a TCP port of this machine, for a server on a Unix socket."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        [folder] = parse_qs(parts.query)["host"]
        self._socket = f"{folder}/.s.PGSQL.5432"
        self._database = parts.path
        self._port = 0
        self._writers = set[asyncio.StreamWriter]()
        self._faults = list[tuple[bytes, Fault]]()
        self._holds = list[Hold]()
        self._held_statements = list[Hold]()
        self.encryption: ssl.SSLContext | None = None
        """With which to offer encryption."""
        self.connections = 0
        """How many were opened."""
        self.statements = list[bytes]()
        """Chunks of what was sent to the server."""
        self.is_away = False
        """Whether connections are cut as soon as they are opened."""

    @property
    def url(self) -> str:
        """The URL of the server's database, through the proxy."""
        return f"postgresql://postgres@127.0.0.1:{self._port}{self._database}"

    def fail_next(self, statement: str, fault: Fault) -> None:
        """Have the next statement fail that contains this text."""
        self._faults.append((statement.encode(), fault))

    def hold_commit_of(self, statement: str) -> Hold:
        """Hold back the answer to the next commit of a statement that contains this text."""
        self._holds.append(Hold(statement))
        return self._holds[-1]

    def hold(self, statement: str) -> Hold:
        """Hold back the next statement that contains this text."""
        self._held_statements.append(Hold(statement))
        return self._held_statements[-1]

    def cut_all(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["PostgresProxy"]:
        """Accept connections."""
        async with listening(self._serve, port=self._port) as self._port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_away:
            writer.transport.abort()
            return
        answers, server = await asyncio.open_unix_connection(self._socket)
        self._writers |= {writer, server}
        try:
            if self.encryption is not None:
                assert await reader.readexactly(len(_ENCRYPT)) == _ENCRYPT
                writer.write(b"S")
                await writer.start_tls(self.encryption)
            way = _Way()
            async with asyncio.TaskGroup() as back:
                back.create_task(self._pass_answers(answers, writer, way))
                await self._pass_statements(reader, server, way)
                if way.fault is Fault.CUT_BEFORE:
                    writer.transport.abort()
                server.close()
        finally:
            server.transport.abort()
            self._writers -= {writer, server}

    async def _pass_statements(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, way: "_Way"
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_MAX_CHUNK):
                text = way.spelled_out(chunk)
                self.statements.append(text)
                fault = way.fault = self._fault_of(text)
                self._note_hold(text, way)
                for hold in [each for each in self._held_statements if each.statement in text]:
                    self._held_statements.remove(hold)
                    hold.reached.set()
                    await hold.let_go.wait()
                if fault is Fault.CUT_BEFORE:
                    break
                server.write(chunk)

    async def _pass_answers(
        self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, way: "_Way"
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await answers.read(_MAX_CHUNK):
                if way.hold is not None and way.is_committing and chunk.endswith(_IDLE):
                    way.hold.reached.set()
                    await way.hold.let_go.wait()
                    way.hold = None
                if way.fault is Fault.CUT_AFTER:
                    writer.transport.abort()
                elif way.fault is not Fault.STALL:
                    writer.write(chunk)
            if way.fault is not Fault.STALL:
                writer.close()

    def _note_hold(self, chunk: bytes, way: "_Way") -> None:
        if way.hold is not None and b"ROLLBACK\x00" in chunk:
            # Its statement will come again, maybe over another connection.
            self._holds.append(way.hold)
            way.hold = None
        for hold in self._holds:
            if hold.statement in chunk:
                way.hold = hold
                self._holds.remove(hold)
                break
        way.is_committing = b"COMMIT\x00" in chunk

    def _fault_of(self, chunk: bytes) -> Fault | None:
        for at, (statement, fault) in enumerate(self._faults):
            if statement in chunk:
                del self._faults[at]
                return fault
        return None


class _Way:
    """What is known of one connection."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.hold: Hold | None = None
        self.is_committing = False
        self._prepared: dict[bytes, bytes] = {}

    def spelled_out(self, chunk: bytes) -> bytes:
        """Return what was sent, and the texts of the prepared statements that it names."""
        self._prepared |= dict(_PARSE.findall(chunk))
        named = [self._prepared.get(name, b"") for name in _BIND.findall(chunk)]
        return b"".join([chunk, *(text + b"\0" for text in named)])
