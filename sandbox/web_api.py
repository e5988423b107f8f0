"""The methods of Slack's Web API that the bot uses, with Slack's own reasons to refuse them.

Each takes the workspace and the arguments of the call and returns what goes beside ``"ok": true``.
Codes and shapes are those of https://docs.slack.dev/reference/methods.
"""

import mimetypes
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sandbox.block_kit import Json
from sandbox.files import Upload, new_file, shared
from sandbox.slack_objects import APP, BOT, TEAM, Channel, Message, SlackError, View
from sandbox.web_api_arguments import (
    invalid_arguments,
    read_completion,
    read_content,
    read_flag,
    read_metadata,
    read_new_upload,
    read_view,
)
from sandbox.web_api_results import MAX_PAGE, channel_json, page, user_json
from sandbox.workspace import Workspace

_SITE: Final = "https://sandbox.slack.com"
_DEFAULT_PAGE: Final = 100
# Read scopes depend on the kind of conversation: channels:history, groups:history, im:history.
_SCOPE_FAMILY: Final = {"public": "channels", "private": "groups", "im": "im"}


def call(workspace: Workspace, method: str, arguments: Json) -> Json:
    """Run a method and return its result.

    Raises:
        SlackError: the call is refused.
    """
    if method not in _METHODS:
        raise SlackError("unknown_method", req_method=method)
    scope, work = _METHODS[method]
    if scope:
        _require_scope(workspace, scope)
    return work(workspace, arguments)


def _auth_test(workspace: Workspace, _: Json) -> Json:
    bot = workspace.bot
    shown = {
        "url": f"{_SITE}/",
        "team": "Sandbox",
        "team_id": TEAM,
        "user": bot.name,
        "user_id": bot.id,
        "bot_id": BOT,
        "is_enterprise_install": False,
    }
    # The id of the app is not in it: https://docs.slack.dev/reference/methods/auth.test.
    return shown | ({"enterprise_id": workspace.enterprise} if workspace.enterprise else {})


def _bot(workspace: Workspace, arguments: Json) -> Json:
    if arguments.get("bot") != BOT:
        raise SlackError("bot_not_found")
    bot = workspace.bot
    shown = {"id": BOT, "app_id": APP, "user_id": bot.id, "name": bot.name, "deleted": False}
    return {"bot": shown}


def _post_message(workspace: Workspace, arguments: Json) -> Json:
    # "An encoded ID or channel name": https://docs.slack.dev/reference/methods/chat.postMessage.
    # Other methods take ids only.
    name = str(arguments.get("channel") or "").removeprefix("#")
    ids = {each.name: each.id for each in workspace.channels.values() if each.kind != "im"}
    channel = (
        workspace.dm(name) if name in workspace.users else _channel(workspace, ids.get(name, name))
    )
    _check_can_post(workspace, channel)
    text, blocks = read_content(workspace, arguments)
    thread_ts = _parent(workspace, channel, arguments)
    message = Message(
        channel.id,
        "",
        workspace.bot.id,
        text,
        blocks,
        is_from_bot=True,
        thread_ts=thread_ts,
        # "Used in conjunction with thread_ts":
        # https://docs.slack.dev/reference/methods/chat.postMessage
        is_broadcast=bool(thread_ts and read_flag(arguments, "reply_broadcast")),
        metadata=read_metadata(arguments),
    )
    posted = workspace.post(message)
    shown = posted.payload(with_metadata=True)
    return {"channel": channel.id, "ts": posted.ts, "message": shown}


def _update(workspace: Workspace, arguments: Json) -> Json:
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    if channel.is_archived:
        raise SlackError("is_inactive")
    message = workspace.find(channel.id, str(arguments.get("ts")))
    if message is None or message.visible_to:
        raise SlackError("message_not_found")
    if message.user != workspace.bot.id:
        raise SlackError("cant_update_message")
    text, blocks = read_content(workspace, arguments)
    # Metadata is kept if the call has none; blocks are not.
    metadata = read_metadata(arguments) if "metadata" in arguments else message.metadata
    edited = workspace.edit(message, text=text, blocks=blocks, metadata=metadata)
    shown = edited.payload(with_metadata=True)
    return {"channel": channel.id, "ts": edited.ts, "text": text, "message": shown}


def _delete(workspace: Workspace, arguments: Json) -> Json:
    """Delete a message of the app: https://docs.slack.dev/reference/methods/chat.delete.

    Of one with replies a placeholder stays: https://github.com/sgratzl/slack-cleaner/issues/56.
    """
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    message = workspace.find(channel.id, str(arguments.get("ts")))
    if message is None or message.visible_to:
        raise SlackError("message_not_found")
    if message.user != workspace.bot.id:
        raise SlackError("cant_delete_message")
    if workspace.thread(channel.id, message.ts):
        workspace.edit(message, text="This message was deleted.", blocks=[], metadata=None)
    else:
        workspace.delete(message)
    return {"channel": channel.id, "ts": message.ts}


def _permalink(workspace: Workspace, arguments: Json) -> Json:
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    message = workspace.find(channel.id, str(arguments.get("message_ts")))
    if message is None or message.visible_to:
        raise SlackError("message_not_found")
    link = f"{_SITE}/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.thread_ts:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}


def _history(workspace: Workspace, arguments: Json) -> Json:
    channel = _readable_channel(workspace, arguments)
    newest_first = workspace.in_channel(channel.id)[::-1]
    return page(workspace, newest_first, arguments, default=_DEFAULT_PAGE)


def _replies(workspace: Workspace, arguments: Json) -> Json:
    channel = _readable_channel(workspace, arguments)
    if workspace.threads_error and channel.kind != "im":
        raise SlackError(workspace.threads_error)
    message = workspace.find(channel.id, str(arguments.get("ts")))
    if message is None or message.visible_to:
        raise SlackError("thread_not_found")
    parent = workspace.find(channel.id, message.thread_ts or message.ts)
    whole = [parent or message, *workspace.thread(channel.id, message.thread_ts or message.ts)]
    return page(workspace, whole, arguments, default=MAX_PAGE)


def _join(workspace: Workspace, arguments: Json) -> Json:
    """Join a public channel: https://docs.slack.dev/reference/methods/conversations.join."""
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    if channel.kind != "public":
        raise SlackError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise SlackError("is_archived")
    workspace.change_channel(channel.id, with_bot=True)
    return {"channel": channel_json(workspace, channel)}


def _conversation(workspace: Workspace, arguments: Json) -> Json:
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    _require_scope(workspace, f"{_SCOPE_FAMILY[channel.kind]}:read")
    return {"channel": channel_json(workspace, channel)}


def _open_conversation(workspace: Workspace, arguments: Json) -> Json:
    # https://docs.slack.dev/reference/methods/conversations.open#errors
    names = str(arguments.get("users") or "").split(",")
    if names == [""]:
        raise SlackError("users_list_not_supplied")
    if any(name in workspace.users and workspace.users[name].is_deactivated for name in names):
        raise SlackError("user_disabled")
    if any(name not in workspace.users for name in names):
        raise SlackError("user_not_found")
    channel = workspace.direct_message(*names, workspace.bot.id)
    shown = channel_json(workspace, channel) if read_flag(arguments, "return_im") else {}
    return {"channel": {"id": channel.id, **shown}}


def _user(workspace: Workspace, arguments: Json) -> Json:
    user = workspace.users.get(str(arguments.get("user")))
    if user is None:
        raise SlackError("user_not_found")
    return {"user": user_json(workspace, user)}


def _groups(workspace: Workspace, arguments: Json) -> Json:
    """Return the user groups: https://docs.slack.dev/reference/methods/usergroups.list.

    All of them, without pages; the disabled ones only for ``include_disabled``.
    """
    if workspace.user_groups is None:
        raise SlackError("plan_upgrade_required")
    shown = [
        {"id": id_, "team_id": TEAM, "name": group.name, "handle": group.handle}
        for id_, group in workspace.user_groups.items()
        if not group.is_disabled or read_flag(arguments, "include_disabled")
    ]
    return {"usergroups": shown}


def _group_members(workspace: Workspace, arguments: Json) -> Json:
    """Return who is in a user group: https://docs.slack.dev/reference/methods/usergroups.users.list.

    All of them, without pages. A disabled one is only there for ``include_disabled``.
    """
    if workspace.user_groups is None:
        raise SlackError("plan_upgrade_required")
    group = workspace.user_groups.get(str(arguments.get("usergroup")))
    if group is None or (group.is_disabled and not read_flag(arguments, "include_disabled")):
        raise SlackError("no_such_subteam")
    return {"users": sorted(group.members)}


def _file(workspace: Workspace, arguments: Json) -> Json:
    file = workspace.files.get(str(arguments.get("file")))
    if file is None:
        raise SlackError("file_not_found")
    return {"file": file.shown, "comments": [], "response_metadata": {"next_cursor": ""}}


def _delete_file(workspace: Workspace, arguments: Json) -> Json:
    """Delete a file of the app: https://docs.slack.dev/reference/methods/files.delete.

    The message that shared it stays: https://github.com/sgratzl/slack-cleaner/issues/56.
    """
    file = workspace.files.get(str(arguments.get("file")))
    if file is None:
        raise SlackError("file_not_found")
    if file.shown["user"] != workspace.bot.id:
        raise SlackError("cant_delete_file")
    del workspace.files[str(file.shown["id"])]
    for places in file.shown.get("shares", {}).values():
        for channel, [share] in places.items():
            if message := workspace.find(channel, share["ts"]):
                gone = replace(message, files=())
                workspace.edit(gone, text="This file was deleted.", blocks=[], metadata=None)
    return {}


def _upload_url(workspace: Workspace, arguments: Json) -> Json:
    name, length = read_new_upload(arguments)
    upload = Upload(workspace.new_id("F"), name, length)
    workspace.uploads[upload.id] = upload
    url = f"{workspace.site}/upload/v1/{upload.secret}"
    return {"upload_url": url, "file_id": upload.id}


def _complete_upload(workspace: Workspace, arguments: Json) -> Json:
    asked, title, place = read_completion(arguments)
    upload = workspace.uploads.get(asked)
    if upload is None or upload.content is None:
        raise SlackError("file_not_found")
    channel = _channel(workspace, place)
    if channel.is_archived:
        raise SlackError("posting_to_channel_denied")
    # The scope chat:write.public is not enough here: "membership is required".
    if workspace.bot.id not in channel.members:
        raise SlackError("not_in_channel")
    thread_ts = _parent(workspace, channel, arguments)
    # "This method can only be called once."
    del workspace.uploads[upload.id]
    file = new_file(
        upload.content,
        identifier=upload.id,
        user=workspace.bot.id,
        name=upload.name,
        mimetype=mimetypes.guess_type(upload.name)[0] or "application/octet-stream",
        created=workspace.clock.now(),
        site=workspace.site,
        title=title,
    )
    workspace.files[upload.id] = file

    def share() -> None:
        message = Message(
            channel.id,
            "",
            workspace.bot.id,
            str(arguments.get("initial_comment") or ""),
            is_from_bot=True,
            thread_ts=thread_ts,
            files=(file.shown,),
        )
        posted = workspace.post(message)
        workspace.files[upload.id] = shared(file, posted, is_public=channel.kind == "public")

    # "There can be a visible delay": https://github.com/slackapi/python-slack-sdk/issues/1277.
    workspace.later(workspace.share_delay, share)
    return {"files": [{"id": upload.id, "title": file.shown["title"]}]}


def _open_view(workspace: Workspace, arguments: Json) -> Json:
    body = read_view(workspace, arguments, "modal")
    return {"view": workspace.open_view(str(arguments.get("trigger_id")), body).payload()}


def _update_view(workspace: Workspace, arguments: Json) -> Json:
    view = _open_view_of(workspace, arguments)
    if view is None:
        raise SlackError("not_found")
    _check_hash(view, arguments)
    workspace.update_view(view, read_view(workspace, arguments, "modal", view))
    return {"view": view.payload()}


def _publish_view(workspace: Workspace, arguments: Json) -> Json:
    # https://docs.slack.dev/reference/methods/views.publish#errors
    if not workspace.app.has_home:
        raise SlackError("not_enabled")
    user = str(arguments.get("user_id"))
    if user not in workspace.users:
        raise invalid_arguments("user_id: there is no such user")
    if user in workspace.homes:
        _check_hash(workspace.homes[user], arguments)
    body = read_view(workspace, arguments, "home")
    return {"view": workspace.publish_home(user, body).payload()}


_METHODS: Final[dict[str, tuple[str | None, Callable[[Workspace, Json], Json]]]] = {
    "auth.test": (None, _auth_test),
    "bots.info": ("users:read", _bot),
    "chat.postMessage": ("chat:write", _post_message),
    "chat.update": ("chat:write", _update),
    "chat.delete": ("chat:write", _delete),
    "chat.getPermalink": (None, _permalink),
    # Their scopes depend on the conversation, and are checked once it is known.
    "conversations.history": (None, _history),
    "conversations.replies": (None, _replies),
    "conversations.info": (None, _conversation),
    "conversations.join": ("channels:join", _join),
    "conversations.open": ("im:write", _open_conversation),
    "files.completeUploadExternal": ("files:write", _complete_upload),
    "files.delete": ("files:write", _delete_file),
    "files.getUploadURLExternal": ("files:write", _upload_url),
    "files.info": ("files:read", _file),
    "usergroups.list": ("usergroups:read", _groups),
    "usergroups.users.list": ("usergroups:read", _group_members),
    "users.info": ("users:read", _user),
    "views.open": (None, _open_view),
    "views.update": (None, _update_view),
    "views.publish": (None, _publish_view),
}


def _require_scope(workspace: Workspace, scope: str) -> None:
    if scope not in workspace.scopes:
        provided = ",".join(sorted(workspace.scopes))
        raise SlackError("missing_scope", needed=scope, provided=provided)


def _channel(workspace: Workspace, name: str) -> Channel:
    """Return the channel with this id; raises ``SlackError`` if the bot cannot see it."""
    channel = workspace.channels.get(name)
    if channel is None or (channel.kind != "public" and workspace.bot.id not in channel.members):
        # Slack does not let a bot know that a channel exists which it is not in.
        raise SlackError("channel_not_found")
    return channel


def _check_can_post(workspace: Workspace, channel: Channel) -> None:
    if channel.is_archived:
        raise SlackError("is_archived")
    if workspace.bot.id not in channel.members and "chat:write.public" not in workspace.scopes:
        raise SlackError("not_in_channel")


def _readable_channel(workspace: Workspace, arguments: Json) -> Channel:
    channel = _channel(workspace, str(arguments.get("channel") or ""))
    _require_scope(workspace, f"{_SCOPE_FAMILY[channel.kind]}:history")
    if workspace.bot.id not in channel.members:
        raise SlackError("not_in_channel")
    return channel


def _parent(workspace: Workspace, channel: Channel, arguments: Json) -> str | None:
    ts = arguments.get("thread_ts")
    if not ts:
        return None
    parent = workspace.find(channel.id, str(ts))
    if parent is None or parent.thread_ts or parent.visible_to:
        # Slack accepts some of these and shows the reply to no one.
        raise SlackError("thread_not_found")
    return parent.ts


def _open_view_of(workspace: Workspace, arguments: Json) -> View | None:
    by_id, by_external_id = arguments.get("view_id"), arguments.get("external_id")
    for view in workspace.open_views():
        if by_id == view.id or (by_external_id and by_external_id == view.body.get("external_id")):
            return view
    return None


def _check_hash(view: View, arguments: Json) -> None:
    if arguments.get("hash") and arguments["hash"] != view.hash:
        raise SlackError("hash_conflict")
