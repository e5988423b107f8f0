"""Forms that are open while the bot is updated: accepted, or drawn anew with all that was typed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.slack.views.buttons import OPEN_LINK, TURN_PAGE
from sandbox.driver import Modal
from tests.house.test_house_rules import LISTENERS
from tests.journeys.test_approval import requests
from tests.journeys.test_limits import MIDNIGHT, VALUES, make
from tests.journeys.test_replica_journeys import WITH_A_DIRECT_FORM
from tests.modes import bot_with, in_both_modes
from tests.world import FOOTAGE, REPLICA, World

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

    await world.after(form.send({"where": world.slack.channel("studio").id}), minutes=5)
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
    await world.after(form.send({"script": "A long <speech> *of* mine."}))
    assert world.created_count() == 1


@pytest.mark.parametrize("command", ["/video", "/replica"])
async def test_a_form_with_more_in_its_metadata_is_accepted(world: World, command: str) -> None:
    form = await world.open_form(world.ana, command=command)
    known = json.loads(form.view.body["private_metadata"])
    make_older(form, metadata={**known, "colour": "blue", "more": {"a": [1]}})
    await form.send(TYPED if command == "/video" else TRAINING)


async def test_a_form_that_this_version_does_not_know_keeps_what_was_typed(world: World) -> None:
    form = await world.open_form(world.ana)
    make_older(form, callback_id="make_a_film")
    await form.submit(TYPED)
    assert form.is_open
    assert {name: form.values[name] for name in TYPED} == TYPED
    [error] = form.errors.values()
    assert "I don't recognize this. Copy what you entered" in error


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


MINUTE = " ".join(["word"] * 150)
DROPBOX = "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=0"


def top(form: Modal) -> str:
    """Return the first line of a form."""
    return str(form.view.body["blocks"][0]["elements"][0]["text"])


@bot_with(MAX_PER_USER_PER_DAY="1", ADMIN_USERS="{ben}")
async def test_with_nothing_left_the_command_says_so_and_gives_the_script_back(
    world: World,
) -> None:
    for person in (world.ana, world.ben):
        await make(world, person)
        answer = await person.command("/video", "A second <one>", "studio")
        assert person.modal is None, "an admin's neither"
        said = (
            f"You've reached your limit of 1 request a day. It resets {MIDNIGHT}. Need more? "
            f"Ask <@{world.ben.user.id}>."
        )
        assert answer.shown.text == f"{said}\nA second &lt;one&gt;"
        await person.command("/replica", "", "studio")
        assert person.modal is None
        assert world.ephemerals(person)[-1] == said
    await world.advance(hours=24)
    assert (await world.open_form(world.ana)).is_open


@bot_with(MAX_PER_DAY="1")
async def test_a_form_that_was_opened_before_the_last_one_is_refused_exactly(world: World) -> None:
    await world.advance(hours=16)  # 8 PM in New York, where ben is
    form = await world.open_form(world.ben)
    await make(world, world.ana)
    await form.submit(VALUES)
    assert form.errors["replica_id"] == (
        "Your workspace has reached its limit of 1 request a day. It resets tomorrow at "
        "7:00 PM. Need more? Ask a workspace admin."
    )
    await world.advance(hours=5)
    await form.submit(VALUES)
    assert "It resets at 7:00 PM." in form.errors["replica_id"], "it is tomorrow by now"
    assert world.created_count() == 1


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("0", "This needs approval by <@{ben}>."),
        ("500", "Scripts of more than 500 characters need approval by <@{ben}>."),
        ("20000", ""),
    ],
)
async def test_a_form_says_that_it_will_need_approval(quiet: World, above: str, said: str) -> None:
    ben = quiet.ben.user.id
    async with quiet.running_bot(APPROVERS=ben, APPROVAL_ABOVE=above):
        form = await quiet.open_form(quiet.ana)
        body = str(form.view.body)
        assert (top(form) == said.format(ben=ben)) if said else "approve" not in body
        form = await quiet.open_form(quiet.ana, command="/replica")
        assert top(form) == f"This needs approval by <@{ben}>."
        form = await quiet.open_form(quiet.ben, command="/replica")
        assert top(form).startswith("You're the only approver")


async def test_approvers_see_the_month_so_far_the_price_and_the_script_once(quiet: World) -> None:
    settings = {"APPROVERS": quiet.ben.user.id, "MAX_PER_MONTH": "40"}
    quiet.slack.add_channel("approvals")
    settings["APPROVAL_CHANNEL"] = quiet.slack.channel("approvals").id
    async with quiet.running_bot(PRICE_PER_MINUTE="0.40", **settings):  # type: ignore[arg-type]
        for script in (MINUTE, f"{MINUTE} {MINUTE}"):
            await quiet.request_video(quiet.ana, {"script": script})
        [_, asked] = requests(quiet)
        assert "This month so far: 2 of 40 requests." in asked.text
        assert "Cost: about $0.80" in asked.text
        assert str(asked.blocks).count("word") == 300
        await quiet.after(quiet.ben.click(asked, "Approve"))
        assert "so far" not in quiet.now(asked).text


async def test_with_a_price_the_form_and_home_say_what_it_comes_to(quiet: World) -> None:
    price = {"PRICE_PER_MINUTE": "1.5", "PRICE_CURRENCY": "CHF"}
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id, **price):  # type: ignore[arg-type]
        for script in (MINUTE, "こんにちは。" * 50):
            form = await quiet.open_form(quiet.ana, script)
            assert "about 60 seconds to speak (about CHF 1.50)" in str(form.view.body)
            await form.close()
        form = await quiet.open_form(quiet.ana)
        assert "150 words take about a minute (about CHF 1.50)." in str(form.view.body)
        await form.submit({"replica_id": REPLICA, "script": f"{MINUTE} {MINUTE}"})
        await quiet.advance(minutes=5)
        await quiet.after(quiet.ben.open_home())
        home = str(quiet.ben.home.view.body) if quiet.ben.home else ""
        assert "*Usage this month*\\n1 video, about 2 min spoken, about CHF 3.00." in home


@bot_with(ADMIN_USERS="{ben}")
async def test_without_a_price_nobody_reads_of_money(world: World) -> None:
    form = await world.open_form(world.ana, MINUTE)
    assert "$" not in str(form.view.body)
    await world.after(world.ben.open_home())
    home = str(world.ben.home.view.body) if world.ben.home else ""
    assert "Usage this month" in home


async def test_a_script_that_is_too_long_opens_the_form_and_says_how_much_to_cut(
    world: World,
) -> None:
    script = "Welcome to the team! " * 158
    form = await world.open_form(world.ana, script)
    note = "The script has 3,317 characters. The limit is 3,000: cut 317."
    assert note in str(form.view.body["blocks"][0])
    parts = form.values["script"] + form.values["script_2"]
    assert parts == script.strip(), "nothing is lost"
    await form.choose("background", "background_url")
    assert form.values["script"] + form.values["script_2"] == script.strip()
    await form.choose("background", "none")
    await form.submit({"replica_id": REPLICA})
    assert "The script has 3,317 characters. The limit is 3,000" in form.errors["script"]
    await world.after(form.send({"script_2": ""}))
    [video] = world.service.videos.values()
    assert video.script == form.values["script"].strip()


@bot_with(MAX_SCRIPT="20000")
async def test_a_script_of_two_boxes_is_one_where_scripts_may_be_as_long(world: World) -> None:
    script = ("Welcome to the team! " * 158).strip()
    form = await world.open_form(world.ana, script)
    assert "The limit is" not in str(form.view.body)
    await world.after(form.send({"replica_id": REPLICA}))
    assert [video.script for video in world.service.videos.values()] == [script]


async def test_a_link_to_a_page_is_replaced_by_its_file_and_needs_one_more_press(
    world: World,
) -> None:
    form = await world.open_form(world.ana, command="/replica")
    await form.submit({"train_video_url": DROPBOX, "agreed": ["yes"], "replica_name": "Anna"})
    assert len(world.service.replicas) == 1, "it is shown before it is sent"
    again = world.ana.form
    assert again.values["train_video_url"] == WITH_A_DIRECT_FORM[DROPBOX]
    assert again.values["replica_name"] == "Anna"
    assert "I made it a direct link" in str(again.view.body["blocks"][0])
    await again.submit()
    assert world.ana.modal is None
    await world.settle()
    [made] = world.requests_for("create_replica")
    assert WITH_A_DIRECT_FORM[DROPBOX] in str(made.body)


async def test_the_bot_is_invited_by_the_name_that_it_has_in_the_workspace(quiet: World) -> None:
    bot = replace(quiet.slack.bot, name="studio-bot")
    quiet.slack.bot = quiet.slack.users[bot.id] = bot
    async with quiet.running_bot():
        form = await quiet.open_form_and_remove_bot(quiet.ana)
        await quiet.after(form.submit(VALUES), minutes=15)
        assert "/invite @studio-bot" in str([each.text for each in quiet.posts()])
        form = await quiet.submit_form(quiet.ana, VALUES, channel="vault")
        assert "/invite @studio-bot" in form.errors["where"]
