"""The pages for people: what they say about settings is what the code does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bot.settings import Settings

ROOT = Path(__file__).parent.parent
FIELDS = {
    str(field.alias or name.upper()): (name, field) for name, field in Settings.model_fields.items()
}
REQUIRED = {
    "SLACK_BOT_TOKEN": "xoxb-1234-abcd",
    "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99yyyzzz85a5",
    "VIDEO_API_URL": "https://videos.example.com",
    "VIDEO_API_KEY": "key-1234",
}


class Row(NamedTuple):
    """One row of a table of settings."""

    name: str
    meaning: str
    without: str
    example: str


def rows() -> Iterator[Row]:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if line.startswith("| `"):
            name, meaning, without, example = map(str.strip, line.strip("|").split("|"))
            yield Row(name.strip("`"), meaning, without, example.strip("`"))


ROWS = list(rows())
NAMES = [row.name for row in ROWS]


def test_the_page_of_settings_has_each_setting_once() -> None:
    assert sorted(NAMES) == sorted(FIELDS)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_page_says_what_happens_without_a_setting(row: Row) -> None:
    name, field = FIELDS[row.name]
    assert row.meaning
    if field.is_required():
        assert row.without == "the bot doesn't start"
    elif default := re.match(r"`([^`]+)`", row.without):
        given = Settings.read(REQUIRED | {row.name: default[1]})
        assert getattr(given, name) == getattr(Settings.read(REQUIRED), name)
    else:
        assert not field.default, "the page does not begin with the default"


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "YOUR-" not in row.example], ids=lambda row: row.name
)
def test_the_page_has_an_example_that_the_bot_accepts(row: Row) -> None:
    Settings.read(REQUIRED | {row.name: row.example})
