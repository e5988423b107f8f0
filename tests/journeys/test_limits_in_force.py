"""Limits of a month, on who may ask, on channels and scripts, and what admins change of them."""

import asyncio
from datetime import UTC, datetime

import pytest

from sandbox.driver import Person
from tests.journeys.test_limits import BUSY, VALUES, make, refused
from tests.modes import on_both_engines
from tests.world import World

APRIL = "<!date^1775001600^{date_short_pretty} at {time}|2026-04-01 00:00 UTC>"


@on_both_engines
async def test_a_month_has_limits_of_its_own_and_ends_with_the_calendar(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.clock.set(datetime(2026, 3, 30, 23, tzinfo=UTC))
    settings = {"MAX_PER_USER_PER_MONTH": "2", "MAX_PER_MONTH": "3"}
    async with world.running_bot(**settings):  # type: ignore[arg-type]
        form = await world.open_form(Person(world.slack, "cleo"))
        await make(world, world.ana, 2)
        await world.advance(hours=24)  # on the 31st: nothing is left of the day
        assert (await refused(world, world.ana)).startswith(
            f"You've reached your limit of 2 requests a month. It resets {APRIL}. "
        )
        await make(world, world.ben)
        assert (await refused(world, world.ben)).startswith(
            f"Your workspace has reached its limit of 3 requests a month. It resets {APRIL}. "
        )
        await form.submit(VALUES)
        assert "limit of 3 requests a month" in str(form.errors)
        await world.advance(hours=1)
        await make(world, world.ana)


@on_both_engines
async def test_what_an_admin_changes_is_in_force_with_the_next_request(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(MAX_PER_DAY="1") as bot:
        limits, now = bot.store.limits, world.clock.now()
        await make(world, world.ana)
        await refused(world, world.ana)
        changes = {"MAX_PER_DAY": "3", "MAX_SCRIPT": "20", "VIDEO_USERS": world.ana.user.id}
        await limits.change({"MAX_PER_DAY": "2"}, "U0ADMIN", now)
        form = await world.open_form(world.ana)
        await limits.change(changes, "U0ADMIN", now)
        await form.submit({**VALUES, "script": "x" * 21})
        assert form.errors == {
            "script": "The script has 21 characters. The limit is 20: shorten it, or ask a "
            "workspace admin to raise the limit."
        }
        await form.submit({"script": "x" * 20})
        assert not form.is_open
        await world.advance(minutes=5)

        await limits.change({"MAX_PER_DAY": "1", "VIDEO_USERS": ""}, "U0ADMIN", now)
        assert "limit of 1 request a day" in await refused(world, world.ana)
        wrong = {"MAX_PER_DAY": "no", "ALLOWED_CHANNELS": "#studio", "MAX_SCRIPT": "5"}
        mistakes = limits.mistakes(wrong)
        assert list(mistakes) == ["MAX_PER_DAY", "ALLOWED_CHANNELS"]
        assert mistakes["MAX_PER_DAY"] == (
            "This must be between 1 and 1,000,000 (in digits alone), not “no”."
        )
        with pytest.raises(ValueError, match="between 1 and"):
            await limits.change(wrong, "U0", now)
        assert (await limits.fetch()).limits.max_script == 20


async def test_a_change_holds_for_every_copy_of_the_bot_at_once(world_of_copies: World) -> None:
    world = world_of_copies
    world.service.faults.always("create_video", BUSY)
    async with world.running_copies(MAX_PER_DAY="9") as copies:
        forms = []
        for person, copy in zip((world.ana, world.ben), copies, strict=True):  # both know limits
            await world.at(copy, person.command("/video"))
            assert person.modal is not None
            forms.append(person.modal)
        await copies[0].store.limits.change({"MAX_PER_DAY": "1"}, "U0", world.clock.now())
        await asyncio.gather(
            *(world.at(copy, form.submit(VALUES)) for copy, form in zip(copies, forms, strict=True))
        )
        assert [form.is_open for form in forms].count(False) == 1
