"""Scripts that are longer than a form's field holds, in a text file."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sandbox.block_kit import Json, objects
from sandbox.driver import ClientRefusal, Modal
from sandbox.faults import CannedResponse, Hang
from sandbox.scenarios import Scenario
from sandbox.slack import RESPONSE_TIMEOUT
from sandbox.slack_objects import Message
from tests.modes import bot_with
from tests.world import REPLICA, World

pytestmark = bot_with(MAX_SCRIPT="20000")

LONG = "A sentence with an é and a 🎬. " * 400 + "The end."


async def with_file(
    world: World, content: bytes, name: str = "a.txt", mimetype: str = "text/plain"
) -> Modal:
    """Submit a form with a file as its script."""
    form = await world.open_form(world.ana)
    file = world.slack.upload("ana", name, content, mimetype)
    await world.after(form.submit({"replica_id": REPLICA, "script_file": [file["id"]]}))
    return form


def quoted(blocks: Sequence[Json]) -> list[str]:
    """Return the texts of the quotations in blocks."""
    return [
        piece["text"]
        for each in objects(blocks)
        if each.get("type") == "rich_text_quote"
        for piece in each["elements"]
    ]


def scripts(world: World) -> list[str]:
    return [video.script for video in world.service.videos.values()]


async def test_a_script_in_a_file_is_sent_whole(world: World) -> None:
    for content in (LONG.encode(), b"\xef\xbb\xbf" + LONG.encode()):
        form = await with_file(world, content)
        assert not form.is_open, form.errors
    await with_file(world, b"One line\r\nand another.\r\n")
    assert scripts(world) == [LONG, LONG, "One line\nand another."]
    await world.advance(minutes=10)
    assert len([each for each in world.posts() if not each.files]) == 6


async def test_details_of_a_script_that_no_form_has_room_for_show_its_beginning(
    world: World,
) -> None:
    script = "a" + "🎬" * 19_999
    world.service.add_replica(REPLICA, "🎬" * 500)
    world.service.next_video(Scenario(end="error", reason="🎬" * 500))
    await world.after(with_file(world, script.encode()), minutes=10)
    details = await world.details(world.ana, world.posts()[0])
    shown = "".join(quoted(details.body["blocks"]))
    assert script.startswith(shown)
    assert len(shown) > 15_000
    assert "This is the beginning: the rest doesn't fit here." in str(details)


async def test_the_reply_has_300_characters_of_the_script_so_that_the_link_is_not_buried(
    world: World,
) -> None:
    for script in ("A short sentence. " * 480 + "The end.", "🎬 " * 2990 + "The end."):
        await world.after(with_file(world, script.encode()), minutes=10)
        card, reply = world.posts()[-2:]
        [piece] = quoted(reply.blocks)
        assert script.startswith(piece.removesuffix("…"))
        assert 250 < len(piece.encode("utf-16-le")) // 2 <= 300
        assert "The rest is under *Details*" in str(reply.blocks)
        assert "The rest is under *Details*" in reply.text
        shown = await world.details(world.ana, card)
        pieces = quoted(shown.body["blocks"])
        assert "".join(pieces) == script
        assert all(each.endswith(" ") for each in pieces[:-1]), "words are not parted"
    await world.after(with_file(world, b"A" * 300), minutes=10)
    assert quoted(world.posts()[-1].blocks) == ["A" * 300]
    assert "The rest" not in world.posts()[-1].text
    assert not [call for call in world.slack.calls if call.error]


async def test_a_file_that_is_no_script_is_refused_under_its_field(world: World) -> None:
    refused = {
        "isn't a plain text file": [
            (b"\xff\xfeH\x00i\x00", "a.txt", "text/plain"),
            (b"Hi\0", "a.txt", "text/plain"),
            (b"%PDF", "a.pdf", "application/pdf"),
        ],
        "too large": [(b"a" * 90_000, "a.txt", "text/plain")],
        "The limit is 20,000: shorten it.": [(b"a" * 20_001, "a.txt", "text/plain")],
        "Write what the replica should say": [(b" \n ", "a.txt", "text/plain")],
    }
    for sentence, files in refused.items():
        for content, name, mimetype in files:
            form = await with_file(world, content, name, mimetype)
            assert sentence in " ".join(form.errors.values()), form.errors
            assert form.is_open
    assert not world.service.videos


async def test_a_file_that_slack_does_not_give_keeps_the_form_open_with_all_mistakes(
    world: World,
) -> None:
    form = await world.open_form(world.ana)
    file = world.slack.upload("ana", "a.txt", LONG.encode())
    world.slack.response_timeout = RESPONSE_TIMEOUT
    for method, fault in (
        ("files.info", CannedResponse(200, {"ok": False, "error": "file_not_found"})),
        ("files.info", Hang()),
        ("files.download", CannedResponse(503, {})),
        ("files.download", Hang()),
        ("files.download", CannedResponse(302, {})),
    ):
        world.slack.faults.next(method, fault)
        typed = {"replica_id": REPLICA, "script_file": [file["id"]], "video_name": "Greeting"}
        answer = await form.submit(typed)
        assert answer.ok
        assert "couldn't read the file" in form.errors["script_file"]
        world.slack.faults.clear()
    await form.submit({"script": "Another script."})
    assert "not both" in form.errors["script_file"]
    assert not world.service.videos
    await world.after(form.send({"script": ""}))
    assert scripts(world) == [LONG]


async def test_a_file_of_somebody_else_is_not_read_for_a_form(world: World) -> None:
    form = await world.open_form(world.ana)
    bens = world.slack.upload("ana", "a.txt", b"Nobody else may read this.")
    await form._fill_in(form._field("script_file"), [bens["id"]])
    # A client that is not Slack's names whichever file it likes.
    bens["user"] = world.ben.user.id
    world.ben.say("It is in a channel that the bot reads.", files=[bens])
    await form.submit({"replica_id": REPLICA})
    assert "That file isn't yours" in form.errors["script_file"]
    held = json.loads(form.view.body["private_metadata"])
    form.view.body["private_metadata"] = json.dumps({**held, "script_file": bens["id"]})
    await form.submit({"script_file": []})
    assert "That file isn't yours" in " ".join(form.errors.values())
    assert not any(call.method == "files.download" for call in world.slack.calls)
    assert not world.service.videos


async def test_a_file_is_still_used_when_its_form_is_drawn_again(world: World) -> None:
    form = await world.open_form(world.ana)
    file = world.slack.upload("ana", "a.txt", LONG.encode())
    await form.submit({"script_file": [file["id"]], "replica_id": REPLICA, "script": "And this."})
    assert "not both" in form.errors["script_file"]
    await form.choose("background", "background_url")
    await form.choose("background", "none")
    await world.after(form.send({"script": ""}))

    # The answer was lost on the way, so the form is still there.
    world.slack.modals[world.ana.user.id].append(form.view)
    await form.submit({"video_name": "Another"})
    second = world.ana.form
    assert second.view is not form.view, "a field of Slack's for files cannot be filled in"
    assert "Leave this blank to use the attached file" in str(second.view.body["blocks"])
    await world.after(second.submit({}))
    assert world.ana.modal is None, second.errors
    assert scripts(world) == [LONG, LONG]


async def test_without_the_scope_or_the_setting_there_is_no_field_for_a_file(quiet: World) -> None:
    async with quiet.running_bot():
        form = await quiet.open_form(quiet.ana)
        with pytest.raises(ClientRefusal):
            form._field("script_file")
    quiet.slack.scopes.discard("files:read")
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.settle()
        form = await quiet.open_form(quiet.ana)
        with pytest.raises(ClientRefusal):
            form._field("script_file")


async def test_the_token_goes_to_no_host_but_slacks(world: World) -> None:
    file = world.slack.upload("ana", "a.txt", b"Hello")
    # The same file under another name of its host.
    link = str(file["url_private_download"])
    file["url_private_download"] = link.replace("127.0.0.1", "localhost")
    assert file["url_private_download"] != link
    form = await world.submit_form(world.ana, {"replica_id": REPLICA, "script_file": [file["id"]]})
    assert "couldn't read the file" in form.errors["script_file"]
    assert form.is_open


def attached(world: World, content: str, mimetype: str = "text/plain", text: str = "") -> Message:
    """Return ben's message with a file."""
    file = world.slack.upload("ben", "script.txt", content.encode(), mimetype)
    return world.ben.say(text, files=[file])


async def opened(world: World, message: Message) -> Modal:
    assert (await world.ana.message_shortcut(message)).ok
    await world.settle()
    return world.ana.form


def words(form: Modal) -> str:
    texts = (each.get("text") for each in objects(form.view.body["blocks"]))
    return "\n".join(text for text in texts if isinstance(text, str))


async def test_a_short_file_fills_the_box_and_a_long_one_is_used_whole(world: World) -> None:
    form = await opened(world, attached(world, "Good morning.\n", text="The script, as promised:"))
    assert form.values["script"] == "Good morning."
    await form.submit({"replica_id": REPLICA})

    message = attached(world, LONG)
    form = await opened(world, message)
    assert not form.values["script"]
    assert "takes about 21 minutes to speak" in words(form)
    await form.choose("background", "background_url")
    await form.choose("background", "none")
    await world.after(form.send({"replica_id": REPLICA}))
    assert scripts(world) == ["Good morning.", LONG]
    assert world.posts()[-1].thread_ts == message.ts

    form = await opened(world, message)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Something else."}))
    assert scripts(world)[-1] == "Something else."


async def test_a_file_that_slack_is_slow_with_is_read_when_the_form_is_submitted(
    world: World,
) -> None:
    message = attached(world, "Good morning.")
    world.slack.response_timeout = RESPONSE_TIMEOUT
    world.slack.faults.next("files.info", Hang())
    form = await opened(world, message)
    assert not form.values["script"]
    assert "attached file" in words(form)
    world.slack.faults.next("files.info", CannedResponse(503))
    await form.submit({"replica_id": REPLICA})
    assert "couldn't read the file" in " ".join(form.errors.values())
    await world.after(form.submit({}))
    assert scripts(world) == ["Good morning."]


async def test_a_file_that_is_no_script_leaves_the_text_of_its_message(world: World) -> None:
    form = await opened(world, attached(world, "%PNG", "image/png", "Say hello."))
    assert form.values["script"] == "Say hello."
    await form.close()
    form = await opened(world, attached(world, "a" * 90_000, text="Say hello."))
    assert "too large" in words(form)
    await form.close()
    form = await opened(world, attached(world, "%PNG", "image/png"))
    assert "no text" in words(form)


async def test_a_file_of_a_message_is_read_only_where_slack_says_that_it_is_there(
    world: World,
) -> None:
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


@bot_with()
async def test_where_files_are_not_read_the_shortcut_says_what_to_do(world: World) -> None:
    form = await opened(world, attached(world, "Good morning."))
    assert "Copy its text" in words(form)
    await form.close()
    form = await opened(world, attached(world, "Good morning.", text="Say hello."))
    assert form.values["script"] == "Say hello."
