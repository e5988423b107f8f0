"""Random sequences of what users, the service, Slack, the clock and crashes do to jobs."""

import asyncio
import contextlib
import tempfile
import tomllib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bot.slack import errors
from bot.slack.views.buttons import APPROVE, CREATE_AGAIN, DECLINE, GIVE_UP, HAVE_ID, WITHDRAW
from sandbox.block_kit import Json
from sandbox.driver import ClientRefusal, Modal, Person
from sandbox.faults import CannedResponse, Drip, Fault, Hang, LateCommit, Reset, Truncated
from sandbox.form import elements
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack import FILE_CONTENT
from sandbox.slack_objects import Event, Message
from tests.crash import CrashingWorld
from tests.engine.invariants import InvariantChecker, UserActions
from tests.world import FOOTAGE, MEMORY, REPLICA

_T = TypeVar("_T")

_CODES: Final = tomllib.loads(
    (Path(__file__).parent.parent / "data" / "slack_errors.toml").read_text(encoding="utf-8")
)
_PAGE: Final = "<html><body><h1>502 Bad Gateway</h1></body></html>"
_BUSY: Final = {"error": "Too many requests"}
_SOON: Final = timedelta(seconds=10)
_DAY: Final = timedelta(days=1)
_HISTORY: Final = frozenset({"channels:history", "groups:history", "im:history"})
# The limit of submissions in one example: more only make it longer.
_MAX_SUBMISSIONS: Final = 5
# Rounds of six hours without faults: longer than every deadline.
_MAX_ROUNDS: Final = 30

# What may happen to any request, by name; with "done" it was carried out all the same.
_LOST: Final[Mapping[str, Fault]] = {
    "reset": Reset(),
    "reset, done": Reset(done=True),
    "done late": LateCommit(_SOON),
    "hangs": Hang(),
    "hangs, done": Hang(done=True),
    "drips, done": Drip(done=True),
    "truncated, done": Truncated(done=True),
    "500": CannedResponse(500, {"error": "oops"}),
    "500, done": CannedResponse(500, {"error": "oops"}, done=True),
    "503 page": CannedResponse(503, _PAGE),
    "503 page, done": CannedResponse(503, _PAGE, done=True),
    "page": CannedResponse(200, _PAGE),
    "page, done": CannedResponse(200, _PAGE, done=True),
    "redirect": CannedResponse(307, "", {"Location": "/v2/videos"}),
    "redirect, done": CannedResponse(302, "", {"Location": "/v2/videos"}, done=True),
    "null, done": CannedResponse(200, None, done=True),
    "list, done": CannedResponse(200, [], done=True),
    "429": CannedResponse(429, _BUSY),
    "429 for a while": CannedResponse(429, _BUSY, {"Retry-After": "90"}),
    "429 for a day": CannedResponse(429, _BUSY, {"Retry-After": "86400"}),
}
_CREATE_FAULTS: Final[Mapping[str, Fault]] = {
    **_LOST,
    "done much later": LateCommit(timedelta(minutes=20)),
    "no id, done": CannedResponse(200, {"status": "queued"}, done=True),
    "400": CannedResponse(400, {"error": "Invalid script"}),
    "401": CannedResponse(401, {"message": "Invalid API key"}),
    "402": CannedResponse(402, {"error": "The account is out of credit"}),
    "403": CannedResponse(403, "Forbidden"),
    "422": CannedResponse(422, {"message": "Not like this"}),
}
_READ_FAULTS: Final[Mapping[str, Fault]] = {
    **_LOST,
    "400": CannedResponse(400, {"error": "Invalid video_id"}),
    "401": CannedResponse(401, {"message": "Invalid API key"}),
    "404": CannedResponse(404, {"error": "Unknown"}),
    "of another": CannedResponse(
        200, {"video_id": "v-other", "replica_id": "r-other", "status": "ready"}
    ),
}
_SCENARIOS: Final[Mapping[str, Scenario]] = {
    "fails": Scenario("error", reason="The face is hidden"),
    "fails silently": Scenario("error", callback_plan=CallbackPlan(times=0)),
    "is deleted": Scenario("deleted"),
    "never ends": Scenario("never"),
    "says nothing": Scenario(callback_plan=CallbackPlan(times=0)),
    "calls back twice": Scenario(callback_plan=CallbackPlan(times=2)),
    "calls back late": Scenario(callback_plan=CallbackPlan(after=timedelta(minutes=20))),
    "calls back early": Scenario(callback_plan=CallbackPlan(early=True)),
    "calls back rubbish": Scenario(callback_plan=CallbackPlan(body="rubbish")),
}


def _refusals(method: str) -> Mapping[str, Fault]:
    """Return Slack's refusals of a method, by their code."""
    said = {
        code: CannedResponse(200, {"ok": False, "error": code}) for code in _CODES[method].split()
    }
    for code in ("internal_error", "fatal_error", "request_timeout"):
        said[f"{code}, done"] = CannedResponse(200, {"ok": False, "error": code}, done=True)
    return said


# A message without metadata is one that the checks here do not know.
_POSTS: Final = {
    code: fault
    for code, fault in {
        **_refusals("chat.postMessage"),
        "no code": CannedResponse(200, {"ok": False}),
    }.items()
    if errors.ERROR_ACTIONS.get(code) is not errors.ErrorAction.WITHOUT_METADATA
}
_EDITS: Final = {**_LOST, **_refusals("chat.update")}
_VIEWS: Final = {**_LOST, **_refusals("views.open")}
_SEARCHES: Final = {
    **_LOST,
    **{
        code: CannedResponse(200, {"ok": False, "error": code})
        for code in ("missing_scope", "token_revoked", "channel_not_found", "internal_error")
    },
}

#: Those of an upload.
_STEPS: Final = ("files.getUploadURLExternal", FILE_CONTENT, "files.completeUploadExternal")
_FILES: Final = {**_LOST, **_refusals("files.completeUploadExternal")}

_FAULTS_BY_METHOD: Final[Mapping[str, Mapping[str, Fault]]] = {
    "chat.postMessage": {**_LOST, **_POSTS},
    "chat.update": _EDITS,
    "response_url": _LOST,
    "views.open": _VIEWS,
    "conversations.open": _SEARCHES,
    "conversations.history": _SEARCHES,
    "conversations.replies": _SEARCHES,
    "files.getUploadURLExternal": _FILES,
    "files.completeUploadExternal": _FILES,
    FILE_CONTENT: _LOST,
    "files.info": _SEARCHES,
}
# Lost posts come as often as all faults of another method.
_METHOD_FAULTS: Final = [
    [("chat.postMessage", outcome) for outcome in _LOST],
    *([(method, outcome) for outcome in said] for method, said in _FAULTS_BY_METHOD.items()),
]

_USER: Final = st.sampled_from(["ana", "ben"])
_ANY_USER: Final = st.sampled_from(["ana", "ben", "cleo"])
_KIND: Final = st.sampled_from(["video", "video", "replica"])
_WORDS: Final = st.sampled_from(["Words A.", "Words B."])
# A transcript that its reply has no room for is a file. Its first lines are too short for a mark of
# whose they are: two users have the same ones.
_LONG_SCRIPT: Final = "Words C.\n-\n-\n" + "Words of a long script. " * 400
_PLACE: Final = st.sampled_from(["studio", "studio", "studio", "lobby", "vault"])
_ANSWER: Final = st.sampled_from([CREATE_AGAIN, CREATE_AGAIN, HAVE_ID, HAVE_ID, GIVE_UP])
_DECISION: Final = st.sampled_from([APPROVE, APPROVE, DECLINE, WITHDRAW])
_CALLBACK: Final = "a callback"
# An index from the newest, modulo the number of things.
_INDEX: Final = st.integers(0, 5)
_MOMENTS: Final = st.sampled_from(
    [
        f"{phase} {what}"
        for what in (
            *("create", "card", "question", "approval", "reply", "submission"),
            *("read", "edit", "search", "callback"),
            *_STEPS,
        )
        for phase in ("after", "before")
    ]
)


@dataclass(frozen=True)
class Form:
    """A form that a user was shown."""

    modal: Modal
    what: str
    """``video``, ``replica``, ``job`` for the form that asks for an id, or ``decline``."""

    @property
    def asks_for_work(self) -> bool:
        """Whether it asks for a job."""
        return self.what not in {"job", "decline"}

    @property
    def is_on_top(self) -> bool:
        """Whether the user could submit it now."""
        top = self.modal._slack.modals[self.modal.view.user][-1:]
        return [self.modal.view] == top


class JobLife(RuleBasedStateMachine):
    """Actions of users, the passing of time, and crashes."""

    on_postgres = False
    needs_approval = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # A crash is simulated by copying files, so memory serves as the disk.
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.actions = UserActions()
        self.forms: list[Form] = []
        self.shown: list[Message] = []
        self.can_check = self.has_changed = False
        self.runner.run(self._set_up())

    async def _set_up(self) -> None:
        self.world = CrashingWorld(Path(self.folder.name))
        self.world.on_postgres = self.on_postgres or self.world.on_postgres
        self.people = {"ana": self.world.ana, "ben": self.world.ben, "cleo": self.world.cleo}
        if self.needs_approval:
            self.world.settings = {
                "APPROVERS": f"{self.world.ben.user.id},{self.world.cleo.user.id}",
                "APPROVAL_CHANNEL": self.world.slack.channel("lobby").id,
            }
        # Otherwise forms are refused instead of answered in direct messages.
        self.world.slack.scopes.discard("groups:read")
        self.checker = InvariantChecker(self.world, self.actions)
        self.world.slack.subscribe(self._record_message)

    @initialize(callbacks=st.booleans(), who=_USER, kind=_KIND, words=_WORDS)
    def start(self, *, callbacks: bool, who: str, kind: str, words: str) -> None:
        self.runner.run(self.world.start(callbacks=callbacks))
        self._run(self._request(who, kind, words, "studio"))

    @invariant()
    def all_invariants_hold(self) -> None:
        if self.can_check and self.has_changed:
            self._check()

    def teardown(self) -> None:
        try:
            if self.can_check:
                self._finish()
        finally:
            self.checker.detach()
            with contextlib.closing(self.runner), self.folder:
                self.runner.run(self.world.stop())

    # ── Users ─────────────────────────────────────────────────────────────────────────────────────

    @rule(
        who=_USER,
        kind=_KIND,
        words=_WORDS,
        place=_PLACE,
        clicks=st.sampled_from([1, 1, 2]),
        newest=st.booleans(),
        answered=st.sampled_from([True, True, False]),
    )
    def submit_a_request(
        self,
        *,
        who: str,
        kind: str,
        words: str,
        place: str,
        clicks: int,
        newest: bool,
        answered: bool,
    ) -> None:
        """A video uses the newest replica, which may be in training, or a trained one."""
        self.world.lost_answers = 0 if answered else clicks
        self._run(self._request(who, kind, words, place, clicks=clicks, newest=newest))

    @rule(kind=_KIND, words=_WORDS)
    def submit_two_requests_at_once(self, kind: str, words: str) -> None:
        async def ask() -> None:
            both = [self._request(who, kind, words, "studio") for who in ("ana", "ben")]
            await asyncio.gather(*both)

        self._run(ask())

    @rule(which=_INDEX, words=st.none() | _WORDS, remote=_INDEX)
    def submit_an_open_form(self, which: int, words: str | None, remote: int) -> None:
        """Submit an open form, for example one that got no answer or that a button opened.

        Where none is open, Slack sends an earlier submission again.
        """
        if not (there := [form for form in self.forms if form.is_on_top]):
            self._run(self._resubmit(_one(self.forms, which)))
        elif (form := _one(there, which)).what == "job":
            self._give_id(form, remote)
        elif form.what == "decline":
            self._run(self._submit(form, {"decline_reason": "No."}))
        else:
            field = "script" if form.what == "video" else "replica_name"
            self._run(self._submit(form, {} if words is None else {field: words}))

    @rule(who=_ANY_USER, which=_INDEX, button=_INDEX, sure=st.sampled_from([True, True, False]))
    def press_a_button(self, *, who: str, which: int, button: int, sure: bool) -> None:
        """Press a button of any version of any message, as clients may be out of date."""
        if self.shown:
            message = _one(self.shown, which)
            self._press(self.people[who], message, _one(_buttons(message), button), sure=sure)

    @rule(who=_ANY_USER, which=_INDEX, answer=_ANSWER, remote=_INDEX)
    def answer_a_question(self, who: str, which: int, answer: str, remote: int) -> None:
        jobs = self.checker.rows.jobs
        if doubtful := [id_ for id_, job in jobs.items() if job["state"] == "unconfirmed"]:
            job = _one(doubtful, which)
            if not jobs[job]["asked"]:
                self._run(
                    self.world.advance(seconds=self.world.timings.reconcile_within.seconds + 1)
                )
                self._check()
            self._answer(self.people[who], job, answer)
            if answer == HAVE_ID and self.forms[-1].is_on_top:
                self._give_id(self.forms[-1], remote)

    @rule(who=_ANY_USER, which=_INDEX)
    def ask_for_the_status(self, who: str, which: int) -> None:
        async def ask() -> None:
            job = _one(list(self.checker.rows.jobs.values()), which)
            await self.people[who].command(f"/{job['kind']}", f"status {job['id']}")

        if self.checker.rows.jobs:
            self._run(ask())

    # ── Time and crashes ──────────────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([1, 10, 31, 65, 130, 16 * 60, 3600, 4 * 3600, 24 * 3600]))
    def advance_time(self, seconds: int) -> None:
        self._run(self.world.advance(seconds=seconds))

    @rule(days=st.sampled_from([1, -1]), seconds=st.sampled_from([1, 65, 3600]))
    def skew_the_bots_clock(self, days: int, seconds: int) -> None:
        async def skew() -> None:
            # Late commits are done by then: the wrong clock must not hide one.
            await self.world.advance(seconds=2 * _SOON.seconds)
            self.world.skewed_clock.skew_by(days * _DAY)
            await self.world.advance(seconds=seconds)
            self.world.skewed_clock.skew_by(0 * _DAY)

        self._run(skew())

    @rule(moment=st.just("now") | _MOMENTS, minutes=st.sampled_from([0, 0, 5, 120]))
    def crash(self, moment: str, minutes: int) -> None:
        self.world.downtime = timedelta(minutes=minutes)
        if moment == "now":
            self._run(self.world.crash())
        else:
            self.world.crash_at = moment

    @rule(callbacks=st.booleans())
    def restart_the_bot(self, *, callbacks: bool) -> None:
        self._run(self.world.restart(callbacks=callbacks))

    # ── Parts of the above ────────────────────────────────────────────────────────────────────────

    def _run(self, action: Coroutine[Any, Any, None]) -> None:
        """Run an action and what follows from it, whether or not the bot crashes meanwhile."""

        async def act_and_settle() -> None:
            await action
            await self.world.settle()

        async def do() -> None:
            if not await self.world.survives(act_and_settle()):
                await self.world.settle()
                self.world.skewed_clock.skew_by(0 * _DAY)
                await self.world.settle()

        self.can_check = False
        self.runner.run(do())
        self.can_check = self.has_changed = True

    def _check(self) -> None:
        self.can_check = self.has_changed = False
        self.checker.check()
        self.can_check = True

    async def _request(
        self, who: str, kind: str, words: str, place: str, *, clicks: int = 1, newest: bool = False
    ) -> None:
        if len(self.actions.submitted) >= _MAX_SUBMISSIONS:
            return
        await self.people[who].command(f"/{kind}", "", place)
        if (form := self._new_form(self.people[who])) is not None:
            replica = list(self.world.service.replicas)[-1] if newest else REPLICA
            script: dict[str, Any] = {"script": words}
            if words == _LONG_SCRIPT:
                file = self.world.slack.upload(who, "script.txt", words.encode())
                script = {"script_file": [file["id"]]}
            values: dict[str, dict[str, Any]] = {
                "video": {"replica_id": replica, **script},
                "replica": {"train_video_url": FOOTAGE, "replica_name": words, "agreed": ["yes"]},
            }
            await self._submit(form, values[kind], clicks=clicks)

    def _new_form(self, person: Person) -> Form | None:
        """Return the user's open form if it is a new one."""
        modal = person.modal
        if modal is None or any(form.modal.view is modal.view for form in self.forms):
            return None
        form = Form(modal, modal.view.body["callback_id"].partition("_")[0])
        self.forms.append(form)
        return form

    async def _submit(self, form: Form, values: Mapping[str, Any], *, clicks: int = 1) -> None:
        key = form.modal.view.id
        if form.asks_for_work:
            self.actions.submitted.add(key)
        try:
            answer = await form.modal.submit(values, clicks=clicks)
        except ClientRefusal:
            return  # something is missing in it, or it is gone
        closes = not answer.body.strip() or (answer.json or {}).get("response_action") == "clear"
        if answer.ok and closes and form.asks_for_work and not self.world.is_crashed:
            kept = ("replica_id", "script", "train_video_url", "replica_name", "where")
            typed = form.modal.values
            self.actions.accepted[key] = {name: typed[name] for name in kept if typed.get(name)}
        self._new_form(self.people[self.world.slack.users[form.modal.view.user].name])

    def _press(self, person: Person, message: Message, button: Json, *, sure: bool) -> None:
        job = self.checker.rows.jobs.get(_job_id(button))
        action = button["action_id"]
        may = job is not None and self._may_press(person.user.id, action, job)
        if may and job and (action, job["state"]) == (APPROVE, "waiting_for_approval"):
            self.actions.approved.add((job["id"], job["attempts"]))
        if may and job and sure and (action, job["state"]) == (CREATE_AGAIN, "unconfirmed"):
            # What needs approval waits for it, unless somebody else presses this who may give it.
            waits = job["approval_until"] is not None and person.user.id == job["user_id"]
            self.actions.create_again[job["id"]] += not waits

        async def press() -> None:
            await person.click(message, action, confirm=sure)
            self._new_form(person)

        crashes = self.world.crash_count
        self._run(press())
        if job is not None and not may and self.world.crash_count == crashes:
            now = self.world.disk.rows().jobs[job["id"]]
            for name in ("state", "attempts", "asked", "ended_at"):
                assert now[name] == job[name], "a user without permission decided"

    def _may_press(self, user: str, action: str, job: Mapping[str, Any]) -> bool:
        cleo, ben = self.world.cleo.user.id, self.world.ben.user.id
        if action in {APPROVE, DECLINE}:
            return user in {ben, cleo} - {job["user_id"]}
        return user in {job["user_id"], cleo}

    def _answer(self, person: Person, job: str, action: str) -> None:
        """Press a button of a job's question or approval, if one was shown."""
        for message in reversed(self.shown):
            for button in _buttons(message):
                if (_job_id(button), button["action_id"]) == (job, action):
                    self._press(person, message, button, sure=True)
                    return

    @staticmethod
    async def _resubmit(form: Form) -> None:
        with contextlib.suppress(ClientRefusal):  # it was never sent off
            await form.modal.resubmit()

    def _give_id(self, form: Form, which: int) -> None:
        """Submit an id, which may belong to any resource or to none."""
        if form.what == "job":
            named = _one(self._remote_ids(), which)
            self._run(self._submit(form, {"remote_id": named}))

    def _record_message(self, event: Event) -> None:
        message = event.message
        if event.kind in {"posted", "edited"} and message is not None and _buttons(message):
            self.shown.append(message)

    def _remote_ids(self) -> list[str]:
        """Return the ids of all resources, and an unknown one."""
        service = self.world.service
        return ["nobody-knows-it", *service.replicas, *service.videos]

    def _finish(self) -> None:
        """Stop all faults and answer all questions, until every job has ended."""
        world = self.world
        world.crash_at, world.lost_answers = None, 0
        world.service.faults.clear()
        world.slack.faults.clear()
        world.service.down = world.service.key_revoked = world.service.out_of_credit = False
        world.slack.auth_error, world.service.rate_limited = None, None
        for _ in range(_MAX_ROUNDS):
            self._run(world.settle())
            self._check()
            for id_, row in list(self.checker.rows.jobs.items()):
                # Those that nobody approves expire.
                if row["state"] == "waiting_for_approval" and int(id_, 36) % 2:
                    self._answer(self.people["cleo"], id_, APPROVE)
                    self._check()
            for job in self.checker.open_questions():
                self._answer(self.people["cleo"], job, GIVE_UP)
                self._check()
            if not self.checker.unfinished():
                break
            self._run(world.advance(hours=6))
        self.checker.check_end()


class ServiceFaults(JobLife):
    """With faults of the video service."""

    @rule(
        who=_USER,
        kind=_KIND,
        words=_WORDS,
        outcome=st.sampled_from(sorted(_CREATE_FAULTS)),
        by=_ANY_USER,
        answer=st.none() | st.just(_CALLBACK) | _ANSWER,
        remote=_INDEX,
    )
    def request_with_a_create_fault(
        self,
        *,
        who: str,
        kind: str,
        words: str,
        outcome: str,
        by: str,
        answer: str | None,
        remote: int,
    ) -> None:
        self.world.service.faults.next(f"create_{kind}", _CREATE_FAULTS[outcome])
        self._run(self._request(who, kind, words, "studio"))
        self._check()
        if answer == _CALLBACK:
            self.send_a_callback(of=0, names=remote, forged=False, method="POST")
        elif answer is not None:
            self.answer_a_question(by, 0, answer, remote)

    @rule(who=_USER, kind=_KIND, words=_WORDS, scenario=st.sampled_from(sorted(_SCENARIOS)))
    def request_with_a_scenario(self, who: str, kind: str, words: str, scenario: str) -> None:
        service = self.world.service
        (service.next_video if kind == "video" else service.next_replica)(_SCENARIOS[scenario])
        self._run(self._request(who, kind, words, "studio"))

    @rule(kind=_KIND, outcome=st.sampled_from(sorted(_READ_FAULTS)))
    def read_fault(self, kind: str, outcome: str) -> None:
        self.world.service.faults.next(f"read_{kind}", _READ_FAULTS[outcome])

    @rule(state=st.sampled_from(["well", "down", "key revoked", "out of credit", "busy"]))
    def set_service_state(self, state: str) -> None:
        service = self.world.service
        service.down = state == "down"
        service.key_revoked = state == "key revoked"
        service.out_of_credit = state == "out of credit"
        until = self.world.clock.now() + timedelta(minutes=20)
        service.rate_limited = RateLimit(until, timedelta(minutes=5)) if state == "busy" else None

    @rule(which=_INDEX, how=st.sampled_from(["well", "badly", "deleted"]))
    def end_at_the_service(self, which: int, how: str) -> None:
        async def end() -> None:
            service = self.world.service
            job = _one(self._remote_ids(), which)
            with contextlib.suppress(KeyError, ValueError):  # there is none, or it has ended
                match how:
                    case "well":
                        service.finish(job)
                    case "badly":
                        service.fail(job, "Too dark")
                    case _:
                        service.delete(job)

        self._run(end())

    @rule(
        of=_INDEX,
        names=_INDEX,
        forged=st.sampled_from([False, False, True]),
        method=st.sampled_from(["POST", "GET"]),
    )
    def send_a_callback(self, *, of: int, names: int, forged: bool, method: str) -> None:
        """Send a callback with the token of any create call or an unknown token, naming any id."""
        addresses = [
            request.body["callback_url"]
            for request in self.world.service.requests
            if isinstance(request.body, dict) and "callback_url" in request.body
        ]

        async def call_back() -> None:
            address = _one(addresses, of)
            # An id that comes with the own token of a request, which only the service has, is
            # believed if no other request made it: of a replica, the service shows only a name.
            ids = [id_ for id_ in self._remote_ids() if forged or id_ != REPLICA]
            named = _one(ids, names)
            if forged:
                address = address.rpartition("/")[0] + "/forged"
            said = {"video_id": named, "replica_id": named, "status": "ready"}
            with contextlib.suppress(aiohttp.ClientError):  # the bot crashed
                async with self.world.slack.session.request(method, address, json=said):
                    pass

        if addresses:
            self._run(call_back())


class SlackFaults(JobLife):
    """With faults of Slack."""

    @rule(who=_USER, kind=_KIND, place=_PLACE, outcome=st.sampled_from(sorted(_LOST)))
    def request_with_a_lost_post(self, who: str, kind: str, place: str, outcome: str) -> None:
        self.world.slack.faults.next("chat.postMessage", _LOST[outcome])
        self._run(self._request(who, kind, "Words.", place))

    @rule(who=_USER, step=st.sampled_from(_STEPS), outcome=st.sampled_from(sorted(_LOST)))
    def request_with_a_lost_file(self, who: str, step: str, outcome: str) -> None:
        self.world.slack.faults.next(step, _LOST[outcome])
        self._run(self._request(who, "video", _LONG_SCRIPT, "studio"))

    @rule(call=st.one_of(*(st.sampled_from(calls) for calls in _METHOD_FAULTS)))
    def slack_fault(self, call: tuple[str, str]) -> None:
        method, outcome = call
        self.world.slack.faults.next(method, _FAULTS_BY_METHOD[method][outcome])

    @rule(state=st.sampled_from(["well", "token_revoked", "account_inactive", "blind", "archived"]))
    def set_slack_state(self, state: str) -> None:
        slack = self.world.slack
        slack.auth_error = state if state in errors.ERROR_ACTIONS else None
        slack.scopes = slack.scopes - _HISTORY if state == "blind" else slack.scopes | _HISTORY
        slack.channel("studio").is_archived = state == "archived"


class AllFaults(ServiceFaults, SlackFaults):
    """With faults of both."""


class Approvals(AllFaults):
    """The same, where every request needs approval."""

    needs_approval = True

    @rule(
        who=_ANY_USER,
        which=_INDEX,
        answers=st.lists(_DECISION, min_size=1, max_size=2),
        sends=st.booleans(),
    )
    def decide(self, *, who: str, which: int, answers: list[str], sends: bool) -> None:
        """Press the buttons of a request that waits for approval, or of one that did."""
        jobs = self.checker.rows.jobs
        waiting = [id_ for id_, job in jobs.items() if job["state"] == "waiting_for_approval"]
        if not (there := waiting or list(jobs)):
            return
        for answer in answers:
            self._answer(self.people[who], _one(there, which), answer)
            if sends and (form := self.forms[-1]).what == "decline" and form.is_on_top:
                self._run(self._submit(form, {"decline_reason": "No."}))
            self._check()

    @rule(days=st.sampled_from([3, 8]))
    def let_days_pass(self, days: int) -> None:
        self._run(self.world.advance(days=days))


class AllFaultsOnPostgres(AllFaults):
    """The same on PostgreSQL, where the leases of a killed bot run out."""

    on_postgres = True


def _job_id(button: Json) -> str:
    """Return the id of the job that a button is about."""
    return str(button.get("value", "")).partition(":")[0]


def _buttons(message: Message) -> list[Json]:
    """Return the buttons of a message, without links."""
    there = [each for block in message.blocks for each in elements(block)]
    return [each for each in there if each["type"] == "button" and "url" not in each]


def _one(things: Sequence[_T], which: int) -> _T:
    return things[-1 - which % len(things)]


_LONG: Final = settings.get_current_profile_name() == "long"


def _bounds(examples: int, steps: int) -> settings:
    """Return the settings: the same examples each time, unless the long profile is chosen."""
    if _LONG:
        return settings.get_profile("long")
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
    )


def _tests(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> Any:  # noqa: ANN401 - made by name
    """Return the test case of a state machine."""
    case: Any = machine.TestCase
    case.settings = _bounds(examples, steps)
    case.pytestmark = [pytest.mark.slow]
    return case


#: Nothing is paid twice, and every request is answered.
TestServiceFaults = _tests(ServiceFaults, 10, 25)
#: Every message arrives once.
TestSlackFaults = _tests(SlackFaults, 10, 25)
TestAllFaults = _tests(AllFaults, 12, 25)
#: Nothing is created before it is approved.
TestApprovals = _tests(Approvals, 8, 20)
TestAllFaultsOnPostgres = _tests(AllFaultsOnPostgres, 6, 25)
