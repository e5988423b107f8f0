"""Slack's JSON for the results of Web API calls."""

import base64
import binascii
from typing import Final

from sandbox.block_kit import Json
from sandbox.slack_objects import TEAM, Channel, Message, SlackError, User
from sandbox.web_api_arguments import invalid_arguments, read_flag
from sandbox.workspace import Workspace

MAX_PAGE: Final = 999
# As many as clients show.
_MAX_REPLY_USERS: Final = 5


def page(workspace: Workspace, messages: list[Message], arguments: Json, *, default: int) -> Json:
    """Return one page of messages between ``oldest`` and ``latest``, and where the next begins."""
    try:
        oldest = float(arguments.get("oldest") or 0)
        latest = float(arguments.get("latest") or "inf")
        limit = int(arguments.get("limit") or default)
    except ValueError as error:
        raise invalid_arguments(str(error)) from None
    edges = {oldest, latest} if read_flag(arguments, "inclusive") else set()
    found = [
        each for each in messages if oldest < float(each.ts) < latest or float(each.ts) in edges
    ]
    start = 0
    if cursor := arguments.get("cursor"):
        start = _position(found, str(cursor))
    if not 1 <= limit <= MAX_PAGE:
        raise SlackError("invalid_limit")
    rest = found[start + limit :]
    following = base64.b64encode(f"next_ts:{rest[0].ts}".encode()).decode() if rest else ""
    with_metadata = bool(read_flag(arguments, "include_all_metadata"))
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


def channel_json(workspace: Workspace, channel: Channel) -> Json:
    """Return Slack's JSON object for a conversation."""
    shown: Json = {
        "id": channel.id,
        "name": channel.name,
        "is_channel": channel.kind == "public",
        "is_group": channel.kind == "private",
        "is_im": channel.kind == "im",
        "is_private": channel.kind != "public",
        "is_archived": channel.is_archived,
        "is_shared": channel.is_ext_shared or channel.is_org_shared,
        "is_ext_shared": channel.is_ext_shared,
        "is_pending_ext_shared": channel.is_pending_ext_shared,
        "is_org_shared": channel.is_org_shared,
        "is_member": workspace.bot.id in channel.members,
    }
    if channel.kind == "im":
        shown["user"] = next(each for each in channel.members if each != workspace.bot.id)
    return shown


def user_json(workspace: Workspace, user: User) -> Json:
    """Return Slack's JSON object for a user."""
    offset = workspace.clock.now().astimezone(user.zone).utcoffset()
    enterprise = user.enterprise or (workspace.enterprise if user.team == TEAM else None)
    grid: Json = {"enterprise_user": {"enterprise_id": enterprise}} if enterprise else {}
    external = user.team != TEAM and (not enterprise or enterprise != workspace.enterprise)
    return {
        **grid,
        "id": user.id,
        "team_id": user.team,
        "name": user.name,
        "real_name": user.real_name,
        "deleted": user.is_deactivated,
        "is_bot": user == workspace.bot,
        # Those who are deactivated have no role.
        **({} if user.is_deactivated else _role(user)),
        "is_restricted": user.is_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
        # https://docs.slack.dev/apis/slack-connect: of another organisation, or not seen before.
        **({"is_stranger": True} if external else {}),
        "tz": user.tz,
        "tz_offset": int(offset.total_seconds()) if offset else 0,
        "profile": {"real_name": user.real_name, "display_name": user.name},
    }


def _role(user: User) -> Json:
    return {
        "is_admin": user.role != "member",
        "is_owner": user.role == "owner",
        "is_primary_owner": user.role == "owner",
    }


def _message_json(workspace: Workspace, message: Message, *, with_metadata: bool) -> Json:
    shown = message.payload(with_metadata=with_metadata)
    replies = workspace.thread(message.channel, message.ts)
    if replies:
        users = list(dict.fromkeys(each.user for each in replies))
        shown |= {
            "thread_ts": message.ts,
            "reply_count": len(replies),
            "latest_reply": replies[-1].ts,
            "reply_users": users[:_MAX_REPLY_USERS],
            "reply_users_count": len(users),
        }
    return shown
