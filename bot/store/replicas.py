"""The tables of replicas: those that this workspace knows, and which is a channel's default."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeVar

from bot.links import only_hosts
from bot.model import Role, Snapshot, Verdict
from bot.store.database import (
    Database,
    Query,
    Row,
    Topic,
    Transaction,
    optional_moment,
    to_ms,
)
from bot.store.deliveries import add_approvals, add_direct, edit_card, withdraw_notices
from bot.store.due import UnreadableRows, number, optional_text, reading, text
from bot.store.job_rows import AuditAction, job_from, record

_T = TypeVar("_T")
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
# What has an owner, or was removed, stays, and is found when it is added again.
_FORGET: Final = Query(
    "DELETE FROM replicas WHERE id = :id AND owner IS NULL AND removed_at IS NULL"
)
_MARK_DELETED: Final = Query(
    """
    UPDATE replicas SET status = 'deleted', verdict = 'failed', reason = '', read_at = NULL,
        listed_at = NULL, revision = :revision
    WHERE id = :id
    """
)
_SET_DEFAULT: Final = Query(
    """
    INSERT INTO channel_defaults (channel, replica_id)
    SELECT :channel, id FROM replicas WHERE id = :id AND removed_at IS NULL
    ON CONFLICT (channel) DO UPDATE SET replica_id = excluded.replica_id
    """
)
_CLEAR_DEFAULT: Final = Query("DELETE FROM channel_defaults WHERE channel = :channel")
# The rows of a replica that have an owner or are removed: its id may be written in another case.
_IS_KEPT: Final = """
    lower(id) = lower(:face) AND (owner IS NOT NULL OR removed_at IS NOT NULL)"""
FACE_COLUMNS: Final = f"""
    (SELECT max(owner) FROM replicas WHERE {_IS_KEPT}) AS face_owner,
    (SELECT max(asks_owner) FROM replicas WHERE {_IS_KEPT}) AS face_asks,
    (SELECT max(removed_at) FROM replicas WHERE {_IS_KEPT}) AS face_removed
"""  # noqa: S608 - our own text
"""Of the replica ``:face``: its owner, whether they are to be asked, when it was removed."""
FACE: Final = Query(f"SELECT {FACE_COLUMNS}")
_KEPT: Final = Query(f"SELECT owner, removed_at FROM replicas WHERE {_IS_KEPT}")  # noqa: S608
_ADD: Final = Query(
    """
    UPDATE replicas SET removed_at = NULL, revision = :revision, owner = coalesce(
        (SELECT max(owner) FROM replicas WHERE lower(id) = lower(:face)), :user
    )
    WHERE lower(id) = lower(:face)
    """
)
# Of what is trained just now, under an id that is new, the form named the owner. Where a person
# named the id, it may be any replica: one that has an owner keeps them.
_OWN: Final = Query(
    """
    INSERT INTO replicas (id, name, search_name, verdict, used_at, owner, revision)
    VALUES (:id, :name, :search_name, 'going', :now, coalesce(
        (SELECT max(owner) FROM replicas WHERE :named = 1 AND lower(id) = lower(:id)), :owner
    ), :revision)
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, revision = excluded.revision
    """
)
_MAY_CHANGE: Final = "(owner = :user OR :is_admin = 1) AND removed_at IS NULL"
_REMOVE: Final = Query(
    f"""
    UPDATE replicas SET removed_at = :now, revision = :revision
    WHERE lower(id) = lower(:face) AND {_MAY_CHANGE} RETURNING id
    """  # noqa: S608 - likewise
)
_EDIT: Final = Query(
    f"""
    UPDATE replicas SET own_name = :name, asks_owner = :asks, revision = :revision,
        muted = CASE WHEN :is_admin = 1 AND owner <> :owner THEN 0 ELSE muted END,
        owner = CASE WHEN :is_admin = 1 THEN CAST(:owner AS TEXT) ELSE owner END
    WHERE lower(id) = lower(:face) AND {_MAY_CHANGE} RETURNING owner
    """  # noqa: S608 - likewise
)
# What waits for an owner's approval waits for that of the new one.
_ASK_NEW_OWNER: Final = Query(
    """
    UPDATE jobs SET owner = :owner, approval_asked = :asked
    WHERE ended_at IS NULL AND state = 'waiting_for_approval' AND asks_owner = 1
        AND owner <> :owner AND lower(params) LIKE :params ESCAPE '!'
    RETURNING *
    """
)
# Who asked for its training has nothing to be told.
_GIVE_TRAINING: Final = Query(
    """
    UPDATE jobs SET owner = NULLIF(CAST(:owner AS TEXT), user_id)
    WHERE id IN (
        SELECT job_id FROM attempts WHERE lower(remote_id) = lower(:face) AND kind = 'replica'
    ) AND coalesce(owner, user_id) <> :owner
        AND EXISTS (SELECT 1 FROM replicas WHERE id = :face AND removed_at IS NULL)
    RETURNING *
    """
)
_MUTE: Final = Query("UPDATE replicas SET muted = :muted, revision = :revision WHERE owner = :user")
_USES: Final = Query(
    """
    SELECT (SELECT count(*) FROM channel_defaults WHERE replica_id = :id) AS defaults,
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs
            WHERE ended_at IS NULL AND lower(params) LIKE :params ESCAPE '!' LIMIT 1000
        ) AS found) AS open_jobs
    """
)
# One that is gone from the list may be back in the next: it is offered for as long.
_KEPT_FOR: Final = timedelta(days=1)
# A use is stored again after a minute if that changes the order of the menu, and after an hour.
_USED_AGAIN_MS: Final = 60_000
_FIRST_USED_AGAIN_MS: Final = 60 * 60_000
_MAX_SEEN: Final = 30

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
_LIST: Final = Query(
    """
    INSERT INTO replicas
        (id, name, search_name, status, verdict, reason, used_at, listed_at, revision)
    VALUES (:id, :name, :search_name, :status, :verdict, :reason, 0, :now, :revision)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, search_name = excluded.search_name,
        status = excluded.status, verdict = excluded.verdict, reason = excluded.reason,
        revision = excluded.revision
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
    owner: str | None = None
    """The person whose face it is; None if nobody owns it yet."""
    asks_owner: bool = False
    """Whether what others ask for with it needs its owner's approval."""
    muted: bool = False
    """Whether its owner is not told in messages what is made with it."""
    removed: bool = False
    """Whether its owner or an admin removed it here."""
    service_name: str = ""
    """Its name at the service, where it is called otherwise here."""
    has_namesake: bool = False
    """Whether another one looks the same by its name."""

    @property
    def deleted(self) -> bool:
        """Whether it was removed, or deleted at the service: it can no longer be chosen."""
        return self.removed or self.status.lower() == "deleted"


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

    def find_own_first(self, user: str, limit: int) -> list[KnownReplica]:
        """Return a person's own replicas, the last used first, and then others as ``find`` does."""
        own = sorted(self.list_owned(user), key=lambda each: -each.used_at)
        others = [each for each in self.find("", "", limit) if each.owner != user]
        return [*(each for each in own if not each.deleted), *others][:limit]

    def get(self, replica_id: str) -> KnownReplica | None:
        """Return the replica with this id, if it is known here."""
        return self._cache.known.get(replica_id)

    def names(self, replica_ids: Collection[str]) -> dict[str, str]:
        """Return the names that are known of these replicas, by id."""
        known = self._cache.known
        return {each: known[each].name for each in replica_ids if each in known}

    async def learn(self, snapshot: Snapshot, now: datetime) -> None:
        """Store what the service said about a replica, and offer it from now on."""
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
        await self._change(lambda tx, revision: _forget(tx, replica_id, revision))

    async def add(self, snapshot: Snapshot, user: str, now: datetime, *, is_admin: bool) -> bool:
        """Offer a replica, as ``user`` asks, who owns it from now on if nobody does.

        Returns:
            Whether it is offered: False if it was removed, and is not theirs to add again.
        """

        def work(tx: Transaction, revision: int) -> bool:
            kept = tx.all(_KEPT, face=snapshot.remote_id)
            is_theirs = is_admin or all(row["owner"] == user for row in kept)
            if not is_theirs and any(row["removed_at"] is not None for row in kept):
                return False
            tx.all(_LEARN, revision=revision, now=to_ms(now), **_columns(snapshot))
            if is_theirs:
                tx.all(_ADD, face=snapshot.remote_id, user=user, revision=revision)
                record(
                    tx,
                    AuditAction.REPLICA,
                    user=user,
                    at=to_ms(now),
                    detail=f"{snapshot.remote_id}: added",
                )
            return True

        return await self._change(work)

    async def remove(self, replica_id: str, user: str, now: datetime, *, is_admin: bool) -> bool:
        """Stop offering a replica for good, as ``user`` asks: its owner, or an admin.

        Returns:
            Whether it was removed: False if it is not theirs, or was removed before.
        """
        return await self._change(
            lambda tx, revision: remove(
                tx, replica_id, user, revision, to_ms(now), is_admin=is_admin
            )
        )

    async def edit(
        self,
        replica_id: str,
        user: str,
        now: datetime,
        *,
        is_admin: bool,
        name: str | None,
        asks_owner: bool,
        owner: str | None,
    ) -> bool:
        """Change a replica as ``user`` asks: its owner, or an admin.

        Args:
            replica_id: its id.
            user: who asks.
            now: the time.
            is_admin: whether they are an admin, who may also change its ``owner``.
            name: what it is called here; None for what the service calls it.
            asks_owner: whether what others ask for with it needs its owner's approval.
            owner: whose face it is. What waits for the approval of an earlier one waits for theirs.
                If it was trained here, they are told as the person in the footage is.

        Returns:
            Whether it was changed: False if it is not theirs, or was removed.
        """

        def work(tx: Transaction) -> bool:
            if is_admin and owner is not None:
                # Jobs are locked before the revision is, as in all that binds a replica to a job.
                for row in tx.all(
                    _ASK_NEW_OWNER,
                    owner=owner,
                    asked=json.dumps([owner]),
                    params=_using(replica_id),
                ):
                    add_approvals(tx, job_from(row), [owner], to_ms(now), to_ms(now))
                    edit_card(tx, row["id"], row["user_id"], to_ms(now))
                for row in tx.all(_GIVE_TRAINING, owner=owner, face=replica_id):
                    if row["owner"] not in {None, user}:
                        add_direct(tx, job_from(row), Role.NOTICE, owner, to_ms(now))
                tx.notify(Topic.HOMES, owner)
            edited = tx.all(
                _EDIT,
                face=replica_id,
                user=user,
                is_admin=int(is_admin),
                name=name,
                asks=int(asks_owner),
                owner=owner,
                revision=next_revision(tx),
            )
            tx.notify(Topic.HOMES, user)
            if edited:
                detail = f"{replica_id}: changed; the owner is {edited[0]['owner']}"
                record(tx, AuditAction.REPLICA, user=user, at=to_ms(now), detail=detail)
            return bool(edited)

        return await self._run(work)

    async def mute(self, user: str, *, muted: bool) -> None:
        """Tell a person no longer in messages what is made with their replicas, or again."""

        def work(tx: Transaction) -> None:
            if muted:
                withdraw_notices(tx, user)
            tx.all(_MUTE, user=user, muted=int(muted), revision=next_revision(tx))
            tx.notify(Topic.HOMES, user)

        await self._run(work)

    async def count_uses(self, replica_id: str) -> tuple[int, int]:
        """Return of how many channels a replica is the default, and how many open jobs use it."""
        [row] = await self._database.run(
            lambda tx: tx.all(_USES, id=replica_id, params=_using(replica_id)), durable=False
        )
        return row["defaults"], row["open_jobs"]

    def list_owned(self, user: str) -> list[KnownReplica]:
        """Return the replicas of a person, also those that are removed."""
        return [each for each in self._cache.known.values() if each.owner == user]

    async def set_default(self, channel: str, replica_id: str | None) -> None:
        """Make a known replica the default of a channel's create form; None for no replica."""
        query = _CLEAR_DEFAULT if replica_id is None else _SET_DEFAULT
        await self._change(lambda tx, _revision: tx.all(query, channel=channel, id=replica_id))

    async def claim_list(self, kind: str, now: datetime, interval: timedelta) -> bool:
        """Return whether this process is to ask for the list of a kind now; none other does."""
        next_at = to_ms(now + interval)
        claimed = await self._database.run(
            lambda tx: tx.one(_CLAIM_LIST, kind=kind, now=to_ms(now), next=next_at), durable=False
        )
        return claimed is not None

    async def learn_listed(
        self, listed: Sequence[Snapshot], now: datetime, *, complete: bool
    ) -> None:
        """Store what the service lists; ``complete`` says that it has nothing else.

        Only what has changed gets a new revision. What people added, used or trained stays when it
        is gone from the list: a read shows whether it can be used.
        """

        def work(tx: Transaction) -> None:
            known = {row["id"]: row for row in tx.all(_ALL)}
            ids = {each.remote_id for each in listed}
            changed = [
                each
                for each in listed
                if (row := known.get(each.remote_id)) is None
                or any(row[name] != value for name, value in _columns(each).items())
            ]
            # Only a list had them, and none has had them for long.
            gone = [
                row
                for row in known.values()
                if complete
                and row["id"] not in ids
                and row["listed_at"] is not None
                and row["listed_at"] < to_ms(now - _KEPT_FOR)
            ]
            # The revision is locked before replicas are, as in all that changes them.
            if changed or gone:
                revision = next_revision(tx)
                for each in changed:
                    tx.all(_LIST, now=to_ms(now), revision=revision, **_columns(each))
                for row in gone:
                    _forget(tx, row["id"], revision)
            if ids:
                tx.all(_SEEN, ids=list(ids), now=to_ms(now))

        await self._run(work, durable=False)

    async def _change(self, work: Callable[[Transaction, int], _T], *, durable: bool = True) -> _T:
        """Run ``work`` with the revision of its change, and remember that before this returns."""
        return await self._run(lambda tx: work(tx, next_revision(tx)), durable=durable)

    async def _run(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        """Run ``work``, and remember what it has changed before this returns."""
        result, remember = await self._database.run(
            lambda tx: (work(tx), self.refresh(tx)), durable=durable
        )
        remember()
        return result

    def refresh(self, tx: Transaction, _now: datetime | None = None) -> Callable[[], None]:
        """Read what has changed; see ``Memory``."""
        cache = self._cache
        # Read first: rows that are read after it may be newer, and are then read once more.
        revisions = self._unreadable.read_each(revision_from, tx.all(_REVISION))
        revision = revisions[0] if revisions else _NEVER
        if revision == cache.revision != _NEVER:
            return lambda: None
        # Where it went back, it was damaged.
        is_all = cache.revision == _NEVER or revision < cache.revision
        rows = tx.all(_ALL) if is_all else tx.all(_CHANGED_SINCE, revision=cache.revision)
        [counted] = tx.all(_COUNT)
        new = sum(row["id"] not in cache.known for row in rows)
        if not is_all and len(cache.known) + new != counted["number"]:  # some were deleted
            rows, is_all = tx.all(_ALL), True
        changed = {each.id: each for each in self._unreadable.read_each(replica_from, rows)}
        known = changed if is_all else {**cache.known, **changed}
        defaults = {row["channel"]: row["replica_id"] for row in tx.all(_DEFAULTS)}

        def remember() -> None:
            # What was read later may be in memory already.
            if self._cache is cache or revision >= self._cache.revision:
                self._cache = _Cache(revision, known, defaults)

        return remember


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
        names = Counter(_seen(each) for each in known.values() if not each.deleted)
        for each in [*known.values()]:
            if (names[_seen(each)] > 1) != each.has_namesake:
                known[each.id] = replace(each, has_namesake=not each.has_namesake)
        self.known = known
        self.last_use = max((each.used_at for each in known.values()), default=0)
        """When any of them was used last, as in ``KnownReplica.used_at``."""
        self._defaults = {
            channel: replace(known[replica_id], default=True)
            for channel, replica_id in defaults.items()
            if replica_id in known
        }

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
        text, offered, starts = self._index
        at = text.find(folded)
        while 0 <= at < len(text):
            number = bisect_right(starts, at)
            yield offered[number - 1]
            # Each is found once, however often it matches.
            at = text.find(folded, starts[number])

    @cached_property
    def _index(self) -> tuple[str, Sequence[KnownReplica], Sequence[int]]:
        """One text of those that are offered; they, in order; where in it each starts and ends."""
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
        return "".join(texts), offered, [0, *accumulate(map(len, texts))]


def own(tx: Transaction, replica_id: str, owner: str, name: str, now: int, *, named: int) -> None:
    """Store whose face a replica is that a create call has just made, and offer it.

    ``named`` is 1 where a person has named its id: it keeps the owner that it has.
    """
    tx.all(
        _OWN,
        id=replica_id,
        name=name,
        search_name=name.casefold(),
        owner=owner,
        named=named,
        now=now,
        revision=next_revision(tx),
    )


def remove(
    tx: Transaction, replica_id: str, user: str, revision: int, now: int, *, is_admin: bool = False
) -> bool:
    """Remove a replica if it is ``user``'s, or they are an admin; return whether it was."""
    tx.notify(Topic.HOMES, user)
    removed = tx.all(
        _REMOVE, face=replica_id, user=user, is_admin=int(is_admin), now=now, revision=revision
    )
    for row in removed:
        tx.all(_FORGET_DEFAULTS, id=row["id"])
        record(tx, AuditAction.REPLICA, user=user, at=now, detail=f"{row['id']}: removed")
    return bool(removed)


def _forget(tx: Transaction, replica_id: str, revision: int) -> None:
    tx.all(_FORGET_DEFAULTS, id=replica_id)
    tx.all(_FORGET, id=replica_id)
    tx.all(_MARK_DELETED, id=replica_id, revision=revision)


def _using(replica_id: str) -> str:
    """Return the pattern of the parameters, in lower case, of jobs that use a replica."""
    written = json.dumps(replica_id.lower()).replace("_", "!_")
    return f'%"replica_id": {written}%'


def next_revision(tx: Transaction) -> int:
    """Return the number of a change of the tables, which is about to be made; tell all copies."""
    tx.notify(Topic.MEMORY)
    [row] = tx.all(_NEXT_REVISION)
    return int(row["revision"])


def _seen(replica: KnownReplica) -> str:
    """Return of a name what a menu has room for."""
    return replica.search_name[:_MAX_SEEN]


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
        own_name, service_name = optional_text(row["own_name"]), text(row["name"])
        return KnownReplica(
            id=text(row["id"]),
            name=own_name or service_name,
            service_name=service_name,
            owner=optional_text(row["owner"]),
            asks_owner=bool(row["asks_owner"]),
            muted=bool(row["muted"]),
            removed=row["removed_at"] is not None,
            status=text(row["status"]),
            verdict=Verdict(row["verdict"]) if row["verdict"] else None,
            reason=text(row["reason"]),
            read_at=optional_moment(row["read_at"]),
            search_name=own_name.casefold() if own_name else text(row["search_name"]),
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
