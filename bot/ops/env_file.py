"""The ``.env`` that ``init`` writes: what changes in it, and what is kept."""

import io
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from dotenv.parser import parse_stream

from bot.settings import ENV_FILE, EnvFileError, read_env_file

_HEADER: Final = (
    "# Settings of the bot, written by `python -m bot init`. It holds secrets: keep it private.\n"
)
# What every reader takes as it is, a shell too.
_PLAIN: Final = re.compile(r"[\w.:/@%+,=^-]*", re.ASCII)
_NOT_FOR_SINGLE_QUOTES: Final = re.compile(r"['\\]")


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
        return cls(ENV_FILE.read_bytes().decode() if ENV_FILE.exists() else None, values)

    def changes(self, wanted: Mapping[str, str | None]) -> dict[str, list[str]]:
        """Return the names that writing would "add", "replace" and "remove".

        None means that a setting is not to be there.
        """
        found = defaultdict[str, list[str]](list)
        for name, text in wanted.items():
            if self.values.get(name) != text:
                verb = "add" if name not in self.values else "replace" if text else "remove"
                found[verb].append(name)
        return found

    def write(self, wanted: Mapping[str, str | None]) -> None:
        """Write the file with these settings, for its owner alone; all else in it is kept.

        Raises:
            EnvFileError: it cannot be written; it is as it was then.
        """
        # Through a link, so that the link stays.
        target = Path(os.path.realpath(ENV_FILE))
        try:
            # A temporary file is its owner's alone.
            with tempfile.TemporaryDirectory(prefix=".env.", dir=target.parent) as folder:
                with tempfile.NamedTemporaryFile(
                    "w", encoding="utf-8", newline="", dir=folder, delete=False
                ) as file:
                    file.write(self._text(wanted))
                    file.flush()
                    os.fsync(file.fileno())
                Path(file.name).replace(target)
        except OSError as error:
            raise EnvFileError(
                f"{ENV_FILE.absolute()} cannot be written ({error.strerror}): run this in a folder "
                "that is yours, on a disk with space left."
            ) from None

    def _text(self, wanted: Mapping[str, str | None]) -> str:
        changed = {name: text for name, text in wanted.items() if self.values.get(name) != text}
        left, parts = dict(changed), list[str]()
        for each in self._bindings:
            line = each.original.string
            if each.key is None or each.key not in changed:
                parts.append(line)
            elif text := left.pop(each.key, None):  # a later line about it goes
                # To python-dotenv, a line begins with the blank ones before it.
                blank = line[: len(line) - len(line.lstrip())]
                parts.append(f"{blank}{each.key}={quoted(text)}\n")
        if parts and not parts[-1].endswith(("\n", "\r")):
            parts.append("\n")
        parts += [f"{name}={quoted(text)}\n" for name, text in left.items() if text]
        return "".join(parts)


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
