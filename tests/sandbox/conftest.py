"""The sandbox's Slack, and a client of it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.clock import ManualClock
from sandbox.slack import SandboxSlack


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[SandboxSlack]:
    slack = SandboxSlack(clock)
    await slack.start()
    yield slack
    await slack.stop()


@pytest.fixture
async def client(slack: SandboxSlack) -> AsyncIterator[AsyncWebClient]:
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(
            slack.bot_token, base_url=slack.api_url, session=session, retry_handlers=[]
        )
