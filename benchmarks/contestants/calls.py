"""The calls of a job and nothing else: what a bot of these libraries can do that keeps nothing.

Bolt in its fastest mode takes the form, then come a create call over a connection of its own, the
card, a read, an edit of the card and the closing reply, 64 jobs at once, with the same clients as
ours. There is no database, no check of what was typed, and no word about what goes wrong.
"""

import argparse
import asyncio
import json
from typing import Any, Final

import aiohttp
from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.contestants import announce, asked_to_end
from benchmarks.payloads import PATH, SECRET, TOKEN
from bot.service.client import Clients, connect

_AT_ONCE: Final = 64
BLOCKS: Final[list[dict[str, Any]]] = [
    {"type": "section", "text": {"type": "mrkdwn", "text": "*Video* · Rendering"}},
    {"type": "section", "text": {"type": "mrkdwn", "text": "The answer comes into this thread."}},
    {"type": "context", "elements": [{"type": "mrkdwn", "text": "replica r-anna"}]},
]


class _Calls:
    """Makes the calls of each job."""

    def __init__(self, slack: AsyncWebClient, service: str, clients: Clients) -> None:
        self._slack = slack
        self._videos = f"{service}/v2/videos"
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._clients = clients

    async def make(self, channel: str) -> None:
        """Make the calls of one job."""
        async with self._slots:
            asked = {"script": "Welcome to the team!", "replica_id": "r-anna"}
            video = (await self._clients.creating.post(self._videos, json=asked)).json()
            card = await self._slack.chat_postMessage(
                channel=channel, text="Rendering", blocks=BLOCKS
            )
            (await self._clients.reading.get(f"{self._videos}/{video['video_id']}")).json()
            await self._slack.chat_update(
                channel=channel, ts=card["ts"], text="Ready", blocks=BLOCKS
            )
            await self._slack.chat_postMessage(
                channel=channel, thread_ts=card["ts"], text="Ready", blocks=BLOCKS
            )


async def _authorize() -> AuthorizeResult:
    return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=TOKEN)


async def main() -> None:
    """Serve until the process is asked to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slack-url", required=True)
    parser.add_argument("--service-url", required=True)
    chosen = parser.parse_args()
    slack = AsyncWebClient(TOKEN, base_url=chosen.slack_url, session=aiohttp.ClientSession())
    app = AsyncApp(
        client=slack, signing_secret=SECRET, authorize=_authorize, process_before_response=True
    )
    async with connect() as clients, asyncio.TaskGroup() as group:
        calls = _Calls(slack, chosen.service_url, clients)

        @app.view("create_video")
        async def take(ack: AsyncAck, view: dict[str, Any]) -> None:
            channel = view["state"]["values"]["where"]["where"]["selected_conversation"]
            place = json.loads(view["private_metadata"])
            group.create_task(calls.make(channel or place["channel"]))
            await ack()

        runner = web.AppRunner(app.server(0, PATH).web_app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        announce(port=runner.addresses[0][1])
        await asked_to_end()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
