"""What one person sees of the workspace, as JSON: a snapshot, and each change after it."""

import copy
from collections.abc import Callable

from sandbox.block_kit import Json
from sandbox.page.journal import Journal
from sandbox.page.requests import job_of
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import APP, TEAM, Channel, Event, Message, User, View


def snapshot(slack: SandboxSlack, reader: User) -> Json:
    """Return what a person sees now: channels, messages and open forms."""
    places = [each for each in slack.channels.values() if reader.id in each.members]
    home = slack.homes.get(reader.id)
    return {
        "now": slack.clock.now().timestamp(),
        "team": {"id": TEAM, "name": "Sandbox"},
        "me": reader.id,
        "people": [each for each in slack.users if each != slack.bot.id],
        "users": {each.id: user_json(slack, each) for each in slack.users.values()},
        "app": {
            "id": APP,
            "user": slack.bot.id,
            "name": slack.app.name,
            "commands": [vars(each) for each in slack.app.commands],
            "shortcuts": [vars(each) for each in slack.app.shortcuts],
            "has_home": slack.app.has_home,
            "handle": slack.bot.name,
        },
        "channels": [channel_json(slack, each, reader.id) for each in places],
        "messages": [message_json(each) for each in _messages(slack, places, reader)],
        "views": views_json(slack, reader.id),
        "home": None if home is None else view_json(home),
    }


def user_json(slack: SandboxSlack, user: User) -> Json:
    """Return a member of the workspace; the bot has the name of the app."""
    is_bot = user.id == slack.bot.id
    names = {"name": user.name, "real_name": user.real_name, "title": user.title}
    shown = {"id": user.id, **names, "tz": user.tz}
    return {**shown, "real_name": slack.app.name if is_bot else user.real_name, "is_bot": is_bot}


def channel_json(slack: SandboxSlack, channel: Channel, reader: str) -> Json:
    """Return a conversation as its member ``reader`` sees it."""
    others = sorted(channel.members - {reader})
    return {
        "id": channel.id,
        "name": channel.name,
        "kind": channel.kind,
        "is_archived": channel.is_archived,
        "is_ext_shared": channel.is_ext_shared,
        "has_app": slack.bot.id in channel.members,
        "members": sorted(channel.members),
        "user": others[0] if channel.kind == "im" and others else None,
        "read_only": read_only(slack, channel),
    }


def read_only(slack: SandboxSlack, channel: Channel) -> str | None:
    """Return why people cannot post in a conversation, or None."""
    if channel.is_archived:
        return "This channel is archived."
    if slack.is_locked(channel):
        return "Sending messages to this app has been turned off."
    return None


def message_json(message: Message) -> Json:
    """Return Slack's JSON for a message, with its channel, and what else the page needs."""
    beside = {
        "channel": message.channel,
        "is_ephemeral": message.visible_to is not None,
        "job": job_of(message),
    }
    return {**message.payload(), **beside}


def view_json(view: View) -> Json:
    """Return Slack's JSON for a view, with what the client adds to it."""
    beside = {"errors": view.errors, "notice": view.notice, "channel": view.channel}
    return {**view.payload(), **beside}


def views_json(slack: SandboxSlack, reader: str) -> list[Json]:
    """Return the open forms of a person, the lowest first."""
    return [view_json(each) for each in slack.modals[reader]]


def follow(slack: SandboxSlack, journal: Journal) -> Callable[[], None]:
    """Write events to the journal; return a function that stops it."""

    def note(event: Event) -> None:
        if event.message is not None:
            _note_message(slack, journal, event, event.message)
        elif event.channel is not None:
            channel = event.channel
            for reader in channel.members:
                shown = {"channel": channel_json(slack, channel, reader)}
                journal.note("channel", _always(shown), frozenset({reader}))
        elif event.view is not None:
            view = event.view
            if event.kind == "home_published":
                name, said = "home", {"view": view_json(view)}
            else:
                name, said = "views", _changed(slack, view, event.kind)
            journal.note(name, _always(said), frozenset({view.user}))

    return slack.subscribe(note)


def _note_message(slack: SandboxSlack, journal: Journal, event: Event, message: Message) -> None:
    readers = slack.channels[message.channel].members
    if message.visible_to is not None:
        readers = {message.visible_to}
    if event.kind == "deleted":
        gone = {"channel": message.channel, "ts": message.ts}
        journal.note("message_deleted", _always(gone), frozenset(readers))
    else:
        # A message is immutable: an edit makes another.
        journal.note("message", lambda: {"message": message_json(message)}, frozenset(readers))


def _changed(slack: SandboxSlack, view: View, kind: str) -> Json:
    # Views are mutable: copy them as they are now.
    views = copy.deepcopy(views_json(slack, view.user))
    return {"change": kind.removeprefix("modal_"), "view_id": view.id, "views": views}


def _messages(slack: SandboxSlack, places: list[Channel], reader: User) -> list[Message]:
    seen = [
        message
        for place in places
        for message in (*slack.everything(place.id), *slack.ephemerals(reader.id, place.id))
    ]
    return sorted(seen, key=lambda message: message.ts)


def _always(said: Json) -> Callable[[], Json]:
    return lambda: said
