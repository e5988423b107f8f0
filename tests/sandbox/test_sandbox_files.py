"""Files in the sandbox's Slack: uploaded by people, read by an app that has the scope."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from sandbox.block_kit import Json
from sandbox.clock import ManualClock
from sandbox.driver import ClientRefusal, Modal
from sandbox.slack import SandboxSlack

FORM: Json = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "A form"},
    "submit": {"type": "plain_text", "text": "Send"},
    "blocks": [
        {
            "type": "input",
            "block_id": "file",
            "label": {"type": "plain_text", "text": "File"},
            "element": {
                "type": "file_input",
                "action_id": "file",
                "filetypes": ["text"],
                "max_files": 1,
            },
        }
    ],
}


def test_a_person_can_only_enter_their_own_files_of_the_allowed_types() -> None:
    slack = SandboxSlack(ManualClock())
    view = slack.open_view(slack.new_trigger(slack.user("ana").id, None), FORM)
    modal = Modal(slack, view)
    for owner, name, size in (
        ("ben", "a.txt", 1),
        ("ana", "a.pdf", 1),
        ("ana", "a.txt", 10**7 + 1),
    ):
        file = slack.upload(owner, name, b"a" * size)
        with pytest.raises(ClientRefusal):
            modal.type({"file": {"file": [file["id"]]}}, finished=True)
    first, second = (slack.upload("ana", name, b"a")["id"] for name in ("a.txt", "B.TXT"))
    with pytest.raises(ClientRefusal, match="no more than 1"):
        modal.type({"file": {"file": [first, second]}}, finished=True)
    modal.type({"file": {"file": [second]}}, finished=True)
    assert [file["name"] for file in modal.values["file"]] == ["B.TXT"]


# ── Files of the app ──────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def uploading() -> AsyncIterator[tuple[SandboxSlack, AsyncWebClient]]:
    slack = SandboxSlack(ManualClock())
    await slack.start()
    try:
        yield slack, AsyncWebClient(slack.bot_token, slack.api_url)
    finally:
        await slack.stop()


async def send(url: str, content: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=content) as answer:
        return answer.status


async def upload(client: AsyncWebClient, content: bytes = b"Hello") -> str:
    said = await client.files_getUploadURLExternal(filename="a.txt", length=len(content))
    assert await send(said["upload_url"], content) == 200
    return str(said["file_id"])


async def test_an_upload_is_completed_once_and_its_url_is_used_once() -> None:
    async with uploading() as (slack, client):
        said = await client.files_getUploadURLExternal(filename="a.txt", length=5)
        url, file = said["upload_url"], str(said["file_id"])
        channel = slack.channel("studio").id
        complete = partial(
            client.files_completeUploadExternal, files=[{"id": file}], channel_id=channel
        )
        with pytest.raises(SlackApiError, match="file_not_found"):
            await complete()
        assert await send(url, b"Hello, world") == 400
        assert await send(url, b"Hello") == 200
        assert await send(url, b"Hello") == 404
        assert await send(f"{url}x", b"Hello") == 404
        await complete()
        with pytest.raises(SlackApiError, match="file_not_found"):
            await complete()
        assert len(slack.messages("studio")) == 1


async def test_what_slack_does_not_share_stays_as_it_is(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"channel_id": "U000000001"}, "invalid_arguments"),
        ({"channel_id": "C999999999"}, "channel_not_found"),
        ({"channel_id": "vault"}, "channel_not_found"),
        ({"channel_id": "lobby"}, "not_in_channel"),
        ({"channel_id": "attic"}, "posting_to_channel_denied"),
        ({"thread_ts": "1.000001"}, "thread_not_found"),
        ({"files": [{"id": "F0NONE"}]}, "file_not_found"),
        ({"files": []}, "invalid_arguments"),
    ]
    for arguments, code in cases:
        with subtests.test(arguments=arguments, code=code):
            async with uploading() as (slack, client):
                names = {each.name: each.id for each in slack.channels.values()}
                place = arguments.get("channel_id", "studio")
                file = await upload(client)
                asked = {
                    "files": [{"id": file}],
                    **arguments,
                    "channel_id": names.get(place, place),
                }
                with pytest.raises(SlackApiError, match=code):
                    await client.files_completeUploadExternal(**asked)
                await client.files_completeUploadExternal(
                    files=[{"id": file}], channel_id=names["studio"]
                )
                assert len(slack.messages("studio")) == 1


async def test_an_upload_needs_the_scope_a_name_and_a_length() -> None:
    async with uploading() as (slack, client):
        for name, length in (("", 5), ("a.txt", 0)):
            with pytest.raises(SlackApiError, match="missing_argument"):
                await client.files_getUploadURLExternal(filename=name, length=length)
        file = await upload(client)
        slack.scopes.discard("files:write")
        with pytest.raises(SlackApiError, match="missing_scope"):
            await client.files_getUploadURLExternal(filename="a.txt", length=5)
        with pytest.raises(SlackApiError, match="missing_scope"):
            await client.files_completeUploadExternal(files=[{"id": file}])
