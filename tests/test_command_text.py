"""What people type after a command: kept letter for letter, and told apart from subcommands."""

import pytest

from bot.slack.payloads import unescaped
from tests.world import World


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


@pytest.mark.parametrize(
    ("sent", "typed"),
    [
        ("Ask <@U012ABCDEF> or <@U012ABCDEF|ben>", "Ask @U012ABCDEF or @ben"),
        (
            "In <#C012ABCDE> or <#C012ABCDE|> or <#C012ABCDE|studio>",
            "In #C012ABCDE or #C012ABCDE or #studio",
        ),
        ("<!here> <!subteam^S1|@all> <!subteam^S2>", "@here @all @subteam"),
        (
            "<https://example.com/?a=1&amp;b=2> &lt;3 &amp;lt;",
            "https://example.com/?a=1&b=2 <3 &lt;",
        ),
    ],
)
def test_in_a_message_mentions_with_and_without_names_read_as_they_were_typed(
    sent: str, typed: str
) -> None:
    assert unescaped(sent) == typed
