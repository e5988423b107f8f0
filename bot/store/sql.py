"""SQL that is written once and rendered for each engine.

``FOR UPDATE`` is for PostgreSQL, the second engine, where several processes write: SQLite has one
writer at a time, so there it is left out.
"""

import re
from functools import cached_property
from typing import Final

_ROW_LOCK: Final = re.compile(r"\bFOR UPDATE\b(?: OF \w+(?:, \w+)*)?(?: SKIP LOCKED)?")
_LIST: Final = re.compile(r"\bEACH :(\w+)")


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
