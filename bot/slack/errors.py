"""What Slack's answers mean for a message that we owe or a form: one table for all of them.

The codes are those that Slack documents for ``chat.postMessage``, ``chat.update``,
``chat.postEphemeral``, ``views.open`` and ``views.update``
(https://docs.slack.dev/reference/methods), and some that were met besides.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Final

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.errors import OutsideError, Refused, Unavailable, Uncertain


class Fate(StrEnum):
    """What becomes of a message or a form that was refused."""

    ELSEWHERE = "elsewhere"
    """This channel takes nothing from us: tell the person directly."""
    GONE = "gone"
    """What was to be edited is no longer there, or changed meanwhile."""
    BEGIN_ANEW = "begin anew"
    """A form cannot be opened any more for what the person did."""
    PAUSE = "pause"
    """The whole workspace takes nothing from us: keep everything and try later."""
    REWRITE = "rewrite"
    """The message itself is at fault: send its text alone."""


FATES: Final = {
    code: fate
    for fate, codes in {
        Fate.ELSEWHERE: """
            access_denied as_user_not_supported cannot_reply_to_message
            channel_not_found channel_type_not_supported ekm_access_denied is_archived is_inactive
            messages_tab_disabled method_not_supported_for_channel_type not_in_channel
            posting_to_channel_denied restricted_action restricted_action_non_threadable_channel
            restricted_action_read_only_channel restricted_action_thread_locked
            restricted_action_thread_only_channel slack_connect_blocked_file_type
            slack_connect_canvas_sharing_blocked slack_connect_clip_sharing_blocked
            slack_connect_file_link_sharing_blocked slack_connect_file_upload_sharing_blocked
            slack_connect_lists_sharing_blocked team_access_not_granted team_not_found
            thread_not_found user_not_found user_not_in_channel
        """,
        Fate.GONE: """
            cant_update_message edit_window_closed external_channel_migrating hash_conflict
            message_not_found not_found streaming_state_conflict
        """,
        Fate.BEGIN_ANEW: """
            exchanged_trigger_id expired_trigger_id invalid_trigger_id trigger_exchanged
            trigger_expired
        """,
        Fate.PAUSE: """
            account_inactive enterprise_is_restricted invalid_auth is_bot missing_scope
            no_permission not_allowed_token_type not_authed org_login_required team_added_to_org
            token_expired token_revoked two_factor_setup_required
        """,
        Fate.REWRITE: """
            attachment_payload_limit_exceeded block_mismatch blocked_file_type
            cant_broadcast_message deprecated_endpoint draft_already_deleted draft_already_sent
            draft_has_conflict draft_not_found duplicate_channel_not_found duplicate_external_id
            duplicate_message_not_found file_deleted file_is_deleted file_not_found
            file_share_limit_reached invalid_arg_name invalid_arguments invalid_array_arg
            invalid_attachments invalid_blocks invalid_blocks_format invalid_charset
            invalid_form_data invalid_metadata_format invalid_metadata_schema invalid_post_type
            markdown_text_conflict max_file_sharing_exceeded metadata_must_be_sent_from_app
            metadata_too_large method_deprecated missing_file_data missing_post_type
            msg_blocks_too_long msg_too_long no_dual_broadcast_content_update no_text
            push_limit_reached too_many_attachments too_many_contact_cards unable_to_share_files
            unknown_method view_too_large
        """,
    }.items()
    for code in codes.split()
}

_CODE: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)
_POINTER: Final = re.compile(r"json-pointer:[\w/-]+", re.ASCII)

# Slack's own bad moments: they come with HTTP 200, and what was done before is not known.
UNCERTAIN: Final = frozenset({"fatal_error", "internal_error", "request_timeout"})
# Nothing was done, and later it may be.
LATER: Final = frozenset(
    {
        "accesslimited",
        "message_limit_exceeded",
        "rate_limited",
        "ratelimited",
        "service_unavailable",
        "update_failed",
    }
)


@asynccontextmanager
async def translated(within: timedelta) -> AsyncIterator[None]:
    """Give a call to Slack so much time, and turn what it raises into our failures.

    Raises:
        Refused: with Slack's code; ``FATES`` says what to do.
        Unavailable: nothing was done.
        Uncertain: it may have been done.
    """
    try:
        async with asyncio.timeout(within.total_seconds()):
            yield
    except SlackApiError as error:
        # What it says may quote what people wrote: it is not to stand in anybody's traceback.
        raise _failure(error) from None
    except aiohttp.ClientConnectorError as error:
        raise Unavailable("Slack cannot be reached.") from error
    except (TimeoutError, aiohttp.ClientError, SlackClientError, OSError, ValueError) as error:
        raise Uncertain("Slack's answer was lost.") from error
    except (AttributeError, RecursionError) as error:  # over an answer that is no object, or deep
        raise Uncertain("Slack's answer could not be read.") from error


def _failure(error: SlackApiError) -> OutsideError:
    response = error.response
    # The HTTP status comes first: an error page of Slack's edge has no code to read.
    status = getattr(response, "status_code", None) or getattr(response, "status", HTTPStatus.OK)
    code = details = ""
    if isinstance(data := getattr(response, "data", None), dict):
        said = data.get("error")
        code = said if isinstance(said, str) and _CODE.fullmatch(said) else ""
        # Where it is wrong: what else it says may quote what people wrote.
        details = " ".join(_POINTER.findall(str(data.get("response_metadata"))))
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in LATER:
        return Unavailable(f"Slack asks to wait ({code})", retry_after=_retry_after(response))
    if status != HTTPStatus.OK or not code or code in UNCERTAIN:
        return Uncertain(f"Slack failed ({code or status})")
    return Refused(f"Slack refused ({code}) {details}".strip(), code=code)


def _retry_after(response: object) -> timedelta | None:
    headers = getattr(response, "headers", {})
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                return timedelta(seconds=max(0, int(value)))
            except (ValueError, OverflowError):
                return None
    return None
