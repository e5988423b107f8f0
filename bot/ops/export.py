"""Writes what people asked for, did and used as CSV or JSON, beside a bot that may be running."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Final

from bot.errors import OperatorError
from bot.links import only_hosts
from bot.store.database import (
    DatabaseError,
    Query,
    Row,
    RowUnreadable,
    from_ms,
)
from bot.store.due import number, optional_text, reading, text
from bot.store.engines import open_snapshot
from bot.store.job_rows import job_from

Record = dict[str, str | int | bool | None]
"""A line of an export. Times are ISO 8601, UTC."""

COLUMNS: Final = {
    "requests": (
        *("job", "kind", "state", "failure", "reason", "user", "channel", "asked_at"),
        *("started_at", "ended_at", "remote_id", "name", "replica_id", "create_calls", "charged"),
        *("spoken_seconds", "retry_of", "erased"),
    ),
    "audit": ("at", "action", "user", "job", "kind", "detail"),
    "usage": ("month", "user", "kind", "created", "spoken_seconds"),
}
"""What is exported, and its columns. What reads one goes by their names: new ones come last."""

_CHARGED: Final = "(outcome IS NULL OR outcome IN ('created', 'uncertain'))"
# A join: without statistics, as after a restore, PostgreSQL reads a subquery's table for each job.
_REQUESTS: Final = f"""
    SELECT jobs.*, coalesce(charges.charged, 0) AS charged, charges.spoken_ms
    FROM jobs LEFT JOIN (
        SELECT job_id, count(*) AS charged, sum(spoken_ms) AS spoken_ms
        FROM attempts WHERE {_CHARGED} GROUP BY job_id
    ) AS charges ON charges.job_id = jobs.id
    {{where}} ORDER BY created_at, id
"""  # noqa: S608 - the condition is ours
# That somebody asked for a request, its own row says: an older version recorded it here too.
_AUDIT: Final = """
    SELECT * FROM (
        SELECT at, 1 AS place, id, action, user_id, job_id, kind, detail
        FROM audit WHERE action NOT IN ('asked', 'retried')
        UNION ALL
        SELECT created_at, 0, 0, CASE WHEN retry_of IS NULL THEN 'asked' ELSE 'retried' END,
            user_id, id, kind, coalesce(retry_of, '') FROM jobs
    ) AS acts {where} ORDER BY at, place, id, job_id
"""
_USAGE: Final = """
    SELECT period, who, 'replica' AS kind, trainings AS created, 0 AS spoken_ms FROM usage
    WHERE who <> '' AND length(period) = 7 AND trainings > 0
    UNION ALL SELECT period, who, 'video', videos, spoken_ms FROM usage
    WHERE who <> '' AND length(period) = 7 AND videos > 0
    ORDER BY period, who, kind
"""
# What makes a spreadsheet run the text of a cell: one of these signs, also in full width or small,
# at its beginning or after what may separate cells, which depends on the language of the machine.
# Spaces, invisible characters and quotation marks before it may be passed over.
# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA: Final = re.compile(
    r"""((?:^|[;|\t\n])[;|\s"\u200b-\u200f\u2060\ufeff]*+)"""
    r"([=+\-@\uff1d\uff0b\uff0d\uff20\ufe62\ufe63\ufe66\ufe6b\u2212]?)"
)
_TOLD_RECORDS: Final = 1000
# What a terminal may obey: people and the service choose names and reasons.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def export(
    address: Path | str,
    what: str,
    format_: str,
    job: str | None,
    to: IO[str],
    *,
    progress: Callable[[str], object] = str,
) -> int:
    """Write one of ``COLUMNS`` as "csv" or "json", record by record; return how many.

    Args:
        address: the database.
        what: which.
        format_: how it is written.
        job: the id of the only request that it is about.
        to: what it is written to.
        progress: is told how far it is, again and again.

    Raises:
        OperatorError: the database cannot be read, or has no such request; it says what to do.
    """
    select, column, read = _EXPORTS[what]
    if job is not None and not column:
        raise OperatorError("Usage is of a person and a month: leave --job out.")
    query, values = Query(select.format(where="")), {}
    if job is not None:
        query, values = Query(select.format(where=f"WHERE {column} = :job")), {"job": job}
    with open_snapshot(address) as snapshot:
        if snapshot.pending:
            raise DatabaseError(
                "the database of DATABASE_URL does not have the tables of this version: check that "
                "it is the bot's, and start the bot of this version on it."
            )
        rows: Iterable[Row] = snapshot.all(query, **values)
        if job is not None and not (rows := list(rows)):
            raise OperatorError(f"There is no request {job}. Old ones are deleted.")
        records = _records(rows, read, progress)
        write = write_json if format_ == "json" else partial(write_csv, columns=COLUMNS[what])
        count = write(records, to)
    to.flush()
    return count


def _records(
    rows: Iterable[Row], read: Callable[[Row], Record], progress: Callable[[str], object]
) -> Iterator[Record]:
    """Yield the records of rows; say at the end how many rows are damaged."""
    damaged = 0
    for count, row in enumerate(rows, 1):
        if count % _TOLD_RECORDS == 0:
            progress(f"exporting: {count:,}")
        try:
            yield read(row)
        except RowUnreadable:
            damaged += 1
    if damaged:
        said = "1 row is" if damaged == 1 else f"{damaged:,} rows are"
        print(f"{said} damaged and left out: python -m bot doctor says more.", file=sys.stderr)


def write_csv(records: Iterable[Record], to: IO[str], columns: Sequence[str]) -> int:
    """Write records as CSV, with a header; return how many.

    No cell is a formula: a sign that would begin one has a "'" before it. No cell controls a
    terminal.
    """
    count, writer = 0, csv.DictWriter(to, columns, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _cell(value) for name, value in record.items()})
        count += 1
    return count


def write_json(records: Iterable[Record], to: IO[str]) -> int:
    """Write records as one JSON array, each on a line of its own; return how many."""
    count = 0
    for count, record in enumerate(records, 1):
        to.write(("[\n" if count == 1 else ",\n") + json.dumps(record))
    to.write("\n]\n" if count else "[]\n")
    return count


def _cell(value: str | int | bool | None) -> str | int | None:  # noqa: FBT001 - a value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _FORMULA.sub(_as_text, _CONTROLS.sub(" ", value))
    return value


def _as_text(found: re.Match[str]) -> str:
    before, sign = found.groups()
    return f"{before}'{sign}" if sign else before


# ── What is exported ──────────────────────────────────────────────────────────────────────────


def _request(row: Row) -> Record:
    found = job_from(row)
    params = found.params
    return {
        "job": found.id,
        "kind": found.kind,
        "state": found.state.value,
        "failure": found.failure and found.failure.value,
        "reason": only_hosts(found.reason),
        "user": found.user,
        "channel": found.channel,
        "asked_at": _iso(found.created_at),
        "started_at": _iso(found.started_at),
        "ended_at": _iso(found.ended_at),
        "remote_id": found.remote_id,
        "name": next((params[name] for name in params if name.endswith("_name")), None),
        "replica_id": params.get("replica_id"),
        "create_calls": found.attempts,
        "charged": int(row["charged"]),
        "spoken_seconds": None if row["spoken_ms"] is None else _seconds(int(row["spoken_ms"])),
        "retry_of": found.retry_of,
        "erased": found.erased,
    }


def _act(row: Row) -> Record:
    with reading("audit", row):
        return {
            "at": _iso(from_ms(row["at"])),
            "action": text(row["action"]),
            "user": optional_text(row["user_id"]),
            "job": optional_text(row["job_id"]),
            "kind": optional_text(row["kind"]),
            "detail": only_hosts(text(row["detail"])),
        }


def _used(row: Row) -> Record:
    with reading("usage", row, "who"):
        return {
            "month": text(row["period"]),
            "user": text(row["who"]),
            "kind": row["kind"],
            "created": number(row["created"]),
            "spoken_seconds": _seconds(number(row["spoken_ms"])),
        }


def _iso(moment: datetime | None) -> str | None:
    """Return a moment in ISO 8601, UTC: 2026-11-22T16:44:07Z."""
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _seconds(milliseconds: int) -> int:
    return round(milliseconds / 1000)


# The statement, its column with the id of a request if it has one, and what reads its rows.
_EXPORTS: Final[dict[str, tuple[str, str, Callable[[Row], Record]]]] = {
    "requests": (_REQUESTS, "jobs.id", _request),
    "audit": (_AUDIT, "job_id", _act),
    "usage": (_USAGE, "", _used),
}
