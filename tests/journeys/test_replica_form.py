"""The training form: input arrives unchanged, and mistakes are shown under their fields."""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from sandbox.driver import ClientRefusal, Modal
from tests.world import FOOTAGE, World

CONSENT = "https://storage.example.com/consent.mp4"
SENT_OFF = {"train_video_url": FOOTAGE, "agreed": ["yes"]}


async def _opens(world: World, values: Mapping[str, Any] | None = None) -> Modal:
    """Open the training form as Ana and send it off with ``values``, if there are any."""
    form = await world.open_form(world.ana, command="/replica")
    if values is not None:
        await form.submit(values)
    return form


def _created(world: World) -> list[dict[str, str]]:
    """Return the bodies of the create calls, without the callback address."""
    bodies = [dict(request.body) for request in world.requests_for("create_replica")]  # type: ignore[call-overload]
    return [{name: body[name] for name in body if name != "callback_url"} for body in bodies]


def _signed(signed: datetime, good_for: timedelta, name: str = "anna.mp4") -> str:
    """Return a link as Amazon signs it."""
    return (
        f"https://storage.example.com/{name}?X-Amz-Date={signed:%Y%m%dT%H%M%SZ}"
        f"&X-Amz-Expires={good_for.total_seconds():.0f}&X-Amz-Signature=abc"
    )


def _notes(form: Modal) -> list[str]:
    blocks = form.view.body["blocks"]
    return [block["text"]["text"] for block in blocks if block["block_id"] == "note"]


# ── What is typed arrives ─────────────────────────────────────────────────────────────────────


async def test_every_field_arrives_at_the_service_as_typed(world: World) -> None:
    name = "Zażółć & <b>Kim</b> 你好"
    form = await _opens(
        world, {**SENT_OFF, "consent_video_url": CONSENT, "replica_name": name, "where": "lobby"}
    )
    await world.settle()

    assert not form.is_open
    expected = {"train_video_url": FOOTAGE, "consent_video_url": CONSENT, "replica_name": name}
    assert _created(world) == [expected]
    [create] = world.requests_for("create_replica")
    assert isinstance(create.body, dict)
    assert "/callbacks/" in create.body["callback_url"]
    [card] = world.posts()
    assert card.channel == world.slack.channel("lobby").id


async def test_without_a_name_it_gets_one_that_the_form_shows(world: World) -> None:
    form = await _opens(world)
    await world.advance(minutes=3)
    await form.submit(SENT_OFF)
    await world.settle()

    [created] = _created(world)
    assert created.keys() == {"train_video_url", "replica_name"}
    # It has no time in it: the server's is not the person's.
    assert re.fullmatch("Replica [A-Z2-9]{5}", created["replica_name"])
    assert f"Leave it blank for “{created['replica_name']}”." in str(form.view.body)
    [card] = world.posts()
    assert created["replica_name"] in card.text


async def test_the_links_are_shown_on_the_card_without_their_secrets(world: World) -> None:
    card = await world.request_replica(world.ana, {"train_video_url": f"{FOOTAGE}?key=secret"})
    world.service.finish(world.last_replica_id())
    await world.settle()

    assert len(world.posts()) == 2
    assert "Footage: storage.example.com" in (await world.details(world.ana, card)).text
    assert "secret" not in str([(each.text, each.blocks) for each in world.posts()])


# ── Consent ───────────────────────────────────────────────────────────────────────────────────


async def test_nothing_is_sent_without_the_confirmation_that_the_person_agreed(
    world: World,
) -> None:
    form = await _opens(world)
    with pytest.raises(ClientRefusal, match="Consent"):
        await form.submit({"train_video_url": FOOTAGE})

    # Clients see to it themselves; the bot does not rely on that.
    for block in form.view.body["blocks"]:
        block["optional"] = True
    await form.submit({"replica_name": "Kept"})
    assert form.errors.keys() == {"agreed"}
    assert "confirm" in form.errors["agreed"]
    assert form.values["train_video_url"] == FOOTAGE
    assert form.values["replica_name"] == "Kept"
    await world.settle()
    assert not world.requests_for("create_replica")

    await form.submit({"agreed": ["yes"]})
    assert not form.is_open
    await world.settle()
    assert len(_created(world)) == 1


# ── Links that run out ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["train_video_url", "consent_video_url"])
async def test_a_link_that_expires_within_a_day_warns_once_and_is_sent_on_the_second_press(
    world: World, field: str
) -> None:
    link = _signed(world.clock.now(), timedelta(hours=23))
    typed = {**SENT_OFF, "replica_name": "Kept", "where": "lobby", field: link}
    form = await _opens(world, typed)

    [note] = _notes(form)
    assert "expires <!date^" in note
    assert {"train_video_url": "footage", "consent_video_url": "consent"}[field] in note
    assert "24 hours" in note
    kept = {"consent_video_url": None, **typed, "where": world.slack.channel("lobby").id}
    assert form.values == {**kept, "owner": world.ana.user.id}
    await world.settle()
    assert not world.requests_for("create_replica")
    assert not world.posts()

    await form.submit()
    assert not form.is_open
    await world.settle()
    [created] = _created(world)
    assert created[field] == link


async def test_a_link_that_expires_while_the_warning_is_read_is_refused(world: World) -> None:
    link = _signed(world.clock.now(), timedelta(minutes=5))
    form = await _opens(world, {**SENT_OFF, "train_video_url": link})
    assert _notes(form)

    await world.advance(minutes=6)
    await form.submit()

    assert form.errors.keys() == {"train_video_url"}
    assert not world.requests_for("create_replica")


# ── One form, one replica ─────────────────────────────────────────────────────────────────────


async def test_a_form_that_is_retried_by_an_admin_shows_no_links(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
        typed = {"consent_video_url": CONSENT, "replica_name": "Kim"}
        card = await world.request_replica(world.ana, typed)
        world.service.fail(world.last_replica_id(), "Too dark.")
        await world.settle()
        [reply] = world.replies(card)
        await world.ben.click(reply, "Edit and retry")

    form = world.ben.modal
    assert form is not None
    studio = world.slack.channel("studio").id
    assert form.values == {
        "train_video_url": None,
        "consent_video_url": None,
        "replica_name": "Kim",
        "owner": world.ana.user.id,
        "agreed": [],
        "where": studio,
    }
    assert "storage.example.com" not in json.dumps(form.view.body)


DRIVE_FILE = "1AbCdEfGhIjKlMn"
DIRECT_DRIVE = (
    f"https://drive.usercontent.google.com/download?id={DRIVE_FILE}&export=download&confirm=t"
)
SHAREPOINT = "https://contoso-my.sharepoint.com"

WITH_A_DIRECT_FORM = {
    f"https://drive.google.com/file/d/{DRIVE_FILE}/view?usp=sharing": DIRECT_DRIVE,
    f"https://drive.google.com/file/d/{DRIVE_FILE}/preview": DIRECT_DRIVE,
    f"https://drive.google.com/open?id={DRIVE_FILE}": DIRECT_DRIVE,
    f"https://docs.google.com/file/d/{DRIVE_FILE}/edit": DIRECT_DRIVE,
    "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=0": (
        "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=1"
    ),
    f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy": (
        f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy&download=1"
    ),
}
ONLY_A_PAGE = [
    f"https://drive.google.com/drive/folders/{DRIVE_FILE}",
    "https://photos.google.com/share/AF1Qip",
    "https://www.dropbox.com/scl/fo/a1/h?rlkey=k3y",
    "https://www.dropbox.com/home/Footage?preview=anna.mp4",
    "https://1drv.ms/v/s!AbC",
    "https://onedrive.live.com/?id=ABC&cid=DEF",
    f"{SHAREPOINT}/personal/anna/_layouts/15/stream.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/onedrive.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://music.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ",
    "https://youtu.be/dQw4w9WgXcQ",
    "https://vimeo.com/76979871",
    "https://player.vimeo.com/video/76979871",
    "https://www.loom.com/share/0a1b2c",
    "https://www.icloud.com/iclouddrive/0a1b2c#anna",
    "https://share.icloud.com/photos/0a1b2c",
    "https://acme.app.box.com/s/0a1b2c",
    "https://acme.slack.com/files/U024BE7LH/F024BERPE/anna.mp4",
    "https://files.slack.com/files-pri/T024BE7LD-F024BERPE/anna.mp4",
    "https://us02web.zoom.us/rec/share/0a1b2c",
]
FILES = [
    DIRECT_DRIVE,
    "https://dl.dropboxusercontent.com/scl/fi/a1/anna.mp4?rlkey=k3y",
    "https://player.vimeo.com/progressive_redirect/playback/76979871/rendition/1080p/file.mp4",
    "https://app.box.com/shared/static/0a1b2c.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/download.aspx?UniqueId=0a1b2c",
    "https://storage.googleapis.com/footage/anna.mp4?X-Goog-Signature=5160",
]


async def test_the_form_refuses_footage_that_is_a_page_and_shows_the_direct_link(
    world: World,
) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    passed = []
    for link, direct in [*WITH_A_DIRECT_FORM.items(), *((each, "") for each in ONLY_A_PAGE)]:
        # The bot is not in that channel, so that a link that passes starts no training.
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        said = form.errors.get("train_video_url", "")
        remedy = f"paste this one: {direct}" if direct else "Use one that downloads it"
        if "not the file" not in said or remedy not in said:
            passed.append((link, said))
    assert passed == []


async def test_the_form_takes_direct_links_of_the_same_services(world: World) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    for link in FILES:
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        assert list(form.errors) == ["where"], form.errors
