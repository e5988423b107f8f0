"""The evaluation of benchmark figures: which goals are met, and when a small run fails."""

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.measure import Better, Case, Row, Scale


def row(ratio: float, better: Better, goal: float | None, bound: float | None = None) -> Row:
    # One pair in three is disturbed, as on a machine that others share.
    ours, baseline = (10 * ratio, 2 * ratio, 900 * ratio), (10, 2, 3)
    return Row("case", "what", "s", better, ours, "baseline", baseline, goal, bound)


@pytest.mark.parametrize(
    ("ratio", "better", "met", "far"),
    [
        (0.81, Better.HIGHER, True, False),
        (0.79, Better.HIGHER, False, False),
        (0.41, Better.HIGHER, False, False),
        (0.39, Better.HIGHER, False, True),
        (0.79, Better.LOWER, True, False),
        (0.81, Better.LOWER, False, False),
        (1.59, Better.LOWER, False, False),
        (1.61, Better.LOWER, False, True),
    ],
)
def test_a_ratio_is_far_outside_beyond_twice_its_goal(
    ratio: float, better: Better, *, met: bool, far: bool
) -> None:
    result = row(ratio, better, 0.8)
    assert (round(result.ratio, 2), result.met, result.far) == (ratio, met, far)


def test_a_separate_limit_counts_where_a_goal_is_out_of_reach() -> None:
    assert not row(20, Better.LOWER, 1.5, 25).met
    assert not row(20, Better.LOWER, 1.5, 25).far
    assert row(26, Better.LOWER, 1.5, 25).far
    assert row(0.3, Better.HIGHER, 1.5, 0.4).far


def test_an_informational_ratio_fails_nothing() -> None:
    assert row(99, Better.LOWER, None).met
    assert not row(99, Better.LOWER, None).far


@pytest.mark.parametrize(
    ("arguments", "ratios", "code"),
    [(["--small"], [0.3, 0.3], 1), (["--small"], [0.3, 0.7], 0), ([], [0.3], 0)],
)
def test_a_small_run_fails_if_a_ratio_is_far_outside_twice(
    arguments: list[str], ratios: list[float], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: Scale) -> list[Row]:
        return [row(1, Better.HIGHER, 0.8), row(ratios.pop(0), Better.HIGHER, 0.8)]

    # What it allows itself would stay with this process.
    monkeypatch.setattr(benchmarks, "_allow_files", lambda: None)
    monkeypatch.setattr(benchmarks, "CASES", (Case("case", run),))
    assert benchmarks.main(arguments) == code
    assert not ratios
