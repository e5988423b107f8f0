"""What the commands do: the answers to help."""

from collections.abc import Sequence
from typing import Final

from bot.slack.views.blocks import Message, bullets, code, paragraph, rich, section, words

_ELSEWHERE: Final = (
    "In a thread, open a message's menu and choose *Make a video from this*. My *Home* tab "
    "shows all your requests."
)


def video_help(command: str, replica: str) -> Message:
    """Return the help of the video command; Slack knows it and the other one by these names."""
    return _help(
        "Turn a script into a video, right from Slack.",
        command,
        [
            ("", "open the form"),
            ("Welcome to the team!", "open it with that script"),
            ("list", "see your videos"),
            ("find <words>", "find a video by its name or script"),
            ("status <id>", "check a video"),
        ],
        f"Nothing is created until you press *Create*. {_ELSEWHERE}",
        (f"{replica} help", "see how to train a replica"),
    )


def replica_help(command: str, note: str = "") -> Message:
    """Return the help of the replica command, which Slack knows as ``command``, after a note."""
    intro = "Train a replica of a person from a video. It takes hours."
    return _help(
        f"{note} {intro}".lstrip(),
        command,
        [
            ("", "open the form"),
            ("list", "see replicas and your trainings"),
            ("status <id>", "check a replica"),
            ("add <id>", "let everyone here use a replica"),
            ("default <name or id>", "make a replica this channel's default"),
            ("default none", "clear this channel's default"),
            ("rename <name or id>", "edit its name and who can use it"),
            ("remove <name or id>", "remove a replica"),
        ],
        "Nothing is created until you press *Train*.",
    )


def short_help(video: str, replica: str) -> Message:
    """Return the help in a few lines, for commands that Slack knows by these names."""
    rows = [
        (f"{video} Welcome to the team!", "create a video"),
        (f"{video} list", "see your videos"),
        (replica, "train a replica"),
        (f"{video} help", "see all commands"),
    ]
    return _listed(
        "Turn a script into a video, right from Slack.",
        rows,
        _ELSEWHERE,
    )


def _help(
    intro: str, command: str, rows: Sequence[tuple[str, str]], end: str, *others: tuple[str, str]
) -> Message:
    typed = [(f"{command} {arguments}".rstrip(), purpose) for arguments, purpose in rows]
    return _listed(intro, [*typed, *others], end)


def _listed(intro: str, typed: Sequence[tuple[str, str]], end: str) -> Message:
    # A list, since a line that wraps has to be indented.
    items = [paragraph(code(line), words(f": {purpose}")) for line, purpose in typed]
    return Message.of([section(intro), rich(bullets(items)), section(end)])
