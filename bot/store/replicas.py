"""The tables of replicas: those that this workspace knows, and which is a channel's default."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final

from bot.links import only_hosts
from bot.model import Snapshot, Verdict
from bot.store.database import (
    Database,
    Query,
    Row,
    RowUnreadable,
    Topic,
    Transaction,
    optional_moment,
    to_ms,
)
from bot.store.due import UnreadableRows, number, read_each, reading, text

_NEVER: Final = -1
"""Before the first revision."""

# A change begins with this, so that changes have their numbers in the order of their commits.
_NEXT_REVISION: Final = Query(
    """
    INSERT INTO revisions (name, revision) VALUES ('replicas', 1)
    ON CONFLICT (name) DO UPDATE SET revision = revisions.revision + 1 RETURNING revision
    """
)
_REVISION: Final = Query("SELECT * FROM revisions WHERE name = 'replicas'")
_CHANGED_SINCE: Final = Query("SELECT * FROM replicas WHERE revision > :revision")
_COUNT: Final = Query("SELECT count(*) AS number FROM replicas")
_DEFAULTS: Final = Query("SELECT channel, replica_id FROM channel_defaults")
_LEARN: Final = Query(
    """
    INSERT INTO replicas
        (id, name, search_name, status, verdict, reason, read_at, used_at, revision)
    VALUES (:id, :name, :search_name, :status, :verdict, :reason, :now, :now, :revision)
    ON CONFLICT (id) DO UPDATE SET
        name = CASE WHEN excluded.name = '' THEN replicas.name ELSE excluded.name END,
        search_name = CASE WHEN excluded.name = '' THEN replicas.search_name
                      ELSE excluded.search_name END,
        status = excluded.status, verdict = excluded.verdict, reason = excluded.reason,
        read_at = excluded.read_at, listed_at = NULL, revision = excluded.revision
    """
)
_USE: Final = Query(
    """
    INSERT INTO replicas (id, used_at, revision) VALUES (:id, :now, :revision)
    ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at, listed_at = NULL,
        revision = excluded.revision
    """
)
_FORGET_DEFAULTS: Final = Query("DELETE FROM channel_defaults WHERE replica_id = :id")
_FORGET: Final = Query("DELETE FROM replicas WHERE id = :id")
_SET_DEFAULT: Final = Query(
    """
    INSERT INTO channel_defaults (channel, replica_id)
    SELECT :channel, id FROM replicas WHERE id = :id
    ON CONFLICT (channel) DO UPDATE SET replica_id = excluded.replica_id
    """
)
# One that is gone from the list may be back in the next: it is offered for as long.
_KEPT_FOR: Final = timedelta(days=1)
# What is known as it is, and was read so recently, is not stored again.
_READ_AGAIN: Final = timedelta(minutes=1)
# A use is stored again after a minute if that changes the order of the menu, and after an hour.
_USED_AGAIN_MS: Final = 60_000
_FIRST_USED_AGAIN_MS: Final = 60 * 60_000
# What a person's form has just read is newer than a list.
_READ_MS: Final = 10 * 60_000

# Where the clock was set back, it is due as well.
_CLAIM_LIST: Final = Query(
    """
    INSERT INTO lists (kind, due_at) VALUES (:kind, :next)
    ON CONFLICT (kind) DO UPDATE SET due_at = excluded.due_at
    WHERE lists.due_at <= :now OR lists.due_at > excluded.due_at
    RETURNING kind
    """
)
_ALL: Final = Query("SELECT * FROM replicas")
_ADD_LISTED: Final = Query(
    """
    INSERT INTO replicas
        (id, name, search_name, status, verdict, reason, used_at, listed_at, revision)
    VALUES (:id, :name, :search_name, :status, :verdict, :reason, 0, :now, :revision)
    ON CONFLICT (id) DO NOTHING
    """
)
_CHANGE_LISTED: Final = Query(
    """
    UPDATE replicas SET name = :name, search_name = :search_name, status = :status,
        verdict = :verdict, reason = :reason, revision = :revision
    WHERE id = :id
    """
)
_SEEN: Final = Query(
    "UPDATE replicas SET listed_at = :now WHERE id IN (EACH :ids) AND listed_at IS NOT NULL"
)


@dataclass(frozen=True, slots=True, eq=False)
class KnownReplica:
    """A replica as it was when the service was last asked about it. It has its own identity.

    ``verdict`` is None if it was never asked about it; ``FAILED`` means that it cannot be used.
    """

    id: str
    name: str = ""
    status: str = ""
    verdict: Verdict | None = None
    reason: str = ""
    read_at: datetime | None = None
    search_name: str = ""
    """The name as it is searched: without capitals."""
    used_at: int = 0
    """When it was used last, or became known, in milliseconds since 1970; 0 for one that is only
    listed by the service."""
    default: bool = False
    """Whether it is the default of the channel that was asked about."""

    @property
    def deleted(self) -> bool:
        """Whether it was deleted at the service: it can no longer be chosen."""
        return self.status.lower() == "deleted"


@dataclass(frozen=True, slots=True)
class _Changes:
    """What has changed in the tables.

    Attributes:
        since: the revision that memory had.
        revision: the one that it has with these.
        replicas: those that were changed, or all, as far as they can be read.
        is_all: whether these are all that there are.
        defaults: the id of the replica of each channel that has a default.
    """

    since: int
    revision: int
    replicas: Mapping[str, KnownReplica]
    is_all: bool
    defaults: Mapping[str, str]


class Replicas:
    """The known replicas, of which all that is asked for is in memory.

    Every change of the tables has a revision number, in the same transaction. What is read again is
    only what changed since the revision that memory has, whichever process changed it. While that
    number cannot be read, all is read each time; the next change begins to count anew.
    """

    def __init__(self, database: Database, unreadable: UnreadableRows) -> None:
        self._database = database
        self._unreadable = unreadable
        self._cache = _Cache(_NEVER, {}, {})

    def find(self, query: str, channel: str, limit: int) -> list[KnownReplica]:
        """Return those with ``query`` in name or id: the channel's default, then the last used.

        Those that cannot be used come last; those that are deleted at the service do not come.
        What has not changed is the same object in each answer.
        """
        return self._cache.find(query.casefold(), channel, limit)

    def get(self, replica_id: str) -> KnownReplica | None:
        """Return the replica with this id, if it is known here."""
        return self._cache.known.get(replica_id)

    def names(self, replica_ids: Collection[str]) -> dict[str, str]:
        """Return the names that are known of these replicas, by id."""
        known = self._cache.known
        return {each: known[each].name for each in replica_ids if each in known}

    async def learn(self, snapshot: Snapshot, now: datetime) -> None:
        """Store what the service said about a replica, and offer it from now on.

        Nothing is stored if that is known, and was read just before.
        """
        known = self.get(snapshot.remote_id)
        if known is not None and _is_known(known, snapshot, now):
            return
        values = _columns(snapshot)
        await self._change(
            lambda tx, revision: tx.all(_LEARN, revision=revision, now=to_ms(now), **values)
        )

    async def use(self, replica_id: str, now: datetime) -> None:
        """Offer a replica first from now on: a create call was accepted with it.

        Nothing is stored if it is the first already, or was used just before.
        """
        known = self.get(replica_id)
        if known is not None:
            is_first = known.used_at == self._cache.last_use
            recent = _FIRST_USED_AGAIN_MS if is_first else _USED_AGAIN_MS
            if abs(to_ms(now) - known.used_at) < recent:
                return
        await self._change(
            lambda tx, revision: tx.all(_USE, revision=revision, id=replica_id, now=to_ms(now)),
            durable=False,
        )

    async def forget(self, replica_id: str) -> None:
        """Stop offering a replica: the service no longer knows it."""

        def work(tx: Transaction, _revision: int) -> None:
            tx.all(_FORGET_DEFAULTS, id=replica_id)
            tx.all(_FORGET, id=replica_id)

        await self._change(work)

    async def set_default(self, channel: str, replica_id: str) -> None:
        """Make a known replica the default of a channel's create form."""
        await self._change(
            lambda tx, _revision: tx.all(_SET_DEFAULT, channel=channel, id=replica_id)
        )

    async def claim_list(self, kind: str, now: datetime, interval: timedelta) -> bool:
        """Return whether this process is to ask for the list of a kind now; none other does."""

        def work(tx: Transaction) -> bool:
            values = {"now": to_ms(now), "next": to_ms(now + interval)}
            return tx.one(_CLAIM_LIST, kind=kind, **values) is not None

        return await self._database.run(work, durable=False)

    async def learn_listed(
        self, listed: Sequence[Snapshot], now: datetime, *, complete: bool
    ) -> None:
        """Store what the service lists; ``complete`` says that it has nothing else.

        Only what has changed gets a new revision. What people added, used or trained stays when it
        is gone from the list: a read shows whether it can be used.
        """

        def work(tx: Transaction) -> Callable[[], None] | None:
            known = {row["id"]: row for row in tx.all(_ALL)}
            ids = {each.remote_id for each in listed}
            new = [each for each in listed if each.remote_id not in known]
            changed = [
                each
                for each in listed
                if each.remote_id in known and _differs(known[each.remote_id], each, now)
            ]
            gone = [row for row in known.values() if _is_gone(row, ids, now)] if complete else []
            # The revision is locked before replicas are, as in all that changes them.
            if new or changed or gone:
                revision = _next_revision(tx)
                for each in new:
                    tx.all(_ADD_LISTED, now=to_ms(now), revision=revision, **_columns(each))
                for each in changed:
                    tx.all(_CHANGE_LISTED, revision=revision, **_columns(each))
                for row in gone:
                    tx.all(_FORGET_DEFAULTS, id=row["id"])
                    tx.all(_FORGET, id=row["id"])
            if ids:
                tx.all(_SEEN, ids=list(ids), now=to_ms(now))
            return self._read(tx) if new or changed or gone else None

        if (remember := await self._database.run(work, durable=False)) is not None:
            remember()

    async def _change(
        self, work: Callable[[Transaction, int], object], *, durable: bool = True
    ) -> None:
        """Run ``work`` with the revision of its change, and remember that before this returns."""

        def change(tx: Transaction) -> Callable[[], None]:
            work(tx, _next_revision(tx))
            return self._read(tx)

        remember = await self._database.run(change, durable=durable)
        remember()

    def refresh(self, tx: Transaction, _now: datetime) -> Callable[[], None]:
        """Read what has changed; see ``Memory``."""
        return self._read(tx)

    def _read(self, tx: Transaction) -> Callable[[], None]:
        """Read what has changed; return what puts it into memory once that is committed."""
        cache = self._cache
        # Read first: rows that are read after it may be newer, and are then read once more.
        found, errors = read_each(revision_from, tx.all(_REVISION))
        revision = found[0] if found else _NEVER
        if revision == cache.revision != _NEVER:
            return lambda: self._unreadable.report(errors)
        # Where it went back, it was damaged.
        is_all = cache.revision == _NEVER or revision < cache.revision
        rows = tx.all(_ALL) if is_all else tx.all(_CHANGED_SINCE, revision=cache.revision)
        [counted] = tx.all(_COUNT)
        new = sum(row["id"] not in cache.known for row in rows)
        if not is_all and len(cache.known) + new != counted["number"]:  # some were deleted
            rows, is_all = tx.all(_ALL), True
        replicas, unreadable = read_each(replica_from, rows)
        changes = _Changes(
            cache.revision,
            revision,
            {replica.id: replica for replica in replicas},
            is_all,
            {row["channel"]: row["replica_id"] for row in tx.all(_DEFAULTS)},
        )
        return lambda: self._remember(changes, [*errors, *unreadable])

    def _remember(self, changes: _Changes, errors: Sequence[RowUnreadable]) -> None:
        """Put changes into memory, unless later ones are there already."""
        self._unreadable.report(errors)
        cache = self._cache
        is_later = changes.revision >= cache.revision
        if is_later or (changes.is_all and changes.since == cache.revision):
            known = {} if changes.is_all else cache.known
            self._cache = _Cache(changes.revision, {**known, **changes.replicas}, changes.defaults)


class _Cache:
    """The tables as of a revision, and one long text of names and ids to search in.

    A text of ten thousand names is searched in a tenth of a millisecond; asking each of them takes
    four times that. It is built at the first search after a change.
    """

    def __init__(
        self, revision: int, known: dict[str, KnownReplica], defaults: Mapping[str, str]
    ) -> None:
        """``defaults`` has the id of the replica of each channel that has one."""
        self.revision = revision
        self.known = known
        self.last_use = max((each.used_at for each in known.values()), default=0)
        """When any of them was used last, as in ``KnownReplica.used_at``."""
        self._defaults = {
            channel: replace(known[replica_id], default=True)
            for channel, replica_id in defaults.items()
            if replica_id in known
        }
        self._text: str | None = None
        self._offered: list[KnownReplica] = []
        # Where in the text each of those that are offered starts, and where it ends.
        self._starts: list[int] = []

    def find(self, folded: str, channel: str, limit: int) -> list[KnownReplica]:
        """Return those in which ``folded`` occurs, the default of ``channel`` first."""
        found = []
        default = self._defaults.get(channel)
        if default is not None and not default.deleted and folded in _text_of(default):
            found.append(default)
        for replica in self._matches(folded):
            if len(found) == limit:
                break
            if default is None or replica.id != default.id:
                found.append(replica)
        return found

    def _matches(self, folded: str) -> Iterator[KnownReplica]:
        if self._text is None:
            self._text = self._arrange()
        at = self._text.find(folded)
        while 0 <= at < len(self._text):
            number = bisect_right(self._starts, at)
            yield self._offered[number - 1]
            # Each is found once, however often it matches.
            at = self._text.find(folded, self._starts[number])

    def _arrange(self) -> str:
        """Put those that are offered in order, and return the text of all of them."""
        offered = [replica for replica in self.known.values() if not replica.deleted]
        offered.sort(
            key=lambda each: (
                each.verdict is Verdict.FAILED,
                -each.used_at,
                each.search_name,
                each.id,
            )
        )
        texts = [_text_of(replica) for replica in offered]
        self._offered = offered
        self._starts = [0, *accumulate(map(len, texts))]
        return "".join(texts)


def _next_revision(tx: Transaction) -> int:
    """Return the number of a change of the tables, which is about to be made; tell all copies."""
    tx.notify(Topic.MEMORY)
    [row] = tx.all(_NEXT_REVISION)
    return int(row["revision"])


def _text_of(replica: KnownReplica) -> str:
    # No match begins in one name and ends in another: a query has no line breaks.
    return f"{replica.search_name}\n{replica.id.casefold()}\n"


def revision_from(row: Row) -> int:
    """Return the revision in a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("revisions", row, key="name"):
        return number(row["revision"])


def replica_from(row: Row) -> KnownReplica:
    """Return the replica of a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("replicas", row):
        return KnownReplica(
            id=text(row["id"]),
            name=text(row["name"]),
            status=text(row["status"]),
            verdict=Verdict(row["verdict"]) if row["verdict"] else None,
            reason=text(row["reason"]),
            read_at=optional_moment(row["read_at"]),
            search_name=text(row["search_name"]),
            used_at=number(row["used_at"]),
        )


def _columns(snapshot: Snapshot) -> dict[str, str]:
    name = snapshot.facts.get("replica_name", "")
    return {
        "id": snapshot.remote_id,
        "name": name,
        # Folded here: databases do not agree on the capitals of all alphabets.
        "search_name": name.casefold(),
        "status": snapshot.status,
        "verdict": snapshot.verdict.value,
        # It is kept for as long as the replica is: no link to footage outlives its request in it.
        "reason": only_hosts(snapshot.reason),
    }


def _is_known(known: KnownReplica, snapshot: Snapshot, now: datetime) -> bool:
    """Return whether a snapshot says what is known, which was read just before."""
    if known.read_at is None or abs(now - known.read_at) >= _READ_AGAIN:
        return False
    name = snapshot.facts.get("replica_name", "") or known.name
    said = (name, snapshot.status, snapshot.verdict, only_hosts(snapshot.reason))
    return said == (known.name, known.status, known.verdict, known.reason)


def _differs(row: Row, listed: Snapshot, now: datetime) -> bool:
    """Return whether a row is out of date, and was not read just now."""
    if row["read_at"] is not None and abs(to_ms(now) - row["read_at"]) < _READ_MS:
        return False
    return any(row[name] != value for name, value in _columns(listed).items())


def _is_gone(row: Row, listed_ids: set[str], now: datetime) -> bool:
    """Return whether only a list had a replica, and none has had it for long."""
    if row["listed_at"] is None or row["id"] in listed_ids:
        return False
    return bool(row["listed_at"] < to_ms(now - _KEPT_FOR))
