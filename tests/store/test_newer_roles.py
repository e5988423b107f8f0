"""Messages and jobs that only a newer version knows, while copies of both versions run."""

from bot.model import ApprovalPolicy, DeliveryState
from bot.store import Limited, Store
from bot.store.database import to_ms
from tests.databases import Address, query
from tests.modes import on_both_engines
from tests.store.test_store import MANY, NOW, TIMINGS, submit

pytestmark = on_both_engines

_ADD = (
    "INSERT INTO deliveries (job_id, role, number, state, channel, due_at)"
    " VALUES (:job_id, 'newer', :number, :state, 'C1', :now)"
)
_NEWER = "SELECT * FROM deliveries WHERE role = 'newer' ORDER BY id"


async def test_messages_of_a_role_that_a_newer_version_added_are_left_to_its_copies(
    address: Address,
) -> None:
    async with Store.open(address, TIMINGS) as store:
        job = (await submit(store)).job
        for number, state in enumerate(DeliveryState):
            query(address, _ADD, job_id=job.id, number=number, state=state.value, now=to_ms(NOW))
        before = query(address, _NEWER)

        [card] = await store.deliveries.claim(NOW, MANY)
        held = [card.delivery]
        for state in DeliveryState:
            for limited in (Limited(state), Limited(state, "C1")):
                claimed = await store.deliveries.claim(NOW, MANY, held, {limited: NOW})
                assert claimed == []
                # A worker that is told that something is due, and gets nothing, asks again at once.
                assert claimed.next_due is None
        assert query(address, _NEWER) == before


async def test_an_older_copy_creates_nothing_that_waits_and_an_approval_takes_it_on(
    address: Address,
) -> None:
    policy = ApprovalPolicy(frozenset({"U2"}))
    async with Store.open(address, TIMINGS, approvals=policy) as store:
        job = (await submit(store)).job
        # To an older copy, the state is a word that it cannot read, when the row is due.
        query(address, "UPDATE jobs SET state = 'unknown here', due_at = 0")
        assert await store.jobs.claim(NOW, MANY) == []
        [row] = query(address, "SELECT set_aside, due_at FROM jobs")
        assert (row["set_aside"], row["due_at"]) == (1, None)
        query(address, "UPDATE jobs SET state = 'waiting_for_approval'")
        assert not await store.jobs.approve(job.id, 0, "U1", NOW)
        assert await store.jobs.approve(job.id, 0, "U2", NOW)
        assert not await store.jobs.approve(job.id, 0, "U2", NOW)
        assert [each.id for each in await store.jobs.claim(NOW, MANY)] == [job.id]
