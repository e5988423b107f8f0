"""The switches of the panel: what goes wrong with Slack and the video service, and approval."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.model import ApprovalPolicy
from bot.store import Store
from sandbox.block_kit import Json
from sandbox.faults import CannedResponse, Fault, Hang, Reset
from sandbox.key_quotes import KeyQuote
from sandbox.page.actions import checked, failed
from sandbox.scenarios import Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack import RESPONSE_URL, SandboxSlack
from sandbox.video_service import CREATES, SandboxVideoService
from sandbox.video_service import OPERATIONS as SERVICE_OPERATIONS

Side = Literal["service", "slack"]
_Reason = Annotated[str | None, Field(max_length=1_000)]

#: The operations of each side.
OPERATIONS: Final[dict[Side, tuple[str, ...]]] = {
    "service": SERVICE_OPERATIONS,
    "slack": (
        "chat.postMessage",
        "chat.update",
        "views.open",
        "views.update",
        "conversations.history",
        "conversations.replies",
        RESPONSE_URL,
    ),
}
#: What can happen to one request, in words.
FAULTS: Final = {
    "lose_answer": "lose the response (the work is done)",
    "lose_request": "drop the request (nothing is done)",
    "rate_limit": "respond 429, Retry-After 5",
    "unavailable": "respond 503",
    "hang": "never respond (nothing is done)",
    "rubbish": "respond 200 with HTML (the work is done)",
}
#: What can happen to the job that a request creates, in words.
JOB_SCENARIOS: Final = {"fail": "fail with a reason", "never": "never finish"}
AUTH_ERRORS: Final = ("token_revoked", "account_inactive", "invalid_auth")
#: How many callbacks a job sends.
TIMES: Final = {"none": 0, "once": 1, "twice": 2}
_PAGE: Final = "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
_RATE_LIMITED: Final[dict[Side, Json]] = {
    "service": {"message": "Too many requests"},
    "slack": {"ok": False, "error": "ratelimited"},
}
_HISTORY: Final = frozenset({"channels:history", "groups:history", "im:history"})
_DAY: Final = 86_400
# Who approves where the settings name nobody.
_APPROVERS: Final = ("ben", "cleo")


def fault(what: str, side: Side) -> Fault:
    """Return the fault of one of ``FAULTS`` on a side."""
    faults: dict[str, Fault] = {
        "lose_answer": Reset(done=True),
        "lose_request": Reset(),
        "rate_limit": CannedResponse(429, _RATE_LIMITED[side], {"Retry-After": "5"}),
        "unavailable": CannedResponse(503, _PAGE),
        "hang": Hang(),
        "rubbish": CannedResponse(200, _PAGE, done=True),
    }
    return faults[what]


class PageRequest(BaseModel):
    """The body of a request from the page."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PaceSettings(PageRequest):
    """How many seconds things take, for jobs created from now on."""

    queued: float | None = Field(None, ge=0, le=_DAY)
    generating: float | None = Field(None, ge=0, le=_DAY)
    training: float | None = Field(None, ge=0, le=_DAY)
    training_steps: int | None = Field(None, ge=1, le=1_000)


class RateLimitSettings(PageRequest):
    """For how many seconds all requests get 429, and whether with Retry-After."""

    seconds: float = Field(ge=0, le=_DAY)
    retry_after: bool = True


class ServiceSettings(PageRequest):
    """Switches of the video service; those that are not sent keep their state."""

    down: bool = False
    stalled: bool = False
    key_revoked: bool = False
    out_of_credit: bool = False
    quotes_key: KeyQuote | None = Field(None, strict=False)
    callbacks: Literal["none", "once", "twice"] = "once"
    rate_limit: RateLimitSettings | None = None
    pace: PaceSettings = PaceSettings()


class SlackSettings(PageRequest):
    """Switches of Slack; those that are not sent keep their state."""

    rate_limits: bool = False
    auth_error: Literal["token_revoked", "account_inactive", "invalid_auth"] | None = None
    history_scopes: bool = True


class Switches:
    """The switches, and their state at the start; ``store`` is the bot's, if it runs."""

    def __init__(
        self,
        slack: SandboxSlack,
        service: SandboxVideoService,
        store: Callable[[], Store | None] = lambda: None,
    ) -> None:
        self._slack = slack
        self._service = service
        self._store = store
        self._approvals: ApprovalPolicy | None = None
        self._pace = service.pace
        self._plans: list[Callable[[], None]] = []
        self._scopes = frozenset(slack.scopes)
        self._channels = {
            each.id: (slack.bot.id in each.members, each.is_archived)
            for each in slack.channels.values()
            if each.kind != "im"
        }

    def switch_service(self, request: ServiceSettings) -> None:
        """Set the switches of the service that were sent."""
        service, sent = self._service, request.model_fields_set
        for name in sent & {"down", "stalled", "key_revoked", "out_of_credit", "quotes_key"}:
            setattr(service, name, getattr(request, name))
        if "callbacks" in sent:
            service.set_callback_times(TIMES[request.callbacks])
        if "rate_limit" in sent:
            service.rate_limited = self._rate_limit(request.rate_limit)
        pace = request.pace.model_dump(exclude_none=True)
        steps = pace.pop("training_steps", service.pace.training_steps)
        spans = {name: timedelta(seconds=seconds) for name, seconds in pace.items()}
        service.pace = replace(service.pace, training_steps=steps, **spans)

    def switch_slack(self, request: SlackSettings) -> None:
        """Set the switches of Slack that were sent."""
        slack, sent = self._slack, request.model_fields_set
        for name in sent & {"rate_limits", "auth_error"}:
            setattr(slack, name, getattr(request, name))
        if "history_scopes" in sent:
            slack.scopes -= _HISTORY
            slack.scopes |= self._scopes & _HISTORY if request.history_scopes else set()

    @checked
    def switch_bot(self, *, approval: bool) -> Json | None:
        """Set whether requests need approval; return a failed outcome without a bot, else None."""
        if (store := self._store()) is None:
            return failed("gone", "The bot does not run.")
        jobs = store.jobs
        self._approvals = given = self._approvals or jobs.approvals
        people = {user.id for user in self._slack.users.values() if user.name in _APPROVERS}
        on = replace(given, approvers=given.approvers or frozenset(people))
        # They can still decide about what waits already.
        off = replace(on, approvers=frozenset(), admins=on.everybody)
        jobs.approvals = on if approval else off
        return None

    @checked
    def change_channel(
        self, name: str, *, has_app: bool | None = None, is_archived: bool | None = None
    ) -> Json | None:
        """Change a channel; return a failed outcome if that is impossible, else None."""
        if name not in self._channels:
            return failed("gone", "There is no such channel.")
        changes = {} if is_archived is None else {"is_archived": is_archived}
        self._slack.change_channel(name, with_bot=has_app, **changes)
        return None

    @checked
    def plan(self, side: Side, operation: str, what: str, reason: _Reason = None) -> Json:
        """Plan a fault or scenario; return the outcome, with the number of the plan."""
        if operation not in OPERATIONS[side]:
            return failed("refused", f"{operation} is not an operation of that side.")
        if what in FAULTS:
            faults = self._slack.faults if side == "slack" else self._service.faults
            planned = fault(what, side)
            faults.next(operation, planned)
            return self._planned(lambda: faults.drop(operation, planned))
        if what not in JOB_SCENARIOS or operation not in CREATES:
            return failed("refused", f"{what} cannot happen there.")
        scenario = Scenario(end="never") if what == "never" else Scenario("error", reason)
        scenarios = self._service.scenarios
        scenarios.next(operation, scenario)
        return self._planned(lambda: scenarios.drop(operation, scenario))

    def drop(self, number: int) -> Json | None:
        """Drop a plan that has not happened yet; return a failed outcome for an unknown number."""
        if not 0 <= number < len(self._plans):
            return failed("gone", "There is no such plan.")
        self._plans[number]()
        return None

    @checked
    async def act(
        self,
        job_id: str,
        do: Literal["finish", "fail", "call_back", "delete"],
        reason: _Reason = None,
    ) -> Json | None:
        """Act on a job; return a failed outcome if that is impossible, else None."""
        try:
            match do:
                case "finish":
                    self._service.finish(job_id)
                case "fail":
                    self._service.fail(job_id, reason)
                case "delete":
                    self._service.delete(job_id)
                case "call_back":
                    await self._service.call_back(job_id)
        except KeyError:
            return failed("gone", "There is no such job.")
        except ValueError as error:
            return failed("refused", f"That is not possible: {error}.")
        return None

    def reset(self) -> None:
        """Turn off every fault; jobs and messages stay."""
        for queues in (self._slack.faults, self._service.faults, self._service.scenarios):
            queues.clear()
        self.switch_service(
            ServiceSettings(
                down=False,
                stalled=False,
                key_revoked=False,
                out_of_credit=False,
                quotes_key=None,
                callbacks="once",
                rate_limit=None,
            )
        )
        self._service.pace = self._pace
        self.switch_slack(SlackSettings(rate_limits=False, auth_error=None, history_scopes=True))
        if self._approvals is not None:
            self.switch_bot(approval=bool(self._approvals.approvers))
        for name, (with_bot, archived) in self._channels.items():
            channel = self._slack.channels[name]
            if (self._slack.bot.id in channel.members, channel.is_archived) != (with_bot, archived):
                self._slack.change_channel(name, with_bot=with_bot, is_archived=archived)

    def _planned(self, drop: Callable[[], None]) -> Json:
        self._plans.append(drop)
        return {"ok": True, "plan": len(self._plans) - 1}

    def _rate_limit(self, request: RateLimitSettings | None) -> RateLimit | None:
        if request is None:
            return None
        span = timedelta(seconds=request.seconds)
        return RateLimit(self._slack.clock.now() + span, span if request.retry_after else None)
