"""The cases, in the order of the table."""

from typing import Final

from benchmarks.cases import (
    ack,
    callback,
    claim,
    connections,
    copies,
    listeners,
    long_run,
    memory,
    pace,
    past,
    polling,
    rush,
    start,
    steps,
    throughput,
    typeahead,
)
from benchmarks.measure import Case

CASES: Final = (
    Case("ack", ack.run),
    Case("listeners", listeners.run),
    Case("type-ahead", typeahead.run),
    Case("callback", callback.run),
    Case("throughput", throughput.run),
    Case("steps", steps.run),
    Case("rush", rush.run),
    Case("pace", pace.run),
    Case("copies", copies.run),
    Case("claim", claim.run),
    Case("past", past.run),
    Case("polling", polling.run),
    Case("memory", memory.run),
    Case("connections", connections.run),
    Case("start", start.run),
    Case("long-run", long_run.run),
)
