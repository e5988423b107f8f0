"""A video service that quotes the key it was called with: the key stays in the bot.

Each world is searched at its end, by the leak detector: what Slack was sent, the log and the
database's files hold no secret in any form.
"""

from collections.abc import Callable
from typing import Final

import pytest

from bot.ops import doctor
from sandbox.faults import CannedResponse
from sandbox.key_quotes import HIDDEN, KeyQuote
from sandbox.scenarios import CallbackPlan, Scenario
from tests.modes import bot_with, on_sqlite_alone
from tests.world import World, number_of

WHOLE: Final = [how for how in KeyQuote if how not in HIDDEN]
WITHHELD: Final = "The video service gave a reason that can't be shown."
SILENT: Final = CallbackPlan(times=0)


async def _status(world: World, wanted: str, command: str = "/video") -> str:
    await world.after(world.ana.command(command, f"status {wanted}"))
    return world.ephemerals(world.ana)[-1]


async def test_a_key_that_the_service_quotes_in_its_answers_reaches_nobody(
    world: World, subtests: pytest.Subtests
) -> None:
    for how in WHOLE:
        with subtests.test(how=how):
            world.service.quotes_key = how
            card = await world.request_video(world.ana, {"script": f"Hello, {how.name}."})
            await world.advance(minutes=5)

            [*_, video_id] = world.service.videos
            assert f"/watch/{video_id}?key=***" in world.replies(card)[-1].text
            assert "says the key ***" in await _status(world, number_of(card))


async def test_a_key_that_the_service_quotes_in_a_failure_reaches_nobody(
    world: World, subtests: pytest.Subtests
) -> None:
    for how in WHOLE:
        with subtests.test(how=how):
            world.service.quotes_key = how
            world.service.next_video(Scenario(end="error", reason="The face is hidden"))
            world.service.next_replica(Scenario(end="error", reason="There is too much noise"))
            video = await world.request_video(world.ana, {"script": f"Hello, {how.name}."})
            replica = await world.request_replica(world.ana, {"replica_name": how.name})
            await world.advance(hours=5)

            assert "The face is hidden, says the key ***" in world.replies(video)[-1].text
            assert "There is too much noise, says the key ***" in world.replies(replica)[-1].text


@pytest.mark.parametrize("how", WHOLE)
@bot_with(ADMIN_USERS="{ana}")
async def test_a_key_that_the_service_quotes_in_an_error_reaches_nobody(
    how: KeyQuote, world: World
) -> None:
    world.service.quotes_key = how
    form = await world.submit_form(world.ana, {"replica_id": "r-unknown", "script": "Hello."})
    world.service.out_of_credit = True
    card = await world.after(world.request_video(world.ana), minutes=1)

    assert "Invalid replica_id, says the key ***" in form.errors["replica_id"]
    assert "The account is out of credit, says the key ***" in await _status(world, number_of(card))
    assert "Invalid video_id, says the key ***" in await _status(world, "v-unknown")


@pytest.mark.parametrize("how", sorted(HIDDEN))
async def test_what_may_hold_a_part_of_the_key_is_withheld_and_the_work_goes_on(
    how: KeyQuote, world: World
) -> None:
    world.service.quotes_key = how
    form = await world.submit_form(world.ana, {"replica_id": "r-unknown", "script": "Hello."})
    assert WITHHELD in form.errors["replica_id"]
    await form.close()
    made = await world.after(world.request_video(world.ana), minutes=5)
    assert "Ready" in world.now(made).text
    assert "key" not in world.replies(made)[-1].text
    world.service.next_video(Scenario(end="error", reason="The face is hidden"))
    failed = await world.request_video(world.ana, {"script": "Hello again."})
    await world.advance(minutes=5)
    told = world.replies(failed)[-1].text
    assert WITHHELD in told
    assert f"“{WITHHELD}" not in told


async def test_a_key_in_an_error_that_is_no_json_reaches_nobody(world: World) -> None:
    said = f'{{"error": "bad key {world.service.api_key}'.replace("/", "\\/").replace(
        "+", "\\u002b"
    )
    world.service.faults.next("create_video", CannedResponse(400, said))
    card = await world.after(world.request_video(world.ana), minutes=1)

    assert WITHHELD in world.replies(card)[-1].text


@bot_with(ADMIN_USERS="{ana}")
async def test_a_key_in_an_odd_place_or_encoding_of_an_error_reaches_nobody(
    world: World, subtests: pytest.Subtests
) -> None:
    key = world.service.api_key
    bodies: list[object] = [
        {"errors": {key: ["is not accepted"]}},
        {key: ["is not accepted"]},
        f"The key {key} is not accepted".encode("utf-16"),
        f"The key {key} is not accepted".encode("utf-16-le"),
        f'{{"error": "The key {key} is not accepted"}}'.encode("utf-16"),
    ]
    for number, body in enumerate(bodies):
        with subtests.test(number=number):
            said = CannedResponse(400, body)
            world.service.faults.next("create_video", said)
            world.service.faults.next("read_video", said)
            card = await world.request_video(world.ana, {"script": f"Hello, number {number}."})
            await world.advance(minutes=1)

            for shown in (world.replies(card)[-1].text, await _status(world, f"v-{number}")):
                assert "***" in shown
                assert "is not accepted" in shown
                assert "sandbox-key" not in "".join(each for each in shown if each.isprintable())


async def test_the_names_in_a_failure_that_hold_the_key_reach_nobody(world: World) -> None:
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    failed = {"video_id": video_id, "status": "error"}
    answer = {**failed, "errors": {world.service.api_key: ["is not accepted"]}}
    world.service.faults.always("read_video", CannedResponse(200, answer))
    await world.advance(minutes=5)

    assert "***: is not accepted" in world.replies(card)[-1].text


@on_sqlite_alone
@pytest.mark.parametrize("field", ["status", "hosted_url", "video_name", "script"])
async def test_a_callback_address_that_the_service_quotes_reaches_nobody(
    field: str, world: World
) -> None:
    world.service.callback_plan = SILENT
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    answer = {"video_id": video_id, "status": "ready", field: body["callback_url"]}
    answer["data"] = {"script": answer.pop("script", "Hello, world.")}
    world.service.faults.always("read_video", CannedResponse(200, answer))
    await world.advance(minutes=5)
    await _status(world, number_of(card))

    token = body["callback_url"].rpartition("/")[2]
    assert token not in str([world.now(card), *world.replies(card)])
    assert token.encode() not in world.database.read_bytes()


async def test_a_key_that_a_long_reason_cuts_reaches_nobody(world: World) -> None:
    key = world.service.api_key
    for cut in range(1, len(key)):
        reason = "x" * (500 - cut) + key + " is wrong"
        world.service.faults.next("create_video", CannedResponse(422, {"error": reason}))
        card = await world.request_video(world.ana, {"script": f"Hello, number {cut}."})
        await world.advance(minutes=1)
        assert key[:6] not in world.replies(card)[-1].text


@pytest.mark.parametrize("named", [str, str.upper, lambda key: f"v-{key}-1"])
async def test_an_id_that_holds_the_key_is_none(named: Callable[[str], str], world: World) -> None:
    world.service.callback_plan = SILENT
    answer = {"video_id": named(world.service.api_key), "status": "queued"}
    world.service.faults.next("create_video", CannedResponse(200, answer, done=True))
    card = await world.after(world.request_video(world.ana), minutes=20)

    assert "Create again" in str(world.question(card).blocks)
    assert world.created_count() == 1


async def test_a_callback_that_names_the_key_as_the_id_leaves_it_out_of_the_database(
    world: World,
) -> None:
    world.service.callback_plan = CallbackPlan(body={"video_id": f"v-{world.service.api_key}"})
    world.service.faults.next("create_video", CannedResponse(500, {"error": "oops"}, done=True))
    await world.after(world.request_video(world.ana), minutes=20)

    assert world.service.callbacks
    paths = [each.path for each in world.service.requests]
    assert not [path for path in paths if world.service.api_key in path]


async def test_slacks_tokens_in_the_services_answers_reach_nobody(world: World) -> None:
    token, secret = world.slack.bot_token, world.slack.signing_secret
    reason = f"Refused {token.upper()} and {secret}"
    world.service.next_video(Scenario(end="error", reason=reason))
    card = await world.after(world.request_video(world.ana), minutes=5)

    assert "Refused *** and ***" in world.replies(card)[-1].text


@pytest.mark.parametrize(
    ("code", "logged"),
    [
        ("bad_one", "Slack refused (bad_one)"),
        ("xoxb-sandbox", "Slack failed (200)"),
        ("Hello\x1b[31m\nthere", "Slack failed (200)"),
    ],
)
async def test_only_a_code_of_slacks_is_logged(
    code: str, logged: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    messages = ["[ERROR] no [json-pointer:/blocks/1/xoxb-sandbox]"]
    refusal = {"ok": False, "error": code, "response_metadata": {"messages": messages}}
    world.slack.faults.next("chat.postMessage", CannedResponse(200, refusal))
    await world.after(world.submit_form(world.ana, {"replica_id": "r-anna-42", "script": "Hello."}))

    assert logged in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize(
    ("status", "logged"),
    [
        ("Rendering-Frames", "rendering-frames"),
        ("https://files.example.com/sea.mp4?sig=7fe2b1", "other"),
    ],
)
async def test_a_status_is_logged_only_if_it_is_one_word(
    status: str, logged: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.next_video(Scenario(statuses=(status,)))
    await world.after(world.request_video(world.ana), minutes=1)

    [record] = [each for each in caplog.records if "unknown status" in each.message]
    assert vars(record)["status"] == logged


async def test_an_id_that_is_a_sentence_is_not_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answer = {"video_id": "Nobody but me has to know this.", "status": "queued"}
    world.service.faults.next("create_video", CannedResponse(200, answer))
    await world.request_video(world.ana)

    [record] = [each for each in caplog.records if each.message == "created"]
    assert vars(record)["remote_id"] == "other"


ODD: Final = "Ac\x1b[31mme\r\nok    settings\t\u202egnp\u2066 \x07\x9b1m"


async def _report(world: World) -> str:
    return "\n".join([str(each) async for each in doctor.examine(world.environment("0"))])


async def test_the_doctor_prints_no_control_characters_and_no_lines_that_it_was_answered(
    quiet: World,
) -> None:
    answer = {"ok": True, "user": ODD, "team": "x" * 5000}
    quiet.slack.faults.next("auth.test", CannedResponse(200, answer))
    quiet.service.faults.always("read_video", CannedResponse(500, {"error": ODD}))

    report = await _report(quiet)

    assert "\nok       Slack                  Acme ok settings gnp in\n" in report
    assert not [line for line in report.splitlines() if line.startswith("ok    settings")]
    assert all(line.isprintable() for line in report.splitlines())
    assert max(map(len, report.splitlines())) < 700


async def test_the_doctor_prints_no_secret_that_it_was_answered(quiet: World) -> None:
    answer = {"ok": True, "user": quiet.slack.bot_token, "team": quiet.slack.signing_secret}
    quiet.slack.faults.next("auth.test", CannedResponse(200, answer))
    said = CannedResponse(503, {"error": f"overloaded by {quiet.service.api_key}"})
    quiet.service.faults.always("read_video", said)

    report = await _report(quiet)

    assert "*** in ***" in report
    for secret in (quiet.slack.bot_token, quiet.slack.signing_secret, quiet.service.api_key):
        assert secret not in report
