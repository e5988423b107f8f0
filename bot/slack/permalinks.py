"""Links to messages, as Slack gives them: nothing documents how to build one."""

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import OutsideError
from bot.model import Delivery
from bot.slack.blocks import link
from bot.slack.errors import translated
from bot.timings import CallTimings


async def permalink(client: AsyncWebClient, posted: Delivery, timings: CallTimings) -> str:
    """Return the link to a message that is in Slack; "" if Slack does not give it.

    It needs no scope: https://docs.slack.dev/reference/methods/chat.getPermalink.
    """
    try:
        async with translated(timings.call_timeout):
            answer = await client.chat_getPermalink(
                channel=posted.channel, message_ts=posted.ts or ""
            )
    except OutsideError:
        return ""
    given = answer.get("permalink")
    return link(given) or "" if isinstance(given, str) else ""
