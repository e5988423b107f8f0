"""Invalid payloads and unusual text: answered in words, without effect, and shown harmlessly."""

import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.delivery import button_action, deliver, encoded, find_button, interaction
from sandbox.driver import Modal
from sandbox.faults import CannedResponse
from sandbox.slack_objects import Message
from tests.invalid_cases import COMMANDS, FORM_TEXTS, PAYLOADS, InvalidPayload
from tests.invalid_input import FAST, BotUnderTest, command, submitted_view
from tests.world import FOOTAGE, REPLICA, World, number_of


@dataclass(frozen=True)
class Scene:
    """Videos and open forms, and the valid payloads of what people could do next."""

    bot: BotUnderTest
    base_payloads: Mapping[str, Callable[[], Json]]
    words: Mapping[str, str]


@pytest.fixture
async def scene(memory: Path, logged: io.StringIO) -> AsyncIterator[Scene]:
    """An unconfirmed video of Ana's, and a running one each of Ana's and Ben's."""
    world = World(memory, Timings(jitter=0))
    async with world.running_sandbox(), world.running_bot(callbacks=False):
        world.service.faults.next("create_video", CannedResponse(500))
        unconfirmed = world.now(await world.request_video(world.ana))
        other = await world.request_video(world.ana, {"script": "Another one."})
        bens = await world.request_video(world.ben, {"script": "Quite another thing."})
        await world.after(world.ana.click(world.question(unconfirmed), "I found it"), seconds=30)
        words = {
            "ben": world.ben.user.id,
            "anas": number_of(unconfirmed),
            "ANAS": number_of(unconfirmed).upper(),
            "anas other": number_of(other),
            "bens": number_of(bens),
            "bens video": list(world.service.videos)[1],
        }
        payloads = await base_payloads(world, world.question(unconfirmed))
        yield Scene(BotUnderTest(world, logged), payloads, words)


async def base_payloads(world: World, question: Message) -> Mapping[str, Callable[[], Json]]:
    """Return a function for each kind of valid payload. Each payload would have an effect."""
    ana, studio = world.ana, world.slack.channel("studio")

    def sent(kind: str, form: Modal) -> Json:
        view = submitted_view(form)
        return {**interaction(world.slack, ana.user, kind, studio), "view": view}

    id_form = ana.form
    await id_form._fill_in(id_form._field("remote_id"), "v-mine")
    form = await world.open_form(ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "Hello, world.")
    training = await world.open_form(ana, command="/replica")
    await training._fill_in(training._field("train_video_url"), FOOTAGE)
    await training._fill_in(training._field("agreed"), ["yes"])

    def button(name: str) -> Json:
        block, element = find_button(question.blocks, name)
        url = world.slack.new_response_url(ana.user.id, studio.id)
        return {
            **interaction(world.slack, ana.user, "block_actions", studio),
            "channel": {"id": studio.id},
            "response_url": url,
            "actions": [button_action(world.slack, block, element)],
        }

    def unknown_button() -> Json:
        there = button("Cancel request")
        there["actions"][0]["value"] = "23456789ab"
        return there

    def choice() -> Json:
        action = {"action_id": "video_background", "block_id": "background"}
        return {**sent("block_actions", form), "actions": [{**action, "type": "radio_buttons"}]}

    def query() -> Json:
        asked = {"block_id": "replica_id", "action_id": "video_replica", "value": "ann"}
        return {**sent("block_suggestion", form), **asked}

    return {
        "form": lambda: sent("view_submission", form),
        "training": lambda: sent("view_submission", training),
        "id": lambda: sent("view_submission", id_form),
        "button": lambda: button("Cancel request"),
        "unknown button": unknown_button,
        "choice": choice,
        "query": query,
    }


def with_mistake(payload: Json, case: InvalidPayload, words: Mapping[str, str]) -> str:
    """Return a payload as JSON with the case's mistake in it."""
    *way, last = [int(step) if step.isdecimal() else step for step in case.position.split(".")]
    place: Any = payload
    for step in way:
        place = place[step]
    if case.value is None:
        del place[last]
        return json.dumps(payload)
    put = case.value.replace("…", case.unit * case.times)
    for word, replacement in words.items():
        put = put.replace(f"{{{word}}}", replacement)
    place[last] = "@@"
    # The value is inserted as text: some are not what Python would write.
    return json.dumps(payload).replace('"@@"', put)


async def test_an_invalid_payload_is_explained_and_changes_nothing(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    bot, world = scene.bot, scene.bot.world
    for case in PAYLOADS:
        with subtests.test(case.name):
            text = with_mistake(scene.base_payloads[case.base](), case, scene.words)
            answer = await deliver(world.slack, urlencode({"payload": text}).encode())
            assert (answer.status, answer.body) == (case.status, answer.body)
            assert case.answer in answer.body
            slack_calls = [*case.slack_calls, *(["response_url"] if case.private_reply else [])]
            await bot.check_unchanged(answer.body, slack_calls)
            if case.private_reply:
                assert case.private_reply in str(world.slack.calls[-1].arguments["text"])


async def test_the_same_payload_without_a_mistake_has_an_effect(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    for of in ["form", "training", "id", "button", "choice", "query"]:
        with subtests.test(of=of):
            world = scene.bot.world
            calls = len(world.slack.calls)
            answer = await world.after(deliver(world.slack, encoded(scene.base_payloads[of]())))
            assert answer.ok
            if of == "query":
                assert "Anna" in answer.body
            elif of == "id":
                assert "can't find it" in answer.body
            else:
                assert len(world.slack.calls) > calls


async def test_a_command_with_any_text_is_answered_and_creates_nothing(
    bot: BotUnderTest, subtests: pytest.Subtests
) -> None:
    world = bot.world
    for case in COMMANDS:
        with subtests.test(case.name):
            text = case.text + case.unit * case.times
            answer = await deliver(world.slack, command(world, text, case.command, case.raw))
            assert answer.ok
            assert case.answer in answer.body
            opens = text if case.opens_as_typed else case.opens
            slack_calls = ["views.open"] * (opens is not None) + ["response_url"] * bool(
                case.private_reply
            )
            assert bool(slack_calls) != bool(case.answer)
            await bot.check_unchanged(answer.body, slack_calls)
            if opens is not None:
                assert (world.ana.form.values["script"] or "") == opens
            if case.private_reply:
                assert case.private_reply in str(world.slack.calls[-1].arguments["text"])


async def test_text_in_a_form_is_sent_unchanged_and_shown_without_effect(
    bot: BotUnderTest, subtests: pytest.Subtests
) -> None:
    world, cards = bot.world, []
    world.service.pace = FAST
    for case in FORM_TEXTS:
        with subtests.test(case.name):
            what = "replica" if "replica_name" in case.fields else "video"
            asks = world.request_replica if what == "replica" else world.request_video
            cards.append(await asks(world.ana, case.fields))
            sent = world.requests_for("create_replica" if what == "replica" else "create_video")[
                -1
            ].body
            assert isinstance(sent, dict)
            assert {name: sent[name] for name in case.fields} == {
                name: text.strip() for name, text in case.fields.items()
            }
            await world.ana.command(f"/{what}", f"status {number_of(cards[-1])}")
            await world.ana.command(f"/{what}", "list")
    await world.advance(minutes=1)
    for case, card in zip(FORM_TEXTS, cards, strict=True):
        with subtests.test(case.name):
            [reply] = world.replies(card)
            assert reply.pings == {world.ana.user.id}
            for message in (card, world.now(card), reply):
                assert message.pings <= reply.pings
                assert message.blocks
    await bot.check_works()
    assert "refuses" not in bot.logged
