"""Mistakes in forms: all at once, each under its field, in words that say what would be right."""

import pytest

from bot.file_links import check_file_link
from bot.links import BadLink, check_link
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


@pytest.mark.parametrize("text", ["https://", "https:///video", "https://10.0.0.1", "https://1.2"])
def test_a_bad_link_to_a_page_is_not_told_to_be_a_video_file(text: str) -> None:
    with pytest.raises(BadLink) as refused:
        check_link(text)
    assert "video" not in str(refused.value)
    assert ".mp4" not in str(refused.value)


@pytest.mark.parametrize(
    ("link", "direct"),
    [
        (DRIVE, DIRECT),
        ("https://drive.google.com/open?id=1AbCdEfGhIjKlMn", DIRECT),
        (
            "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=0",
            "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=1",
        ),
        ("https://www.dropbox.com/s/a1/anna.mp4", "https://www.dropbox.com/s/a1/anna.mp4?dl=1"),
        (
            "https://acme.sharepoint.com/:v:/s/team/Ea1?e=x",
            "https://acme.sharepoint.com/:v:/s/team/Ea1?e=x&download=1",
        ),
        ("https://drive.google.com/drive/folders/1AbCdEfGhIjKlMn", None),
        ("https://www.dropbox.com/scl/fo/a1/h", None),
        ("https://www.youtube.com/watch?v=a1", None),
        ("https://youtu.be/a1", None),
        ("https://we.tl/t-a1", None),
    ],
)
def test_a_link_that_opens_a_page_is_refused_with_its_direct_form(
    link: str, direct: str | None
) -> None:
    with pytest.raises(BadLink) as refused:
        check_file_link(link)
    assert "opens a page, not the file itself" in str(refused.value)
    if direct is not None:
        assert str(refused.value).endswith(f" {direct}")
        assert check_file_link(direct) == direct


@pytest.mark.parametrize(
    "link",
    [
        "https://storage.example.com/anna.mp4?X-Amz-Signature=4f",
        "https://www.dropbox.com/s/a1/anna.mp4?raw=1",
        "https://dl.dropboxusercontent.com/s/a1/anna.mp4",
        "https://notyoutube.com/a.mp4",
    ],
)
def test_a_link_to_a_file_is_taken(link: str) -> None:
    assert check_file_link(link) == link


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
    with pytest.raises(SettingsError, match="CONSENT_STATEMENT has more than 2000 characters"):
        Settings.read({"CONSENT_STATEMENT": "a" * 2001})
