"""Writes of the engine while it is being stopped."""

import asyncio

import pytest

from bot.engine.steps import uncancelled


class Write:
    """A write that ends on request."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.done = False

    async def run(self) -> bool:
        """Write."""
        self.begun.set()
        await self.may_end.wait()
        self.done = True
        return True


async def test_the_write_of_an_outcome_ends_although_its_step_is_cancelled() -> None:
    write = Write()
    step = asyncio.create_task(uncancelled(write.run()))  # noqa: TID251 - awaited below
    await write.begun.wait()
    step.cancel()
    await asyncio.sleep(0)
    assert not step.done()

    write.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await step
    assert write.done


async def test_a_write_that_does_not_end_does_not_keep_the_process_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.engine.steps._LAST_WRITE_S", 0.01)
    write = Write()
    step = asyncio.create_task(uncancelled(write.run()))  # noqa: TID251 - awaited below
    await write.begun.wait()
    step.cancel()

    with pytest.raises(asyncio.CancelledError):
        await step
    assert not write.done
