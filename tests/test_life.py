"""Whole lives of jobs in any order: people, the service, Slack, the clock and the power at work."""

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
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bot.slack import errors
from bot.slack.cards import CREATE_AGAIN, GIVE_UP, HAVE_ID
from sandbox.block_kit import Json
from sandbox.driver import ClientRefusal, Modal, Person
from sandbox.faults import CannedResponse, Drip, Fault, Hang, LateCommit, Reset, Truncated
from sandbox.form import elements
from sandbox.video_service import CallbackPlan, RateLimit, Scenario
from sandbox.workspace import Event, Message
from tests.judge import Judge, Told
from tests.mortal import MortalWorld
from tests.world import FOOTAGE, MEMORY, REPLICA

_T = TypeVar("_T")

_CODES: Final = tomllib.loads(
    (Path(__file__).parent / "data" / "slack_errors.toml").read_text(encoding="utf-8")
)
_PAGE: Final = "<html><body><h1>502 Bad Gateway</h1></body></html>"
_BUSY: Final = {"error": "Too many requests"}
_SOON: Final = timedelta(seconds=10)
_DAY: Final = timedelta(days=1)
_HISTORY: Final = frozenset({"channels:history", "groups:history", "im:history"})
# So many forms are sent off in one example: more only make it longer.
_MANY: Final = 5
# Six hours of calm, so many times: longer than anybody's patience.
_CALM: Final = 30

# What may come of any request, by name: with "done" its work was done all the same.
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
_CREATES: Final[Mapping[str, Fault]] = {
    **_LOST,
    "done much later": LateCommit(timedelta(minutes=20)),
    "no id, done": CannedResponse(200, {"status": "queued"}, done=True),
    "400": CannedResponse(400, {"error": "Invalid script"}),
    "401": CannedResponse(401, {"message": "Invalid API key"}),
    "402": CannedResponse(402, {"error": "The account is out of credit"}),
    "403": CannedResponse(403, "Forbidden"),
    "422": CannedResponse(422, {"message": "Not like this"}),
}
_READS: Final[Mapping[str, Fault]] = {
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
    """Return what Slack may say to a method, by its code."""
    said = {
        code: CannedResponse(200, {"ok": False, "error": code}) for code in _CODES[method].split()
    }
    for code in ("internal_error", "fatal_error", "request_timeout"):
        said[f"{code}, done"] = CannedResponse(200, {"ok": False, "error": code}, done=True)
    return said


_POSTS: Final = {**_refusals("chat.postMessage"), "no code": CannedResponse(200, {"ok": False})}
_EDITS: Final = {**_LOST, **_refusals("chat.update")}
_ASIDE: Final = {**_LOST, **_refusals("chat.postEphemeral")}
# A form that Slack finds faulty is our own mistake, and the log says where it was made.
_FORMS: Final = {
    code: fault
    for code, fault in {**_LOST, **_refusals("views.open")}.items()
    if errors.FATES.get(code) is not errors.Fate.REWRITE
}
_LOOKS: Final = {
    **_LOST,
    **{
        code: CannedResponse(200, {"ok": False, "error": code})
        for code in ("missing_scope", "token_revoked", "channel_not_found", "internal_error")
    },
}

_SAID: Final[Mapping[str, Mapping[str, Fault]]] = {
    "chat.postMessage": {**_LOST, **_POSTS},
    "chat.update": _EDITS,
    "chat.postEphemeral": _ASIDE,
    "response_url": _LOST,
    "views.open": _FORMS,
    "conversations.open": _LOOKS,
    "conversations.history": _LOOKS,
    "conversations.replies": _LOOKS,
}
# Losses of posts and what is said to posts come as often as all that is said to another method.
_CALLS: Final = [
    [("chat.postMessage", outcome) for outcome in _LOST],
    *([(method, outcome) for outcome in said] for method, said in _SAID.items()),
]

_WHO: Final = st.sampled_from(["ana", "ben"])
_ANYBODY: Final = st.sampled_from(["ana", "ben", "cleo"])
_KIND: Final = st.sampled_from(["video", "video", "replica"])
_WORDS: Final = st.sampled_from(["Words A.", "Words B."])
_PLACE: Final = st.sampled_from(["studio", "studio", "studio", "lobby", "vault"])
_ANSWER: Final = st.sampled_from([CREATE_AGAIN, CREATE_AGAIN, HAVE_ID, HAVE_ID, GIVE_UP])
_CALLBACK: Final = "a callback"
# Which of some things, counted from the newest; where there are fewer, it begins anew.
_WHICH: Final = st.integers(0, 5)
_MOMENTS: Final = st.sampled_from(
    [
        f"{phase} {what}"
        for what in ("create", "card", "reply", "submission", "read", "edit", "search", "callback")
        for phase in ("after", "before")
    ]
)


@dataclass(frozen=True)
class Form:
    """A form that somebody was shown."""

    modal: Modal
    what: str
    """``video``, ``replica``, or ``job`` for the id of one."""

    @property
    def is_on_top(self) -> bool:
        """Whether the person could press its button now."""
        top = self.modal._slack.modals[self.modal.view.user][-1:]
        return [self.modal.view] == top


class Life(RuleBasedStateMachine):
    """What people do, and what time and power do to the bot."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # The power is cut by copying files: nothing is gained by a disk that is waited for.
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.told = Told()
        self.forms: list[Form] = []
        self.shown: list[Message] = []
        self.is_sound = self.is_news = False
        self.runner.run(self._made())

    async def _made(self) -> None:
        self.world = MortalWorld(Path(self.folder.name))
        self.people = {"ana": self.world.ana, "ben": self.world.ben, "cleo": self.world.cleo}
        self.judge = Judge(self.world, self.told)
        self.world.slack.subscribe(self._sees)

    @initialize(callbacks=st.booleans(), who=_WHO, kind=_KIND, words=_WORDS)
    def begins(self, *, callbacks: bool, who: str, kind: str, words: str) -> None:
        self.runner.run(self.world.begin(callbacks=callbacks))
        self._does(self._asks(who, kind, words, "studio"))

    @invariant()
    def all_promises_are_kept(self) -> None:
        if self.is_sound and self.is_news:
            self._looks()

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self._comes_to_rest()
        finally:
            self.judge.leave()
            with contextlib.closing(self.runner), self.folder:
                self.runner.run(self.world.end())

    # ── What people do ────────────────────────────────────────────────────────────────────────

    @rule(
        who=_WHO,
        kind=_KIND,
        words=_WORDS,
        place=_PLACE,
        clicks=st.sampled_from([1, 1, 2]),
        newest=st.booleans(),
        heard=st.sampled_from([True, True, False]),
    )
    def somebody_asks(
        self,
        *,
        who: str,
        kind: str,
        words: str,
        place: str,
        clicks: int,
        newest: bool,
        heard: bool,
    ) -> None:
        """For a video with the newest replica, which may be in training, or with one trained."""
        self.world.unanswered = 0 if heard else clicks
        self._does(self._asks(who, kind, words, place, clicks=clicks, newest=newest))

    @rule(kind=_KIND, words=_WORDS)
    def two_ask_at_once(self, kind: str, words: str) -> None:
        async def ask() -> None:
            both = [self._asks(who, kind, words, "studio") for who in ("ana", "ben")]
            await asyncio.gather(*both)

        self._does(ask())

    @rule(which=_WHICH, words=st.none() | _WORDS, remote=_WHICH)
    def a_form_is_sent_off(self, which: int, words: str | None, remote: int) -> None:
        """One is open that got no answer, that lies over another, or that a button opened.

        Where none is, Slack sends an earlier one once more.
        """
        if not (there := [form for form in self.forms if form.is_on_top]):
            self._does(self._comes_again(_one(self.forms, which)))
        elif (form := _one(there, which)).what == "job":
            self._gives_id(form, remote)
        else:
            field = "script" if form.what == "video" else "replica_name"
            self._does(self._sends(form, {} if words is None else {field: words}))

    @rule(who=_ANYBODY, which=_WHICH, button=_WHICH, sure=st.sampled_from([True, True, False]))
    def somebody_presses_a_button(self, *, who: str, which: int, button: int, sure: bool) -> None:
        """One of those that stand on the cards now, or that stood there when somebody looked."""
        if self.shown:
            message = _one(self.shown, which)
            self._presses(self.people[who], message, _one(_buttons(message), button), sure=sure)

    @rule(who=_ANYBODY, which=_WHICH, answer=_ANSWER, remote=_WHICH)
    def a_question_is_answered(self, who: str, which: int, answer: str, remote: int) -> None:
        jobs = self.judge.rows.jobs
        if doubtful := [id_ for id_, job in jobs.items() if job["state"] == "unconfirmed"]:
            job = _one(doubtful, which)
            if not jobs[job]["asked"]:
                self._does(
                    self.world.advance(seconds=self.world.timings.reconcile_within.seconds + 1)
                )
                self._looks()
            self._answers(self.people[who], job, answer)
            if answer == HAVE_ID and self.forms[-1].is_on_top:
                self._gives_id(self.forms[-1], remote)

    @rule(who=_ANYBODY, which=_WHICH)
    def somebody_asks_how_one_stands(self, who: str, which: int) -> None:
        async def ask() -> None:
            job = _one(list(self.judge.rows.jobs.values()), which)
            await self.people[who].command(f"/{job['kind']}", f"status {job['id']}")

        if self.judge.rows.jobs:
            self._does(ask())

    # ── Time and power ────────────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([1, 10, 31, 65, 130, 16 * 60, 3600, 4 * 3600, 24 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self._does(self.world.advance(seconds=seconds))

    @rule(days=st.sampled_from([1, -1]), seconds=st.sampled_from([1, 65, 3600]))
    def the_bots_clock_is_wrong_for_a_while(self, days: int, seconds: int) -> None:
        async def go_wrong() -> None:
            # What Slack does late it has done by then: nobody can wait for it by a wrong clock.
            await self.world.advance(seconds=2 * _SOON.seconds)
            self.world.own_clock.go_wrong(days * _DAY)
            await self.world.advance(seconds=seconds)
            self.world.own_clock.go_wrong(0 * _DAY)

        self._does(go_wrong())

    @rule(moment=st.just("now") | _MOMENTS, minutes=st.sampled_from([0, 0, 5, 120]))
    def the_power_goes(self, moment: str, minutes: int) -> None:
        self.world.down_for = timedelta(minutes=minutes)
        if moment == "now":
            self._does(self.world.die())
        else:
            self.world.deadly = moment

    @rule(callbacks=st.booleans())
    def the_bot_is_restarted(self, *, callbacks: bool) -> None:
        self._does(self.world.restart(callbacks=callbacks))

    # ── Parts of the above ────────────────────────────────────────────────────────────────────

    def _does(self, deed: Coroutine[Any, Any, None]) -> None:
        """Have something done and all that follows, whether or not the power goes meanwhile."""

        async def all_of_it() -> None:
            await deed
            await self.world.settle()

        async def do() -> None:
            if not await self.world.live_through(all_of_it()):
                await self.world.settle()
                self.world.own_clock.go_wrong(0 * _DAY)
                await self.world.settle()

        self.is_sound = False
        self.runner.run(do())
        self.is_sound = self.is_news = True

    def _looks(self) -> None:
        self.is_sound = self.is_news = False
        self.judge.look()
        self.is_sound = True

    async def _asks(
        self, who: str, kind: str, words: str, place: str, *, clicks: int = 1, newest: bool = False
    ) -> None:
        if len(self.told.keys) >= _MANY:
            return
        await self.people[who].command(f"/{kind}", "", place)
        if (form := self._opened(self.people[who])) is not None:
            replica = list(self.world.service.replicas)[-1] if newest else REPLICA
            values: dict[str, dict[str, Any]] = {
                "video": {"replica_id": replica, "script": words},
                "replica": {"train_video_url": FOOTAGE, "replica_name": words, "agreed": ["yes"]},
            }
            await self._sends(form, values[kind], clicks=clicks)

    def _opened(self, person: Person) -> Form | None:
        """Return the form that a person has in front of them, if it is a new one."""
        modal = person.modal
        if modal is None or any(form.modal.view is modal.view for form in self.forms):
            return None
        form = Form(modal, modal.view.body["callback_id"].partition("_")[0])
        self.forms.append(form)
        return form

    async def _sends(self, form: Form, values: Mapping[str, Any], *, clicks: int = 1) -> None:
        key = form.modal.view.id
        if form.what != "job":
            self.told.keys.add(key)
        try:
            answer = await form.modal.submit(values, clicks=clicks)
        except ClientRefusal:
            return  # something is missing in it, or it is gone
        closes = not answer.body.strip() or (answer.json or {}).get("response_action") == "clear"
        if answer.ok and closes and form.what != "job" and not self.world.is_dead:
            kept = ("replica_id", "script", "train_video_url", "replica_name", "where")
            typed = form.modal.values
            self.told.accepted[key] = {name: typed[name] for name in kept if typed.get(name)}
        self._opened(self.people[self.world.slack.users[form.modal.view.user].name])

    def _presses(self, person: Person, message: Message, button: Json, *, sure: bool) -> None:
        job = self.judge.rows.jobs.get(button.get("value", ""))
        may = job is not None and person.user.id in {job["user_id"], self.world.cleo.user.id}
        action = button["action_id"]
        if may and job and sure and (action, job["state"]) == (CREATE_AGAIN, "unconfirmed"):
            self.told.again[job["id"]] += 1

        async def press() -> None:
            await person.click(message, action, confirm=sure)
            self._opened(person)

        deaths = self.world.deaths
        self._does(press())
        if job is not None and not may and self.world.deaths == deaths:
            now = self.world.disk.rows().jobs[job["id"]]
            for name in ("state", "attempts", "asked", "ended_at"):
                assert now[name] == job[name], "a stranger decided"

    def _answers(self, person: Person, job: str, action: str) -> None:
        """Have somebody press a button below a question, where that is to be seen."""
        for message in reversed(self.shown):
            for button in _buttons(message):
                if (button.get("value"), button["action_id"]) == (job, action):
                    self._presses(person, message, button, sure=True)
                    return

    @staticmethod
    async def _comes_again(form: Form) -> None:
        with contextlib.suppress(ClientRefusal):  # it was never sent off
            await form.modal.resubmit()

    def _gives_id(self, form: Form, which: int) -> None:
        """Have somebody give an id, which may be that of anything or of nothing."""
        if form.what == "job":
            named = _one(self._remote_ids(), which)
            self._does(self._sends(form, {"remote_id": named}))

    def _sees(self, event: Event) -> None:
        message = event.message
        if event.kind in {"posted", "edited"} and message is not None and _buttons(message):
            self.shown.append(message)

    def _remote_ids(self) -> list[str]:
        """Return the ids of all that there is, and of what is not."""
        service = self.world.service
        return ["nobody-knows-it", *service.replicas, *service.videos]

    def _comes_to_rest(self) -> None:
        """Let all go well from here on: everything ends, as soon as people have answered."""
        world = self.world
        world.deadly, world.unanswered = None, 0
        world.service.faults.clear()
        world.slack.faults.clear()
        world.service.down = world.service.key_revoked = world.service.out_of_credit = False
        world.slack.auth_error, world.service.rate_limited = None, None
        for _ in range(_CALM):
            self._does(world.settle())
            self._looks()
            for job in self.judge.questions():
                self._answers(self.people["cleo"], job, GIVE_UP)
                self._looks()
            if not self.judge.restless():
                break
            self._does(world.advance(hours=6))
        self.judge.close()


class Creating(Life):
    """And the service has its days."""

    @rule(
        who=_WHO,
        kind=_KIND,
        words=_WORDS,
        outcome=st.sampled_from(sorted(_CREATES)),
        by=_ANYBODY,
        answer=st.none() | st.just(_CALLBACK) | _ANSWER,
        remote=_WHICH,
    )
    def somebody_asks_for_what_is_hard_to_get(
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
        self.world.service.faults.next(f"create_{kind}", _CREATES[outcome])
        self._does(self._asks(who, kind, words, "studio"))
        self._looks()
        if answer == _CALLBACK:
            self.something_calls_back(of=0, names=remote, forged=False, method="POST")
        elif answer is not None:
            self.a_question_is_answered(by, 0, answer, remote)

    @rule(who=_WHO, kind=_KIND, words=_WORDS, scenario=st.sampled_from(sorted(_SCENARIOS)))
    def somebody_asks_for_what_goes_its_own_way(
        self, who: str, kind: str, words: str, scenario: str
    ) -> None:
        service = self.world.service
        (service.next_video if kind == "video" else service.next_replica)(_SCENARIOS[scenario])
        self._does(self._asks(who, kind, words, "studio"))

    @rule(kind=_KIND, outcome=st.sampled_from(sorted(_READS)))
    def the_next_read(self, kind: str, outcome: str) -> None:
        self.world.service.faults.next(f"read_{kind}", _READS[outcome])

    @rule(mood=st.sampled_from(["well", "down", "key revoked", "out of credit", "busy"]))
    def the_service_is(self, mood: str) -> None:
        service = self.world.service
        service.down = mood == "down"
        service.key_revoked = mood == "key revoked"
        service.out_of_credit = mood == "out of credit"
        until = self.world.clock.now() + timedelta(minutes=20)
        service.rate_limited = RateLimit(until, timedelta(minutes=5)) if mood == "busy" else None

    @rule(which=_WHICH, how=st.sampled_from(["well", "badly", "deleted"]))
    def the_service_ends_one(self, which: int, how: str) -> None:
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

        self._does(end())

    @rule(
        of=_WHICH,
        names=_WHICH,
        forged=st.sampled_from([False, False, True]),
        method=st.sampled_from(["POST", "GET"]),
    )
    def something_calls_back(self, *, of: int, names: int, forged: bool, method: str) -> None:
        """With the token of any create call, or one of nobody's; about anything."""
        addresses = [
            request.body["callback_url"]
            for request in self.world.service.requests
            if isinstance(request.body, dict) and "callback_url" in request.body
        ]

        async def call_back() -> None:
            address = _one(addresses, of)
            named = _one(self._remote_ids(), names)
            if forged:
                address = address.rpartition("/")[0] + "/forged"
            said = {"video_id": named, "replica_id": named, "status": "ready"}
            with contextlib.suppress(aiohttp.ClientError):  # the power went
                async with self.world.slack.session.request(method, address, json=said):
                    pass

        if addresses:
            self._does(call_back())


class DeliveryState(Life):
    """And Slack has its days."""

    @rule(who=_WHO, kind=_KIND, place=_PLACE, outcome=st.sampled_from(sorted(_LOST)))
    def somebody_asks_and_the_next_post_is_lost(
        self, who: str, kind: str, place: str, outcome: str
    ) -> None:
        self.world.slack.faults.next("chat.postMessage", _LOST[outcome])
        self._does(self._asks(who, kind, "Words.", place))

    @rule(call=st.one_of(*(st.sampled_from(calls) for calls in _CALLS)))
    def the_next_call(self, call: tuple[str, str]) -> None:
        method, outcome = call
        self.world.slack.faults.next(method, _SAID[method][outcome])

    @rule(mood=st.sampled_from(["well", "token_revoked", "account_inactive", "blind", "archived"]))
    def slack_is(self, mood: str) -> None:
        slack = self.world.slack
        slack.auth_error = mood if mood in errors.FATES else None
        slack.scopes = slack.scopes - _HISTORY if mood == "blind" else slack.scopes | _HISTORY
        slack.channel("studio").is_archived = mood == "archived"


class Everything(Creating, DeliveryState):
    """All of it at once."""


def _buttons(message: Message) -> list[Json]:
    """Return the buttons of a message that tell the bot."""
    there = [each for block in message.blocks for each in elements(block)]
    return [each for each in there if each["type"] == "button" and "url" not in each]


def _one(things: Sequence[_T], which: int) -> _T:
    return things[-1 - which % len(things)]


_LONG: Final = settings.get_current_profile_name() == "long"


def _bounds(examples: int, steps: int) -> settings:
    """Return how long to go on: the same examples each time, unless asked for more than that."""
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
    """Return the test case of a machine."""
    case: Any = machine.TestCase
    case.settings = _bounds(examples, steps)
    return case


#: Nobody pays twice, and nobody is left without an answer.
TestCreating = _tests(Creating, 20, 25)
#: Every message arrives, once.
TestPosting = _tests(DeliveryState, 20, 25)
#: And all of it at once.
TestEverything = _tests(Everything, 20, 25)
