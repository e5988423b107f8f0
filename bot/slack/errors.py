"""Slack's error codes: one table of what to do about each, for messages and modals.

The codes are those that Slack documents for ``chat.postMessage``, ``chat.update``,
``chat.postEphemeral``, ``views.open``, ``views.update``, ``files.getUploadURLExternal`` and
``files.completeUploadExternal`` (https://docs.slack.dev/reference/methods), and some others that
were seen.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Final

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.outages import Outages
from bot.service.errors import cause_of, http_cause


class ErrorAction(StrEnum):
    """What to do about a message or a modal that Slack refused."""

    REDIRECT = "redirect"
    """The channel does not accept it: send a direct message to the user."""
    GONE = "gone"
    """What was to be edited is no longer there, or has changed since: leave it."""
    EXPIRED = "expired"
    """The trigger is too old: the user has to start again."""
    DONE = "done"
    """The trigger has been used: a copy of this request opened the modal."""
    PAUSE = "pause"
    """The workspace accepts nothing from this app: delay everything and retry later."""
    RETRY = "retry"
    """Nothing was done: retry later."""
    RECONCILE = "reconcile"
    """Slack failed, and it may have been done: find out before it is sent again."""
    REWRITE = "rewrite"
    """The message itself is refused: send its text alone."""
    WITHOUT_METADATA = "without_metadata"
    """The message's metadata are refused: send it without them."""
    WITHOUT_FILE = "without_file"
    """The workspace takes no file, or none like this: do without it."""


ERROR_ACTIONS: Final = {
    code: action
    for action, codes in {
        ErrorAction.REDIRECT: """
            access_denied as_user_not_supported cannot_reply_to_message channel_not_found
            channel_type_not_supported ekm_access_denied invalid_channel is_archived is_inactive
            messages_tab_disabled method_not_supported_for_channel_type not_in_channel
            posting_to_channel_denied restricted_action restricted_action_non_threadable_channel
            restricted_action_read_only_channel restricted_action_thread_locked
            restricted_action_thread_only_channel send_on_behalf_not_allowed
            slack_connect_blocked_file_type
            slack_connect_canvas_sharing_blocked slack_connect_clip_sharing_blocked
            slack_connect_file_link_sharing_blocked slack_connect_file_upload_sharing_blocked
            slack_connect_lists_sharing_blocked team_access_not_granted team_not_found
            thread_not_found user_not_found user_not_in_channel
        """,
        ErrorAction.GONE: """
            cant_update_message edit_window_closed external_channel_migrating hash_conflict
            message_not_found not_enabled not_found not_implemented streaming_state_conflict
        """,
        ErrorAction.EXPIRED: """
            expired_trigger_id invalid_trigger_id trigger_expired
        """,
        ErrorAction.DONE: """
            exchanged_trigger_id trigger_exchanged
        """,
        ErrorAction.PAUSE: """
            account_inactive enterprise_is_restricted invalid_auth is_bot missing_scope
            no_permission not_allowed_token_type not_authed org_login_required team_added_to_org
            token_expired token_revoked two_factor_setup_required
        """,
        ErrorAction.REWRITE: """
            alt_txt_too_large attachment_payload_limit_exceeded block_mismatch blocked_file_type
            cant_broadcast_message channels_limit_exceeded deprecated_endpoint draft_already_deleted
            draft_already_sent draft_has_conflict draft_not_found duplicate_channel_not_found
            duplicate_external_id duplicate_message_not_found file_deleted file_is_deleted
            file_not_found file_share_limit_reached invalid_arg_name invalid_arguments
            invalid_array_arg invalid_attachments invalid_blocks invalid_blocks_format
            invalid_charset invalid_form_data invalid_post_type markdown_text_conflict
            max_file_sharing_exceeded method_deprecated missing_argument missing_file_data
            missing_post_type msg_blocks_too_long msg_too_long
            no_dual_broadcast_content_update no_text push_limit_reached snippet_too_large
            too_many_attachments too_many_contact_cards unable_to_share_files unknown_method
            unknown_snippet_type unknown_subtype view_too_large
        """,
        ErrorAction.WITHOUT_METADATA: """
            invalid_metadata_format invalid_metadata_schema metadata_must_be_sent_from_app
            metadata_too_large
        """,
        ErrorAction.RETRY: """
            accesslimited message_limit_exceeded rate_limited ratelimited service_unavailable
            update_failed
        """,
        ErrorAction.RECONCILE: """
            fatal_error file_update_failed internal_error request_timeout
        """,
        ErrorAction.WITHOUT_FILE: """
            file_type_not_allowed file_upload_size_restricted file_uploads_disabled
            file_uploads_except_images_disabled storage_limit_reached
        """,
    }.items()
    for code in codes.split()
}

# They are logged, and shown to people: neither may hold anything but Slack's own words.
_CODE: Final = re.compile("[a-z0-9_]{1,60}")
_POINTER: Final = re.compile(r"json-pointer:(?:/(?:[a-z_]{1,40}|[0-9]{1,3})\b)+", re.ASCII)


@asynccontextmanager
async def translated(time_limit: timedelta, outages: Outages | None = None) -> AsyncIterator[None]:
    """Limit a call to Slack to ``time_limit``, and turn what it raises into an ``OutsideError``.

    ``outages`` notes whether Slack answered.

    Raises:
        Refused: with Slack's code; ``ERROR_ACTIONS`` says what to do.
        Unavailable: nothing was done.
        Uncertain: it may have been done.
    """
    try:
        async with asyncio.timeout(time_limit.total_seconds()):
            yield
    except Exception as error:
        failure = error if isinstance(error, OutsideError) else outside_error(error)
        if outages is not None and failure is not None:
            if failure.cause:
                outages.failed(failure.cause)
            elif isinstance(failure, Refused):
                outages.answered()
        if failure is None or failure is error:
            raise
        # The text of Slack's error may quote what people wrote: it must not get into a traceback.
        raise failure from (None if isinstance(error, SlackApiError) else error)
    if outages is not None:
        outages.answered()


def outside_error(error: BaseException) -> OutsideError | None:
    """Return what an exception of a call to Slack means; None if it is not about the call."""
    match error:
        case SlackApiError():
            return _failure(error)
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return Unavailable("Slack cannot be reached.", cause=cause_of(error))
        case TimeoutError() | aiohttp.ClientError() | SlackClientError() | OSError() | ValueError():
            return Uncertain("Slack's answer was lost.", cause=cause_of(error))
        case AttributeError() | RecursionError():  # not an object, or nested too deeply
            return Uncertain("Slack's answer could not be read.", cause="broken")
    return None


def _failure(error: SlackApiError) -> OutsideError:
    response = error.response
    # An error page of Slack's edge has an HTTP status and no code.
    status: int = (
        getattr(response, "status_code", None) or getattr(response, "status", None) or HTTPStatus.OK
    )
    code = details = ""
    if isinstance(data := getattr(response, "data", None), dict):
        said = data.get("error")
        code = said if isinstance(said, str) and _CODE.fullmatch(said) else ""
        # Only the places that are wrong: the rest may quote what people wrote.
        details = " ".join(_POINTER.findall(str(data.get("response_metadata"))))
    action = ERROR_ACTIONS.get(code)
    if status == HTTPStatus.TOO_MANY_REQUESTS or action is ErrorAction.RETRY:
        return Unavailable(f"Slack asks to wait ({code})", retry_after=_retry_after(response))
    if status != HTTPStatus.OK or not code or action is ErrorAction.RECONCILE:
        cause = http_cause(status) if status != HTTPStatus.OK else ""
        return Uncertain(f"Slack failed ({code or status})", cause=cause)
    return Refused(f"Slack refused ({code}) {details}".strip(), code=code)


def _retry_after(response: object) -> timedelta | None:
    with suppress(KeyError, ValueError, OverflowError):
        return timedelta(seconds=max(0, int(getattr(response, "headers", {})["Retry-After"])))
    return None
