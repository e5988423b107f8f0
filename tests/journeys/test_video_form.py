"""The create form: input arrives unchanged, and mistakes are shown under their fields."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.settings import Settings, SettingsError
from bot.slack.views.blocks import escape, one_line, plain, words
from bot.store import DatabaseUnavailable
from bot.store.database import Query, Transaction
from bot.store.replicas import Replicas
from sandbox.block_kit import Json
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import Scenario
from sandbox.slack import Call
from sandbox.slack_objects import Message
from tests.journeys.test_approval import requests, settings
from tests.modes import in_both_modes, on_both_engines, on_sqlite_alone
from tests.world import REPLICA, Details, World, number_of

PAGE = "https://www.example.com/background?colour=blue&size=2#top"
FILE = "https://files.example.com/clips/sea.mp4?signature=a%2Fb"


def _note(form: Modal) -> str:
    [note] = [block for block in form.view.body["blocks"] if block["block_id"] == "note"]
    return str(note["text"]["text"])


@in_both_modes
async def test_every_field_arrives_at_the_service_as_typed(
    world: World, subtests: pytest.Subtests
) -> None:
    for background, link in [
        ("none", ""),
        ("background_url", PAGE),
        ("background_source_url", FILE),
    ]:
        with subtests.test(background=background, link=link):
            script = (
                "Hello & welcome, <friends>!\n\n  “Zażółć gęślą jaźń” — *not* bold\t:tada: 你好"
            )
            form = await world.open_form(world.ana)
            await form.choose("background", background)
            values = {"replica_id": REPLICA, "script": script, "video_name": "Week 7: <b>Hi</b>"}
            await world.after(form.submit(values | ({background: link} if link else {})))

            create = world.requests_for("create_video")[-1]
            assert create.body.pop("callback_url")
            expected = {"replica_id": REPLICA, "script": script, "video_name": "Week 7: <b>Hi</b>"}
            assert create.body == expected | ({background: link} if link else {})


async def test_a_video_that_is_stored_is_not_called_unsaved_where_its_replica_cannot_be_offered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise DatabaseUnavailable("the disk is full")

    form = await world.open_form(world.ana)
    monkeypatch.setattr(Replicas, "learn", fail)
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    assert world.ana.modal is None, form.errors
    await world.settle()
    assert world.created_count() == 1


async def test_what_people_wrote_pings_only_the_requester(world: World) -> None:
    script = f"<!channel> <@{world.ben.user.id}> @here"
    card = await world.request_video(world.ana, {"script": script, "video_name": "<!everyone>"})
    await world.advance(minutes=5)

    assert len(world.posts()) == 2
    for message in world.posts():
        assert message.pings <= {world.ana.user.id}
        assert "<!" not in message.text.replace("<!date^", "")
    assert len(world.replies(card)) == 1


@in_both_modes
async def test_choosing_a_background_shows_its_link_field_and_keeps_the_others(
    world: World,
) -> None:
    form = await world.open_form(world.ana, "Hello.")
    await form.submit({"replica_id": REPLICA, "video_name": "Kept", "script": " "})
    links = {"background_url", "background_source_url"}
    assert not links & form.values.keys()

    for choice in ("background_url", "background_source_url", "background_url", "none"):
        await form.choose("background", choice)
        assert form.values.keys() & links == ({choice} & links)
        assert form.values["background"] == choice
        assert form.values["replica_id"] == REPLICA
        assert form.values["video_name"] == "Kept"


async def test_a_background_that_was_deselected_is_not_sent_even_if_its_field_remains(
    world: World,
) -> None:
    form = await world.open_form(world.ana, "Hello.")
    await form.choose("background", "background_url")
    world.slack.faults.next("views.update", Reset())
    await form.choose("background", "none")

    await world.after(form.submit({"replica_id": REPLICA, "background_url": PAGE}))

    [create] = world.requests_for("create_video")
    assert "background_url" not in create.body


@in_both_modes
async def test_a_form_that_cannot_be_opened_in_time_is_explained(world: World) -> None:
    async def dawdle(when: str, method: str, _: Json) -> None:
        if (when, method) == ("before", "views.open"):
            world.clock.set(world.clock.now() + timedelta(seconds=4))

    world.slack.on_request = dawdle
    answer = await world.ana.command("/video")

    assert "Please try again." in answer.shown.text
    assert world.ana.modal is None


@in_both_modes
async def test_five_submissions_of_one_form_make_one_video_and_one_card(world: World) -> None:
    form = await world.open_form(world.ana, "Hello.")
    await form.choose("background", "background_url")
    await form.submit({"replica_id": REPLICA, "background_url": "https://localhost"})
    assert form.errors

    fixed = {"background_url": PAGE}
    answers = await asyncio.gather(*(form.submit(fixed) for _ in range(5)))
    await world.advance(minutes=5)

    assert all(answer.ok for answer in answers)
    assert not form.is_open
    assert len(world.requests_for("create_video")) == 1
    assert len(world.posts()) == 2


@pytest.mark.parametrize("change", [{"script": "Hello, you."}, {"where": "lobby"}, {"where": None}])
async def test_a_form_that_was_changed_after_its_answer_was_lost_says_so_and_makes_a_second_video(
    world: World, change: dict[str, Any]
) -> None:
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}))
    # The answer was lost on the way, so the form is still there.
    world.slack.modals[world.ana.user.id].append(form.view)

    await form.submit(change)

    second = world.ana.form
    assert second.view is not form.view
    assert "already submitted this" in _note(second)
    assert second.values == form.values, "what was typed stands in it too"
    await world.settle()
    assert len(world.requests_for("create_video")) == 1

    await second.submit()
    assert world.ana.modal is None, "both are closed"
    await world.advance(minutes=5)
    scripts = [video.script for video in world.service.videos.values()]
    assert scripts == ["Hello.", change.get("script", "Hello.")]
    assert len(world.posts()) == 4


async def test_a_place_that_was_cleared_stays_cleared_when_the_form_is_drawn_again(
    world: World,
) -> None:
    form = await world.submit_form(world.ana, {"where": None, "replica_id": REPLICA, "script": " "})
    await form.choose("background", "background_url")
    assert form.values["where"] is None
    # Whether Slack keeps an empty field, its documentation does not say.
    assert "default_to_current_conversation" not in str(form.view.body["blocks"])


async def test_a_script_without_letters_or_digits_is_refused(
    world: World, subtests: pytest.Subtests
) -> None:
    form = await world.open_form(world.ana)
    for script in ["\u200b", "\u2060\ufeff", "\u00ad", "\u3164", "…!"]:
        with subtests.test(script=script):
            await form.submit({"replica_id": REPLICA, "script": script})
            assert "script" in form.errors
            assert not world.requests_for("create_video")


async def test_an_accepted_form_is_not_refused_when_it_is_submitted_again(world: World) -> None:
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}))
    world.service.out_of_credit = True
    await world.after(world.request_video(world.ben), minutes=1)
    signed_anew = form.view
    world.slack.modals[world.ana.user.id].append(signed_anew)
    await form.submit()
    assert not form.errors


@on_sqlite_alone
async def test_a_form_whose_job_cannot_be_stored_stays_open_and_starts_nothing(
    world: World,
) -> None:
    # The database can be read all the while: only the commit of a submission fails.
    def refuses(tx: Transaction) -> None:
        refusal = "BEFORE INSERT ON jobs BEGIN SELECT raise(ABORT, 'nothing more fits'); END"
        tx.all(Query(f"CREATE TEMP TRIGGER refusal {refusal}"))

    await world.bot.store.database.run(refuses)
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello, world."}), minutes=5)

    assert form.is_open
    assert "couldn't be saved" in " ".join(form.errors.values())
    assert world.posts() == []
    assert world.created_count() == 0


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


async def test_the_training_form_shows_the_consent_statement_for_copying(quiet: World) -> None:
    statement = "I, *Anna*, agree that <a replica> of me is trained."
    async with quiet.running_bot(CONSENT_STATEMENT=statement):
        form = await quiet.open_form(quiet.ana, command="/replica")
        [block] = [each for each in form.view.body["blocks"] if each["type"] == "rich_text"]
        [copied] = block["elements"]
        assert copied["type"] == "rich_text_preformatted"
        assert [each["text"] for each in copied["elements"]] == [statement]
        await quiet.after(quiet.submit_form(quiet.ana, {"replica_id": REPLICA, "script": "Hello."}))
    with pytest.raises(SettingsError, match="CONSENT_STATEMENT must be a text of at most 2,000"):
        Settings.read({"CONSENT_STATEMENT": "a" * 2001})


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
    await world.after(form.submit(typed), minutes=10)

    [create] = world.requests_for("create_video")
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
    card = await world.after(world.request_replica(world.ana, {"train_video_url": SHARED}), hours=8)

    assert "Footage: files.example.org" in (await world.details(world.ana, card)).text
    assert "files.example.org is not public" in world.now(card).text
    replica_id = world.last_replica_id()
    await world.ben.command("/replica", f"status {replica_id}")
    await world.ben.command("/replica", f"add {replica_id}")
    form = await world.submit_form(world.ben, {"replica_id": replica_id}, "Hello.")
    assert "files.example.org is not public" in form.errors["replica_id"]
    assert PATH not in _shown(world) + str(form.errors) + str(world.ephemerals(world.ben))


@pytest.mark.parametrize("links", [SHORT, LINKS], ids=["short", "long"])
async def test_links_survive_any_change_of_the_background(
    world: World, links: dict[str, str]
) -> None:
    form = await world.submit_form(world.ana, {"replica_id": REPLICA, "script": " "}, "Hello.")
    choices = (*links, "none", "background_url", "none", "background_source_url")
    typed: set[str] = set()
    for choice in choices:
        await form.choose("background", choice)
        if choice in links and choice not in typed:
            _fill(form, choice, links[choice])
            typed.add(choice)
        if choice in links:
            assert form.values[choice] == links[choice]
    await world.after(form.send({"script": "Hello."}))

    [create] = world.requests_for("create_video")
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
    await form.send({"replica_id": REPLICA, "background_url": ""})


@pytest.mark.parametrize("rest", ["", "?signature=" + "5" * 2900], ids=["short", "long"])
async def test_approvers_see_whole_links_in_details_while_a_request_waits_and_nobody_else_does(
    quiet: World, rest: str
) -> None:
    world, footage, consent = quiet, SHARED + rest, f"{SHARED}-consent{rest}"
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

        await world.after(ben.click(asked, "Approve"))
        # An admin may still look at it, but decides nothing any more.
        shown = await world.details(ben, card)
        assert "Footage: files.example.org" in shown.text
        assert PATH not in str(shown)

        form = await world.open_form(world.ana, "Hello.")
        await form.choose("background", "background_source_url")
        await form.send({"replica_id": REPLICA, "background_source_url": SHARED + rest})
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


TYPED = {"replica_id": REPLICA, "script": "Hello, world."}


def picker(form: Modal) -> Json:
    [block] = [each for each in form.view.body["blocks"] if each["block_id"] == "where"]
    found: Json = block["element"]
    return found


async def only_card(world: World, form: Modal) -> Message:
    """Submit a form and return the one message that comes of it."""
    await world.after(form.send(TYPED))
    [card] = world.posts()
    return card


async def test_channels_are_offered_and_no_direct_messages(world: World) -> None:
    for command in ("/video", "/replica"):
        form = await world.open_form(world.ana, command=command)
        assert picker(form)["filter"] == {
            "include": ["public", "private"],
            "exclude_bot_users": True,
            "exclude_external_shared_channels": True,
        }
        assert form.values["where"] == world.slack.channel("studio").id


async def test_in_the_apps_own_direct_message_the_answer_comes_there(world: World) -> None:
    dm = world.slack.dm("ana")
    form = await world.open_form(world.ana, channel=dm.id)
    assert form.values["where"] is None
    card = await only_card(world, form)
    assert (card.channel, "couldn't post" in card.text) == (dm.id, False)


async def test_from_a_conversation_of_other_people_the_answer_comes_in_the_apps_direct_message(
    world: World,
) -> None:
    theirs = world.slack.direct_message("ana", "ben")
    card = await only_card(world, await world.open_form(world.ana, channel=theirs.id))
    assert (card.channel, "couldn't post" in card.text) == (world.slack.dm("ana").id, False)


async def test_nothing_is_posted_where_the_menu_offers_nothing(world: World) -> None:
    """What a client sends as the choice need not be one that was offered."""
    theirs = world.slack.direct_message("ana", "ben").id
    places = (world.slack.dm("ben").id, world.ben.user.id, theirs, world.ana.user.id, "studio")
    form = await world.open_form(world.ana)
    field = form._field("where")
    for place in places:
        form.view.values[field.block_id][field.action_id] = {
            "type": "conversations_select",
            "selected_conversation": place,
        }
        await form.submit(TYPED)
        assert form.errors == {"where": "I can't post there. Please choose another channel."}
    await world.settle()
    assert not world.posts()
    assert not world.requests_for("create_video")


async def test_a_private_channel_without_the_bot_is_refused_before_anything_is_spent(
    world: World,
) -> None:
    form = await world.after(world.open_form(world.ana, channel="vault"))
    await form.submit(TYPED)
    assert "/invite @replica-videos" in form.errors["where"]
    await form.submit()
    assert form.errors.keys() == {"where"}
    await world.settle()
    assert world.created_count() == 0
    assert form.values["script"] == TYPED["script"]

    world.slack.change_channel("vault", with_bot=True)
    card = await only_card(world, form)
    assert card.channel == world.slack.channel("vault").id


@pytest.mark.parametrize("scope", ["groups:read", "channels:read"])
async def test_where_slack_does_not_let_the_bot_find_out_the_request_goes_on(
    quiet: World, scope: str
) -> None:
    quiet.slack.scopes.discard(scope)
    async with quiet.running_bot():
        channel = {"groups:read": "vault", "channels:read": "studio"}[scope]
        form = await quiet.after(quiet.submit_form(quiet.ana, TYPED, channel=channel))
    assert not form.is_open
    assert quiet.created_count() == 1


TOLD = {"tell_channel": ["yes"]}


def broadcasts(world: World) -> list[Message]:
    return [each for each in world.posts() if each.is_broadcast]


def told(calls: list[Call]) -> list[Any]:
    return [call for call in calls if "reply_broadcast" in call.arguments]


@on_both_engines
async def test_the_channel_is_told_once_when_the_video_is_ready(world: World) -> None:
    card = await world.request_video(world.ana, TOLD)
    assert not broadcasts(world)
    await world.advance(minutes=5)
    [reply] = broadcasts(world)
    assert (reply.channel, reply.thread_ts) == (card.channel, card.ts)
    assert reply in world.replies(card)
    assert "is ready" in reply.text
    history = world.slack.in_channel(card.channel)
    assert [each.ts for each in history] == [card.ts, reply.ts]
    await world.advance(days=1)
    assert broadcasts(world) == [reply]


async def test_the_channel_is_told_only_where_that_was_chosen_and_it_is_ready(world: World) -> None:
    plain = await world.request_video(world.ana)
    world.service.next_video(Scenario(end="error", reason="Too shy"))
    failed = await world.request_video(world.ana, TOLD)
    direct = await world.open_form(world.ana)
    await direct.submit({"replica_id": REPLICA, "script": "For me.", "where": None, **TOLD})
    await world.advance(minutes=10)
    assert [len(world.replies(each)) for each in (plain, failed)] == [1, 1]
    assert "is ready" in world.slack.everything(world.slack.dm(world.ana.user.id).id)[-1].text
    assert not told(world.calls("chat.postMessage"))
    # What was chosen is kept for another try.
    await world.ana.click(world.now(failed), "Edit and retry")
    assert world.ana.form.values["tell_channel"] == ["yes"]


async def test_a_told_reply_whose_answer_was_lost_is_found_and_not_told_again(world: World) -> None:
    card = await world.request_video(world.ana, TOLD)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.advance(minutes=10)
    assert len(world.replies(card)) == len(broadcasts(world)) == 1


async def test_a_form_keeps_the_choice_when_it_is_drawn_anew(world: World) -> None:
    form = await world.open_form(world.ana)
    typed = {"replica_id": REPLICA, "script": "Hello.", "background": "background_url"}
    await form.submit({**typed, **TOLD})
    assert form.is_open
    assert form.values["tell_channel"] == ["yes"]


async def test_a_reply_that_may_not_tell_the_channel_is_in_the_thread_alone(world: World) -> None:
    card = await world.request_video(world.ana, TOLD)
    refusal = CannedResponse(200, {"ok": False, "error": "cant_broadcast_message"})
    world.slack.faults.next("chat.postMessage", refusal)
    await world.advance(minutes=5)
    assert "is ready" in world.reply(card).text
    assert len(told(world.calls("chat.postMessage"))) == 1


CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
TURNED = "Kim \u202e4pm.\u2066exe\u200f"


@given(st.text(st.sampled_from(f"{CONTROLS} \nab<שא\u200d")))
def test_no_text_for_slack_has_a_control_character_for_direction(text: str) -> None:
    shown = [escape(text), one_line(text), plain(text, 100)["text"], words(text)["text"]]
    assert not set(CONTROLS) & set("".join(shown))
    assert [letter for letter in shown[0] if letter in "שא\u200d"] == [
        letter for letter in text if letter in "שא\u200d"
    ], "letters and joiners stay"


async def test_a_name_and_a_reason_that_turn_text_round_are_shown_in_order(world: World) -> None:
    world.service.add_replica("r-turned", TURNED)
    world.service.next_video(Scenario(end="error", reason="Too \u202edark\u2069."))
    await world.after(world.ana.command("/replica", "add r-turned"))
    card = await world.after(world.request_video(world.ana, {"video_name": TURNED}), minutes=10)
    await world.ana.command("/video", f"status {number_of(card)}")
    await world.after(world.ana.command("/video", "list"))

    assert world.now(card).text.startswith("Kim 4pm.exe\n")
    assert "“Too dark.”" in world.replies(card)[0].text
    calls = [call for call in world.slack.calls if not call.method.startswith("views.")]
    shown = json.dumps([call.arguments for call in calls], ensure_ascii=False)
    shown += "".join(world.ephemerals(world.ana))
    assert "Kim 4pm.exe" in shown
    assert not set(CONTROLS) & set(shown)
    [create] = world.requests_for("create_video")
    assert create.body["video_name"] == TURNED, "the service gets what was typed"
    await world.ana.click(world.now(card), "Edit and retry")
    assert world.ana.form.values["video_name"] == TURNED, "nothing that was typed is lost"
