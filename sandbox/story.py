"""A short story of the bot at work, played in the terminal."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TextIO

from bot.timings import PollSchedule, SystemClock, Timings
from sandbox.driver import Person
from sandbox.running import REPLICA, Sandbox, running
from sandbox.scenarios import CallbackPlan, Ending, Pace, Scenario
from sandbox.service_jobs import Replica, Video
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message
from sandbox.transcript import Narrator

# Short enough to watch. The people of the story act about as often as a job is polled.
_STEP: Final = timedelta(seconds=1)
_POLLING: Final = PollSchedule(
    first_interval=_STEP,
    growth=0.2,
    max_interval=timedelta(seconds=2),
    late_after=timedelta(seconds=20),
    overdue_after=timedelta(minutes=1),
    overdue_interval=timedelta(seconds=5),
    give_up_after=timedelta(hours=1),
)
_TIMINGS: Final = Timings(
    minutes=_POLLING,
    hours=_POLLING,
    retry_interval=timedelta(milliseconds=200),
    reconcile_within=timedelta(seconds=8),
    post_hold=timedelta(seconds=2),
    callback_spacing=timedelta(milliseconds=200),
)
_PACE: Final = Pace(queued=_STEP, generating=2 * _STEP, training=3 * _STEP, training_steps=3)
_TIMEOUT: Final = timedelta(minutes=1)
_LOOK_S: Final = 0.1
# Three videos, a training, and a video with the replica that was trained.
_REPLIES: Final = 5
_FILES: Final = 4
_ENDS: Final[Mapping[Ending, str]] = {
    "success": "is ready",
    "error": "failed",
    "deleted": "was deleted",
    "never": "never ends",
}


async def play(out: TextIO, *, socket_mode: bool = False) -> int:
    """Play the story, write to ``out`` what its people see, and return an exit code."""
    async with running(SystemClock(), _PACE, _TIMINGS, socket_mode=socket_mode) as sandbox:
        print(_INTRODUCTION.format(sandbox=sandbox), file=out, flush=True)
        narrator = Narrator(sandbox.slack, out)
        sandbox.service.on_learned = lambda job: narrator.note(_learned(job))
        try:
            async with asyncio.timeout(_TIMEOUT.total_seconds()):
                await _play(sandbox)
        except (TimeoutError, LookupError):  # no form opened
            print("The story did not come to its end: something is wrong.", file=out)
            if sandbox.limited:
                print("The settings limit what its people may ask for: unset them.", file=out)
            return 1
        narrator.stop()
    return 0


async def _play(sandbox: Sandbox) -> None:
    ana, ben = Person(sandbox.slack, "ana"), Person(sandbox.slack, "ben")

    await _request_video(ana, "Welcome to the team, Kim!", background="http://localhost/office")
    await _pause()
    # The link was wrong. Ana corrects it, and has nothing else to type again.
    await ana.form.submit({"background_url": "https://example.com/office"})
    await _pause()
    # No callback announces this one: the bot has to poll.
    sandbox.service.next_video(Scenario(callback_plan=CallbackPlan(times=0)))
    await _request_video(ben, "Our numbers for the third quarter, in one minute.")
    await _pause()
    reason = "The script contains a name that this replica may not say."
    sandbox.service.next_video(Scenario(end="error", reason=reason))
    await _request_video(ana, "A few words on our competitors.")
    await _pause()
    await _train_replica(ben, "Ben")
    _, trained, *_ = await _closing_replies(sandbox.slack, 2, to=ben.user.id)
    await _pause()
    await ben.click(trained, "Use in a video")
    await ben.form.submit({"script": "This is me, and I did not have to say it."})
    await _closing_replies(sandbox.slack, _REPLIES, files=_FILES)


async def _request_video(person: Person, script: str, background: str = "") -> None:
    await person.command("/video", script, "studio")
    await _pause()
    values = {"replica_id": REPLICA}
    if background:
        await person.form.choose("background", "background_url")
        values["background_url"] = background
    await person.form.submit(values)


async def _train_replica(person: Person, name: str) -> None:
    await person.command("/replica", "", "studio")
    await _pause()
    footage = "https://storage.example.com/ben.mp4"
    await person.form.submit({"train_video_url": footage, "replica_name": name, "agreed": ["yes"]})


async def _pause() -> None:
    await asyncio.sleep(_STEP.total_seconds())


def _learned(job: Video | Replica) -> str:
    """Return a line on how the bot learned of a job's end."""
    end = f"“{job.title}” {_ENDS[job.end]}"
    if job.learned_by == "callback":
        return f"video service → bot  by callback: {end}"
    return f"bot → video service  by polling, without a callback: {end}"


async def _closing_replies(
    slack: SandboxSlack, number: int, *, to: str = "", files: int = 0
) -> list[Message]:
    """Return the closing replies, which are those in threads, once there are this many.

    Args:
        slack: where they are.
        number: how many there have to be.
        to: the id of the person whom they notify; by default anybody.
        files: how many files there have to be below all of them.
    """
    while True:
        in_threads = [each for each in slack.everything("studio") if each.thread_ts]
        shared = [each for each in in_threads if each.files]
        replies = [each for each in in_threads if not each.files and (not to or to in each.pings)]
        if len(replies) >= number and len(shared) >= files:
            return replies
        await asyncio.sleep(_LOOK_S)


_INTRODUCTION: Final = """\
The real bot, with a Slack and a video service that run on this machine only:
  Slack          {sandbox.slack.url}
  video service  {sandbox.service.url}
Below is what the people in this Slack see, as it happens.
"""
