"""The pages about settings: ``.env.example`` and the tables of ``docs/settings.md``.

``python -m tests.settings_pages`` writes them from the table of the settings. Which setting is in
which section, and all that stands around the tables, is written by hand in ``docs/settings.md``.
"""

import re
import textwrap
from pathlib import Path
from typing import Final

from bot.settings import About, Settings

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "settings.md"
EXAMPLE: Final = ROOT / ".env.example"
TABLE: Final = Settings.table()
_WIDTH: Final = 100
_ROW: Final = re.compile(r"^\| `([A-Z_]+)` \|.*$", re.MULTILINE)
_DEFAULT: Final = re.compile(r"`([^`]+)`")
_REQUIRED: Final = {"SLACK_SIGNING_SECRET"} | {
    str(field.alias) for field in Settings.model_fields.values() if field.is_required()
}


def settings_page() -> str:
    """Return the page as it should be: the one that is there, with each row from the table."""
    return _ROW.sub(lambda found: _row(found[1]), PAGE.read_text(encoding="utf-8"))


def env_example() -> str:
    """Return ``.env.example`` as it should be: its head, and each setting in the page's order."""
    head = EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[0]
    settings = (_entry(name) for name in _ROW.findall(PAGE.read_text(encoding="utf-8")))
    return "\n\n".join([head, *settings]) + "\n"


def _row(name: str) -> str:
    about = TABLE[name]
    meaning = about.purpose + (f". {_sentence(about.hint)[:-1]}" if about.hint else "")
    return f"| `{name}` | {meaning} | {about.without} | `{about.example}` |"


def _entry(name: str) -> str:
    about = TABLE[name]
    words = f"{_sentence(about.purpose)} {_sentence(about.hint)} {_without(about)}"
    comment = textwrap.fill(
        _plain(words),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{comment}\n{'' if name in _REQUIRED else '# '}{name}={_value(about)}"


def _without(about: About) -> str:
    if default := _DEFAULT.match(about.without):
        return f"Default: {default[1]}. {_sentence(about.without[default.end() + 2 :])}"
    if about.without == "the bot doesn't start":
        return ""
    return f"Without it: {about.without}."


def _value(about: About) -> str:
    default = _DEFAULT.match(about.without)
    value = default[1] if default else about.example
    return f"'{value}'" if " " in value else value


def _sentence(text: str) -> str:
    return text and f"{text[0].upper()}{text[1:]}."


def _plain(markdown: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"`|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)", "", text).split())


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
    EXAMPLE.write_text(env_example(), encoding="utf-8")
