"""Messages that were posted twice, because the bot could not look for a lost one."""

from sandbox.faults import Reset
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

HISTORY = {"channels:history", "groups:history", "im:history"}


async def doubled(world: World) -> tuple[Message, Message]:
    """Have a card posted twice; return both."""
    world.slack.scopes -= HISTORY
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    form = await world.open_form(world.ana)
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    await world.advance(minutes=10)
    first, card, *_ = [each for each in world.posts() if each.thread_ts is None]
    return first, card


async def test_a_click_on_a_card_that_was_posted_twice_leads_to_the_one_that_is_kept(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        first, card = await doubled(world)
        assert "Ready" not in world.now(first).text
        assert "Ready" in world.now(card).text

        assert (await world.ben.click(first, "Details")).ok
        await world.settle()
        replaced = world.now(first)
        assert "posted twice" in replaced.text
        assert card.ts.replace(".", "") in replaced.text
        assert "Details" not in str(replaced.blocks)
        assert "Only" in world.ephemerals(world.ben)[-1], "it was ana's"

        # What the button says is done too.
        await world.ana.click(first, "Details")
        assert world.ana.modal is not None
        await world.ana.modal.close()
        # The one that is kept stays as it is, and the reply too.
        await world.ana.click(world.now(card), "Details")
        await world.settle()
        assert "Ready" in world.now(card).text


async def test_a_message_whose_place_is_not_known_yet_is_not_replaced(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        world.slack.scopes -= HISTORY
        world.slack.faults.next("chat.postMessage", Reset(done=True))
        form = await world.open_form(world.ana)
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
        await world.settle()
        [card] = world.posts()
        await world.ana.click(card, "Details")
        await world.settle()
        assert "posted twice" not in world.now(card).text
