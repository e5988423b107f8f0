"""The plan of a run, drawn from a seed: which calls fail and when the bot is killed."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from sandbox.callback_shapes import SHAPES
from sandbox.faults import CannedResponse, Drip, Fault, Faults, Hang, LateCommit, Reset, Truncated
from sandbox.key_quotes import HIDDEN, KeyQuote
from sandbox.scenarios import CallbackPlan, Echo, Ending, Scenario
from sandbox.slack import FILE_CONTENT
from sandbox.socket_mode import OPEN
from tests.chaos.databases import Shutdown

_HTML: Final = "<html><body><h1>502 Bad Gateway</h1></body></html>"
_HUGE: Final = '{"x": "' + "x" * 3_000_000 + '"}'
_LATE: Final = timedelta(milliseconds=150)
# Longer than a restart takes, and shorter than ``post_hold``.
_VERY_LATE: Final = timedelta(milliseconds=500)
_STORM: Final = 40  # callbacks of one job
_SHAPES: Final = tuple(SHAPES)
# A link with a part of the key is withheld, so that the reply would have none.
_QUOTES: Final = (None, *(how for how in KeyQuote if how not in HIDDEN))
_SOON: Final = {"Retry-After": "1"}

_LOST: Final = (
    Reset(),
    Reset(done=True),
    LateCommit(_LATE),
    LateCommit(_VERY_LATE),
    LateCommit(_VERY_LATE, hang=True),
    Hang(),
    Hang(done=True),
    Drip(),
    Drip(done=True),
    Truncated(),
    Truncated(done=True),
)
_ODD: Final = (
    CannedResponse(429, {"error": "slow down"}),
    CannedResponse(429, {"error": "slow down"}, headers=_SOON),
    CannedResponse(500, {"error": "oops"}),
    CannedResponse(500, {"error": "oops"}, done=True),
    CannedResponse(503, _HTML),
    CannedResponse(503, _HTML, done=True),
    CannedResponse(200, _HTML),
    CannedResponse(200, _HTML, done=True),
    CannedResponse(200, None, done=True),
    CannedResponse(200, [], done=True),
    CannedResponse(200, _HUGE, done=True),
    CannedResponse(307, "", headers={"Location": "/v2/videos"}),
    CannedResponse(302, "", headers={"Location": "/v2/videos"}, done=True),
)
_WRONG: Final = (
    CannedResponse(200, {"video_id": {}, "replica_id": [], "status": None}, done=True),
    CannedResponse(400, {"error": "Invalid script"}),
    CannedResponse(401, {"message": "Invalid API key"}),
    CannedResponse(402, {"error": "The account is out of credit"}),
)


def _no(code: str, *, done: bool = False) -> CannedResponse:
    return CannedResponse(200, {"ok": False, "error": code}, done=done)


_POST: Final = (
    *_LOST,
    *_ODD,
    _no("internal_error"),
    _no("internal_error", done=True),
    _no("fatal_error", done=True),
    _no("message_limit_exceeded"),
    _no("channel_not_found"),
    _no("is_archived"),
    _no("restricted_action"),
    _no("invalid_blocks"),
    _no("token_revoked"),
)
_SEARCH: Final = (
    Reset(),
    Hang(),
    CannedResponse(503, _HTML),
    CannedResponse(429, {}, headers=_SOON),
    CannedResponse(200, 0),
)
_FILE: Final = (*_LOST, *_ODD, _no("internal_error"))
_VIEW: Final = (Reset(), Reset(done=True), CannedResponse(503, _HTML), _no("expired_trigger_id"))

#: By operation: the expected number of requests per job, the share of all faults, and the faults.
#: The expected number only decides how the faults are spread over a run.
_FAULTS_BY_OPERATION: Final[Mapping[str, tuple[float, float, Sequence[Fault]]]] = {
    "create_video": (0.9, 0.22, (*_LOST, *_ODD, *_WRONG)),
    "create_replica": (0.1, 0.03, (*_LOST, *_ODD)),
    "read_video": (4.0, 0.16, (*_LOST, *_ODD, *_WRONG[:1])),
    "read_replica": (1.5, 0.04, (*_LOST, *_ODD)),
    "download": (0.8, 0.03, (Reset(), CannedResponse(503, _HTML))),
    "chat.postMessage": (2.0, 0.27, _POST),
    "chat.update": (2.5, 0.14, (*_LOST, *_ODD, _no("internal_error", done=True))),
    "conversations.open": (0.3, 0.02, _LOST),
    "conversations.history": (0.2, 0.03, _SEARCH),
    "conversations.replies": (0.2, 0.03, _SEARCH),
    "views.open": (1.3, 0.05, _VIEW),
    # Not late: what was published last stays until the next change, or until it is opened.
    "views.publish": (0.5, 0.02, [each for each in _FILE if not isinstance(each, LateCommit)]),
    "files.getUploadURLExternal": (0.3, 0.03, _FILE),
    FILE_CONTENT: (0.3, 0.03, _FILE),
    "files.completeUploadExternal": (0.3, 0.04, (*_FILE, _no("internal_error", done=True))),
    "files.info": (0.4, 0.03, _SEARCH),
}

#: The same for Socket Mode, for each connection that is opened.
_OPEN_FAULTS: Final = (
    Reset(),
    Hang(),
    CannedResponse(503, _HTML),
    CannedResponse(429, {}, headers=_SOON),
    CannedResponse(200, 0),
    _no("internal_error"),
    _no("invalid_auth"),
    CannedResponse(200, {"ok": True, "url": "ws://127.0.0.1:9/"}),
)

#: The moments at which the bot is killed: before a call is carried out, and after that, so that
#: its answer is lost.
MOMENTS: Final = tuple(
    f"{phase} {what}"
    for phase in ("before", "after")
    for what in (
        "create",
        "read",
        "card",
        "question",
        "edit",
        "reply",
        "approval",
        "search",
        "upload url",
        "upload",
        "sharing",
        "file info",
        "form",
        "submission",
        "request",
        "callback",
    )
)


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill at a moment, or after ``delay`` if ``moment`` is None.

    After ``downtime`` the bot is restarted, and killed once more after ``kill_again_after``.
    """

    moment: str | None
    delay: timedelta
    downtime: timedelta
    kill_again_after: timedelta | None


@dataclass(frozen=True, slots=True)
class ServerRestart:
    """A restart of the database's server once a share of the kills is done, and ``delay`` later."""

    how: Shutdown
    progress: float
    delay: timedelta
    downtime: timedelta


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which the service turns everybody away, ``after`` the one before it."""

    why: Literal["key", "credit", "rate"]
    after: timedelta
    duration: timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run draws from its seed."""

    faults: Mapping[str, Mapping[int, Fault]]
    """By operation and number of the request."""
    kills: Sequence[Kill]
    scenarios: Sequence[Scenario]
    spells: Sequence[Spell]
    quotes: Sequence[KeyQuote | None]
    """How the service quotes its key in one answer after the other, over and over."""
    server_restarts: Sequence[ServerRestart]

    @property
    def fault_count(self) -> int:
        """Return the number of planned faults."""
        return sum(len(each) for each in self.faults.values())


class PlannedFaults(Faults):
    """The faults of a plan; each hits the request with its number, until ``clear``.

    What is always to happen to an operation goes before them, and stays.
    """

    def __init__(self, faults: Mapping[str, Mapping[int, Fault]]) -> None:
        super().__init__()
        self._faults = faults
        self._seen: Counter[str] = Counter()
        self._cleared = False
        self.faults_hit: Counter[str] = Counter()

    def take(self, operation: str) -> Fault | None:
        """Return the fault of the current request of ``operation``."""
        number = self._seen[operation]
        self._seen[operation] += 1
        if (always := super().take(operation)) is not None:
            return always
        fault = None if self._cleared else self._faults.get(operation, {}).get(number)
        if fault is not None:
            self.faults_hit[operation] += 1
        return fault

    def clear(self) -> None:
        """Inject no faults from here on."""
        self._cleared = True


def draw_plan(
    rng: random.Random,
    *,
    jobs: int,
    kills: int,
    faults: int,
    socket_mode: bool = False,
    server_restarts: int = 0,
) -> Plan:
    """Return a plan for this number of jobs, kills and faults."""
    planned = {}
    for operation, (requests, share, kinds) in _FAULTS_BY_OPERATION.items():
        expected = max(1, round(requests * jobs))
        numbers = rng.sample(range(expected), min(expected, round(share * faults)))
        planned[operation] = {number: rng.choice(kinds) for number in numbers}
    if socket_mode:
        tries = 10 * kills
        numbers = rng.sample(range(tries), tries // 4)
        planned[OPEN] = {number: rng.choice(_OPEN_FAULTS) for number in numbers}
    return Plan(
        faults=planned,
        kills=[_kill(rng) for _ in range(kills)],
        scenarios=[_scenario(rng) for _ in range(2 * jobs)],
        spells=[_spell(rng) for _ in range(max(3, kills))],
        quotes=rng.choices(_QUOTES, k=jobs),
        server_restarts=[
            _server_restart(rng, number, server_restarts) for number in range(server_restarts)
        ],
    )


def _server_restart(rng: random.Random, number: int, total: int) -> ServerRestart:
    return ServerRestart(
        how=("immediate", "fast")[number % 2],
        progress=(number + rng.random()) / total,
        delay=timedelta(seconds=rng.uniform(0, 1)),
        downtime=timedelta(seconds=rng.choice((0.0, rng.uniform(0, 1.5)))),
    )


def _spell(rng: random.Random) -> Spell:
    return Spell(
        why=rng.choice(("key", "credit", "rate")),
        after=timedelta(seconds=rng.uniform(0.5, 2.5)),
        duration=timedelta(seconds=rng.uniform(0.2, 0.8)),
    )


def _kill(rng: random.Random) -> Kill:
    return Kill(
        moment=rng.choice(MOMENTS) if rng.random() < 0.6 else None,
        delay=timedelta(seconds=rng.uniform(0.05, 1.5)),
        downtime=timedelta(seconds=rng.choice((0.0, 0.0, rng.uniform(0, 0.4)))),
        kill_again_after=timedelta(seconds=rng.uniform(0, 0.15)) if rng.random() < 0.15 else None,
    )


def _scenario(rng: random.Random) -> Scenario:
    end: Ending = rng.choices(("success", "error", "never"), (80, 17, 3))[0]
    return Scenario(
        end=end,
        reason=rng.choice(("The face is hidden", "<!channel> & <b>", None)),
        statuses=rng.choice(((), (), ("generating", "polishing"))),
        echo=rng.choice(tuple(Echo)),
        id_case="upper" if rng.random() < 0.1 else "same",
        callback_plan=CallbackPlan(
            times=rng.choice((0, 1, 1, 1, 2)) if rng.random() < 0.95 else _STORM,
            after=timedelta(seconds=rng.choice((0.0, 0.0, 0.5))),
            early=rng.random() < 0.1,
            method=rng.choice(("POST", "POST", "PUT", "GET")),
            shape=rng.choice(_SHAPES),
        ),
    )
