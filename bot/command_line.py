"""The commands: what each does, what it imports, and its exit code."""

import asyncio
import gc
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click

from bot import __version__, log
from bot.errors import OperatorError
from bot.timings import SystemClock

# What a command returns once it has imported what it needs, which takes longer than most of them.
_Run: TypeAlias = Callable[[], int]


def _progress(said: str = "") -> None:
    """Show on a terminal how far a command is, in place of what was shown before."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{said}", end="", file=sys.stderr, flush=True)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run 'python -m bot COMMAND --help' for more about a command.",
)
@click.version_option(__version__, message="replica-video-bot %(version)s")
def cli() -> None:
    """Turn scripts into replica videos, right from Slack.

    Settings are environment variables: docs/settings.md lists them. Those that are not set are
    read from the file .env in the working directory, if it is there.

    \b
    Examples:
      python -m bot init      set it up, step by step
      python -m bot doctor    check everything before the first start
      python -m bot serve     run the bot
    """


@cli.command()
def init() -> _Run:
    """Set the bot up: ask, check each answer, write .env.

    It creates the Slack app with you, asks for its tokens and for the video service's key, tries
    each, and writes .env in the working directory, for you alone. To change an answer, remove its
    line from .env and run it again.

    What .env or the environment has is not asked for: SLACK_BOT_TOKEN, SLACK_APP_TOKEN or
    PUBLIC_URL and SLACK_SIGNING_SECRET, VIDEO_API_URL, VIDEO_API_KEY. Some are only taken from
    there: PUBLIC_URL, COMMAND_PREFIX, ADMIN_USERS. Without a terminal nothing is asked: the exit
    code is 2 if one that is needed is missing.

    \b
    Examples:
      python -m bot init
      VIDEO_API_URL=https://videos.example.com python -m bot init
    """
    from bot.ops import init

    return init.run


@cli.command()
def serve() -> _Run:
    """Run the bot until it is stopped (SIGTERM, Ctrl-C).

    It brings the database up to date, listens on HOST and PORT for plain HTTP, and logs to
    standard error. One bot runs on a database at a time; a second one waits ten seconds for it to
    end.

    It needs SLACK_BOT_TOKEN, VIDEO_API_URL, VIDEO_API_KEY, and SLACK_APP_TOKEN (for Socket Mode) or
    SLACK_SIGNING_SECRET (for requests to a public address).

    \b
    Example:
      PORT=8080 python -m bot serve
    """
    from bot import app
    from bot.settings import (
        ENV_FILE,
        Settings,
        environment,
        is_exposed,
        misspelt,
        read_env_file,
    )

    def run() -> int:
        environ = environment()
        settings = Settings.read(environ)
        log.configure(sys.stderr, logging.INFO, secrets=settings.secrets)
        warn = logging.getLogger(__name__).warning
        if is_exposed():
            warn("others can read .env", extra={"remedy": f"chmod 600 {ENV_FILE}"})
        for name, meant in misspelt(environ, read_env_file()):
            extra = {"variable": name} | ({"meant": meant} if meant else {})
            warn("this is no setting, and is ignored", extra=extra)
        asyncio.run(app.serve(settings))
        return 0

    return run


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.option("--all", "in_full", is_flag=True, help="Print also what is well in full.")
@click.option("--post", metavar="CHANNEL", help="Post there to try what Slack allows.")
def doctor(*, as_json: bool, in_full: bool, post: str | None) -> _Run:
    """Check settings, database, Slack and video service.

    It may run beside the bot. Each area is a line; what is wrong follows with what to do about it,
    errors last. The exit code is 1 if there is an error.

    Nothing is changed but with --post: that posts, edits, replies and uploads a file in a channel,
    writes to the first of ADMIN_USERS, and deletes it all again.

    With --json, each object has "check", "state" ("ok", "warning" or "error"), "message" and
    "remedy", all of them text.

    \b
    Examples:
      python -m bot doctor
      python -m bot doctor --post "#general"
      python -m bot doctor --json | jq '.[] | select(.state == "error")'
    """
    from bot.ops import doctor
    from bot.ops.finding import report

    async def run() -> int:
        log.configure(sys.stderr, logging.CRITICAL)
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show all letters
            sys.stdout.reconfigure(errors="replace")
        examined = doctor.examine_deployment(post)
        if as_json:
            findings = [each async for each in examined]
            print(json.dumps([each.as_json() for each in findings], indent=2))
        else:
            findings = await report(examined, in_full=in_full)
        return 0 if all(each.ok for each in findings) else 1

    return lambda: asyncio.run(run())


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON for Slack's own command line.")
@click.option("--source", hidden=True, help="The project's folder, which Slack's passes on.")
def manifest(*, as_json: bool, source: str | None) -> _Run:  # noqa: ARG001
    """Print the Slack app's manifest, filled in for this bot.

    Create the app from it at https://api.slack.com/apps (From a manifest), or paste it into the
    App Manifest of the app. It needs no other settings than PUBLIC_URL, the address of the bot,
    and COMMAND_PREFIX, with which the names of the commands begin.

    \b
    Example:
      PUBLIC_URL=https://bot.example.com python -m bot manifest
    """
    from bot.ops.manifest import manifest, manifest_json
    from bot.settings import ManifestSettings, environment

    def run() -> int:
        settings = ManifestSettings.read(environment())
        print(manifest_json(settings) if as_json else manifest(settings), end="")
        return 0

    return run


@cli.command()
@click.option("--check", is_flag=True, help="Say what would be done, and change nothing.")
def migrate(*, check: bool) -> _Run:
    """Bring the database up to date, and do nothing else.

    The bot does that itself when it starts. It needs no other setting than DATABASE_URL.

    With --check the exit code is 0 if the database is up to date and 1 if not; the bot may be
    running meanwhile.

    \b
    Example:
      DATABASE_URL=sqlite:////var/lib/bot/bot.db python -m bot migrate
    """
    from bot.settings import DatabaseSettings, environment
    from bot.store.engines import migrate, pending_migrations

    def run() -> int:
        path = DatabaseSettings.read(environment()).database_address
        log.configure(sys.stderr, logging.INFO)
        pending = pending_migrations(path)
        new = path.absolute() if isinstance(path, Path) and not path.exists() else None
        if not pending:  # also while the bot is running
            print("the database is up to date")
        elif check:
            print(f"pending: {', '.join(pending)}")
            found = f"{new} does not exist yet. " if new else ""
            print(f"{found}Start the bot, or run python -m bot migrate.", file=sys.stderr)
            return 1
        else:
            asyncio.run(migrate(path))
            print(f"applied: {', '.join(pending)}")
            if new:
                print(f"{new} is new.", file=sys.stderr)
        return 0

    return run


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def backup(file: Path, *, force: bool) -> _Run:
    """Copy the database to FILE, even while the bot runs.

    Only the owner can read FILE. It needs no other setting than DATABASE_URL.

    To restore it, stop the bot, put FILE in the place of the database, remove the files beside it
    that end in -wal, -shm and -journal, and start the bot. What people have asked for since is
    forgotten. What was waiting to be created is not created by itself, since it may have been
    meanwhile: the bot asks.

    It is for SQLite: a PostgreSQL database is backed up with pg_dump, as docs/postgresql.md says.

    \b
    Example:
      python -m bot backup bot-2026-03-02.db
    """
    from bot.settings import DatabaseSettings, environment
    from bot.store.backup import back_up

    def run() -> int:
        address = DatabaseSettings.read(environment()).database_address
        if isinstance(address, str):
            raise OperatorError(
                "A PostgreSQL database is backed up with pg_dump: docs/postgresql.md says how, and "
                "how to restore it so that nothing is made twice."
            )
        # As an exception, so that nothing is left behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        size = back_up(address, file, SystemClock().now(), replace=force, progress=_progress)
        _progress()
        print(f"copied {address} to {file} ({size // 1000} kB) and checked the copy")
        return 0

    return run


@cli.command("move-database")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def move_database(source: str, target: str) -> _Run:
    """Move everything from SQLite to PostgreSQL.

    FROM and TO are written like DATABASE_URL. TO is an empty PostgreSQL database. Stop the bot
    first. Everything is moved and checked, or nothing is. No bot starts on FROM afterwards: keep it
    as a backup.

    A password need not be on the command line: PGPASSWORD and ~/.pgpass are read too.

    \b
    Example:
      python -m bot move-database sqlite:///bot.db postgresql://bot@db.example.com/bot
    """
    from bot.settings import DatabaseSettings
    from bot.store.engines import shown

    def run() -> int:
        addresses = []
        for name, text in (("FROM", source), ("TO", target)):
            given = {"DATABASE_URL": text}
            if mistake := DatabaseSettings.mistake("DATABASE_URL", text):
                raise OperatorError(f"{name} {mistake}")
            addresses.append(DatabaseSettings.read(given).database_address)
        old, new = addresses
        if isinstance(old, str) or isinstance(new, Path):
            raise OperatorError(
                "FROM has to be a SQLite database, such as sqlite:///bot.db, and TO a PostgreSQL "
                "database: it goes this way only."
            )
        from bot.store import postgres  # noqa: F401 - what it needs is an extra
        from bot.store.move import move

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        counts = move(old, new, _progress)
        _progress()
        print(
            f"moved {old} to {shown(new)}, and checked it: {counts['jobs']:,} requests "
            f"({counts['open jobs']:,} open), {counts['deliveries']:,} messages, "
            f"{counts['replicas']:,} replicas"
        )
        print(
            f"Now set DATABASE_URL to the new database and start the bot. Keep {old} as a backup: "
            "no bot starts on it anymore."
        )
        return 0

    return run


@cli.command()
@click.argument("what", type=click.Choice(["requests", "audit", "usage"]))
@click.option("--format", "format_", type=click.Choice(["csv", "json"]), default="csv")
@click.option("--job", metavar="REQUEST", help="Only what is about this request.")
def export(what: str, format_: str, job: str | None) -> _Run:
    """Print requests, the audit or usage as CSV or JSON.

    Requests have no scripts and links. The audit is who did what: asked, retried, approved,
    stopped. Usage is what each person asked for in each month (UTC), but for what certainly cost
    nothing; spoken seconds are estimated from the scripts.

    It only reads, and may run beside the bot. It needs no other setting than DATABASE_URL. Times
    are UTC, and people and channels have their Slack IDs. JSON is one list of objects, each on a
    line. In CSV, a text that a spreadsheet would take for a formula begins with an apostrophe.

    \b
    Examples:
      python -m bot export requests > requests.csv
      python -m bot export audit --job 7gk2m9xqpa --format json
    """
    from bot.ops.export import export
    from bot.settings import DatabaseSettings, environment

    def run() -> int:
        if isinstance(sys.stdout, io.TextIOWrapper):  # whatever the terminal's character set is
            sys.stdout.reconfigure(encoding="utf-8")
        address = DatabaseSettings.read(environment()).database_address
        count = export(address, what, format_, job, sys.stdout, progress=_progress)
        if not sys.stdout.isatty():
            _progress(f"exported {count:,} records of {what} to standard output\n")
        return 0

    return run


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code.

    Without a command this is 2, as it is for an unknown one: a host that was not told which to run
    must not take it for one that has ended well.
    """
    try:
        command = cli.main(arguments, prog_name="python -m bot", standalone_mode=False)
        # What was imported stays. The first look at it would take 25 ms, a tenth of the start.
        gc.freeze()
        gc.enable()
        return command() if callable(command) else int(command or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except OperatorError as error:
        print(error, file=sys.stderr)
    except BrokenPipeError:
        # The reader of the output has gone. Without this, Python complains when it flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 1
