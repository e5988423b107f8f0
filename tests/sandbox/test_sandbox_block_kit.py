"""The sandbox's validation of Block Kit: what Slack refuses does not pass."""

from typing import Any

import pytest

from sandbox.block_kit import Json, validate_message, validate_options, validate_view


def plain(text: str = "Words") -> Json:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str = "Words") -> Json:
    return {"type": "mrkdwn", "text": text}


def option(value: str = "one") -> Json:
    return {"text": plain(value.capitalize()), "value": value}


def section(text: str = "Words", **more: object) -> Json:
    return {"type": "section", "text": mrkdwn(text), **more}


def button(**more: object) -> Json:
    return {"type": "button", "text": plain("Press"), "action_id": "press", **more}


def overflow(*options: Json, **more: object) -> Json:
    return {"type": "overflow", "action_id": "more", "options": list(options), **more}


def actions(*elements: Json, **more: object) -> Json:
    return {"type": "actions", "elements": list(elements), **more}


def rich(*pieces: Json) -> Json:
    return {
        "type": "rich_text",
        "elements": [{"type": "rich_text_section", "elements": list(pieces)}],
    }


def field(element: Json, **more: object) -> Json:
    named = {"action_id": "entry", **element}
    return {"type": "input", "label": plain("Label"), "element": named, **more}


def modal(*blocks: Json, **more: object) -> Json:
    return {
        "type": "modal",
        "title": plain("Title"),
        "submit": plain("Send"),
        "blocks": list(blocks),
        **more,
    }


CHOICE = {"type": "static_select", "options": [option("one"), option("two")]}
LINK = {**option("link"), "url": "https://example.com/a.mp4"}
VIDEO = {
    "type": "video",
    "title": plain("Welcome"),
    "alt_text": "A replica speaks",
    "video_url": "https://videos.example.com/v1",
    "thumbnail_url": "https://videos.example.com/v1.png",
}

BAD_MESSAGES: dict[str, Any] = {
    "a type that does not exist": [{"type": "paragraph", "text": mrkdwn()}],
    "a key that does not exist": [section(colour="red")],
    "an empty text": [section("")],
    "a long section": [section("a" * 3001)],
    "a section that is long in UTF-16": [section("😀" * 1501)],
    "eleven fields": [{"type": "section", "fields": [plain()] * 11}],
    "a long field": [{"type": "section", "fields": [plain("a" * 2001)]}],
    "a long header": [{"type": "header", "text": plain("a" * 151)}],
    "an input among actions": [actions({"type": "plain_text_input", "action_id": "a"})],
    "actions without elements": [{"type": "actions", "elements": []}],
    "radio buttons without any": [
        actions({"type": "radio_buttons", "action_id": "radio", "options": []})
    ],
    "a button with much on it": [actions(button(text=plain("a" * 76)))],
    "a button to nowhere": [actions(button(url="/videos/1"))],
    "a dialog that lacks a button": [actions(button(confirm={"title": plain(), "text": plain()}))],
    "a menu of 101 options": [actions({**CHOICE, "options": [option()] * 101})],
    "an overflow menu without options": [actions(overflow())],
    "an overflow menu to nowhere": [actions(overflow({**LINK, "url": "/videos/1"}))],
    "an overflow menu with a primary one": [actions(overflow({**LINK, "style": "primary"}))],
    "a menu with a link": [actions({**CHOICE, "action_id": "menu", "options": [LINK]})],
    "an image without alt_text": [{"type": "image", "image_url": "https://example.com/a.png"}],
    "a video without title": [{key: VIDEO[key] for key in VIDEO if key != "title"}],
    "51 blocks": [section()] * 51,
    "a block_id twice": [section(block_id="a"), section(block_id="a")],
    "an action_id twice in a block": [actions(button(), button())],
    "a file_input": [field({"type": "file_input"})],
    "emoji on mrkdwn": [{"type": "section", "text": {**mrkdwn(), "emoji": True}}],
    "rich text of an unknown piece": [rich({"type": "shout", "text": "psst"})],
    "much markdown in all": [{"type": "markdown", "text": "a" * 6001}] * 2,
    "a block that is no object": ["words"],
}

BAD_VIEWS: dict[str, dict[str, Any]] = {
    "no title": {"type": "modal", "blocks": [section()]},
    "a long title": modal(section(), title=plain("a" * 25)),
    "inputs and no submit": {
        "type": "modal",
        "title": plain(),
        "blocks": [field({"type": "plain_text_input"})],
    },
    "101 blocks": modal(*[section()] * 101),
    "private_metadata that is no string": modal(section(), private_metadata={"job": 1}),
    "a key that only messages have": modal(section(), text="Words"),
    "a block that only messages have": modal({"type": "markdown", "text": "# Title"}),
    "an input without label": modal({"type": "input", "element": {"type": "plain_text_input"}}),
    "max_length beyond 3000": modal(field({"type": "plain_text_input", "max_length": 3001})),
    "an initial option that is not offered": modal(
        field({**CHOICE, "initial_option": option("three")})
    ),
    "a number that none can be": modal(
        field(
            {
                "type": "number_input",
                "is_decimal_allowed": False,
                "min_value": "2",
                "max_value": "1",
            }
        )
    ),
    "a day that is none": modal(field({"type": "datepicker", "initial_date": "2026-02-30"})),
    "a block_id twice": modal(section(block_id="a"), section(block_id="a")),
    "the cursor in two fields": modal(
        *[field({"type": "plain_text_input", "focus_on_load": True})] * 2
    ),
    "more than 250 kB": modal(*[section("ä" * 3000)] * 20),
}


def test_a_faulty_message_does_not_pass(subtests: pytest.Subtests) -> None:
    for name, blocks in BAD_MESSAGES.items():
        with subtests.test(name):
            assert validate_message("Words", blocks)


def test_a_faulty_view_does_not_pass(subtests: pytest.Subtests) -> None:
    for name, view in BAD_VIEWS.items():
        with subtests.test(name):
            assert validate_view(view)


def test_an_error_names_the_path_of_the_faulty_value() -> None:
    complaints = validate_message(
        "Words", [section(), {"type": "header", "text": plain("a" * 151)}]
    )

    assert len(complaints) == 1
    assert "message.blocks[1]" in complaints[0]
    assert "150" in complaints[0]


def test_a_menu_accepts_up_to_100_options() -> None:
    assert validate_options({"options": [option()] * 100}) == []
    assert validate_options({"options": []}) == []
    assert validate_options({"options": [option()] * 101})
    assert validate_options({"options": [{"text": mrkdwn(), "value": "a"}]})
    assert validate_options({"option_groups": [{"label": plain(), "options": [option()]}]}) == []
    assert validate_options({})
