"""The commands that show and export jobs, the audit and spending. They only read."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, Unpack

import click

from bot.errors import OperatorError
from bot.job_options import (
    CHANNEL,
    FORCE,
    KIND,
    LIMIT,
    MAX_LISTED,
    OUTPUT,
    SINCE,
    STATE,
    UNTIL,
    USER,
    Month,
)

if TYPE_CHECKING:
    from bot.store.reports import JobReport, Record
    from bot.store.snapshot import Snapshot

_Run: TypeAlias = Callable[[], int]


class _Filters(TypedDict, total=False):
    """What the options have that are those of ``Wanted``."""

    user: str | None
    channel: str | None
    since: datetime | None
    until: datetime | None
    job: str | None


_FORMATS: Final = ("csv", "json")


@click.group()
def jobs() -> None:
    """Show what people asked for, and what it cost.

    The commands only read, and may run beside the bot. They need no other setting than
    DATABASE_URL. Times are UTC, and people and channels have their Slack IDs.

    \b
    Examples:
      python -m bot jobs list --state failed --since 2026-11-01
      python -m bot jobs spending --month 2026-11
      python -m bot jobs export --format csv --output jobs.csv
    """


@jobs.command("list")
@USER
@CHANNEL
@SINCE
@UNTIL
@STATE
@KIND
@LIMIT
def list_jobs(
    *, limit: int, state: str | None, kind: str | None, **wanted: Unpack[_Filters]
) -> _Run:
    """List requests, the newest first.

    \b
    Example:
      python -m bot jobs list --user U012ABCDEF --limit 10
    """

    def run() -> int:
        from bot.report_formats import write_table
        from bot.store import reports

        which = reports.Wanted(state=_state(state), kind=_kind(kind), **wanted)
        with _snapshot() as snapshot:
            found = list(_readable(reports.jobs(snapshot, which, newest=limit + 1)))
        if not found:
            print("No requests match.", file=sys.stderr)
            return 0
        rows = [("REQUEST", "ASKED (UTC)", "KIND", "STATE", "PERSON", "CHANNEL", "NAME")]
        rows += [
            (
                str(each["job"]),
                _minute(each["asked_at"]),
                str(each["kind"]),
                str(each["state"]).replace("_", " "),
                str(each["user"]),
                str(each["channel"]),
                str(each["name"] or ""),
            )
            for each in found[:limit]
        ]
        write_table(rows, sys.stdout)
        _say_more(len(found) > limit, limit)
        return 0

    return run


@jobs.command("show")
@click.argument("job_id", metavar="REQUEST")
@click.option("--script", is_flag=True, help="Show the script too.")
def show_job(job_id: str, *, script: bool) -> _Run:
    """Show a request with its create calls, messages and history.

    \b
    Example:
      python -m bot jobs show 7gk2m9xqpa
    """

    def run() -> int:
        from bot.store import reports

        with _snapshot() as snapshot:
            found = reports.job(snapshot, job_id)
        if found is None:
            raise OperatorError(
                f"There is no request {job_id}: python -m bot jobs list shows the latest ones. "
                "Old ones are deleted."
            )
        _show(found, with_script=script)
        return 0

    return run


@jobs.command("export")
@click.option("--format", "format_", type=click.Choice(_FORMATS), required=True)
@USER
@CHANNEL
@SINCE
@UNTIL
@STATE
@KIND
@OUTPUT
@FORCE
def export_jobs(
    *,
    format_: str,
    state: str | None,
    kind: str | None,
    output: Path | None,
    force: bool,
    **wanted: Unpack[_Filters],
) -> _Run:
    """Write requests as CSV or JSON, the oldest first, without scripts and links.

    JSON is one list of objects, each on a line. In CSV, a text that a spreadsheet would take for a
    formula begins with an apostrophe.

    \b
    Examples:
      python -m bot jobs export --format csv --output jobs.csv
      python -m bot jobs export --format json --since 2026-11-01 | jq '.[].job'
    """

    def run() -> int:
        from bot.store import reports

        which = reports.Wanted(state=_state(state), kind=_kind(kind), **wanted)
        with _snapshot() as snapshot:
            found = _readable(reports.jobs(snapshot, which))
            _export(found, reports.JOB_COLUMNS, format_, output, force=force)
        return 0

    return run


@jobs.command("audit")
@USER
@SINCE
@UNTIL
@click.option("--action", metavar="ACTION", help="Of this action, such as shared.")
@click.option("--request", "job", metavar="REQUEST", help="About this request.")
@LIMIT
@click.option("--format", "format_", type=click.Choice(_FORMATS), help="Export all of it.")
@OUTPUT
@FORCE
def show_audit(
    *,
    limit: int,
    action: str | None,
    format_: str | None,
    output: Path | None,
    force: bool,
    **wanted: Unpack[_Filters],
) -> _Run:
    """Show who did what: asked, retried, approved, stopped, shared.

    It lists the newest, or with --format exports all, the oldest first.

    \b
    Examples:
      python -m bot jobs audit --user U012ABCDEF
      python -m bot jobs audit --format csv --output audit.csv
    """

    def run() -> int:
        from bot.report_formats import write_table
        from bot.store import reports
        from bot.store.audit import AuditAction

        which = reports.Wanted(action=_word(action, AuditAction, "action"), **wanted)
        if format_ is None and output is not None:
            raise OperatorError("--output needs --format: add --format csv or --format json.")
        with _snapshot() as snapshot:
            if format_ is not None:
                found = reports.audit(snapshot, which)
                _export(found, reports.AUDIT_COLUMNS, format_, output, force=force)
                return 0
            newest = list(reports.audit(snapshot, which, newest=limit + 1))
        if not newest:
            print("Nothing matches.", file=sys.stderr)
            return 0
        rows = [("DONE (UTC)", "ACTION", "PERSON", "REQUEST", "KIND", "DETAIL")]
        rows += [
            (
                _minute(each["at"]),
                str(each["action"]).replace("_", " "),
                str(each["user"] or "nobody"),
                str(each["job"] or ""),
                str(each["kind"] or ""),
                str(each["detail"]),
            )
            for each in newest[:limit]
        ]
        write_table(rows, sys.stdout)
        _say_more(len(newest) > limit, limit)
        return 0

    return run


@jobs.command("spending")
@click.option("--month", type=Month(), help="This month, such as 2026-11; else the current one.")
def show_spending(*, month: datetime | None) -> _Run:
    """Show what each person had created in a month (UTC).

    A create call counts if it may have cost money: it made something, or had no usable answer.
    Spoken minutes are estimated from the scripts.

    \b
    Example:
      python -m bot jobs spending --month 2026-11
    """

    def run() -> int:
        from bot.clock import SystemClock
        from bot.report_formats import write_table
        from bot.store.spending import PersonSpending, spending_of_month

        with _snapshot() as snapshot:
            found = spending_of_month(snapshot.all, month or SystemClock().now())
        if not found.people:
            print(f"Nothing was created in {found.since:%Y-%m}.", file=sys.stderr)
            return 0
        kinds = sorted(found.created)

        def row(name: str, spent: PersonSpending) -> tuple[str, ...]:
            minutes = max(spent.spoken / timedelta(minutes=1), 1 if spent.spoken else 0)
            counts = (f"{spent.created.get(kind, 0):,}" for kind in kinds)
            return (name, *counts, f"about {minutes:,.0f}")

        total = PersonSpending("", found.created, found.spoken)
        rows = [("PERSON", *(f"{kind.upper()}S" for kind in kinds), "SPOKEN MINUTES")]
        rows += [row(each.user, each) for each in found.people]
        write_table([*rows, row("everybody", total)], sys.stdout)
        return 0

    return run


# ── What they share ───────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _snapshot() -> Iterator["Snapshot"]:
    """Read the database of the settings, if it is one of this version."""
    from bot.settings import DatabaseSettings, environment
    from bot.store.engines import open_snapshot
    from bot.store.move import shown
    from bot.store.reports import require_file, require_readable
    from bot.store.sqlite_file import check_file

    address = DatabaseSettings.read(environment()).database_address
    if isinstance(address, Path):
        require_file(address)
        check_file(address)
    with open_snapshot(address) as snapshot:
        require_readable(snapshot, shown(address))
        yield snapshot


def _export(
    records: Iterable["Record"],
    columns: tuple[str, ...],
    format_: str,
    output: Path | None,
    *,
    force: bool,
) -> None:
    from bot.report_formats import opened, write_csv, write_json

    with opened(output, replace=force) as to:
        if format_ == "csv":
            write_csv(records, columns, to)
        else:
            write_json(records, to)


def _readable(found: Iterable[Any]) -> Iterator["Record"]:
    """Yield what can be read; say at the end what cannot."""
    damaged = 0
    for each in found:
        if isinstance(each, dict):
            yield each
        else:
            damaged += 1
    if damaged:
        what = "1 request is" if damaged == 1 else f"{damaged:,} requests are"
        print(f"{what} damaged and left out: python -m bot doctor says more.", file=sys.stderr)


def _show(found: "JobReport", *, with_script: bool) -> None:
    from bot.links import without_keys
    from bot.report_formats import printable, write_table

    def section(title: str, records: Sequence[Mapping[str, object]]) -> None:
        if records:
            print(f"\n{title}")
            heads = list(records[0])
            rows = [[name.replace("_", " ").upper() for name in heads]]
            rows += [
                ["" if each[name] is None else str(each[name]) for name in heads]
                for each in records
            ]
            write_table(rows, sys.stdout)

    values = {name: value for name, value in found.record.items() if value not in {None, ""}}
    # The name and the replica are in the record.
    values |= {
        name: value
        for name, value in found.params.items()
        if name != "script" and value not in values.values()
    }
    if found.status:
        values["service_status"] = found.status
    values |= {f"service_{name}": value for name, value in found.facts.items() if name != "script"}
    if (script := found.params.get("script")) is not None:
        hint = "" if with_script else " (--script shows it)"
        values["script"] = f"{len(script):,} characters{hint}"
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        print(f"{name.replace('_', ' ')}: {printable(without_keys(text))}")
    section("CREATE CALLS", found.attempts)
    section("MESSAGES", found.deliveries)
    section("HISTORY", found.audit)
    if with_script and script is not None:
        print("\nSCRIPT")
        for line in script.splitlines():
            print(printable(line))


def _state(word: str | None) -> str | None:
    from bot.model import State

    return _word(word, State, "state")


def _kind(word: str | None) -> str | None:
    if word is None:
        return None
    from bot.app import FEATURES

    return _word(word, [each.kind.name for each in FEATURES], "kind")


def _word(word: str | None, words: Iterable[str], what: str) -> str | None:
    """Return a word of ours, as it is stored; people may write it with spaces or hyphens.

    Raises:
        OperatorError: it is none.
    """
    if word is None:
        return None
    known = [str(each) for each in words]
    found = word.casefold().replace(" ", "_").replace("-", "_")
    if found not in known:
        raise OperatorError(f"{word!r} is not one of the {what}s: {', '.join(known)}.")
    return found


def _minute(moment: object) -> str:
    return str(moment)[:16].replace("T", " ")


def _say_more(more: bool, limit: int) -> None:  # noqa: FBT001 - it is all that it is about
    if more and limit < MAX_LISTED:
        print(f"There are more: --limit {min(2 * limit, MAX_LISTED)} shows them.", file=sys.stderr)
    elif more:
        print("There are more: narrow it down, or export them.", file=sys.stderr)
