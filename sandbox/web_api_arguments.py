"""The arguments of Web API calls, read and checked as Slack does."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.block_kit import (
    Json,
    are_too_long,
    objects,
    size,
    validate_message,
    validate_view,
    widened,
)
from sandbox.slack_objects import SlackError, View
from sandbox.workspace import Workspace

#: The hosts whose pages may play in a video block: the app's unfurl domains.
UNFURL_DOMAINS: Final = frozenset({"videos.example.com"})
# "input must match regex pattern": https://github.com/slackapi/bolt-js/issues/2115.
_CHANNEL: Final = re.compile(r"[CGDZ][A-Z0-9]{8,}")
_METADATA_BYTES: Final = 16_000
_VIEW_BYTES: Final = 250_000


def read_content(workspace: Workspace, arguments: Json) -> tuple[str, list[Json]]:
    """Return the text and blocks of a message.

    Raises:
        SlackError: ``no_text``, ``msg_too_long``, ``msg_blocks_too_long``, ``invalid_blocks``,
            ``invalid_blocks_format``.
    """
    text = str(arguments.get("text") or "")
    blocks = read_json(arguments, "blocks", "invalid_blocks_format") or []
    if not isinstance(blocks, list):
        raise SlackError("invalid_blocks_format")
    if not text.strip() and not blocks:
        raise SlackError("no_text")
    if size(text) > workspace.text_limit:
        raise SlackError("msg_too_long")
    if are_too_long(widened(blocks)):
        raise SlackError("msg_blocks_too_long")
    if errors := validate_message(text, blocks) + _video_errors(workspace, blocks):
        raise SlackError("invalid_blocks", **_explained(errors))
    return text, blocks


def read_metadata(arguments: Json) -> Json | None:
    """Return the metadata of a message, or None; raises ``SlackError`` if it is invalid."""
    value = read_json(arguments, "metadata", "invalid_metadata_format")
    match value:
        case None | {} if not value:
            return None
        case {"event_type": str(name), "event_payload": dict(), **rest} if name and not rest:
            if len(json.dumps(value)) > _METADATA_BYTES:
                raise SlackError("metadata_too_large")
            return {"event_type": name, "event_payload": value["event_payload"]}
        case _:
            raise SlackError("invalid_metadata_format")


def read_new_upload(arguments: Json) -> tuple[str, int]:
    """Return the name and the length that files.getUploadURLExternal was given.

    https://docs.slack.dev/reference/methods/files.getUploadURLExternal

    Raises:
        SlackError: ``missing_argument``, ``invalid_arguments``.
    """
    name, length = str(arguments.get("filename") or ""), str(arguments.get("length") or "0")
    if not length.isdecimal():
        raise invalid_arguments("length: must be an integer")
    if not name or not int(length):
        raise SlackError("missing_argument")
    return name, int(length)


def read_completion(arguments: Json) -> tuple[str, str, str]:
    """Return the file, its title and the channel that files.completeUploadExternal was given.

    https://docs.slack.dev/reference/methods/files.completeUploadExternal

    Raises:
        SlackError: ``invalid_arguments``.
    """
    match read_json(arguments, "files", "invalid_arguments"):
        case [{"id": str(file), **rest}] if rest.keys() <= {"title", "highlight_type"}:
            title = str(rest.get("title") or "")
        case _:
            raise invalid_arguments("files: must be a list with the id and title of one file")
    channel = str(arguments.get("channel_id") or "")
    if not _CHANNEL.fullmatch(channel):
        raise invalid_arguments(f"channel_id: must match regex pattern: ^{_CHANNEL.pattern}$")
    return file, title, channel


def read_view(
    workspace: Workspace, arguments: Json, kind: str, replaced: View | None = None
) -> Json:
    """Return the view of a call, which must be of type ``kind``; ``replaced`` is updated by it.

    Raises:
        SlackError: the view is refused.
    """
    body = read_json(arguments, "view", "invalid_arguments")
    if not isinstance(body, dict) or body.get("type") != kind:
        raise invalid_arguments(f"view: must be an object of type {kind}")
    if len(json.dumps(body)) > _VIEW_BYTES:
        raise SlackError("view_too_large")
    errors = validate_view(body)
    if "files:read" not in workspace.scopes and any(
        each.get("type") == "file_input" for each in objects(body)
    ):
        # https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
        errors.append("view.blocks: file_input needs the scope files:read")
    if errors:
        raise invalid_arguments(*errors)
    name = body.get("external_id")
    if name and any(
        view.body.get("external_id") == name and view is not replaced
        for view in workspace.open_views()
    ):
        raise SlackError("duplicate_external_id")
    return body


def read_json(arguments: Json, key: str, code: str) -> Any:  # noqa: ANN401 - whatever the JSON holds
    """Return the value of a JSON argument, which comes as text in a form."""
    value = arguments.get(key)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except ValueError:
        raise SlackError(code) from None


def read_flag(arguments: Json, key: str) -> bool | None:
    """Return the value of a boolean argument, which comes as text in a form; None if absent."""
    value = arguments.get(key)
    return None if value is None else str(value).lower() in {"true", "1"}


def invalid_arguments(*errors: str) -> SlackError:
    """Return the error ``invalid_arguments`` with an explanation."""
    return SlackError("invalid_arguments", **_explained(errors))


def _explained(errors: Iterable[str]) -> Json:
    return {"response_metadata": {"messages": [f"[ERROR] {each}" for each in errors]}}


def _video_errors(workspace: Workspace, blocks: list[Any]) -> list[str]:
    """Return error messages about video blocks that the app may not show."""
    errors = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or block.get("type") != "video":
            continue
        link = urlsplit(str(block.get("video_url")))
        if "links.embed:write" not in workspace.scopes:
            errors.append(f"blocks[{index}]: a video needs the scope links.embed:write")
        if link.scheme != "https" or link.hostname not in UNFURL_DOMAINS:
            errors.append(f"blocks[{index}].video_url: not on an unfurl domain of the app")
        if link.path.endswith(".mp4"):
            errors.append(f"blocks[{index}].video_url: a page that embeds, not a file")
    return errors
