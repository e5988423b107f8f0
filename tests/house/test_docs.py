"""The pages for people: their links lead somewhere, and what they name is in the code."""

import ast
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from bot.metrics import Metrics
from bot.settings import Settings
from tests import settings_pages

ROOT = Path(__file__).parent.parent.parent
FIELDS = {
    str(field.alias or name.upper()): (name, field) for name, field in Settings.model_fields.items()
}
REQUIRED = {
    "SLACK_BOT_TOKEN": "xoxb-1234-abcd",
    "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99eeeeee85a5",
    "VIDEO_API_URL": "https://videos.example.com",
    "VIDEO_API_KEY": "key-1234",
}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Variables of other programs.
NOT_THE_BOTS = {"ALL_PROXY", "CHROMIUM_REQUIRED", "HTTP_PROXY", "PGBOUNCER_REQUIRED"}


def without_code(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


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


def test_the_page_and_the_example_are_what_the_table_of_settings_says() -> None:
    assert sorted(row.name for row in ROWS) == sorted(FIELDS)
    remedy = "run: python -m tests.settings_pages"
    assert settings_pages.PAGE.read_text(encoding="utf-8") == settings_pages.settings_page(), remedy
    assert settings_pages.EXAMPLE.read_text(encoding="utf-8") == settings_pages.env_example()


def test_the_page_says_what_happens_without_a_setting(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        name, field = FIELDS[row.name]
        with subtests.test(row.name):
            assert row.meaning
            if field.is_required():
                assert row.without == "the bot doesn't start"
            elif default := re.match(r"`([^`]+)`", row.without):
                given = Settings.read(REQUIRED | {row.name: default[1]})
                assert getattr(given, name) == getattr(Settings.read(REQUIRED), name)
            else:
                assert not field.default, "the page does not begin with the default"


def test_the_page_has_examples_that_the_bot_accepts(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        if "YOUR-" not in row.example:
            with subtests.test(row.name):
                Settings.read(REQUIRED | {row.name: row.example})


# Scopes


def test_the_table_of_scopes_has_each_scope_of_the_manifest_and_what_declining_costs() -> None:
    scopes = yaml.safe_load((ROOT / "manifest.yml").read_text(encoding="utf-8"))["oauth_config"]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    table = page.partition("## What each scope is for")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.:]+)` \| (.*) \|$", table, re.MULTILINE))
    assert rows.keys() == set(scopes["scopes"]["bot"])
    optional = {name for name, row in rows.items() if row.startswith("*optional*: ")}
    assert optional == set(scopes["scopes"]["bot_optional"])
    declined = {name for name, row in rows.items() if row.endswith("| it can't be declined")}
    assert declined == rows.keys() - optional


# Links


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.replace(" ", "-") for each in kept}


def test_links_between_pages_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        text = without_code(page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith(("https://", "http://")):
                continue
            name, _, anchor = target.partition("#")
            linked = (page.parent / name).resolve() if name else page
            if not linked.is_file() or (anchor and anchor not in anchors(linked)):
                dead.append(f"{page.name} links to {target}")
    assert dead == []


def test_pages_name_only_settings_and_files_that_exist() -> None:
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        settings = re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", text)
        files = re.findall(r"`((?:bot|docs|sandbox|tests|deploy)/[\w./-]+\.\w+)`", text)
        unknown = set(settings) - FIELDS.keys() - NOT_THE_BOTS
        unknown |= {name for name in files if not (ROOT / name).is_file()}
        missing += [f"{page.name} names {name}" for name in sorted(unknown)]
    assert missing == []


# Dependencies


def test_the_commands_that_lock_dependencies_are_those_that_the_files_were_made_with() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\.venv/bin/(uv pip compile .*)$", page, re.MULTILINE)
    headers = [each.read_text(encoding="utf-8") for each in ROOT.glob("requirements*.txt")]
    made_with = [re.findall(r"^# +(uv pip compile .*)$", each, re.MULTILINE) for each in headers]
    assert sorted(commands) == sorted(command for [command] in made_with)


# Pictures


def test_the_icon_has_a_size_that_slack_takes_and_init_names_it() -> None:
    icon = ROOT / "docs/pictures/icon.png"
    png = icon.read_bytes()
    assert png.startswith(b"\x89PNG")
    # https://www.w3.org/TR/png-3/#11IHDR
    width, height = struct.unpack_from(">II", png, 16)
    assert width == height
    assert 512 <= width <= 2000
    assert str(icon.relative_to(ROOT)) in spoken()


# Words


def spoken() -> str:
    """Return every text in the code of the bot, one after the other."""
    texts = []
    for path in sorted((ROOT / "bot").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                ]
                texts.append("".join(parts))
    return "\n".join(texts)


def test_what_troubleshooting_quotes_is_what_the_bot_says() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    said = spoken() + (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    said = " ".join(said.split()).lower()
    quoted = re.findall(r"“((?:[^“”]|“[^“”]*”)+)”", " ".join(page.split()))
    assert quoted
    assert [each for each in quoted if each.lower() not in said] == []


# Metrics


def test_the_page_about_operations_names_each_metric_of_the_bot() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    metrics = Metrics().exposition().decode()
    there = set(re.findall(r"^# TYPE (replica_bot_\w+) ", metrics, re.MULTILINE))
    there -= {name for name in there if name.endswith("_created")}
    assert set(re.findall(r"`(replica_bot_\w+)`", page)) == there
