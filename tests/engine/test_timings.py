"""How long the bot waits: longer waits are spread, and none is longer than the longest."""

import random
from datetime import timedelta

import pytest

from bot.timings import Timings

TIMINGS = Timings(jitter=0.1)


def test_a_lease_outlasts_what_takes_longest() -> None:
    assert max(TIMINGS.transfer_timeout, TIMINGS.call_timeout) < TIMINGS.lease


def test_waits_of_any_length_are_spread_and_none_is_beyond_the_longest(
    subtests: pytest.Subtests,
) -> None:
    for wait in [timedelta(seconds=2), TIMINGS.max_wait, 3 * TIMINGS.max_wait]:
        with subtests.test(wait=wait):
            rng = random.Random(1)  # noqa: S311 - the same each time

            waits = [TIMINGS.jittered(wait, rng) for _ in range(200)]

            longest = min(1.1 * wait, TIMINGS.max_wait)
            assert longest / 1.1 - timedelta(milliseconds=1) <= min(waits)
            assert max(waits) <= longest
            # They come over the whole tenth, also where all would be at the limit.
            assert max(waits) - min(waits) > 0.08 * longest
            assert len(set(waits)) > 190
