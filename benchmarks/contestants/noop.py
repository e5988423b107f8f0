"""A Bolt app that acknowledges one sort of request and does nothing, behind Bolt's own server."""

import argparse
import asyncio
import re

from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult

from benchmarks.contestants import announce, asked_to_end
from benchmarks.payloads import PATH, SECRET, TOKEN


async def _authorize() -> AuthorizeResult:
    # A token that is known: nothing goes out to Slack.
    return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=TOKEN)


def application(listener: str, *, before_response: bool) -> AsyncApp:
    """Return an app with one listener that acknowledges at once.

    Args:
        listener: "command", "submission", "action", "options", or "none" for an app without any.
        before_response: Bolt answers when the listener returns; otherwise it looks for the
            acknowledgement every 10 ms, which is its default.
    """
    app = AsyncApp(
        signing_secret=SECRET,
        authorize=_authorize,
        process_before_response=before_response,
    )

    async def acknowledge(ack: AsyncAck) -> None:
        await ack()

    async def offer_nothing(ack: AsyncAck) -> None:
        await ack(options=[])

    match listener:
        case "command":
            app.command("/video")(acknowledge)
        case "submission":
            app.view("create_video")(acknowledge)
        case "action":
            app.action(re.compile(""))(acknowledge)
        case "options":
            app.options("video_replica")(offer_nothing)
    return app


async def main() -> None:
    """Serve until the process is asked to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("listener", choices=["command", "submission", "action", "options", "none"])
    parser.add_argument("--mode", choices=["default", "before_response"], default="default")
    chosen = parser.parse_args()
    app = application(chosen.listener, before_response=chosen.mode == "before_response")
    # The application that app.start() would serve, with no log of each access.
    runner = web.AppRunner(app.server(0, PATH).web_app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    announce(port=runner.addresses[0][1])
    await asked_to_end()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
