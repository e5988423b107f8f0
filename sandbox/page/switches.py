"""Switches of the other side: what can be made to go wrong with Slack and the video service."""

from dataclasses import replace
from datetime import timedelta
from typing import Final, Literal

from pydantic import Field

from sandbox.block_kit import Json
from sandbox.faults import CannedResponse, Fault, Hang, Reset
from sandbox.page.actions import Asked, failed
from sandbox.scenarios import Scenario
from sandbox.slack import RESPONSE_URL, SandboxSlack
from sandbox.video_service import RateLimit, SandboxVideoService

Side = Literal["service", "slack"]

#: What can be asked for on each side.
OPERATIONS: Final[dict[Side, tuple[str, ...]]] = {
    "service": ("create_video", "read_video", "create_replica", "read_replica"),
    "slack": (
        "chat.postMessage",
        "chat.update",
        "chat.postEphemeral",
        "views.open",
        "views.update",
        "conversations.history",
        "conversations.replies",
        RESPONSE_URL,
    ),
}
#: What can happen to one request, in words.
FAULTS: Final = {
    "lose_answer": "lose the answer (the work is done)",
    "lose_request": "drop the request (nothing is done)",
    "rate_limit": "answer 429, Retry-After 5",
    "unavailable": "answer 503",
    "hang": "do not answer (nothing is done)",
    "rubbish": "answer HTML with status 200 (the work is done)",
}
#: What can become of the job that a request creates, in words.
JOB_SCENARIOS: Final = {"fail": "fail with a reason", "never": "never end"}
AUTH_ERRORS: Final = ("token_revoked", "account_inactive", "invalid_auth")
#: How often a job calls back.
TIMES: Final = {"none": 0, "once": 1, "twice": 2}
_PAGE: Final = "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
_TOO_MANY: Final[dict[Side, Json]] = {
    "service": {"message": "Too many requests"},
    "slack": {"ok": False, "error": "ratelimited"},
}
_HISTORY: Final = frozenset({"channels:history", "groups:history", "im:history"})
_DAY: Final = 86_400


def fault(what: str, side: Side) -> Fault:
    """Return one of ``FAULTS``, as it happens on a side."""
    faults: dict[str, Fault] = {
        "lose_answer": Reset(done=True),
        "lose_request": Reset(),
        "rate_limit": CannedResponse(429, _TOO_MANY[side], {"Retry-After": "5"}),
        "unavailable": CannedResponse(503, _PAGE),
        "hang": Hang(),
        "rubbish": CannedResponse(200, _PAGE, done=True),
    }
    return faults[what]


class PaceAsked(Asked):
    """How many seconds things take, for jobs created from now on."""

    queued: float | None = Field(None, ge=0, le=_DAY)
    generating: float | None = Field(None, ge=0, le=_DAY)
    training: float | None = Field(None, ge=0, le=_DAY)
    training_steps: int | None = Field(None, ge=1, le=1_000)


class RateLimitAsked(Asked):
    """For how many seconds each request is one too many, and whether the answers say so."""

    seconds: float = Field(ge=0, le=_DAY)
    retry_after: bool = True


class ServiceAsked(Asked):
    """Switches of the video service; those that are not sent stay as they are."""

    down: bool = False
    key_revoked: bool = False
    out_of_credit: bool = False
    callbacks: Literal["none", "once", "twice"] = "once"
    rate_limit: RateLimitAsked | None = None
    pace: PaceAsked = PaceAsked()


class SlackAsked(Asked):
    """Switches of Slack; those that are not sent stay as they are."""

    rate_limits: bool = False
    auth_error: Literal["token_revoked", "account_inactive", "invalid_auth"] | None = None
    history_scopes: bool = True


class ChannelAsked(Asked):
    """Whether the app is in a channel, and whether that is archived."""

    has_app: bool | None = None
    is_archived: bool | None = None


class NextAsked(Asked):
    """What happens to the next request of an operation, or to the job that it creates."""

    side: Side
    operation: str
    what: str
    reason: str | None = Field(None, max_length=1_000)


class JobAsked(Asked):
    """What happens to a job now."""

    do: Literal["finish", "fail", "call_back", "delete"]
    reason: str | None = Field(None, max_length=1_000)


class Switches:
    """What can be turned, and how everything stood at the start."""

    def __init__(self, slack: SandboxSlack, service: SandboxVideoService) -> None:
        self._slack = slack
        self._service = service
        self._pace = service.pace
        self._scopes = frozenset(slack.scopes)
        self._channels = {
            each.id: (slack.bot.id in each.members, each.is_archived)
            for each in slack.channels.values()
            if each.kind != "im"
        }

    def switch_service(self, asked: ServiceAsked) -> None:
        """Turn what was sent of the service's switches."""
        service, sent = self._service, asked.model_fields_set
        for name in sent & {"down", "key_revoked", "out_of_credit"}:
            setattr(service, name, getattr(asked, name))
        if "callbacks" in sent:
            service.set_callback_times(TIMES[asked.callbacks])
        if "rate_limit" in sent:
            service.rate_limited = self._rate_limit(asked.rate_limit)
        pace = asked.pace.model_dump(exclude_none=True)
        steps = pace.pop("training_steps", service.pace.training_steps)
        spans = {name: timedelta(seconds=seconds) for name, seconds in pace.items()}
        service.pace = replace(service.pace, training_steps=steps, **spans)

    def switch_slack(self, asked: SlackAsked) -> None:
        """Turn what was sent of Slack's switches."""
        slack, sent = self._slack, asked.model_fields_set
        for name in sent & {"rate_limits", "auth_error"}:
            setattr(slack, name, getattr(asked, name))
        if "history_scopes" in sent:
            slack.scopes -= _HISTORY
            slack.scopes |= self._scopes & _HISTORY if asked.history_scopes else set()

    def change_channel(self, name: str, asked: ChannelAsked) -> Json | None:
        """Invite the app or remove it, archive the channel; return why that cannot be, if so."""
        if name not in self._channels:
            return failed("gone", "There is no such channel.")
        self._slack.change_channel(name, with_bot=asked.has_app, is_archived=asked.is_archived)
        return None

    def expect(self, asked: NextAsked) -> Json | None:
        """Let something happen to the next request or job; return why that cannot be, if so."""
        if asked.operation not in OPERATIONS[asked.side]:
            return failed("refused", f"{asked.operation} is nothing that can be asked for there.")
        if asked.what in FAULTS:
            faults = self._slack.faults if asked.side == "slack" else self._service.faults
            faults.next(asked.operation, fault(asked.what, asked.side))
            return None
        scenario = (
            Scenario(end="never") if asked.what == "never" else Scenario("error", asked.reason)
        )
        match asked.side, asked.what, asked.operation:
            case "service", "fail" | "never", "create_video":
                self._service.next_video(scenario)
            case "service", "fail" | "never", "create_replica":
                self._service.next_replica(scenario)
            case _:
                return failed("refused", f"{asked.what} is nothing that can happen there.")
        return None

    async def act(self, job_id: str, asked: JobAsked) -> Json | None:
        """Do something to a job now; return why that cannot be, if so."""
        try:
            match asked.do:
                case "finish":
                    self._service.finish(job_id)
                case "fail":
                    self._service.fail(job_id, asked.reason)
                case "delete":
                    self._service.delete(job_id)
                case "call_back":
                    await self._service.call_back(job_id)
        except KeyError:
            return failed("gone", "There is no such job.")
        except ValueError as error:
            return failed("refused", f"That cannot be: {error}.")
        return None

    def reset(self) -> None:
        """Let everything go well from here on; what has happened stays."""
        for faults in (self._slack.faults, self._service.faults):
            faults.clear()
        self._service.clear_scenarios()
        self.switch_service(
            ServiceAsked(
                down=False,
                key_revoked=False,
                out_of_credit=False,
                callbacks="once",
                rate_limit=None,
            )
        )
        self._service.pace = self._pace
        self.switch_slack(SlackAsked(rate_limits=False, auth_error=None, history_scopes=True))
        for name, (with_bot, archived) in self._channels.items():
            channel = self._slack.channels[name]
            if (self._slack.bot.id in channel.members, channel.is_archived) != (with_bot, archived):
                self._slack.change_channel(name, with_bot=with_bot, is_archived=archived)

    def _rate_limit(self, asked: RateLimitAsked | None) -> RateLimit | None:
        if asked is None:
            return None
        span = timedelta(seconds=asked.seconds)
        return RateLimit(self._slack.clock.now() + span, span if asked.retry_after else None)
