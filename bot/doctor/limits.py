"""Checks of the limits: what is in force, who has changed it, and whether user groups are there."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Final

from bot.doctor.finding import Finding, off, ok, warning
from bot.errors import OutsideError, Refused
from bot.settings import Settings
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.script_file import MAX_BOX
from bot.store.inspection import stored_limit_changes
from bot.store.limit_changes import CHANGEABLE, LimitChange, written
from bot.timings import Timings

_LISTS: Final = {"VIDEO_USERS": "creating videos", "TRAINING_USERS": "training replicas"}


async def check_limits(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what is in force, of the settings or as an admin has changed it."""
    changes = await asyncio.to_thread(stored_limit_changes, settings.database_address)
    values = {
        name: changes[name].value if name in changes else written(getattr(settings, name.lower()))
        for name in CHANGEABLE
    }
    for finding in (*_numbers(values), *_lists(values), *_changed(changes.values(), settings)):
        yield finding
    groups = {
        each: name for name in _LISTS for each in values[name].split(",") if each.startswith("S")
    }
    async for finding in _check_groups(groups, settings, timings):
        yield finding


def _numbers(values: Mapping[str, str]) -> Iterator[Finding]:
    number = {name: f"{int(value):,}" for name, value in values.items() if value.isdecimal()}
    text = (
        f"{number['MAX_OPEN_PER_USER']} requests in progress and {number['MAX_PER_USER_PER_DAY']} "
        f"a day for each person, {number['MAX_PER_DAY']} a day in all"
    )
    if "MAX_PER_USER_PER_MONTH" in number:
        text += f", {number['MAX_PER_USER_PER_MONTH']} a month for each person"
    if "MAX_PER_MONTH" in number:
        text += f", {number['MAX_PER_MONTH']} a month in all"
    yield ok("limits", text)
    if "MAX_PER_MONTH" not in number:
        yield off(
            "limit of a month",
            "there is none for all people together",
            "To limit what a month can cost, set MAX_PER_MONTH.",
        )
    if int(values["MAX_SCRIPT"]) <= MAX_BOX:
        yield off(
            "long scripts",
            f"a script has at most {number['MAX_SCRIPT']} characters",
            f"Set MAX_SCRIPT to more than {MAX_BOX}, and the form takes a text file too.",
        )
    else:
        yield ok("long scripts", f"up to {number['MAX_SCRIPT']} characters, in a text file")


def _lists(values: Mapping[str, str]) -> Iterator[Finding]:
    for name, what in _LISTS.items():
        if values[name]:
            count = len(values[name].split(","))
            listed = "person or user group" if count == 1 else "people and user groups"
            yield ok(what, f"{count} {listed}, and the admins")
        else:
            yield off(what, "everybody who may ask", f"To let only some people, set {name}.")
    if values["ALLOWED_CHANNELS"]:
        count = len(values["ALLOWED_CHANNELS"].split(","))
        channels = "channel" if count == 1 else "channels"
        yield ok("channels", f"{count} {channels}, and direct messages with the app")
    else:
        yield off("channels", "all of them", "To allow only some, set ALLOWED_CHANNELS.")


def _changed(changes: Iterable[LimitChange], settings: Settings) -> Iterator[Finding]:
    for each in changes:
        before = written(getattr(settings, each.name.lower()))
        yield ok(
            "changed limit",
            f"{each.name} is {each.value or 'empty'}, not {before or 'empty'} as in the settings: "
            f"{each.changed_by} changed it in Home on {each.changed_at:%Y-%m-%d}",
        )


async def _check_groups(
    groups: Mapping[str, str], settings: Settings, timings: Timings
) -> AsyncIterator[Finding]:
    """Yield the user groups that let nobody in; ``groups`` has the settings that name them."""
    if not groups:
        return
    async with open_session(settings.proxy_for(settings.slack_api_url)) as session:
        token = settings.slack_bot_token.get_secret_value()
        client = web_client(token, settings.slack_api_url, session)
        for group, name in groups.items():
            try:
                async with translated(timings.call_timeout):
                    await client.usergroups_users_list(usergroup=group)
            except Refused as failure:
                yield warning(
                    "user group",
                    f"{group} in {name} lets nobody in: Slack refuses to say who is in it "
                    f"({failure.code})",
                    _remedy(failure.code),
                )
            except OutsideError:
                return  # the check of Slack says why


def _remedy(code: str) -> str:
    if code == "missing_scope":
        return (
            "Add the scope usergroups:read in the Slack app (OAuth & Permissions) and install the "
            "app again, or name people instead."
        )
    return "Name a user group that exists and is not disabled, or people."
