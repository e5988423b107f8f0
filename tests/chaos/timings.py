"""The bot's waits in a run."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from bot.timings import PollSchedule, Timings

_SCHEDULE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=150),
    growth=0.2,
    max_interval=timedelta(milliseconds=600),
    late_after=timedelta(seconds=4),
    overdue_after=timedelta(seconds=8),
    overdue_interval=timedelta(seconds=1),
    give_up_after=timedelta(seconds=15),
)
TIMINGS: Final = Timings(
    minutes=_SCHEDULE,
    hours=_SCHEDULE,
    max_wait=timedelta(seconds=10),
    call_timeout=timedelta(seconds=1),
    lease=timedelta(seconds=3),
    retry_interval=timedelta(milliseconds=100),
    max_retry_interval=timedelta(milliseconds=800),
    reconcile_within=timedelta(seconds=2),
    ask_again_after=timedelta(seconds=3),
    close_after=timedelta(seconds=3),
    approve_within=timedelta(seconds=20),
    callback_spacing=timedelta(milliseconds=100),
    recheck_key=timedelta(milliseconds=200),
    recheck_credit=timedelta(milliseconds=500),
    first_hold=timedelta(milliseconds=100),
    max_hold=timedelta(milliseconds=800),
    turn_timeout=timedelta(milliseconds=200),
    hasten_within=timedelta(milliseconds=300),
    card_delay=timedelta(milliseconds=100),
    name_timeout=timedelta(milliseconds=100),
    post_hold=timedelta(milliseconds=800),
    pause=timedelta(milliseconds=500),
    post_interval=timedelta(milliseconds=50),
    call_interval=timedelta(milliseconds=50),
    home_interval=timedelta(milliseconds=300),
    replica_max_age=timedelta(seconds=2),
    stop_timeout=timedelta(seconds=2),
    socket_heartbeat=timedelta(milliseconds=400),
    reconnect_interval=timedelta(milliseconds=20),
    max_reconnect_interval=timedelta(milliseconds=200),
    max_socket_wait=timedelta(milliseconds=500),
    drain=timedelta(seconds=1),
)
"""The bot's waits, shortened so that a run of a minute covers a week."""

# With several copies, a kill delays what was claimed by a lease, and several may hit one job.
_PATIENT: Final = replace(_SCHEDULE, give_up_after=10 * TIMINGS.lease)
TIMINGS_OF_SEVERAL: Final = replace(TIMINGS, minutes=_PATIENT, hours=_PATIENT)
"""The same for several copies."""
