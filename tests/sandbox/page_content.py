"""What there is to see on the page in tests of its looks."""

from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan, Scenario
from tests.world import REPLICA, World

SCRIPT = "Welcome to the team, Kim!"


async def has_everything(world: World) -> None:
    """Have cards of every look in the channel, and ephemeral messages."""
    await world.ana.command("/replica", f"add {REPLICA}")
    await world.request_video(world.ana, {"script": SCRIPT, "video_name": "Kim's first day"})
    world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    await world.request_video(world.ben, {"script": "A few words on our competitors."})
    await world.request_replica(world.ben, {"replica_name": "Ben"})
    await world.advance(minutes=10)
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    await world.request_video(world.ana, {"script": "Our numbers in one minute."})
    await world.advance(minutes=16)
    await world.ana.command("/video", "list")
    world.ben.say("Thank you, *@ana*! `Nice`, see https://example.com and _this_:\n> well said")
    await world.settle()
