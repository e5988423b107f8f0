"""Scripts in a text file that is attached to the message of a shortcut."""

import json
from dataclasses import replace

from sandbox.block_kit import objects
from sandbox.driver import Modal
from sandbox.faults import CannedResponse, Hang
from sandbox.slack import RESPONSE_TIMEOUT
from sandbox.slack_objects import Message
from tests.journeys.test_script_file import LONG, scripts
from tests.world import REPLICA, World


def attached(world: World, content: str, mimetype: str = "text/plain", text: str = "") -> Message:
    """Return ben's message with a file."""
    file = world.slack.upload("ben", "script.txt", content.encode(), mimetype)
    return world.ben.say(text, files=[file])


async def opened(world: World, message: Message) -> Modal:
    assert (await world.ana.message_shortcut(message)).ok
    await world.settle()
    assert world.ana.modal is not None
    return world.ana.modal


def words(form: Modal) -> str:
    texts = (each.get("text") for each in objects(form.view.body["blocks"]))
    return "\n".join(text for text in texts if isinstance(text, str))


async def test_a_short_file_fills_the_box_and_a_long_one_is_used_whole(filed: World) -> None:
    world = filed
    form = await opened(world, attached(world, "Good morning.\n", text="The script, as promised:"))
    assert form.values["script"] == "Good morning."
    await form.submit({"replica_id": REPLICA})

    message = attached(world, LONG)
    form = await opened(world, message)
    assert not form.values["script"]
    assert "takes about 21 minutes to speak" in words(form)
    await form.choose("background", "background_url")
    await form.choose("background", "none")
    await form.submit({"replica_id": REPLICA})
    assert not form.is_open, form.errors
    await world.settle()
    assert scripts(world) == ["Good morning.", LONG]
    assert world.posts()[-1].thread_ts == message.ts

    form = await opened(world, message)
    await form.submit({"replica_id": REPLICA, "script": "Something else."})
    await world.settle()
    assert scripts(world)[-1] == "Something else."


async def test_a_file_that_slack_is_slow_with_is_read_when_the_form_is_submitted(
    filed: World,
) -> None:
    world = filed
    message = attached(world, "Good morning.")
    world.slack.response_timeout = RESPONSE_TIMEOUT
    world.slack.faults.next("files.info", Hang())
    form = await opened(world, message)
    assert not form.values["script"]
    assert "attached file" in words(form)
    world.slack.faults.next("files.info", CannedResponse(503))
    await form.submit({"replica_id": REPLICA})
    assert "couldn't read the file" in " ".join(form.errors.values())
    await form.submit({})
    await world.settle()
    assert scripts(world) == ["Good morning."]


async def test_a_file_that_is_no_script_leaves_the_text_of_its_message(filed: World) -> None:
    world = filed
    form = await opened(world, attached(world, "%PNG", "image/png", "Say hello."))
    assert form.values["script"] == "Say hello."
    await form.close()
    form = await opened(world, attached(world, "a" * 90_000, text="Say hello."))
    assert "too large" in words(form)
    await form.close()
    form = await opened(world, attached(world, "%PNG", "image/png"))
    assert "no text" in words(form)


async def test_a_file_of_a_message_is_read_only_where_slack_says_that_it_is_there(
    filed: World,
) -> None:
    world = filed
    hidden = world.slack.upload("ben", "script.txt", b"Nobody else may read this.")
    message = attached(world, LONG)
    for shown in (replace(message, files=(hidden,)), replace(message, channel=hidden_in(world))):
        form = await opened(world, shown)
        assert "That file isn't yours" in words(form)
        assert not form.values.get("script")
        await form.close()

    form = await opened(world, message)
    held = json.loads(form.view.body["private_metadata"])
    form.view.body["private_metadata"] = json.dumps({**held, "script_file": hidden["id"]})
    await form.submit({"replica_id": REPLICA})
    assert "That file isn't yours" in " ".join(form.errors.values())
    assert not scripts(world)


def hidden_in(world: World) -> str:
    """Return another channel than the one that the message with the file is in."""
    return world.slack.add_channel("den").id


async def test_where_files_are_not_read_the_shortcut_says_what_to_do(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        form = await opened(world, attached(world, "Good morning."))
        assert "Copy its text" in words(form)
        await form.close()
        form = await opened(world, attached(world, "Good morning.", text="Say hello."))
        assert form.values["script"] == "Say hello."
