"""What is counted of the requests, compared with what may have cost money or waits to."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.databases import Address, query

_CHARGED: Final = {None, "created", "uncertain"}
_WAITING: Final = {"queued", "waiting_for_approval"}
Row = Mapping[str, Any]


def usage_differences(
    jobs: Iterable[Row], attempts: Iterable[Row], usage: Iterable[Row]
) -> list[str]:
    """Return the people, and "all", of whom other numbers are counted than there are.

    A request counts from its form on, and each of its create calls that may have cost money. Days
    are forgotten after a while: their numbers are compared with those of all people alone.
    """
    expected: Counter[tuple[str, bool]] = Counter()
    for row in [
        *(each for each in attempts if each["outcome"] in _CHARGED),
        *(each for each in jobs if each["state"] in _WAITING),
    ]:
        for who in (row["user_id"], ""):
            expected[who, row["kind"] == "replica"] += 1
    counted: Counter[tuple[str, bool]] = Counter()
    of_people: defaultdict[str, Counter[str]] = defaultdict(Counter)
    found = []
    for row in usage:
        numbers = {"videos": row["videos"], "trainings": row["trainings"], "ms": row["spoken_ms"]}
        found += [f"{row['who']} in {row['period']}" for each in numbers.values() if each < 0]
        of_people[row["period"]].update({n: v if row["who"] else -v for n, v in numbers.items()})
        if len(row["period"]) == len("2026-11"):
            counted[row["who"], False] += row["videos"]
            counted[row["who"], True] += row["trainings"]
    found += [f"all in {period}" for period, sums in of_people.items() if any(sums.values())]
    for key in expected.keys() | counted.keys():
        if expected[key] != counted[key]:
            who, what = key[0] or "all", "trainings" if key[1] else "videos"
            found.append(f"{who}: {counted[key]} {what} counted, {expected[key]} there")
    return sorted(set(found))


def usage_differences_in(address: Address) -> list[str]:
    """Return the same of a database."""
    return usage_differences(
        query(address, "SELECT user_id, kind, state FROM jobs"),
        query(address, "SELECT user_id, kind, outcome FROM attempts"),
        query(address, "SELECT * FROM usage"),
    )
