"""The Slack app to create: its manifest with the chosen scopes, and the link to Slack's form."""

import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

import yaml

#: The form without a manifest.
NEW_APP: Final = "https://api.slack.com/apps?new_app=1"

# Slack sends these events only with a scope: https://docs.slack.dev/reference/events.
_EVENTS: Final = {"app_mentions:read": "app_mention", "im:history": "message.im"}
# Allowed as they are in a query: https://www.rfc-editor.org/rfc/rfc3986#section-3.4
_NOT_ENCODED: Final = "/:@,"


def without_scopes(manifest: str, declined: Iterable[str]) -> str:
    """Return a manifest as JSON, without these scopes and the events that need them."""
    declined = set(declined)
    document = yaml.safe_load(manifest)
    scopes = document["oauth_config"]["scopes"]
    subscriptions = document["settings"]["event_subscriptions"]
    gone = {_EVENTS[scope] for scope in declined & _EVENTS.keys()}
    subscriptions["bot_events"] = [e for e in subscriptions["bot_events"] if e not in gone]
    for kind in ("bot", "bot_optional"):
        scopes[kind] = [scope for scope in scopes[kind] if scope not in declined]
    if not scopes["bot_optional"]:
        del scopes["bot_optional"]
    return json.dumps(document, indent=2)


def link(manifest: str) -> str:
    """Return the link that opens Slack's form with this manifest filled in.

    It has less than 3,000 characters, which every browser takes. Others use the parameter too; the
    page about it is https://docs.slack.dev/app-manifests/configuring-apps-with-app-manifests.
    """
    short = json.dumps(json.loads(manifest), separators=(",", ":"))
    return f"{NEW_APP}&manifest_json={quote(short, safe=_NOT_ENCODED)}"
