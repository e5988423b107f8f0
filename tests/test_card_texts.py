"""Every text of cards and closing replies, to be read aloud: what a state says, word for word."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from bot.model import Failure, Job, Snapshot, State, Verdict
from bot.slack.blocks import Message, title
from bot.slack.cards import card
from bot.slack.messages import redirected
from bot.slack.presenters import state_word
from bot.slack.replies import reply
from sandbox import mrkdwn
from sandbox.block_kit import objects
from tests.test_cards import (
    ANA,
    FILE,
    JOB,
    NINE,
    PRESENTER,
    PRESENTERS,
    READY,
    REPLICA_PRESENTER,
    TRAINED,
    TRAINING,
    WATCH,
    buttons,
    in_training,
)

RETRY: Final = "https://sandbox.slack.com/archives/C0STUDIO/p1772442000000100"
SMALL: Final = f"Requested by <@{ANA}> · Replica: Anna"
MINE: Final = f"Requested by <@{ANA}>"
LINKS: Final = f"<{WATCH}|Watch>\n<{FILE}|Download>"
AGO: Final = "<!date^1772442000^{ago}|2026-03-02 09:00 UTC>"
AT: Final = "<!date^1772442000^{date_short_pretty} at {time}|2026-03-02 09:00 UTC>"


def job(state: State, **changes: Any) -> Job:  # noqa: ANN401 - a job's own fields
    return replace(JOB, state=state, **changes)


def rendering(progress: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    facts = {"generation_progress": progress} if progress else {}
    snapshot = Snapshot("v1", "generating", Verdict.GOING, facts=facts)
    usual = timedelta(minutes=2, seconds=10)
    return replace(
        job(State.RUNNING, snapshot=snapshot, started_at=NINE, typical_duration=usual), **changes
    )


def failed(failure: Failure, reason: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    return job(State.FAILED, failure=failure, reason=reason, ended_at=NINE, **changes)


def deleted(reason: str) -> Job:
    gone = Snapshot("v1", "deleted", Verdict.FAILED, reason)
    return failed(Failure.SERVICE_FAILED, reason, snapshot=gone, remote_id="v1")


WELL: Final = job(State.SUCCEEDED, remote_id="v1", snapshot=READY, ended_at=NINE)
TRAINED_JOB: Final = replace(
    TRAINING, state=State.SUCCEEDED, remote_id="r1", snapshot=TRAINED, ended_at=NINE
)
BAD_FOOTAGE: Final = replace(
    TRAINING,
    state=State.FAILED,
    failure=Failure.SERVICE_FAILED,
    reason="The file could not be downloaded.",
)

CARDS: Final[dict[str, tuple[Job, str, list[str]]]] = {
    "new": (job(State.QUEUED), f"Video “Greeting”: Sending your request…\n{SMALL}", ["Details"]),
    "out of reach": (
        job(State.QUEUED, failures=3),
        (
            "Video “Greeting”: Waiting.\nI can't send this right now. I'll keep trying; you don't "
            f"need to do anything.\n{SMALL}"
        ),
        ["Details"],
    ),
    "no credit": (
        job(State.QUEUED, held_by=Failure.OUT_OF_CREDIT, held_until=NINE),
        (
            "Video “Greeting”: Waiting.\nThe video service's account is out of credit. Please tell "
            f"the person who manages that account. Next try: {AT}, then every few minutes, and at "
            f"once with the next request. I'll keep trying for a day, so you don't need to ask "
            f"again.\n{SMALL}"
        ),
        ["Details"],
    ),
    "unclear": (
        job(State.UNCONFIRMED),
        (
            "Video “Greeting”: Checking.\nThe video service gave no clear answer. I'm waiting for "
            f"it to confirm before anything is sent again, so that nobody pays twice.\n{SMALL}"
        ),
        ["Details"],
    ),
    "running": (
        rendering(),
        f"Video “Greeting”: Rendering, usually about 2 min. I'll reply here.\n{SMALL}",
        ["Stop following", "Details"],
    ),
    "the first of its kind": (
        rendering(typical_duration=None),
        f"Video “Greeting”: Rendering. I'll reply here.\n{SMALL}",
        ["Stop following", "Details"],
    ),
    "with progress": (
        rendering("40/100"),
        f"Video “Greeting”: Rendering, usually about 2 min. I'll reply here.\n40% done.\n{SMALL}",
        ["Stop following", "Details"],
    ),
    "not readable now": (
        rendering(failures=3),
        "Video “Greeting”: Rendering.\nI can't check this right now. I'll keep trying.\n" + SMALL,
        ["Stop following", "Details"],
    ),
    "waiting for its replica": (
        rendering(waits_for="r1", late=True),
        (
            "Video “Greeting”: Waiting for its replica.\nAnna is still training. The video starts "
            f"when it's ready.\n{SMALL}"
        ),
        ["Stop following", "Details"],
    ),
    "late": (
        rendering(late=True),
        (
            "Video “Greeting”: Rendering is taking longer than usual. I'm still checking.\n"
            f"Started {AGO}, usually about 2 min.\n{SMALL}"
        ),
        ["Stop following", "Details"],
    ),
    "slower than 9 of 10": (
        rendering(slow=True, slow_after=timedelta(minutes=4)),
        (
            "Video “Greeting”: Rendering is taking longer than usual. I'm still checking.\n"
            f"Started {AGO}, usually about 2 min. Slower than 9 of 10.\n{SMALL}"
        ),
        ["Stop following", "Details"],
    ),
    "overdue": (
        rendering(state=State.OVERDUE),
        (
            "Video “Greeting”: Overdue.\nThis is taking far longer than usual. I'll keep checking "
            f"now and then.\n{SMALL}"
        ),
        ["Check now", "Stop following", "Details"],
    ),
    "ready": (
        WELL,
        f"Video “Greeting”: Ready.\n{SMALL}\n{LINKS}",
        ["Watch", "Download", "Share to…", "Another like this", "Details"],
    ),
    "ready without a link": (
        replace(WELL, snapshot=Snapshot("v1", "ready", Verdict.SUCCEEDED)),
        f"Video “Greeting”: Ready, but the video service gave no link that I can show.\n{SMALL}",
        ["Check now", "Another like this", "Details"],
    ),
    "ready twice": (
        replace(WELL, orphaned_ids=("v0",)),
        (
            "Video “Greeting”: Ready.\nAn earlier video was created after all and may be charged "
            f"too: see *Details*.\n{SMALL}\n{LINKS}"
        ),
        ["Watch", "Download", "Share to…", "Another like this", "Details"],
    ),
    "failed": (
        failed(Failure.SERVICE_FAILED, "The replica is <shy>."),
        f"Video “Greeting”: Failed.\n“The replica is &lt;shy&gt;.”\n{SMALL}",
        ["Edit and retry", "Details"],
    ),
    "failed without a reason": (
        failed(Failure.SERVICE_FAILED, " \n"),
        f"Video “Greeting”: Failed.\nThe video service didn't say why.\n{SMALL}",
        ["Edit and retry", "Details"],
    ),
    "refused": (
        failed(Failure.REFUSED, "Script too long"),
        (
            "Video “Greeting”: Failed.\n“Script too long” The video service refused the request; "
            f"nothing was created.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "refused without a reason": (
        failed(Failure.REFUSED, "The video service answered 400 without saying why."),
        (
            "Video “Greeting”: Failed.\nThe video service refused the request and didn't say why; "
            f"nothing was created.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "key rejected": (
        failed(Failure.KEY_REJECTED),
        (
            "Video “Greeting”: Failed.\nThe video service doesn't accept this bot's key; nothing "
            f"was created. Please tell the person who runs this bot.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "never sent": (
        failed(Failure.UNREACHABLE, "The video service cannot be reached."),
        (
            "Video “Greeting”: Failed.\nI couldn't send this to the video service in time, so I "
            f"stopped trying; nothing was created.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "gone": (
        failed(Failure.NOT_FOUND, "Invalid video_id"),
        (
            "Video “Greeting”: Failed.\n“Invalid video_id” The video service can't find this video "
            f"any more. It may have been deleted.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "never finished": (
        failed(Failure.TIMED_OUT, remote_id="v1"),
        (
            "Video “Greeting”: Failed.\nIt took far too long, so I stopped checking. It may still "
            f"be created and charged.\n{SMALL}"
        ),
        ["Edit and retry", "Check now", "Details"],
    ),
    "cancelled": (
        failed(Failure.CANCELLED),
        (
            "Video “Greeting”: Cancelled.\nWe don't know whether this video was created. If it "
            f"turns up, this message will say so.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "not answered": (
        failed(Failure.UNANSWERED),
        (
            "Video “Greeting”: Cancelled.\nNobody could say whether this video was created, so I "
            f"stopped waiting. If it turns up, this message will say so.\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "stopped": (
        failed(Failure.STOPPED, remote_id="v1"),
        "Video “Greeting”: Stopped following.\nIt may still be created and charged.\n" + SMALL,
        ["Edit and retry", "Check now", "Details"],
    ),
    "stopped by an admin": (
        failed(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
        "Video “Greeting”: Stopped by an admin.\nIt may still be created and charged.\n" + SMALL,
        ["Edit and retry", "Check now", "Details"],
    ),
    "deleted": (
        deleted("The video was deleted"),
        f"Video “Greeting”: Deleted at the video service.\n{SMALL}",
        ["Edit and retry", "Details"],
    ),
    "deleted for a reason": (
        deleted("Deleted by an editor because of its music"),
        (
            "Video “Greeting”: Deleted at the video service.\n“Deleted by an editor because of its "
            f"music”\n{SMALL}"
        ),
        ["Edit and retry", "Details"],
    ),
    "erased": (
        failed(Failure.SERVICE_FAILED, erased=True, params={"replica_id": "r1"}),
        f"Video: Failed.\nThe video service didn't say why.\n{SMALL}",
        ["Details"],
    ),
}
TRAININGS: Final[dict[str, tuple[Job, str, list[str]]]] = {
    "the first training": (
        replace(TRAINING, state=State.RUNNING, started_at=NINE),
        f"Replica “Kim”: Training takes hours. I'll reply here.\nStarted {AGO}.\n{MINE}",
        ["Stop following", "Details"],
    ),
    "with progress": (
        replace(in_training("1/4"), typical_duration=timedelta(hours=3)),
        (
            "Replica “Kim”: Training, usually about 3 hours. I'll reply here.\n1 of 4 steps done. "
            f"Started {AGO}.\n{MINE}"
        ),
        ["Stop following", "Details"],
    ),
    "ready": (
        TRAINED_JOB,
        (
            f"Replica “Kim”: Ready to use by everyone in this workspace.\n{MINE}\n"
            f"<{FILE}|Preview replica>"
        ),
        ["Preview replica", "Use in a video", "Details"],
    ),
    "failed": (
        BAD_FOOTAGE,
        (
            "Replica “Kim”: Failed.\n“The file could not be downloaded.” Usually that means: the "
            f"link has to work for anyone, without signing in, for about 24 hours.\n{MINE}"
        ),
        ["Edit and retry", "Details"],
    ),
}
YOUR_VIDEO: Final = f"<@{ANA}> your video “Greeting”"
REPLIES: Final[dict[str, tuple[Job, str, list[str]]]] = {
    "ready": (WELL, f"{YOUR_VIDEO} is ready.\n{LINKS}\nTranscript: Hello, world.", []),
    "ready without a link": (
        CARDS["ready without a link"][0],
        (
            f"{YOUR_VIDEO} is ready, but the video service gave no link that I can show.\n"
            "Transcript: Hello, world."
        ),
        ["Check now"],
    ),
    "failed": (
        failed(Failure.SERVICE_FAILED, "Too dark."),
        f"{YOUR_VIDEO} couldn't be created.\n“Too dark.”",
        ["Edit and retry"],
    ),
    "no credit": (
        failed(Failure.OUT_OF_CREDIT, "No credit"),
        (
            f"{YOUR_VIDEO} couldn't be created.\n“No credit” The video service's account is out of "
            "credit; nothing was created. Please tell the person who manages that account. Once "
            "it's topped up, a new request is sent at once."
        ),
        ["Edit and retry"],
    ),
    "refused at the second try": (
        failed(Failure.REFUSED, "No", attempts=2, asked_at=NINE),
        (
            f"{YOUR_VIDEO} couldn't be created again.\n“No” The video service refused the request; "
            "this attempt created nothing, but an earlier one may have."
        ),
        ["Edit and retry"],
    ),
    "never finished": (
        failed(Failure.TIMED_OUT, remote_id="v1"),
        (
            f"{YOUR_VIDEO} didn't finish.\nIt took far too long, so I stopped checking. It may "
            "still be created and charged."
        ),
        ["Edit and retry", "Check now"],
    ),
    "cancelled": (
        failed(Failure.CANCELLED),
        (
            f"{YOUR_VIDEO} was cancelled.\nWe don't know whether this video was created. If it "
            "turns up, the message above will say so."
        ),
        ["Edit and retry"],
    ),
    "deleted": (
        deleted("The video was deleted"),
        f"{YOUR_VIDEO} was deleted at the video service.",
        ["Edit and retry"],
    ),
    "stopped": (
        failed(Failure.STOPPED, remote_id="v1"),
        "You stopped following this video. It may still be created and charged.",
        [],
    ),
    "stopped by an admin": (
        failed(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
        f"<@{ANA}> an admin stopped following your video. It may still be created and charged.",
        [],
    ),
    "trained": (
        TRAINED_JOB,
        (
            f"<@{ANA}> your replica “Kim” is ready to use by everyone in this workspace.\n"
            f"<{FILE}|Preview replica>"
        ),
        ["Use in a video"],
    ),
}


def labels(message: Message) -> list[str]:
    return list(buttons(message))


@pytest.mark.parametrize("state", CARDS)
def test_a_card_of_a_video_says_this_word_for_word(state: str) -> None:
    of, text, offered = CARDS[state]
    message = card(of, PRESENTER, replica="Anna")
    assert message.text == text
    assert labels(message) == offered


@pytest.mark.parametrize("state", TRAININGS)
def test_a_card_of_a_training_says_this_word_for_word(state: str) -> None:
    of, text, offered = TRAININGS[state]
    message = card(of, REPLICA_PRESENTER)
    assert message.text == text
    assert labels(message) == offered


@pytest.mark.parametrize("state", REPLIES)
def test_a_closing_reply_says_this_word_for_word(state: str) -> None:
    of, text, offered = REPLIES[state]
    message = reply(of, PRESENTERS[of.kind])
    assert message.text == text
    assert labels(message) == offered


@pytest.mark.parametrize("state", [*CARDS])
def test_a_card_shows_four_lines_at_most_and_small_print(state: str) -> None:
    message = card(CARDS[state][0], PRESENTER, replica="Anna")
    kinds = [block["type"] for block in message.blocks]
    lines = [line for kind in kinds if kind not in {"context", "actions"} for line in [kind]]
    shown = sum(
        1 + each["text"]["text"].count("\n") if each["type"] == "section" else 1
        for each in message.blocks
        if each["type"] in {"section", "rich_text"}
    )
    assert len(lines) <= shown <= 3, "and a line of buttons"
    assert kinds[0] == "rich_text"
    assert kinds[-1] == "actions"


def test_a_bar_is_drawn_for_those_who_see_it() -> None:
    [_, section, *_] = card(in_training("1/4"), REPLICA_PRESENTER).blocks
    assert section["text"]["text"] == (
        ":hourglass_flowing_sand: *Training* takes hours. I'll reply here.\n"
        f"`███░░░░░░░░░` 1 of 4 steps done. Started {AGO}."
    )
    assert "█" not in card(in_training("1/4"), REPLICA_PRESENTER).text, "it is read aloud"


@pytest.mark.parametrize(
    ("progress", "full"),
    [("0/7", 0), ("1/100", 0), ("50/100", 6), ("99/100", 12), ("3/3", 12), (" 1 / 2", None)],
)
def test_a_bar_is_as_full_as_the_training(progress: str, full: int | None) -> None:
    shown = str(card(in_training(progress), REPLICA_PRESENTER).blocks)
    assert shown.count("█") == (full or 0)
    assert shown.count("█") + shown.count("░") == (0 if full is None else 12)


def test_a_new_card_mentions_nobody_before_it_is_posted() -> None:
    message = card(JOB, PRESENTER, posted=False, replica="Anna")
    assert message.text == "Video “Greeting”: Sending your request…\nReplica: Anna"
    assert mrkdwn.pings(message.text, message.blocks) == set()


@pytest.mark.parametrize(
    ("retry", "said"), [(RETRY, f"Failed · <{RETRY}|Retried here>."), ("", "Failed · Retried.")]
)
def test_a_retried_card_links_to_the_retry_and_has_no_button_for_it(retry: str, said: str) -> None:
    of = failed(Failure.SERVICE_FAILED, "Too dark.")
    message = card(of, PRESENTER, retry=retry)
    assert message.text == f"Video “Greeting”: {said}\n“Too dark.”\n{MINE}"
    assert labels(message) == ["Details"]
    answer = reply(of, PRESENTER, retry=retry)
    assert labels(answer) == []
    assert answer.text.endswith(said.removeprefix("Failed · "))


def test_a_message_that_its_channel_refused_says_where_it_belongs_and_how_to_get_it_there() -> None:
    message = redirected(reply(WELL, PRESENTER), JOB)
    note = (
        "I couldn't post in <#C0STUDIO>, where you asked, so I'm sending this to you. "
        "If that channel is private, type `/invite @replica-videos` there."
    )
    assert message.text == f"{note}\n{REPLIES['ready'][1]}"
    assert message.blocks[0]["elements"][0]["text"] == note
    direct = redirected(reply(WELL, PRESENTER), replace(JOB, channel="D0BEN"))
    note = "I couldn't post where you asked, so I'm sending this to you."
    assert direct.text == f"{note}\n{REPLIES['ready'][1]}"


@pytest.mark.parametrize("failure", Failure)
def test_an_erased_job_cannot_be_retried(failure: Failure) -> None:
    of = failed(failure, erased=True, params={})
    for message in (card(of, PRESENTER), reply(of, PRESENTER)):
        assert "Edit and retry" not in labels(message)


def test_each_failure_has_a_sentence_of_its_own() -> None:
    assert len({card(failed(failure), PRESENTER).text for failure in Failure}) == len(Failure)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_word(state: State) -> None:
    assert state_word(job(state), PRESENTER)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Welcome", "Welcome"),
        ("Welcome to the team, " * 5, "Welcome to the team, Welcome to the team, Welcome to the…"),
        ("x" * 61, "x" * 59 + "…"),
        ("一" * 100, "一" * 59 + "…"),
    ],
)
def test_a_title_is_not_cut_in_the_middle_of_a_word(name: str, shown: str) -> None:
    assert title(name) == shown


def test_words_of_the_service_are_shown_letter_for_letter() -> None:
    of = failed(Failure.SERVICE_FAILED, "*No* `way` <!channel>")
    texts = [each["text"] for each in objects(card(of, PRESENTER).blocks) if "text" in each]
    assert "“*No* `way` <!channel>”" in texts
