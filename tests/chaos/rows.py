"""The rows of the table of results, and those about connections and copies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.environment import TIMINGS, Environment

_LEASE_MS: Final = round(TIMINGS.lease.total_seconds() * 1000)


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table; ``examples`` names the cases of a row that is a promise."""

    name: str
    count: int
    at_most: int | None = None
    examples: Sequence[str] = ()

    @property
    def is_broken(self) -> bool:
        """Whether it is a promise that was not kept."""
        return self.at_most is not None and self.count > self.at_most


def socket_rows(env: Environment) -> Iterator[Result]:
    socket = env.slack.socket_mode
    if socket.enabled:
        yield Result("connections of Socket Mode", socket.opened)
        for what, count in sorted(env.disturbances.items()):
            yield Result(f"  disturbed: {what}", count)
        refused = list(map(str, socket.refused))
        yield Result("answers that Slack does not accept", len(refused), 0, refused)


def copies_rows(env: Environment) -> Iterator[Result]:
    copies = env.copies
    for how, count in sorted(env.run_database.restarts.items()):
        yield Result(f"restarts of the server, {how}", count)
    if env.takeover is None:
        return
    yield Result("deploys, in which all copies are replaced", env.deploys)
    yield Result(
        f"ms until the work of a copy was done that never came back (lease: {_LEASE_MS})",
        round(env.takeover.total_seconds() * 1000),
    )
    left = env.not_taken_over
    yield Result("work of that copy which nobody did", len(left), 0, left)
    name = "requests that failed at a copy which had not said that it was not ready"
    yield Result(name, len(copies.failed), 0, copies.failed)
