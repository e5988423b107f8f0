"""What a case measures: figures of ours and of a baseline, taken in pairs, and their ratios."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

_FAR: Final = 2.0


class Better(StrEnum):
    """Which way a figure is good."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: figures of ours and of a baseline, taken in turn, pair by pair.

    ``goal`` is for the median of the ratios ours / baseline: at least so much where higher is
    better, at most so much where lower is. None where the line only informs. A small run fails
    beyond twice the goal; where that is out of reach, beyond ``bound``.
    """

    case: str
    what: str
    unit: str
    better: Better
    ours: Sequence[float]
    against: str
    baseline: Sequence[float]
    goal: float | None
    bound: float | None = None

    @property
    def ratio(self) -> float:
        """The median of ours / baseline, pair by pair."""
        return median(own / base for own, base in zip(self.ours, self.baseline, strict=True))

    @property
    def met(self) -> bool:
        """Whether the goal is reached; a line without one always does."""
        return self.goal is None or self._within(self.goal)

    @property
    def far(self) -> bool:
        """Whether the ratio is far outside: no noise of a shared machine does that."""
        if self.goal is None:
            return False
        twice = self.goal / _FAR if self.better is Better.HIGHER else self.goal * _FAR
        return not self._within(twice if self.bound is None else self.bound)

    def _within(self, ratio: float) -> bool:
        if self.better is Better.HIGHER:
            return self.ratio >= ratio
        return self.ratio <= ratio


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: ``rounds`` pairs; ``small`` is for each change, not for the table."""

    rounds: int
    small: bool
    hour: bool = False
    """The long run takes its hour."""

    def of(self, full: int, small: int) -> int:
        """Return the size of something that a small run does less of."""
        return small if self.small else full


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is measured, and gives one or more lines of the table."""

    name: str
    run: Callable[[Scale], Awaitable[Sequence[Row]]]
