"""Two copies of the bot: limits, refusals and housekeeping, which each copy must get right."""

import asyncio

import psycopg
import pytest

from sandbox import events
from sandbox.delivery import deliver, encoded, interaction
from sandbox.scenarios import Scenario
from tests.world import REPLICA, World, number_of

VALUES = {"replica_id": REPLICA, "script": "Hello, world."}


@pytest.fixture
def world(world_of_copies: World) -> World:
    return world_of_copies


def sql(world: World, query: str) -> list[tuple[object, ...]]:
    """Run a statement beside the bot, and return its rows."""
    assert world.postgres_url is not None
    with psycopg.connect(world.postgres_url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


# ── Limits ────────────────────────────────────────────────────────────────────────────────────


async def waiting(world: World, number: int) -> None:
    """Wait until this number of the bots' transactions wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(sql, world, query)) != [(number,)]:
            pass


@pytest.mark.parametrize(
    "setting",
    ["MAX_OPEN_PER_USER", "MAX_PER_USER_PER_DAY", "MAX_PER_DAY", "MAX_PER_USER_PER_MONTH"],
)
async def test_of_requests_that_reach_both_copies_at_once_exactly_the_limit_is_accepted(
    setting: str, world: World
) -> None:
    assert world.postgres_url is not None
    async with world.running_copies(**{setting: "1"}) as copies:
        submissions = []
        for copy in copies:
            form = await world.open_form(world.ana, "Hello.")
            await form._fill_in(form._field("replica_id"), REPLICA)
            payload = interaction(world.slack, world.ana.user, "view_submission", None)
            body = encoded({**payload, "view": form.view.payload()})
            submissions.append(world.at(copy, deliver(world.slack, body)))
            await form.close()
        # A copy that has counted what there is waits before it stores one more.
        with psycopg.connect(world.postgres_url) as other:
            other.execute("LOCK TABLE jobs IN SHARE MODE")
            answers = asyncio.gather(*submissions)
            await waiting(world, 2)
        await answers
        await world.settle()
        assert world.created_count() == 1
        assert len(world.slack.messages("studio")) == 1


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────


async def test_an_app_whose_uninstallation_one_copy_is_told_of_is_left_alone_by_all(
    world: World,
) -> None:
    async with world.running_copies() as (first, _):
        for _ in range(3):
            await world.request_video(world.ana)
        await world.at(first, _uninstalled(world))
        await world.advance(minutes=5)
        before = len(world.slack.calls)
        await world.advance(minutes=9)
        calls = world.slack.calls[before:]
        assert {call.method for call in calls} <= {"auth.test"}
        assert len(calls) <= 2, "each asks again every ten minutes"


async def _uninstalled(world: World) -> None:
    world.slack.auth_error = "account_inactive"
    await events.send(world.slack, {"type": "app_uninstalled"})


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_row_that_could_not_be_read_goes_on_once_it_can_without_a_new_start(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.next_video(Scenario(end="never"))
    async with world.running_copies():
        card = await world.request_video(world.ana)
        job = number_of(world.now(card))
        sql(world, f"UPDATE jobs SET params = '[' || params WHERE id = '{job}'")  # noqa: S608
        await world.advance(minutes=3)
        assert sql(world, "SELECT id FROM jobs WHERE set_aside = 1") == [(job,)]
        sql(world, f"UPDATE jobs SET params = substr(params, 2) WHERE id = '{job}'")  # noqa: S608
        world.service.finish(next(iter(world.service.videos)))
        await world.advance(hours=1, minutes=1)
        assert "Ready" in world.now(card).text
    assert 1 <= caplog.text.count("it is left as it is") <= 2


# ── The video service ─────────────────────────────────────────────────────────────────────────


async def test_after_an_account_was_paid_the_next_form_frees_what_waits_at_every_copy(
    world: World,
) -> None:
    world.service.out_of_credit = True
    async with world.running_copies() as copies:
        for copy in (*copies, *copies):
            await world.at(copy, submitted(world))
        await world.advance(minutes=1)
        failed = len(world.posts()) - 4
        assert 1 <= failed <= 2, "the first one of each copy; the others wait"
        tries = len(world.requests_for("create_video"))
        await world.advance(minutes=21)
        assert len(world.requests_for("create_video")) - tries <= 2 * 3, "every ten minutes"
        assert len(world.posts()) == 4 + failed, "none that waits is ended"

        world.service.out_of_credit = False
        await world.at(copies[0], submitted(world))
        await world.advance(seconds=10)
        assert world.created_count() == 5 - failed


async def submitted(world: World) -> None:
    """Request a video of Ana's."""
    form = await world.open_form(world.ana)
    await form.submit(VALUES)
    assert not form.is_open
    await world.settle()
