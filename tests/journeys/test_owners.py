"""A replica belongs to the person whose face it is: who says who uses it, and for how long."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.block_kit import Json
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, LateCommit, Reset
from sandbox.slack_objects import Message
from tests.databases import query
from tests.modes import bot_with, on_both_engines
from tests.world import FOOTAGE, REPLICA, World, labels, offered_ids

SCRIPT = "I resign, effective today."
NOT_YOURS = "Only its owner or an admin can do that."
REMOVED = "This replica was removed. Pick another one."


def not_theirs(world: World, name: str) -> str:
    """Return what is said about a replica of a person's to those who may not change it."""
    return f"Only <@{world.slack.user(name).id}> or an admin can do that."


def offered(world: World, replica: str) -> bool:
    return replica in [each.id for each in world.bot.store.replicas.find("", "", 99)]


def direct(world: World, name: str) -> str:
    return world.slack.dm(world.slack.user(name).id).id


def told(world: World, name: str) -> list[Message]:
    """Return what the bot has written to a person directly, oldest first."""
    return [each for each in world.slack.messages(direct(world, name)) if each.is_from_bot]


async def says(world: World, person: Person, text: str) -> str:
    """Type the replica command, and return what the person is told; "" if a form opened."""
    before = len(world.ephemerals(person))
    assert (await person.command("/replica", text)).ok
    await world.settle()
    return "".join(world.ephemerals(person)[before:])


async def change(world: World, person: Person, text: str) -> Modal:
    """Type a command that opens a form, and return that."""
    assert await says(world, person, text) == ""
    return person.form


async def train(world: World, person: Person, owner: str) -> Message:
    return await world.request_replica(person, {"replica_name": "Ben, office", "owner": owner})


async def limit_to_asking(world: World, person: Person, replica: str = REPLICA) -> None:
    await says(world, person, f"add {replica}")
    form = await change(world, person, f"rename {replica}")
    await form.send({"who_may_use": "ask"})


async def notice_of_use(world: World) -> Message:
    """Have a video made with Ana's face, and return what she is told about it."""
    await says(world, world.ana, f"add {REPLICA}")
    await world.after(world.request_video(world.ben, {"script": SCRIPT}), hours=25)
    [notice] = made(world, "ana")
    return notice


def owner_of(world: World, replica: str) -> str | None:
    [row] = query(world.address, f"SELECT owner FROM replicas WHERE id = '{replica}'")  # noqa: S608
    owner: str | None = row["owner"]
    return owner


@on_both_engines
async def test_the_person_in_the_footage_owns_the_replica_and_is_told(world: World) -> None:
    form = await world.open_form(world.ana, command="/replica")
    assert form.values["owner"] == world.ana.user.id
    await form.close()
    await train(world, world.ana, "ben")
    [notice] = told(world, "ben")
    assert f"<@{world.ana.user.id}> is training a replica of you: “Ben, office”" in notice.text
    assert labels(notice) == ["Ask me first", "Stop it"]
    assert owner_of(world, world.last_replica_id()) == world.ben.user.id
    assert not told(world, "ana")

    await train(world, world.ana, "ana")
    assert owner_of(world, world.last_replica_id()) == world.ana.user.id
    assert not told(world, "ana")


async def test_the_person_in_the_footage_stops_the_training(world: World) -> None:
    card = await train(world, world.ana, "ben")
    [notice] = told(world, "ben")
    await world.after(world.ben.click(notice, "Stop it"))
    await world.after(world.ben.click(notice, "Stop it"), minutes=1)
    assert "Stopped" in world.now(card).text
    [reply] = world.replies(card)
    assert reply.text == f"<@{world.ana.user.id}>, the person in the footage stopped this replica."
    world.service.finish(world.last_replica_id())
    await world.advance(hours=2)
    form = await world.open_form(world.ana)
    assert world.last_replica_id() not in await offered_ids(form)
    assert "may have to delete it" in world.ephemerals(world.ben, direct(world, "ben"))[-1]


@bot_with(APPROVERS="{cleo}")
@pytest.mark.parametrize("approved", [True, False])
async def test_who_stops_a_training_is_not_taken_for_who_approved_it(
    world: World, *, approved: bool
) -> None:
    cleo = Person(world.slack, "cleo")
    card = await train(world, world.ana, "ben")
    [asked], [notice] = told(world, "cleo"), told(world, "ben")
    if approved:
        await world.after(cleo.click(asked, "Approve"), minutes=1)
    await world.after(world.ben.click(notice, "Stop it"), minutes=1)
    await world.after(cleo.click(asked, "Approve"), minutes=1)
    assert "Stopped" in world.now(card).text
    said = str(world.now(card).blocks)
    assert ["Approved by cleo" in said, "Approved" in said] == [approved, approved]
    assert len(world.requests_for("create_replica")) == approved


async def test_what_was_not_sent_when_the_replica_is_removed_is_not_made(world: World) -> None:
    world.service.faults.next(
        "create_video", CannedResponse(429, {"message": "Slow down."}, {"Retry-After": "60"})
    )
    await says(world, world.ana, f"add {REPLICA}")
    card = await world.after(world.request_video(world.ben), seconds=1)
    assert "Waiting" in world.now(card).text
    await (await change(world, world.ana, f"remove {REPLICA}")).submit()
    await world.advance(hours=1)
    assert "*Stopped* because the replica was removed" in world.now(card).text
    assert "I didn't make your video: its replica was removed" in world.reply(card).text
    assert "You weren't charged." in world.now(card).text
    assert world.created_count() == 0
    [used] = query(world.address, "SELECT max(videos) AS videos FROM usage")
    assert used["videos"] == 0  # it was not charged, and does not count


@pytest.mark.parametrize("other", ["ana", "cleo"])
async def test_only_the_person_in_the_footage_stops_the_training(world: World, other: str) -> None:
    card = await train(world, world.ana, "ben")
    [notice] = told(world, "ben")
    await world.after(Person(world.slack, other).click(notice, "Stop it"))
    assert "Training" in world.now(card).text
    assert offered(world, world.last_replica_id())


async def test_a_replica_is_trained_of_nobody_outside(world: World) -> None:
    world.slack.add_user("eve", team="T0ELSEWHERE")
    form = await world.open_form(world.ana, command="/replica")
    await form.submit({"train_video_url": FOOTAGE, "agreed": ["yes"], "owner": "eve"})
    assert form.errors == {"owner": "Pick a person who is in this workspace."}


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_who_adds_a_replica_that_nobody_owns_owns_it(world: World) -> None:
    world.service.add_replica(REPLICA.upper(), "Anna")  # it does not mind the case of an id
    said = await says(world, world.ana, f"add {REPLICA}")
    assert said.endswith("is ready to use by everyone in this workspace. You own it.")
    for typed in (REPLICA, REPLICA.upper()):
        assert "You own it" not in await says(world, world.ben, f"add {typed}")
    assert owner_of(world, REPLICA) == world.ana.user.id
    assert owner_of(world, REPLICA.upper()) is None
    assert await says(world, world.ben, f"rename {REPLICA}") == not_theirs(world, "ana")
    assert await says(world, world.ben, f"remove {REPLICA}") == not_theirs(world, "ana")

    cleo = Person(world.slack, "cleo")
    form = await change(world, cleo, f"rename {REPLICA}")
    await world.after(form.submit({"owner": "ben"}))
    assert owner_of(world, REPLICA) == world.ben.user.id
    assert await says(world, world.ana, f"remove {REPLICA}") == not_theirs(world, "ben")


@bot_with(ADMIN_USERS="{cleo}")
async def test_a_form_that_was_open_when_the_owner_changed_changes_nothing(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    await says(world, world.ana, f"add {REPLICA}")
    rename = await change(world, world.ana, "rename Anna")
    await (await change(world, cleo, "rename Anna")).submit({"owner": "ben"})
    await rename.submit({"replica_name": "Mine"})
    assert rename.errors == {"replica_name": NOT_YOURS}
    remove = await change(world, world.ben, "remove Anna")
    await (await change(world, cleo, "rename Anna")).submit({"owner": "ana"})
    await remove.submit()
    assert NOT_YOURS in str(remove.view.body)
    await world.settle()
    assert offered(world, REPLICA)


@on_both_engines
@bot_with(VIDEO_API_LISTS="yes")
async def test_a_removed_replica_is_gone_and_stays_so(world: World) -> None:
    world.service.add_replica(REPLICA.upper(), "Anna")
    await says(world, world.ana, f"add {REPLICA}")
    await says(world, world.ana, f"default {REPLICA}")
    card = await world.after(world.request_video(world.ben))
    form = await change(world, world.ana, f"remove {REPLICA}")
    said = str(form.view.body["blocks"])
    assert "Default in channels: 1. In progress: 1; unsent ones stop." in said
    assert "An admin still has to delete it at the video service." in said
    await world.after(form.send(), hours=3)
    assert "Ready" in world.now(card).text  # it was sent

    form = await world.open_form(world.ben)
    assert form.values.get("replica_id") is None
    assert REPLICA not in await offered_ids(form)
    for pasted in (REPLICA, REPLICA.upper()):
        await form.submit({"replica_id": pasted, "script": "Hello."})
        assert form.errors == {"replica_id": "This replica was removed. Pick another one."}
    await form.close()
    created = world.created_count()
    assert await says(world, world.ben, f"default {REPLICA}") == REMOVED
    removed = f"This replica was removed. {NOT_YOURS}"
    assert await says(world, world.ben, f"add {REPLICA}") == removed
    assert await says(world, world.ben, f"add {REPLICA.upper()}") == removed
    world.service.replicas[REPLICA].name = "Anna anew"  # the list has news of it
    await world.advance(days=2)
    form = await world.open_form(world.ben)
    assert REPLICA not in await offered_ids(form)
    await form.close()
    assert world.created_count() == created

    assert "You own it" in await says(world, world.ana, f"add {REPLICA}")
    assert offered(world, REPLICA)


async def test_a_video_is_not_created_again_with_a_removed_replica(world: World) -> None:
    await says(world, world.ana, f"add {REPLICA}")
    world.service.faults.next("create_video", Reset())
    card = await world.after(world.request_video(world.ben), hours=1)
    await (await change(world, world.ana, f"remove {REPLICA}")).submit()
    await world.after(world.ben.click(world.questions(card)[0], "Create again"), minutes=10)
    assert world.ephemerals(world.ben)[-1] == REMOVED
    assert not world.service.videos


async def test_a_channel_has_no_default_any_more(world: World) -> None:
    await says(world, world.ana, f"default {REPLICA}")
    form = await world.open_form(world.ana)
    assert form.values["replica_id"] == REPLICA
    await form.close()
    said = await says(world, world.ana, "default none")
    assert said == "This channel has no default replica now."
    form = await world.open_form(world.ana)
    assert not form.values.get("replica_id")


async def test_a_guest_changes_no_replica(world: World) -> None:
    world.slack.add_user("gus", guest="multi-channel", channels=["studio"])
    await says(world, world.ana, f"add {REPLICA}")
    gus = Person(world.slack, "gus")
    for text in ("add r-other", f"default {REPLICA}", "default none"):
        assert "Guests can't do that" in await says(world, gus, text)
    for text in (f"rename {REPLICA}", f"remove {REPLICA}"):
        assert await says(world, gus, text) == not_theirs(world, "ana")


async def test_what_the_service_no_longer_knows_keeps_its_owner(world: World) -> None:
    await says(world, world.ana, f"add {REPLICA}")
    anna = world.service.replicas.pop(REPLICA)
    assert "can't find" in await says(world, world.ben, f"add {REPLICA}")
    assert not offered(world, REPLICA)
    world.service.replicas[REPLICA] = anna
    await says(world, world.ben, f"add {REPLICA}")
    assert owner_of(world, REPLICA) == world.ana.user.id
    assert offered(world, REPLICA)


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_who_is_named_as_the_owner_of_what_was_trained_is_told(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    dora = world.slack.add_user("dora")
    await train(world, world.ana, "ana")
    replica = world.last_replica_id()
    world.service.finish(replica)
    await world.advance(hours=2)
    await (await change(world, cleo, f"rename {replica}")).submit({"owner": "dora"})
    await (await change(world, cleo, f"rename {replica}")).submit({"owner": "dora"})
    await world.settle()
    [notice] = told(world, "dora")
    assert f"<@{world.ana.user.id}> trained a replica of you: “Ben, office”" in notice.text
    await world.after(Person(world.slack, "dora").click(notice, "Stop it"))
    assert owner_of(world, replica) == dora.id
    assert not offered(world, replica)


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_what_others_ask_for_waits_for_the_owner(world: World) -> None:
    await limit_to_asking(world, world.ana)
    card = await world.request_video(world.ben, {"script": SCRIPT})
    [asked] = told(world, "ana")
    who = world.ben.user.id
    assert asked.text.startswith(f"*Let <@{who}> make this video with your replica?*")
    assert SCRIPT in str(asked.blocks)
    assert "This month so far" not in asked.text
    assert REPLICA not in asked.text
    assert labels(asked) == ["Approve", "Decline", "Details"]
    assert "Waiting for ana." in world.now(card).text
    for other in ("ben", "cleo"):
        await Person(world.slack, other).click(asked, "Approve")
    await world.advance(minutes=30)
    assert world.created_count() == 0
    assert (
        "Only an approver"
        in world.ephemerals(Person(world.slack, "cleo"), direct(world, "ana"))[-1]
    )

    for _ in range(3):
        await world.ana.click(asked, "Approve")
    await world.advance(minutes=5)
    assert world.created_count() == 1
    assert "Approved by ana" in world.now(card).text

    # The owner's own requests need no approval.
    await world.request_video(world.ana, {"script": "Mine."})
    assert world.created_count() == 2


async def test_the_owner_declines(world: World) -> None:
    await limit_to_asking(world, world.ana)
    card = await world.request_video(world.ben, {"script": SCRIPT})
    [asked] = told(world, "ana")
    await world.ana.click(asked, "Decline")
    await world.ana.form.submit()  # it is her own face: she need not say why
    await world.advance(minutes=5)
    [reply] = world.replies(card)
    assert reply.text.endswith("was declined by ana.\nYou weren't charged.")
    # Who tries again asks again.
    await world.ben.click(reply, "Edit and retry")
    await world.after(world.ben.form.submit(), minutes=5)
    assert len([each for each in told(world, "ana") if labels(each)]) == 1
    await world.advance(days=8)
    assert "Not approved in time" in told(world, "ana")[-1].text
    assert world.created_count() == 0


async def test_no_other_spelling_of_the_id_gets_around_the_owner(world: World) -> None:
    world.service.add_replica(REPLICA.upper(), "Anna")
    await limit_to_asking(world, world.ana)
    for typed in (REPLICA.upper(), f" {REPLICA.upper()} "):
        await world.request_video(world.ben, {"replica_id": typed.strip(), "script": typed})
    await world.advance(minutes=5)
    assert world.created_count() == 0
    assert len(told(world, "ana")) == 2


async def test_create_again_needs_the_owner_once_more(world: World) -> None:
    await limit_to_asking(world, world.ana)
    card = await world.request_video(world.ben, {"script": SCRIPT})
    world.service.faults.next("create_video", Reset())
    await world.after(world.ana.click(told(world, "ana")[0], "Approve"), hours=1)
    [question] = world.questions(card)
    await world.after(world.ben.click(question, "Create again"), hours=1)
    assert len(world.service.videos) == 0
    assert "Waiting for approval" in world.now(card).text
    await world.after(world.ana.click(told(world, "ana")[-1], "Approve"), hours=1)
    assert "Ready" in world.now(card).text


@on_both_engines
@bot_with(APPROVERS="{cleo}", APPROVAL_ABOVE="0")
async def test_the_owner_decides_first_and_the_approvers_then(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    await limit_to_asking(world, world.ana)
    card = await world.request_video(world.ben, {"script": SCRIPT})
    assert not told(world, "cleo")
    [asked] = told(world, "ana")
    await world.after(cleo.click(asked, "Approve"))
    assert not told(world, "cleo")
    for _ in range(3):
        await world.ana.click(asked, "Approve")
    await world.advance(minutes=30)
    assert world.created_count() == 0
    assert "Waiting for cleo." in world.now(card).text
    [second] = told(world, "cleo")
    await world.after(world.ana.click(second, "Approve"), minutes=5)
    assert world.created_count() == 0
    await world.after(cleo.click(second, "Approve"), minutes=5)
    assert world.created_count() == 1


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_admins_decide_where_the_owner_cannot_be_reached(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    await limit_to_asking(world, world.ana)
    world.slack.users[world.ana.user.id] = replace(world.ana.user, is_deactivated=True)
    card = await world.after(world.request_video(world.ben, {"script": SCRIPT}), hours=2)
    [asked] = told(world, "cleo")
    assert "Waiting for cleo." in world.now(card).text
    assert world.created_count() == 0
    await world.after(cleo.click(asked, "Approve"), minutes=5)
    assert world.created_count() == 1


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_a_new_owner_is_asked_about_what_waits(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    world.slack.add_user("dora")
    await limit_to_asking(world, world.ana)
    await world.request_video(world.ben, {"script": SCRIPT})
    form = await change(world, cleo, "rename Anna")
    await world.after(form.submit({"owner": "dora"}))
    [old], [new] = told(world, "ana"), told(world, "dora")
    await world.after(world.ana.click(old, "Approve"), minutes=5)
    assert world.created_count() == 0
    await world.after(Person(world.slack, "dora").click(new, "Approve"), minutes=5)
    assert world.created_count() == 1


def made(world: World, name: str) -> list[Message]:
    return [each for each in told(world, name) if "Made with your face" in each.text]


async def home(world: World, person: Person) -> Modal:
    await world.after(person.open_home())
    return person.tab


@on_both_engines
async def test_the_owner_is_told_once_a_day_what_was_made(world: World) -> None:
    ben = world.ben.user.id
    world.slack.add_channel("secret", kind="private", with_bot=True)
    await says(world, world.ana, f"add {REPLICA}")
    await world.after(world.request_video(world.ben, {"script": SCRIPT}), minutes=5)
    await world.request_video(world.ben, {"script": "Psst."}, channel="secret")
    await world.after(world.request_video(world.ana, {"script": "Mine."}), hours=1)
    assert not made(world, "ana")
    await world.advance(hours=24)
    [notice] = made(world, "ana")
    first, second = notice.text.splitlines()[1:]
    assert first.startswith(f"• <@{ben}>: “{SCRIPT}” · Ready · <!date^")
    assert second.startswith(f"• <@{ben}>: a video · Ready · <!date^")
    assert "Mine" not in notice.text
    await world.advance(hours=48)
    assert len(made(world, "ana")) == 1
    await world.after(world.request_video(world.ben, {"script": "Another day."}), hours=24)
    assert len(made(world, "ana")) == 2
    assert not made(world, "ben")


@on_both_engines
async def test_a_process_that_dies_leaves_one_notice(quiet: World) -> None:
    async with quiet.running_bot():
        await says(quiet, quiet.ana, f"add {REPLICA}")
        await quiet.after(quiet.request_video(quiet.ben, {"script": SCRIPT}), hours=1)
    async with quiet.running_bot():
        quiet.slack.faults.next("chat.postMessage", Reset())
        await quiet.advance(hours=25)
    async with quiet.running_bot():
        await quiet.advance(hours=1)
        assert len(made(quiet, "ana")) == 1


@on_both_engines
async def test_a_muted_owner_sees_it_in_home_alone(world: World) -> None:
    notice = await notice_of_use(world)
    await world.ben.click(notice, "Mute messages")  # it is his own that are muted
    await world.after(world.request_video(world.ben, {"script": "Second."}), minutes=10)
    await world.ana.click(notice, "Mute messages")
    await world.after(world.request_video(world.ben, {"script": "Third."}), hours=50)
    assert len(made(world, "ana")) == 1
    shown = await home(world, world.ana)
    for script in (SCRIPT, "Second.", "Third."):
        assert f"<@{world.ben.user.id}>: “{script}” · Ready" in str(shown.view.body)
    await shown.click("Unmute messages")
    await world.after(world.request_video(world.ben, {"script": "Fourth."}), hours=25)
    assert "Fourth" in made(world, "ana")[1].text
    assert "Made with your face" not in str((await home(world, world.ben)).view.body)


async def test_one_press_on_a_notice_has_others_ask_first(world: World) -> None:
    notice = await notice_of_use(world)
    await world.ben.click(notice, "Ask me first")  # it is about what is his
    await world.settle()
    said = world.ephemerals(world.ben, direct(world, "ana"))[-1]
    assert said == "There's no replica of yours yet. Try again in a minute."
    await world.after(world.ana.click(notice, "Ask me first"))
    said = world.ephemerals(world.ana, direct(world, "ana"))[-1]
    assert said == "Others now need your approval."
    created = world.created_count()
    await world.after(world.request_video(world.ben, {"script": "Second."}), minutes=5)
    assert world.created_count() == created

    await train(world, world.ana, "ben")
    [notice] = told(world, "ben")
    await world.after(world.ben.click(notice, "Ask me first"))
    trained = world.bot.store.replicas.get(world.last_replica_id())
    assert trained is not None
    assert trained.asks_owner


def rows(blocks: list[Json]) -> dict[str, Json]:
    """Return the rows of replicas in a message or a view, by what they say."""
    return {
        each["text"]["text"]: each
        for each in blocks
        if each.get("accessory", {}).get("type") == "overflow"
    }


async def test_a_replica_is_seen_and_used_from_home(world: World) -> None:
    await says(world, world.ana, f"add {REPLICA}")
    [(line, row)] = rows((await home(world, world.ben)).view.body["blocks"]).items()
    assert line == f"Anna · <@{world.ana.user.id}>"
    assert [each["text"]["text"] for each in row["accessory"]["options"]] == [
        "Preview",
        "Use in a video",
    ]
    shown = await home(world, world.ben)
    await world.after(shown.press(row["block_id"], "replica_menu", f"preview:{REPLICA}"))
    assert f"/files/{REPLICA}.mp4|Preview replica>" in str(world.ben.form.view.body)
    await world.ben.form.close()
    await shown.press(row["block_id"], "replica_menu", f"use:{REPLICA}")
    assert world.ben.form.values["replica_id"] == REPLICA


async def test_the_picker_says_the_name_and_the_id_only_of_namesakes(world: World) -> None:
    await says(world, world.ana, f"add {REPLICA}")
    form = await world.open_form(world.ben)
    [found] = await form.suggest("replica_id")
    assert found["text"]["text"] == "Anna"
    await form.close()
    world.service.add_replica("r-anna-2", "anna")
    await says(world, world.ana, "add r-anna-2")
    form = await world.open_form(world.ben)
    seen = {each["text"]["text"] for each in await form.suggest("replica_id")}
    assert seen == {f"Anna · {REPLICA}", "anna · r-anna-2"}


async def test_the_list_has_a_menu_for_each_replica(world: World) -> None:
    await says(world, world.ana, f"add {REPLICA}")
    for person, offered_verbs in ((world.ana, 4), (world.ben, 2)):
        answer = await person.command("/replica", "list")
        [(_, row)] = rows(answer.shown.blocks).items()
        assert len(row["accessory"]["options"]) == offered_verbs
        await person.press(answer.shown, row["block_id"], "replica_menu", f"use:{REPLICA}")
        assert person.form.values["replica_id"] == REPLICA
        await person.form.close()


async def test_nothing_of_a_replica_is_shown_or_changed_by_a_forged_click(world: World) -> None:
    world.service.add_replica("r-hidden", "Hidden")
    await says(world, world.ana, f"add {REPLICA}")
    answer = await world.ben.command("/replica", "list")
    [(_, row)] = rows(answer.shown.blocks).items()
    menu = row["accessory"]["options"]
    menu[1]["value"] = f"remove:{REPLICA}"
    await world.ben.press(answer.shown, row["block_id"], "replica_menu", menu[1]["value"])
    await world.settle()
    assert world.ben.modal is None
    assert world.ephemerals(world.ben)[-1] == not_theirs(world, "ana")
    menu[1]["value"] = "preview:r-hidden"
    await world.ben.press(answer.shown, row["block_id"], "replica_menu", menu[1]["value"])
    await world.settle()
    assert world.ephemerals(world.ben)[-1] == "There's no preview of this replica now."


@on_both_engines
@pytest.mark.parametrize("named", [REPLICA, REPLICA.upper()], ids=["same", "other case"])
@bot_with(callbacks=False)
async def test_who_names_anothers_replica_as_their_training_does_not_own_it(
    world: World, named: str
) -> None:
    world.service.add_replica(REPLICA.upper(), "Anna")
    await limit_to_asking(world, world.ana)
    world.service.faults.next("create_replica", Reset())
    card = await world.after(train(world, world.ben, "ben"), hours=1)
    await world.ben.click(world.question(card), "I found it")
    form = world.ben.form
    await form.submit({"remote_id": named})
    if form.is_open:
        await form.submit({"remote_id": named})
    assert not form.is_open, form.errors
    await world.advance(hours=1)
    assert owner_of(world, REPLICA) == world.ana.user.id
    created = world.created_count()
    await world.request_video(world.ben, {"replica_id": named, "script": SCRIPT})
    await world.advance(minutes=5)
    assert world.created_count() == created


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_an_admin_who_adds_another_spelling_does_not_become_the_owner(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    world.service.add_replica(REPLICA.upper(), "Anna")
    await limit_to_asking(world, world.ana)
    await says(world, cleo, f"add {REPLICA.upper()}")
    assert owner_of(world, REPLICA.upper()) in {None, world.ana.user.id}
    await world.request_video(cleo, {"replica_id": REPLICA.upper(), "script": SCRIPT})
    await world.advance(minutes=5)
    assert world.created_count() == 0
    assert told(world, "ana")


async def test_what_a_stopped_training_made_after_all_is_not_offered(world: World) -> None:
    world.service.faults.next("create_replica", LateCommit(timedelta(minutes=10)))
    await world.after(train(world, world.ana, "ben"), minutes=2)
    await world.after(world.ben.click(told(world, "ben")[0], "Stop it"))
    assert "Stopped" in world.ephemerals(world.ben, direct(world, "ben"))[-1]
    await world.advance(hours=8)
    assert not offered(world, world.last_replica_id())


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_admins_decide_where_a_new_owner_cannot_be_reached(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    dora = world.slack.add_user("dora")
    await limit_to_asking(world, world.ana)
    card = await world.request_video(world.ben, {"script": SCRIPT})
    form = await change(world, cleo, "rename Anna")
    world.slack.faults.next("conversations.open", Reset())
    await form.submit({"owner": "dora"})
    world.slack.users[dora.id] = replace(dora, is_deactivated=True)
    await world.advance(hours=2)
    [asked] = told(world, "cleo")
    await world.after(cleo.click(asked, "Approve"), minutes=5)
    assert world.created_count() == 1
    assert "Ready" in world.now(card).text


async def test_a_notice_about_a_damaged_video_speaks_of_no_training(quiet: World) -> None:
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await says(quiet, quiet.ana, f"add {REPLICA}")
        await quiet.after(quiet.request_video(quiet.ben, {"script": SCRIPT}), hours=1)
    query(quiet.address, "UPDATE jobs SET params = '{'")
    for _ in range(3):
        async with quiet.running_bot(RETENTION_DAYS="1"):
            await quiet.advance(hours=25)
    assert not [each.text for each in told(quiet, "ana") if "training a replica" in each.text]


@on_both_engines
@bot_with(ADMIN_USERS="{cleo}")
async def test_a_new_owner_decides_about_no_other_replica_of_a_similar_id(world: World) -> None:
    cleo = Person(world.slack, "cleo")
    world.slack.add_user("dora")
    for replica in ("r_1", "rx1"):
        world.service.add_replica(replica, replica)
    for replica in ("r_1", "rx1"):
        await limit_to_asking(world, world.ana, replica)
    await world.request_video(world.ben, {"replica_id": "rx1", "script": SCRIPT})
    await (await change(world, cleo, "rename r_1")).submit({"owner": "dora"})
    await world.settle()
    assert not told(world, "dora")
    await world.request_video(world.ben, {"replica_id": "r_1", "script": SCRIPT})
    await (await change(world, cleo, "rename r_1")).submit({"owner": "ana"})
    await world.settle()
    assert len(told(world, "ana")) == 2
