"""The invariants of files that the bot shares: one in a thread, where it says that one is."""

from collections.abc import Mapping
from typing import Any, Final

from sandbox.slack import FILE_CONTENT, SandboxSlack
from sandbox.slack_objects import Message

#: The calls that share a file: they are checked by what is shared.
UPLOADS: Final = frozenset(
    {"files.getUploadURLExternal", FILE_CONTENT, "files.completeUploadExternal", "files.info"}
)


class SharedFiles:
    """The files of a workspace, by channel and thread."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str | None], str] = {}

    def note(self, message: Message) -> str | None:
        """Note what a message shares; return what is wrong with that."""
        place = message.channel, message.thread_ts
        again = place in self._ids
        self._ids[place] = str(message.files[0]["id"])
        return f"a second file in the thread {place}" if again else None

    def check_final(self, delivery: Mapping[str, Any], slack: SandboxSlack) -> None:
        """Check that a file is in its thread, unless Slack refused it."""
        if delivery["state"] == "posted":
            place = delivery["channel"], delivery["thread_ts"]
            assert self._ids.get(place) == delivery["file_id"], "not shared"
        else:
            assert delivery["state"] == "undeliverable", delivery
            calls = [each for each in slack.calls if each.method in UPLOADS]
            assert any(call.fault or not call.ok for call in calls), "given up without a reason"
