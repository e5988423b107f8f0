"""Links that people give: long ones are never lost, and others see no more than their host."""

import pytest

from sandbox.driver import Person
from sandbox.modal import Modal
from sandbox.scenarios import Scenario
from tests.journeys.test_approval import requests, settings
from tests.world import REPLICA, Details, World

PATH = "t-S3CRETpath"
SHARED = f"https://files.example.org/{PATH}"
LINKS = {
    name: f"https://storage.example.com/{name}.mp4?X-Amz-Signature=".ljust(3000, "a")
    for name in ("background_url", "background_source_url")
}
SHORT = {
    "background_url": "https://www.example.com/page",
    "background_source_url": "https://storage.example.com/clip.mp4",
}


def _fill(form: Modal, field: str, link: str) -> None:
    form.type({field: {field: link}}, finished=True)


def _shown(world: World) -> str:
    """Return all that the bot sent to Slack but forms, which only their user sees."""
    calls = [call for call in world.slack.calls if not call.method.startswith("views.")]
    assert calls
    return str([call.arguments for call in calls])


@pytest.mark.parametrize("reason", ["", f"Could not fetch {SHARED}: 403."])
async def test_the_path_of_a_background_is_never_shown(world: World, reason: str) -> None:
    world.service.next_video(Scenario(end="error", reason=reason) if reason else Scenario())
    form = await world.open_form(world.ana)
    await form.choose("background", "background_source_url")
    typed = {"replica_id": REPLICA, "script": "Hello.", "background_source_url": SHARED}
    await form.submit(typed)
    await world.advance(minutes=10)

    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert create.body["background_source_url"] == SHARED
    [card, reply] = world.posts()
    details = (await world.details(world.ana, card)).text
    assert "Background: files.example.org" in details
    assert PATH not in _shown(world) + details
    if reason:
        assert "Could not fetch files.example.org: 403." in card.text
        assert "Could not fetch files.example.org: 403." in reply.text


async def test_the_path_of_footage_is_never_shown_even_if_the_service_quotes_it(
    world: World,
) -> None:
    world.service.next_replica(Scenario(end="error", reason=f"{SHARED} is not public"))
    card = await world.request_replica(world.ana, {"train_video_url": SHARED})
    await world.advance(hours=8)

    assert "Footage: files.example.org" in (await world.details(world.ana, card)).text
    assert "files.example.org is not public" in world.now(card).text
    replica_id = world.last_replica_id()
    await world.ben.command("/replica", f"status {replica_id}")
    await world.ben.command("/replica", f"add {replica_id}")
    form = await world.open_form(world.ben, "Hello.")
    await form.submit({"replica_id": replica_id})
    assert "files.example.org is not public" in form.errors["replica_id"]
    assert PATH not in _shown(world) + str(form.errors) + str(world.ephemerals(world.ben))


@pytest.mark.parametrize("links", [SHORT, LINKS], ids=["short", "long"])
async def test_links_survive_any_change_of_the_background(
    world: World, links: dict[str, str]
) -> None:
    form = await world.open_form(world.ana, "Hello.")
    await form.submit({"replica_id": REPLICA, "script": " "})
    choices = (*links, "none", "background_url", "none", "background_source_url")
    typed: set[str] = set()
    for choice in choices:
        await form.choose("background", choice)
        if choice in links and choice not in typed:
            _fill(form, choice, links[choice])
            typed.add(choice)
        if choice in links:
            assert form.values[choice] == links[choice]
    await form.submit({"script": "Hello."})
    assert not form.is_open, form.errors
    await world.settle()

    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert create.body["background_source_url"] == links["background_source_url"]
    assert "background_url" not in create.body


async def test_a_link_that_fits_nowhere_else_keeps_its_field_and_says_that_it_is_not_used(
    world: World,
) -> None:
    form = await world.open_form(world.ana, "Hello.")
    await form.choose("background", "background_url")
    _fill(form, "background_url", LINKS["background_url"])
    await form.choose("background", "none")

    assert form.values["background_url"] == LINKS["background_url"]
    assert "Not used unless you choose “A web page”." in str(form.view.body["blocks"])
    await form.submit({"replica_id": REPLICA, "background_url": ""})
    assert not form.is_open, form.errors


@pytest.mark.parametrize("rest", ["", "?signature=" + "5" * 2900], ids=["short", "long"])
async def test_approvers_see_whole_links_in_details_while_a_request_waits_and_nobody_else_does(
    quiet_world: World, rest: str
) -> None:
    world, footage, consent = quiet_world, SHARED + rest, f"{SHARED}-consent{rest}"
    world.slack.add_channel("approvals")
    ben, cleo, admin = world.ben, Person(world.slack, "cleo"), world.slack.user("ben").id
    async with world.running_bot(**settings(world), ADMIN_USERS=admin):
        typed = {"train_video_url": footage, "consent_video_url": consent, "replica_name": "Kim"}
        card = await world.request_replica(world.ana, typed)
        [asked] = requests(world)
        for message in (asked, card):
            assert PATH not in message.text + str(message.blocks)
        for person in (ben, cleo):
            shown = await world.details(person, asked)
            assert links_in(shown) == {"Footage: ": footage, "Consent video: ": consent}
        assert PATH not in str(await world.details(world.ana, card))

        await ben.click(asked, "Approve")
        await world.settle()
        # An admin may still look at it, but decides nothing any more.
        shown = await world.details(ben, card)
        assert "Footage: files.example.org" in shown.text
        assert PATH not in str(shown)

        form = await world.open_form(world.ana, "Hello.")
        await form.choose("background", "background_source_url")
        await form.submit({"replica_id": REPLICA, "background_source_url": SHARED + rest})
        assert not form.is_open, form.errors
        await world.settle()
        shown = await world.details(cleo, requests(world)[-1])
        assert links_in(shown) == {"Background: ": SHARED + rest}


def links_in(shown: Details) -> dict[str, str]:
    """Return the links in details by their labels."""
    lines = [
        line["elements"]
        for block in shown.body["blocks"]
        for part in block["elements"]
        for line in part["elements"]
        if "elements" in line
    ]
    return {label["text"]: rest[0]["url"] for label, *rest in lines if "url" in rest[0]}
