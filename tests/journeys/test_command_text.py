"""What people type after a command: kept letter for letter, and told apart from subcommands."""

import pytest

from sandbox.faults import CannedResponse
from tests.world import World, number_of


@pytest.fixture
def typed_scripts() -> list[str]:
    return [
        "Write &lt;b&gt; &amp;amp; for a bold & sign",
        "Ask <@U012ABCDEF> in <#C012ABCDE|> about <https://example.com|this>",
        "Ask @ben in #studio: https://example.com/?a=1&b=2, 1 < 2 > 0",
        "*not bold* _or_ `code`, :tada:",
    ]


async def test_a_script_is_what_was_typed_letter_for_letter(
    world: World, typed_scripts: list[str]
) -> None:
    for typed in typed_scripts:
        form = await world.open_form(world.ana, typed)
        assert form.values["script"] == typed


async def test_a_script_for_which_no_form_can_be_opened_is_given_back(world: World) -> None:
    script = "Welcome to the team! " * 240 + "<!here>"
    world.slack.faults.next("views.open", CannedResponse(503))
    response = await world.ana.command("/video", script)
    assert world.ana.modal is None
    assert response.message is not None
    assert "Slack didn't open the form." in response.message.text
    quoted = [
        element["text"]
        for block in response.message.blocks
        if block["type"] == "rich_text"
        for part in block["elements"]
        for element in part["elements"]
    ]
    assert "".join(quoted) == script


# ── Subcommands ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("statsu", "status <id>"), ("Stauts", "status <id>"), ("lsit", "list"), ("hepl", "help")],
)
async def test_a_mistyped_subcommand_is_suggested_and_can_still_be_the_script(
    world: World, typed: str, meant: str
) -> None:
    answer = await world.ana.command("/video", typed, "studio")

    assert answer.message is not None
    assert answer.json is not None
    assert answer.json["response_type"] == "ephemeral"
    assert answer.message.text == f"Did you mean `/video {meant.replace('<id>', '&lt;id&gt;')}`?"
    assert not world.calls("views.open")
    await world.ana.click(answer.message, f"Use “{typed}” as script")
    assert world.ana.modal is not None
    assert world.ana.modal.values["script"] == typed
    await world.ana.modal.submit({"replica_id": "r-anna-42"})
    await world.settle()
    assert [video.script for video in world.service.videos.values()] == [typed]


async def test_a_subcommand_alone_explains_itself_in_any_case_and_opens_no_form(
    world: World,
) -> None:
    for command, typed in (
        ("/video", "status"),
        ("/video", "Status"),
        ("/replica", "Status"),
        ("/replica", "Add"),
        ("/replica", "DEFAULT"),
    ):
        answer = await world.ana.command(command, typed)
        assert answer.message is not None
        assert answer.json is not None
        assert answer.json["response_type"] == "ephemeral"
        lacks = "Try `" if typed == "DEFAULT" else f"`{command} {typed.lower()}` needs a "
        assert answer.message.text.startswith(lacks)
        assert world.ana.modal is None


async def test_subcommands_with_a_capital_are_no_scripts(world: World) -> None:
    card = await world.request_video(world.ana)
    for command, typed in (
        ("/video", f"Status {number_of(card)}"),
        ("/video", "List"),
        ("/video", "Help"),
        ("/replica", "Add r-anna-42"),
        ("/replica", "Default r-anna-42"),
    ):
        assert (await world.ana.command(command, typed)).ok
        await world.settle()
        assert world.ana.modal is None
    assert world.created_count() == 1
    assert world.ephemerals(world.ana)[-1].endswith("is now this channel's default.")


# ── The names of the commands ─────────────────────────────────────────────────────────────────


async def test_with_a_prefix_the_commands_have_it_and_every_text_names_them_so(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.replicas.clear()
    async with world.running_bot(COMMAND_PREFIX="acme-"):
        form = await world.open_form(world.ana, command="/acme-video")
        said = [str(form.view.body)]
        for command, text in (
            ("/acme-video", "help"),
            ("/acme-video", "list"),
            ("/acme-video", "status"),
            ("/acme-video", "statsu"),
            ("/acme-video", "status nope"),
            ("/acme-replica", "help"),
            ("/acme-replica", "list"),
            ("/acme-replica", "add"),
            ("/acme-replica", "what is this"),
        ):
            answer = await world.ana.command(command, text)
            assert answer.ok
            said.append(answer.body)
        await world.settle()
        said += world.ephemerals(world.ana)
        assert "I don't recognize this" in (await world.ana.command("/video")).body
    for each in said:
        assert "/video" not in each.replace("/v2/videos", "")
        assert "/replica" not in each
    assert sum("/acme-" in each for each in said) > 9
