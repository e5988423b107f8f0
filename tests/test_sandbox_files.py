"""Files in the sandbox's Slack: uploaded by people, read by an app that has the scope."""

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


async def test_an_app_reads_an_uploaded_file_with_its_token_and_the_scope() -> None:
    slack = SandboxSlack(ManualClock())
    await slack.start()
    try:
        client = AsyncWebClient(slack.bot_token, slack.api_url)
        shown = slack.upload("ana", "script.txt", "Olá".encode())
        said = (await client.files_info(file=shown["id"])).data
        assert isinstance(said, dict)
        assert said["file"] == shown
        assert (shown["size"], shown["filetype"], shown["mimetype"]) == (4, "text", "text/plain")
        async with aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {slack.bot_token}"}
            async with session.get(shown["url_private_download"], headers=headers) as answer:
                assert await answer.read() == "Olá".encode()
            async with session.get(shown["url_private_download"]) as answer:
                assert (answer.status, answer.content_type) == (200, "text/html")
        with pytest.raises(SlackApiError, match="file_not_found"):
            await client.files_info(file="F0NONE")

        trigger = slack.new_trigger(slack.user("ana").id, None)
        slack.scopes.discard("files:read")
        with pytest.raises(SlackApiError, match="missing_scope"):
            await client.files_info(file=shown["id"])
        with pytest.raises(SlackApiError, match="files:read"):
            await client.views_open(trigger_id=trigger, view=FORM)
    finally:
        await slack.stop()


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
