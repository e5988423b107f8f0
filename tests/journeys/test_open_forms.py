"""Forms that are open while the bot is updated: accepted, or drawn anew with all that was typed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.slack.views.buttons import OPEN_LINK, TURN_PAGE
from sandbox.driver import Modal
from tests.house.test_house_rules import LISTENERS
from tests.modes import in_both_modes
from tests.world import FOOTAGE, REPLICA, World, buttons_of

TYPED = {"replica_id": REPLICA, "script": "Good morning.", "video_name": "Monday"}
TRAINING = {"train_video_url": FOOTAGE, "replica_name": "Anna", "agreed": ["yes"]}
PAGE = Path(__file__).parent.parents[1] / "docs" / "interface.md"
# They are in Slack, in messages and forms that earlier versions made: never rename or remove one.
IDS = {
    "view": """
        create_video train_replica job_id_form answers_form decline_form limits_form
        edit_replica remove_replica
    """,
    "shortcut": "video_from_message video_from_anywhere",
    "action": """
        job_check_again job_stop job_details job_more job_have_id job_create_again job_give_up
        questions_answer questions_cancel approval_approve approval_decline approval_withdraw
        video_retry replica_retry video_another replica_make_video use_as_script
        home_create home_train admin_limits admin_spending admin_month video_background
        replica_menu owner_mute owner_ask_first training_stop
    """,
    "options": "video_replica",
}
BEGINNINGS = ["home_page_", "open_link_"]
FIELDS = {
    "/video": "replica_id script video_name background where tell_channel",
    "/replica": "train_video_url consent_video_url replica_name owner agreed where",
}
UPDATED = "I was just updated."


def make_older(
    form: Modal,
    *,
    without: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
    metadata: object = None,
    callback_id: str | None = None,
) -> None:
    """Turn a form into what another version of the bot had opened."""
    body, values = form.view.body, form.view.values
    body["blocks"] = [each for each in body["blocks"] if each.get("block_id") not in without]
    for name in without:
        values.pop(name, None)
    for old, new in (renamed or {}).items():
        [block] = [each for each in body["blocks"] if each.get("block_id") == old]
        block["block_id"] = new
        values[new] = values.pop(old)
    if metadata is not None:
        body["private_metadata"] = metadata if isinstance(metadata, str) else json.dumps(metadata)
    if callback_id is not None:
        body["callback_id"] = callback_id


def shown(form: Modal) -> str:
    return str(form.view.body["blocks"])


@in_both_modes
@pytest.mark.parametrize(
    "older",
    [
        {"without": ["video_name"]},
        {"without": ["where"]},
        {"without": ["background"]},
        {"metadata": ""},
        {"metadata": "{broken"},
        {"metadata": {"version": 2}},
        {"metadata": {"channel": "the studio"}},
    ],
    ids=str,
)
async def test_a_create_form_of_another_version_is_drawn_anew_with_what_was_typed(
    world: World, older: Mapping[str, Any]
) -> None:
    form = await world.open_form(world.ana)
    make_older(form, **older)
    typed = {name: text for name, text in TYPED.items() if name not in older.get("without", ())}
    await form.submit(typed)
    assert UPDATED in shown(form)
    assert {name: form.values[name] for name in typed} == typed
    assert world.created_count() == 0

    await form.submit({"where": world.slack.channel("studio").id})
    assert not form.is_open, form.errors
    await world.advance(minutes=5)
    assert world.created_count() == 1
    [card] = world.slack.messages("studio")
    assert "Ready" in card.text


async def test_what_was_typed_in_a_field_that_is_gone_is_shown(world: World) -> None:
    form = await world.open_form(world.ana)
    make_older(form, renamed={"script": "words"})
    await form.submit({"replica_id": REPLICA, "words": "A long <speech> *of* mine."})
    assert UPDATED in shown(form)
    assert "A long <speech> *of* mine." in shown(form), "to be copied"
    assert form.values["replica_id"] == REPLICA
    await form.submit({"script": "A long <speech> *of* mine."})
    assert not form.is_open, form.errors
    await world.settle()
    assert world.created_count() == 1


@pytest.mark.parametrize(
    "older",
    [
        {"without": ["consent_video_url"], "metadata": {"channel": "", "title": "x"}},
        {"metadata": {"place": "C1"}},
    ],
    ids=str,
)
async def test_a_training_form_of_another_version_is_drawn_anew_with_what_was_typed(
    world: World, older: Mapping[str, Any]
) -> None:
    form = await world.open_form(world.ana, command="/replica")
    make_older(form, **older)
    await form.submit(TRAINING)
    assert UPDATED in shown(form)
    assert {name: form.values[name] for name in TRAINING} == TRAINING
    await form.submit()
    assert not form.is_open, form.errors
    await world.settle()
    assert len(world.requests_for("create_replica")) == 1


@pytest.mark.parametrize("command", ["/video", "/replica"])
async def test_a_form_with_more_in_its_metadata_is_accepted(world: World, command: str) -> None:
    form = await world.open_form(world.ana, command=command)
    known = json.loads(form.view.body["private_metadata"])
    make_older(form, metadata={**known, "colour": "blue", "more": {"a": [1]}})
    await form.submit(TYPED if command == "/video" else TRAINING)
    assert not form.is_open, form.errors


async def test_a_form_that_this_version_does_not_know_keeps_what_was_typed(world: World) -> None:
    form = await world.open_form(world.ana)
    make_older(form, callback_id="make_a_film")
    await form.submit(TYPED)
    assert form.is_open
    assert {name: form.values[name] for name in TYPED} == TYPED
    [error] = form.errors.values()
    assert "I don't recognize this. Copy what you entered" in error


async def test_an_error_about_a_field_that_is_not_there_is_under_the_first_one(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.add_channel("approvals")
    approvals = world.slack.channel("approvals").id
    async with world.running_bot(
        APPROVERS=world.ben.user.id, APPROVAL_ABOVE="0", APPROVAL_CHANNEL=approvals
    ):
        await world.request_video(world.ana)
        [request] = world.slack.messages("approvals")
        await world.ben.click(request, "Decline")
        form = world.ben.modal
        assert form is not None
        [name] = form.values
        make_older(form, renamed={name: "motive"})
        await form.submit({"motive": "Too long."})
        assert form.is_open
        assert list(form.errors) == ["motive"]
        assert form.values["motive"] == "Too long."
        assert buttons_of(request.blocks)


# ── The ids ───────────────────────────────────────────────────────────────────────────────────────


def test_every_id_that_slack_keeps_is_answered_and_on_its_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind, ids in IDS.items():
        assert set(ids.split()) <= set(LISTENERS[kind])
        assert set(LISTENERS[kind]) == set(ids.split()), "a new one belongs here and on the page"
        assert [each for each in ids.split() if f"`{each}`" not in page] == []
    assert [f"{TURN_PAGE}_", f"{OPEN_LINK}_"] == BEGINNINGS
    assert [each for each in BEGINNINGS if f"`{each}`" not in page] == []


@pytest.mark.parametrize("command", FIELDS)
async def test_the_fields_of_forms_keep_their_ids(world: World, command: str) -> None:
    form = await world.open_form(world.ana, command=command)
    fields = [each.block_id for each in form.view.fields()]
    assert fields == FIELDS[command].split()
    page = PAGE.read_text(encoding="utf-8")
    assert [each for each in fields if f"`{each}`" not in page] == []
