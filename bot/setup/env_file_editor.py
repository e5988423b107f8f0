"""Edits the file ``.env``: only the settings that change, in one write."""

import io
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dotenv.parser import Binding, parse_stream

from bot.env_file import ENV_FILE, EnvFileError, read_env_file

_HEADER: Final = (
    "# Settings of the bot, written by `python -m bot init`. It holds secrets: keep it private.\n"
)
# What every reader takes as it is, a shell too.
_PLAIN: Final = re.compile(r"[\w.:/@%+,=^-]*", re.ASCII)
_NOT_FOR_SINGLE_QUOTES: Final = re.compile(r"['\\]")
_EXPORT: Final = re.compile(r"\s*export\s")
_QUOTED: Final = re.compile(r"=\s*['\"]")
_COMMENT: Final = re.compile(r"\s(#[^\r\n]*)")
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of the settings that writing would add, replace and remove."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.removed)


class EnvFile:
    """The lines of a ``.env``, of which only the settings that change are touched."""

    def __init__(self, text: str | None, values: Mapping[str, str]) -> None:
        self.exists = text is not None
        self.values = values
        self._bindings = list(parse_stream(io.StringIO(text or _HEADER, newline="")))

    @classmethod
    def read(cls) -> Self:
        """Read the file; there need not be one.

        Raises:
            EnvFileError: it cannot be read, or is not understood.
        """
        values = {name: text for name, text in read_env_file().items() if text}
        text = ENV_FILE.read_bytes().decode() if ENV_FILE.exists() else None
        return cls(text, values)

    def changes(self, wanted: Mapping[str, str | None]) -> Changes:
        """Return what writing would change; None means that a setting is not to be there."""
        there = self.values
        different = [name for name, text in wanted.items() if there.get(name) != text]
        return Changes(
            added=tuple(name for name in different if name not in there),
            replaced=tuple(name for name in different if name in there and wanted[name]),
            removed=tuple(name for name in different if name in there and not wanted[name]),
        )

    def write(self, wanted: Mapping[str, str | None]) -> None:
        """Write the file with these settings, for its owner alone; all else in it is kept.

        Raises:
            EnvFileError: it cannot be written; it is as it was then.
        """
        # Through a link, so that the link stays.
        target = Path(os.path.realpath(ENV_FILE))
        part = target.with_name(f".env.{secrets.token_hex(4)}.part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                    file.write(self._text(wanted))
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise EnvFileError(
                f"{ENV_FILE.absolute()} cannot be written ({error.strerror}): run this in a folder "
                "that is yours, on a disk with space left."
            ) from None

    def _text(self, wanted: Mapping[str, str | None]) -> str:
        there = self.values
        left = {name: text for name, text in wanted.items() if there.get(name) != text}
        parts = list[str]()
        for each in self._bindings:
            line = each.original.string
            if (
                each.key is None
                or each.key not in wanted
                or there.get(each.key) == wanted[each.key]
            ):
                parts.append(line)
            elif text := left.pop(each.key, None):  # a later line about it goes
                parts.append(_line(each, text))
        if parts and not parts[-1].endswith(("\n", "\r")):
            parts.append("\n")
        return "".join(
            [*parts, *(f"{name}={quoted(text)}\n" for name, text in left.items() if text)]
        )


def _line(binding: Binding, text: str) -> str:
    """Return the line of a setting with another value."""
    line = binding.original.string
    # To python-dotenv, a line begins with the blank ones before it.
    blank = line[: len(line) - len(line.lstrip())]
    export = "export " if _EXPORT.match(line) else ""
    end = "\r\n" if line.endswith("\r\n") else "\n"
    # A comment gets a line of its own: beside a value, not everybody takes it for one.
    found = None if _QUOTED.search(line) else _COMMENT.search(line)
    comment = found[1] + end if found else ""
    return f"{blank}{comment}{export}{binding.key}={quoted(text)}{end}"


def quoted(text: str) -> str:
    """Return a value as it stands in the file.

    Bare where everybody reads it as it is: python-dotenv, ``docker --env-file``, Compose, systemd
    and a shell. Anything else needs quotes, which ``docker --env-file`` takes for a part of the
    value: single ones mean the same to the other four. With a single quote or a backslash in it, it
    gets double quotes, in which Compose and shells replace what a dollar sign begins.

    https://docs.docker.com/reference/cli/docker/container/run/#env,
    https://docs.docker.com/compose/how-tos/environment-variables/variable-interpolation/ and
    https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=
    """
    if _PLAIN.fullmatch(text):
        return text
    if not _NOT_FOR_SINGLE_QUOTES.search(text):
        return f"'{text}'"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
