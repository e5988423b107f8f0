"""Mistakes in forms: all at once, each under its field, in words that say what would be right."""

import pytest

from bot.settings import Settings, SettingsError
from sandbox.faults import CannedResponse
from tests.world import REPLICA, World

DRIVE = "https://drive.google.com/file/d/1AbCdEfGhIjKlMn/view?usp=sharing"
DIRECT = (
    "https://drive.usercontent.google.com/download?id=1AbCdEfGhIjKlMn&export=download&confirm=t"
)


async def test_all_mistakes_of_the_create_form_are_shown_at_once(world: World) -> None:
    world.service.faults.next("read_replica", CannedResponse(404, {"message": "no such replica"}))
    form = await world.open_form(world.ana, channel="vault")
    await form.choose("background", "background_url")
    typed = {"replica_id": "r-unknown", "script": "…", "background_url": "https://localhost"}
    await form.submit(typed)

    assert form.errors.keys() == {"replica_id", "script", "background_url", "where"}
    assert "can't find this replica" in form.errors["replica_id"]
    assert "video" not in form.errors["background_url"]
    assert {name: form.values[name] for name in typed} == typed
    await world.settle()
    assert world.created_count() == 0


async def test_all_mistakes_of_the_training_form_are_shown_at_once(world: World) -> None:
    form = await world.open_form(world.ana, command="/replica", channel="vault")
    over = "https://a.example.org/a.mp4?Expires=1000000000&Signature=x"
    await form.submit({"train_video_url": DRIVE, "consent_video_url": over, "agreed": ["yes"]})

    assert form.errors.keys() == {"train_video_url", "consent_video_url", "where"}
    assert form.errors["train_video_url"].endswith(f"paste this one: {DIRECT}")
    await form.submit({"train_video_url": DIRECT, "consent_video_url": "", "where": "studio"})
    await world.settle()
    assert not form.is_open
    assert len(world.service.replicas) == 2


async def test_the_training_form_shows_the_consent_statement_for_copying(
    quiet_world: World,
) -> None:
    world = quiet_world
    statement = "I, *Anna*, agree that <a replica> of me is trained."
    async with world.running_bot(CONSENT_STATEMENT=statement):
        form = await world.open_form(world.ana, command="/replica")
        [block] = [each for each in form.view.body["blocks"] if each["type"] == "rich_text"]
        [copied] = block["elements"]
        assert copied["type"] == "rich_text_preformatted"
        assert [each["text"] for each in copied["elements"]] == [statement]
        form = await world.open_form(world.ana)
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
        await world.settle()
    with pytest.raises(SettingsError, match="CONSENT_STATEMENT must be a text of at most 2,000"):
        Settings.read({"CONSENT_STATEMENT": "a" * 2001})
