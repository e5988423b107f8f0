"""The settings and people of the sandbox: whom one can be, and what can be tried."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bot.clock import SystemClock
from sandbox.clock import TrailingClock
from sandbox.driver import Person
from sandbox.page.run import TIMINGS, begin
from sandbox.page.sample import SPAN
from sandbox.running import REPLICA, SETTINGS, Sandbox, running
from sandbox.scenarios import Pace


@contextlib.asynccontextmanager
async def _sandbox() -> AsyncIterator[Sandbox]:
    async with running(SystemClock(), Pace(), TIMINGS) as sandbox:
        yield sandbox


def test_every_setting_that_points_at_no_real_service_can_be_tried() -> None:
    for name in ("ADMIN_USERS", "VIDEO_USERS", "MAX_PER_DAY", "MAX_SCRIPT", "COMMAND_PREFIX"):
        assert name in SETTINGS
    assert "VIDEO_API_LISTS" in SETTINGS, "the sandbox's service lists its replicas"
    for name in SETTINGS:
        assert not name.startswith(("SLACK_", "DATABASE", "PUBLIC", "HOST", "PORT"))
        assert name not in {"VIDEO_API_URL", "VIDEO_API_KEY"}


async def test_a_guest_and_another_organisation_are_refused_and_an_admin_is_not() -> None:
    async with _sandbox() as sandbox:
        slack = sandbox.slack
        titles = {user.name: user.title for user in slack.users.values() if user.title}
        assert titles == {"cleo": "Admin", "gus": "Guest", "otto": "From Globex"}
        cleo, gus, otto = (Person(slack, name) for name in ("cleo", "gus", "otto"))
        await cleo.command("/video", "Hello team")
        assert cleo.modal is not None
        answer = await otto.command("/video", "Hello team", "partners")
        assert otto.modal is None
        assert answer.message is not None
        assert "only people in my workspace" in answer.message.text
        await gus.command("/video", "Hello team")
        # Who somebody is may be found out only while the form is open.
        if gus.modal is not None:
            await gus.modal.submit({"replica_id": "r-anna"})
        assert not sandbox.service.videos


async def test_people_and_channels_are_named_in_limits_and_in_approval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "APPROVERS": "ben, cleo",
        "APPROVAL_CHANNEL": "#lobby",
        "VIDEO_USERS": "ana,S0614TZR7",
        "TRAINING_USERS": "ben",
        "ALLOWED_CHANNELS": "studio,lobby",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    async with _sandbox() as sandbox:
        assert sandbox.limited
        ana, ben = Person(sandbox.slack, "ana"), Person(sandbox.slack, "ben")
        await ben.command("/video", "Hello team")
        assert ben.modal is None
        await ana.command("/video", "Hello team")
        assert ana.modal is not None
        await ana.modal.submit({"replica_id": "r-anna"})
        await sandbox.bot.settled()
        assert "Approve this" in sandbox.slack.messages("lobby")[0].text


async def test_where_settings_leave_the_sample_out_there_is_a_replica_to_ask_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VIDEO_USERS", "ana")
    clock = TrailingClock(SystemClock(), SPAN)
    async with running(clock, Pace(), TIMINGS) as sandbox:
        await begin(sandbox, clock)
        await sandbox.bot.settled()
        assert clock.lag == timedelta(0)
        assert not sandbox.service.videos
        ana = Person(sandbox.slack, "ana")
        await ana.command("/video", "Hello team")
        assert ana.modal is not None
        assert [each["value"] for each in await ana.modal.suggest("replica_id")] == [REPLICA]
