"""The create form: input arrives unchanged, and mistakes are shown under their fields."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bot.store import DatabaseUnavailable
from bot.store.database import Query, Transaction
from bot.store.replicas import Replicas
from sandbox.block_kit import Json
from sandbox.driver import Modal
from sandbox.faults import Reset
from tests.modes import in_both_modes, on_sqlite_alone
from tests.world import REPLICA, World

PAGE = "https://www.example.com/background?colour=blue&size=2#top"
FILE = "https://files.example.com/clips/sea.mp4?signature=a%2Fb"


def _note(form: Modal) -> str:
    [note] = [block for block in form.view.body["blocks"] if block["block_id"] == "note"]
    return str(note["text"]["text"])


# ── What is typed arrives ─────────────────────────────────────────────────────────────────────


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
            await form.submit(values | ({background: link} if link else {}))
            await world.settle()

            create = world.requests_for("create_video")[-1]
            assert isinstance(create.body, dict)
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


async def test_the_longest_allowed_script_is_accepted_unchanged(world: World) -> None:
    script = "é" * 2999 + "."
    card = await world.request_video(world.ana, {"script": script})
    await world.advance(minutes=5)

    [video] = world.service.videos.values()
    assert video.script == script
    assert len(world.replies(card)) == 1


# ── Mistakes ──────────────────────────────────────────────────────────────────────────────────


@in_both_modes
async def test_an_unusable_link_is_pointed_out_and_no_input_is_lost(
    world: World, subtests: pytest.Subtests
) -> None:
    made = 0
    for link in ["http://localhost/x", "https://user:pw@example.com/", None]:
        for background in ["background_url", "background_source_url"]:
            with subtests.test(link=link, background=background):
                form = await world.open_form(world.ana, "Hello.")
                await form.choose("background", background)
                typed = {
                    "replica_id": REPLICA,
                    "video_name": "Kept",
                    "where": "lobby",
                    background: link,
                }
                if link is None:
                    # Clients do not check a field that is gone when the form is sent off.
                    form.view.values[background][background]["value"] = " "
                    del typed[background]
                await form.submit(typed)

                assert form.errors.keys() == {background}
                assert form.values["script"] == "Hello."
                assert form.values["video_name"] == "Kept"
                assert form.values["where"] == world.slack.channel("lobby").id
                await form.submit({background: "https://example.com/ok"})
                assert not form.is_open
                await world.settle()
                made += 1
                assert world.created_count() == made


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

    await form.submit({"replica_id": REPLICA, "background_url": PAGE})
    await world.settle()

    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert "background_url" not in create.body


@in_both_modes
async def test_a_form_that_cannot_be_opened_in_time_is_explained(world: World) -> None:
    async def dawdle(when: str, method: str, _: Json) -> None:
        if (when, method) == ("before", "views.open"):
            world.clock.set(world.clock.now() + timedelta(seconds=4))

    world.slack.on_request = dawdle
    answer = await world.ana.command("/video")

    assert answer.message is not None
    assert "Please try again." in answer.message.text
    assert world.ana.modal is None


# ── One form, one video ───────────────────────────────────────────────────────────────────────


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
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    await world.settle()
    # The answer was lost on the way, so the form is still there.
    world.slack.modals[world.ana.user.id].append(form.view)

    await form.submit(change)

    second = world.ana.modal
    assert second is not None
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
    form = await world.open_form(world.ana)
    await form.submit({"where": None, "replica_id": REPLICA, "script": " "})
    await form.choose("background", "background_url")
    assert form.values["where"] is None
    # Whether Slack keeps an empty field, its documentation does not say.
    assert "default_to_current_conversation" not in str(form.view.body["blocks"])


# ── Where it is posted ────────────────────────────────────────────────────────────────────────


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
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    await world.settle()
    world.service.out_of_credit = True
    await world.request_video(world.ben)
    await world.advance(minutes=1)
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
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    await world.advance(minutes=5)

    assert form.is_open
    assert "couldn't be saved" in " ".join(form.errors.values())
    assert world.posts() == []
    assert world.created_count() == 0
