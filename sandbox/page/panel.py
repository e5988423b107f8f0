"""The panel: the state of the video service, its jobs and Slack, as JSON."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from bot.store import Store
from sandbox.block_kit import Json
from sandbox.faults import Fault
from sandbox.page.switches import AUTH_ERRORS, FAULTS, JOB_SCENARIOS, OPERATIONS, TIMES, Side, fault
from sandbox.scenarios import Scenario, TrainingFailure
from sandbox.service_jobs import Replica, Video
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService

#: Why a video can fail: sentences as the service writes them.
VIDEO_FAILURES: Final = (
    "The script contains a name that this replica may not say",
    "The web page for the background could not be loaded",
    "The video for the background could not be downloaded",
    "The voice could not be generated: please try again",
)
# What the switches offer.
_OFFERS: Final[Json] = {
    **{side: {"operations": list(names)} for side, names in OPERATIONS.items()},
    "faults": [{"what": what, "label": label} for what, label in FAULTS.items()],
    "scenarios": [{"what": what, "label": label} for what, label in JOB_SCENARIOS.items()],
    "reasons": {"video": list(VIDEO_FAILURES), "replica": [str(each) for each in TrainingFailure]},
    "auth_errors": list(AUTH_ERRORS),
}


def panel_json(
    slack: SandboxSlack, service: SandboxVideoService, bot_url: str, store: Store | None
) -> Json:
    """Return the state of the panel."""
    now = slack.clock.now()
    return {
        "now": now.timestamp(),
        "service": _service_json(service, now),
        "slack": _slack_json(slack),
        "bot": {
            "url": bot_url,
            "approval": store is not None and bool(store.jobs.approvals.approvers),
        },
        "offers": _OFFERS,
    }


def _service_json(service: SandboxVideoService, now: datetime) -> Json:
    limit, pace, times = service.rate_limited, service.pace, service.callback_plan.times
    jobs: list[Video | Replica] = [*service.videos.values(), *service.replicas.values()]
    jobs.sort(key=lambda job: job.created_at, reverse=True)
    return {
        "url": service.url,
        "down": service.down,
        "stalled": service.stalled,
        "key_revoked": service.key_revoked,
        "out_of_credit": service.out_of_credit,
        "quotes_key": service.quotes_key,
        "rate_limited_until": limit.until.timestamp() if limit and limit.until > now else None,
        "callbacks": next((name for name, each in TIMES.items() if each == times), None),
        "pace": {
            "queued": pace.queued.total_seconds(),
            "generating": pace.generating.total_seconds(),
            "training": pace.training.total_seconds(),
            "training_steps": pace.training_steps,
        },
        "next": _numbered(
            [
                *(_fault_json(name, each, "service") for name, each in service.faults.waiting()),
                *(_scenario_json(name, each) for name, each in service.scenarios.waiting()),
            ]
        ),
        "jobs": [_job_json(service, each, now) for each in jobs],
    }


def _job_json(service: SandboxVideoService, job: Video | Replica, now: datetime) -> Json:
    ended, change = job.ended(now), job.next_change(now)
    shown: Json = {
        "name": job.name,
        "title": job.title,
        "learned_by": job.learned_by,
        "status": job.status(now),
        "ended": ended,
        "reason": job.reason if ended == "error" else None,
        "share": round(job.share(now), 2),
        "created_at": job.created_at.timestamp(),
        "ends_at": job.ends_at.timestamp() if job.ends_at is not None else None,
        "next": None if change is None else job.status(change),
        "next_at": None if change is None else change.timestamp(),
        "has_callback_url": job.callback_url is not None,
        "callbacks_sent": sum(each.url == job.callback_url for each in service.callbacks),
    }
    if isinstance(job, Replica):
        return shown | {
            "id": job.replica_id,
            "kind": "replica",
            "script": None,
            "replica_id": job.replica_id,
            "progress": job.progress(now),
            "watch_url": None,
        }
    return shown | {
        "id": job.video_id,
        "kind": "video",
        "script": job.script,
        "replica_id": job.replica_id,
        "progress": None,
        "watch_url": f"{service.url}/watch/{job.video_id}",
    }


def _slack_json(slack: SandboxSlack) -> Json:
    return {
        "url": slack.url,
        "rate_limits": slack.rate_limits,
        "auth_error": slack.auth_error,
        "history_scopes": "channels:history" in slack.scopes,
        "next": _numbered(
            _fault_json(name, each, "slack") for name, each in slack.faults.waiting()
        ),
        "channels": [
            {
                "id": each.id,
                "name": each.name,
                "kind": each.kind,
                "has_app": slack.bot.id in each.members,
                "is_archived": each.is_archived,
            }
            for each in slack.channels.values()
            if each.kind != "im"
        ],
    }


def _fault_json(operation: str, waiting: Fault, side: Side) -> Json:
    what = next((what for what in FAULTS if fault(what, side) == waiting), "other")
    label = FAULTS.get(what, type(waiting).__name__)
    return {"operation": operation, "what": what, "label": label}


def _scenario_json(operation: str, scenario: Scenario) -> Json:
    what = {"error": "fail", "never": "never"}.get(scenario.end, "other")
    label = f"fail: {scenario.reason}" if what == "fail" else JOB_SCENARIOS.get(what, scenario.end)
    return {"operation": operation, "what": what, "label": label}


def _numbered(waiting: Iterable[Json]) -> list[Json]:
    return [{"id": number, **each} for number, each in enumerate(waiting, 1)]
