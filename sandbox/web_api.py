"""The methods of Slack's Web API that the bot may use, with Slack's own reasons to turn them down.

Each takes the workspace and the arguments of the call and returns what goes beside ``"ok": true``.
Codes and shapes are those of https://docs.slack.dev/reference/methods.
"""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.block_kit import TEXT_LIMIT, Json, validate_message, validate_view
from sandbox.workspace import (
    BOT,
    TEAM,
    Channel,
    Message,
    SlackError,
    User,
    View,
    Workspace,
)

#: The hosts whose pages may play in a video block: the app's unfurl domains.
UNFURL_DOMAINS: Final = frozenset({"videos.example.com"})
_SITE: Final = "https://sandbox.slack.com"
_METADATA_BYTES: Final = 16_000
_VIEW_BYTES: Final = 250_000
_PAGE: Final = 100
_LONGEST_PAGE: Final = 999
# Scopes that read go by the kind of conversation: channels:history, groups:history, im:history.
_SCOPE_FAMILY: Final = {"public": "channels", "private": "groups", "im": "im"}


def call(workspace: Workspace, method: str, arguments: Json) -> Json:
    """Do what ``method`` does and return what it answers.

    Raises:
        SlackError: it is turned down.
    """
    if method not in _METHODS:
        raise SlackError("unknown_method", req_method=method)
    scope, work = _METHODS[method]
    if scope:
        _need(workspace, scope)
    return work(workspace, arguments)


def content(workspace: Workspace, arguments: Json) -> tuple[str, list[Json]]:
    """Return text and blocks of a message that is to be shown.

    Raises:
        SlackError: ``no_text``, ``msg_too_long``, ``invalid_blocks``, ``invalid_blocks_format``.
    """
    text = str(arguments.get("text") or "")
    blocks = _decoded(arguments, "blocks", "invalid_blocks_format") or []
    if not isinstance(blocks, list):
        raise SlackError("invalid_blocks_format")
    if not text.strip() and not blocks:
        raise SlackError("no_text")
    if len(text) > TEXT_LIMIT:
        raise SlackError("msg_too_long")
    if complaints := validate_message(text, blocks) + _unplayable(workspace, blocks):
        raise SlackError("invalid_blocks", **_said(complaints))
    return text, blocks


def _auth_test(workspace: Workspace, _: Json) -> Json:
    bot = workspace.bot
    return {
        "url": f"{_SITE}/",
        "team": "Sandbox",
        "team_id": TEAM,
        "user": bot.name,
        "user_id": bot.id,
        "bot_id": BOT,
        "is_enterprise_install": False,
    }


def _post_message(workspace: Workspace, arguments: Json) -> Json:
    name = str(arguments.get("channel") or "")
    channel = workspace.dm(name) if name in workspace.users else _known(workspace, name)
    _check_may_post(workspace, channel)
    text, blocks = content(workspace, arguments)
    message = Message(
        channel.id,
        "",
        workspace.bot.id,
        text,
        blocks,
        is_from_bot=True,
        thread_ts=_parent(workspace, channel, arguments),
        metadata=_metadata(arguments),
        unfurl_links=_flag(arguments, "unfurl_links"),
        unfurl_media=_flag(arguments, "unfurl_media"),
    )
    posted = workspace.post(message)
    shown = posted.payload(with_metadata=True)
    return {"channel": channel.id, "ts": posted.ts, "message": shown}


def _update(workspace: Workspace, arguments: Json) -> Json:
    channel = _known(workspace, str(arguments.get("channel") or ""))
    if channel.is_archived:
        raise SlackError("is_inactive")
    message = workspace.find(channel.id, str(arguments.get("ts")))
    if message is None or message.visible_to:
        raise SlackError("message_not_found")
    if message.user != workspace.bot.id:
        raise SlackError("cant_update_message")
    text, blocks = content(workspace, arguments)
    # Metadata stays unless the call brings other; blocks do not.
    metadata = _metadata(arguments) if "metadata" in arguments else message.metadata
    edited = workspace.edit(message, text=text, blocks=blocks, metadata=metadata)
    shown = edited.payload(with_metadata=True)
    return {"channel": channel.id, "ts": edited.ts, "text": text, "message": shown}


def _post_ephemeral(workspace: Workspace, arguments: Json) -> Json:
    channel = _known(workspace, str(arguments.get("channel") or ""))
    if channel.is_archived:
        raise SlackError("is_archived")
    if workspace.bot.id not in channel.members:
        raise SlackError("not_in_channel")
    reader = str(arguments.get("user"))
    if reader not in channel.members:
        raise SlackError("user_not_in_channel")
    text, blocks = content(workspace, arguments)
    message = Message(
        channel.id,
        "",
        workspace.bot.id,
        text,
        blocks,
        is_from_bot=True,
        thread_ts=_parent(workspace, channel, arguments),
        visible_to=reader,
    )
    return {"message_ts": workspace.post(message).ts}


def _permalink(workspace: Workspace, arguments: Json) -> Json:
    channel = _known(workspace, str(arguments.get("channel") or ""))
    message = workspace.find(channel.id, str(arguments.get("message_ts")))
    if message is None or message.visible_to:
        raise SlackError("message_not_found")
    link = f"{_SITE}/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.thread_ts:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}


def _history(workspace: Workspace, arguments: Json) -> Json:
    channel = _readable(workspace, arguments)
    newest_first = workspace.messages(channel.id)[::-1]
    return _page(workspace, newest_first, arguments, default=_PAGE)


def _replies(workspace: Workspace, arguments: Json) -> Json:
    channel = _readable(workspace, arguments)
    message = workspace.find(channel.id, str(arguments.get("ts")))
    if message is None or message.visible_to:
        raise SlackError("thread_not_found")
    parent = workspace.find(channel.id, message.thread_ts or message.ts)
    whole = [parent or message, *workspace.thread(channel.id, message.thread_ts or message.ts)]
    return _page(workspace, whole, arguments, default=_LONGEST_PAGE)


def _conversation(workspace: Workspace, arguments: Json) -> Json:
    channel = _known(workspace, str(arguments.get("channel") or ""))
    _need(workspace, f"{_SCOPE_FAMILY[channel.kind]}:read")
    return {"channel": _channel_json(workspace, channel)}


def _open_conversation(workspace: Workspace, arguments: Json) -> Json:
    names = str(arguments.get("users") or "").split(",")
    if any(name not in workspace.users for name in names):
        raise SlackError("user_not_found")
    channel = workspace.direct_message(*names, workspace.bot.id)
    shown = _channel_json(workspace, channel) if _flag(arguments, "return_im") else {}
    return {"channel": {"id": channel.id, **shown}}


def _user(workspace: Workspace, arguments: Json) -> Json:
    user = workspace.users.get(str(arguments.get("user")))
    if user is None:
        raise SlackError("user_not_found")
    return {"user": _user_json(workspace, user)}


def _open_view(workspace: Workspace, arguments: Json) -> Json:
    body = _view(workspace, arguments, "modal")
    return {"view": workspace.open_view(str(arguments.get("trigger_id")), body).payload()}


def _push_view(workspace: Workspace, arguments: Json) -> Json:
    body = _view(workspace, arguments, "modal")
    return {"view": workspace.push_view(str(arguments.get("trigger_id")), body).payload()}


def _update_view(workspace: Workspace, arguments: Json) -> Json:
    view = _open_one(workspace, arguments)
    if view is None:
        raise SlackError("not_found")
    _check_hash(view, arguments)
    workspace.update_view(view, _view(workspace, arguments, "modal", view))
    return {"view": view.payload()}


def _publish_view(workspace: Workspace, arguments: Json) -> Json:
    user = str(arguments.get("user_id"))
    if user not in workspace.users:
        raise SlackError("invalid_arguments", **_said(["user_id: nobody has it"]))
    if user in workspace.homes:
        _check_hash(workspace.homes[user], arguments)
    body = _view(workspace, arguments, "home")
    return {"view": workspace.publish_home(user, body).payload()}


_METHODS: Final[dict[str, tuple[str | None, Callable[[Workspace, Json], Json]]]] = {
    "auth.test": (None, _auth_test),
    "chat.postMessage": ("chat:write", _post_message),
    "chat.update": ("chat:write", _update),
    "chat.postEphemeral": ("chat:write", _post_ephemeral),
    "chat.getPermalink": (None, _permalink),
    # These read by kind of conversation and ask for their scope once they know it.
    "conversations.history": (None, _history),
    "conversations.replies": (None, _replies),
    "conversations.info": (None, _conversation),
    "conversations.open": ("im:write", _open_conversation),
    "users.info": ("users:read", _user),
    "views.open": (None, _open_view),
    "views.push": (None, _push_view),
    "views.update": (None, _update_view),
    "views.publish": (None, _publish_view),
}


def _need(workspace: Workspace, scope: str) -> None:
    if scope not in workspace.scopes:
        provided = ",".join(sorted(workspace.scopes))
        raise SlackError("missing_scope", needed=scope, provided=provided)


def _known(workspace: Workspace, name: str) -> Channel:
    """Return a channel by its id alone: names are for people."""
    channel = workspace.channels.get(name)
    if channel is None or (channel.kind != "public" and workspace.bot.id not in channel.members):
        # Slack does not tell a bot that a place exists where it is not.
        raise SlackError("channel_not_found")
    return channel


def _check_may_post(workspace: Workspace, channel: Channel) -> None:
    if channel.is_archived:
        raise SlackError("is_archived")
    if workspace.bot.id not in channel.members and "chat:write.public" not in workspace.scopes:
        raise SlackError("not_in_channel")


def _readable(workspace: Workspace, arguments: Json) -> Channel:
    channel = _known(workspace, str(arguments.get("channel") or ""))
    _need(workspace, f"{_SCOPE_FAMILY[channel.kind]}:history")
    if workspace.bot.id not in channel.members:
        raise SlackError("not_in_channel")
    return channel


def _parent(workspace: Workspace, channel: Channel, arguments: Json) -> str | None:
    ts = arguments.get("thread_ts")
    if not ts:
        return None
    parent = workspace.find(channel.id, str(ts))
    if parent is None or parent.thread_ts or parent.visible_to:
        # Slack lets some of these pass and shows the reply to nobody, which is no better.
        raise SlackError("thread_not_found")
    return parent.ts


def _metadata(arguments: Json) -> Json | None:
    metadata = _decoded(arguments, "metadata", "invalid_metadata_format")
    match metadata:
        case None | {} if not metadata:
            return None
        case {"event_type": str(name), "event_payload": dict(), **rest} if name and not rest:
            if len(json.dumps(metadata)) > _METADATA_BYTES:
                raise SlackError("metadata_too_large")
            return {"event_type": name, "event_payload": metadata["event_payload"]}
        case _:
            raise SlackError("invalid_metadata_format")


def _unplayable(workspace: Workspace, blocks: list[Any]) -> list[str]:
    """Return complaints about video blocks that the app may not show."""
    complaints = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or block.get("type") != "video":
            continue
        link = urlsplit(str(block.get("video_url")))
        if "links.embed:write" not in workspace.scopes:
            complaints.append(f"blocks[{index}]: a video needs the scope links.embed:write")
        if link.scheme != "https" or link.hostname not in UNFURL_DOMAINS:
            complaints.append(f"blocks[{index}].video_url: not on an unfurl domain of the app")
        if link.path.endswith(".mp4"):
            complaints.append(f"blocks[{index}].video_url: a page that embeds, not a file")
    return complaints


def _page(workspace: Workspace, messages: list[Message], arguments: Json, *, default: int) -> Json:
    """Return one page of messages between ``oldest`` and ``latest``, and where the next begins."""
    try:
        oldest = float(arguments.get("oldest") or 0)
        latest = float(arguments.get("latest") or "inf")
        limit = int(arguments.get("limit") or default)
    except ValueError as error:
        raise SlackError("invalid_arguments", **_said([str(error)])) from None
    edges = {oldest, latest} if _flag(arguments, "inclusive") else set()
    found = [
        each for each in messages if oldest < float(each.ts) < latest or float(each.ts) in edges
    ]
    start = 0
    if cursor := arguments.get("cursor"):
        start = _position(found, str(cursor))
    if not 1 <= limit <= _LONGEST_PAGE:
        raise SlackError("invalid_limit")
    rest = found[start + limit :]
    following = base64.b64encode(f"next_ts:{rest[0].ts}".encode()).decode() if rest else ""
    with_metadata = bool(_flag(arguments, "include_all_metadata"))
    return {
        "messages": [
            _message_json(workspace, each, with_metadata=with_metadata)
            for each in found[start : start + limit]
        ],
        "has_more": bool(rest),
        "response_metadata": {"next_cursor": following},
    }


def _position(messages: list[Message], cursor: str) -> int:
    try:
        ts = base64.b64decode(cursor, validate=True).decode().removeprefix("next_ts:")
        return [each.ts for each in messages].index(ts)
    except (binascii.Error, ValueError):
        raise SlackError("invalid_cursor") from None


def _message_json(workspace: Workspace, message: Message, *, with_metadata: bool) -> Json:
    shown = message.payload(with_metadata=with_metadata)
    replies = workspace.thread(message.channel, message.ts)
    if replies:
        shown |= {
            "thread_ts": message.ts,
            "reply_count": len(replies),
            "latest_reply": replies[-1].ts,
        }
    return shown


def _channel_json(workspace: Workspace, channel: Channel) -> Json:
    shown: Json = {
        "id": channel.id,
        "name": channel.name,
        "is_channel": channel.kind == "public",
        "is_group": channel.kind == "private",
        "is_im": channel.kind == "im",
        "is_private": channel.kind != "public",
        "is_archived": channel.is_archived,
        "is_member": workspace.bot.id in channel.members,
    }
    if channel.kind == "im":
        shown["user"] = next(each for each in channel.members if each != workspace.bot.id)
    return shown


def _user_json(workspace: Workspace, user: User) -> Json:
    offset = workspace.clock.now().astimezone(user.zone).utcoffset()
    return {
        "id": user.id,
        "team_id": TEAM,
        "name": user.name,
        "real_name": user.real_name,
        "deleted": False,
        "is_bot": user == workspace.bot,
        "tz": user.tz,
        "tz_offset": int(offset.total_seconds()) if offset else 0,
        "profile": {"real_name": user.real_name, "display_name": user.name},
    }


def _view(workspace: Workspace, arguments: Json, kind: str, replaced: View | None = None) -> Json:
    body = _decoded(arguments, "view", "invalid_arguments")
    if not isinstance(body, dict) or body.get("type") != kind:
        raise SlackError("invalid_arguments", **_said([f"view: must be an object of type {kind}"]))
    if len(json.dumps(body)) > _VIEW_BYTES:
        raise SlackError("view_too_large")
    if complaints := validate_view(body):
        raise SlackError("invalid_arguments", **_said(complaints))
    name = body.get("external_id")
    if name and any(
        view.body.get("external_id") == name and view is not replaced
        for view in workspace.open_views()
    ):
        raise SlackError("duplicate_external_id")
    return body


def _open_one(workspace: Workspace, arguments: Json) -> View | None:
    by_id, by_external_id = arguments.get("view_id"), arguments.get("external_id")
    for view in workspace.open_views():
        if by_id == view.id or (by_external_id and by_external_id == view.body.get("external_id")):
            return view
    return None


def _check_hash(view: View, arguments: Json) -> None:
    if arguments.get("hash") and arguments["hash"] != view.hash:
        raise SlackError("hash_conflict")


def _decoded(arguments: Json, key: str, code: str) -> Any:  # noqa: ANN401 - whatever the JSON holds
    """Return an argument that is JSON: in a form it comes as text."""
    value = arguments.get(key)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except ValueError:
        raise SlackError(code) from None


def _flag(arguments: Json, key: str) -> bool | None:
    """Return an argument that is true or false: in a form it comes as text."""
    value = arguments.get(key)
    return None if value is None else str(value).lower() in {"true", "1"}


def _said(complaints: list[str]) -> Json:
    return {"response_metadata": {"messages": [f"[ERROR] {each}" for each in complaints]}}
