"""SQL that is written once and rendered for each engine.

``FOR UPDATE`` is for PostgreSQL, where several processes write: SQLite has one writer at a time, so
there it is left out.
"""

import re
from functools import cached_property
from typing import Final

_ROW_LOCK: Final = re.compile(r"\bFOR UPDATE\b(?: OF \w+(?:, \w+)*)?(?: SKIP LOCKED)?")
_LIST: Final = re.compile(r"\bEACH :(\w+)")
_IN_LIST: Final = re.compile(r"\b(NOT )?IN \(EACH :(\w+)\)")
_PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")


class Query:
    """A statement, written in the SQL that both engines share, with ``:name`` parameters.

    Two things differ between engines, and are written like this:

    * ``FOR UPDATE`` and ``FOR UPDATE SKIP LOCKED``, with ``OF table, …`` where needed, as
      PostgreSQL has them;
    * ``IN (EACH :names)`` for a parameter that is a list.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lists = frozenset(_LIST.findall(text))
        """The names of the parameters that are lists."""

    @cached_property
    def sqlite(self) -> str:
        """The statement for SQLite, where a list is passed as JSON."""
        return _LIST.sub(r"SELECT value FROM json_each(:\1)", _ROW_LOCK.sub("", self.text))

    @cached_property
    def postgres(self) -> str:
        """The statement for psycopg, where a list is passed as an array."""
        text = self.text.replace("%", "%%")
        text = _IN_LIST.sub(lambda found: _any_or_all(*found.groups()), text)
        return _PARAMETER.sub(r"%(\1)s", text)


def _any_or_all(negated: str | None, name: str) -> str:
    # The type of an empty array follows from the column that it is compared with.
    return f"<> ALL (:{name})" if negated else f"= ANY (:{name})"
