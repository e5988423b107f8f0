"""Approval before spending where somebody cheats, and where the database is moved meanwhile."""

from pathlib import Path
from typing import Final

import pytest

from bot.slack.views import buttons
from bot.store.move import move
from sandbox.delivery import deliver
from sandbox.driver import Person
from tests.databases import query
from tests.journeys.test_approval import ask, decline, requests, settings
from tests.modes import on_sqlite_alone
from tests.ops.test_backup import restore
from tests.store.test_restore import back
from tests.web.test_web import click
from tests.world import World

OTHERS: Final = (
    buttons.APPROVE,
    buttons.DECLINE,
    buttons.CREATE_AGAIN,
    buttons.GIVE_UP,
    buttons.STOP,
    buttons.CHECK_NOW,
)


@pytest.fixture
def world(quiet_world: World) -> World:
    """A world with a channel in which ben and cleo approve."""
    quiet_world.slack.add_channel("approvals")
    return quiet_world


@on_sqlite_alone
async def test_a_request_goes_on_waiting_where_its_database_was_moved_to(
    empty_url: str, world: World
) -> None:
    async with world.running_bot(**settings(world)):
        first_card, first = await ask(world)
        second_card, second = await ask(world, {"script": "Another one."})
    assert move(world.database, empty_url)["jobs"] == 2
    world.postgres_url = empty_url
    async with world.running_bot(**settings(world)):
        await world.ben.click(first, "Approve")
        await world.ben.click(first, "Approve")
        await decline(world, second, world.ben, "No")
        await world.advance(minutes=5)
        assert world.created_count() == 1
        assert "Approved by" in world.now(first).text
        assert "Declined by" in world.now(second).text
        assert [len(world.replies(card)) for card in (first_card, second_card)] == [1, 1]
        assert len(requests(world)) == 2


async def test_no_other_button_of_a_request_that_waits_creates_it(world: World) -> None:
    ana, ben = world.ana, world.ben
    async with world.running_bot(ADMIN_USERS=ana.user.id, **settings(world)):
        card, asked = await ask(world)
        [job] = query(world.address, "SELECT id FROM jobs")
        body, id_ = click(world, world.now(card), "Cancel request"), job["id"].encode()
        for value in (id_, id_ + b"%3A0", id_ + b"%3A1"):
            for action in OTHERS:
                forged = body.replace(b"approval_withdraw", action.encode()).replace(id_, value)
                assert forged != body
                await deliver(world.slack, forged)
        await world.advance(minutes=5)
        assert world.created_count() == 0
        assert "Waiting for approval" in world.now(card).text

        # Who opened the form to decline no longer may once the approvers are others.
        await ben.click(asked, "Decline")
        form = ben.modal
        assert form is not None
    cleo = Person(world.slack, "cleo")
    async with world.running_bot(**{**settings(world), "APPROVERS": cleo.user.id}):
        await form.submit({"decline_reason": "No"})
        assert "Only an approver can do that." in str(form.errors)
        await ben.click(asked, "Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 0
        await cleo.click(asked, "Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 1


@on_sqlite_alone
async def test_nobody_is_told_that_nothing_was_created_since_a_backup(
    world: World, tmp_path: Path
) -> None:
    async with world.running_bot(**settings(world)):
        card, asked = await ask(world)
        backup = await back(world, tmp_path)
        await world.ben.click(asked, "Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 1
    restore(backup, world.database)
    async with world.running_bot(**settings(world)):
        await world.advance(minutes=5)
        assert "comes from a backup" in world.now(asked).text
        await decline(world, world.now(asked), world.ben, "It was made before")
        await world.advance(minutes=5)
        shown = world.now(card).text
        assert "You weren't charged" not in shown
        assert "the video may have been made since." in shown
        assert world.created_count() == 1
        assert len(world.replies(card)) == 1
