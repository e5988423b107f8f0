"""Which requests on the wire belong to which request of a person."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bot.model import token_hash
from bot.store import Store
from bot.store.database import Query, Transaction
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message
from sandbox.wire import Exchange

_TOKEN: Final = re.compile(r"/callbacks/([^/?#\s\"]+)")
_JOBS: Final = Query("SELECT id, request_key, remote_id FROM jobs")
_ATTEMPTS: Final = Query("SELECT job_id, token_hash, remote_id, candidate_id FROM attempts")


@dataclass(frozen=True)
class _Job:
    """What the requests of a job have in them."""

    texts: frozenset[str]
    """In those between Slack and the bot: its id, its form's, and the ``ts`` of its messages."""
    remote_ids: frozenset[str]
    token_hashes: frozenset[str]

    def has(self, exchange: Exchange) -> bool:
        request, response = (
            body.decode(errors="replace") for body in (exchange.request, exchange.response)
        )
        sides = {exchange.sender, exchange.receiver}
        # A read of the history has everybody's messages in it.
        if exchange.path.rpartition("/")[2].startswith("conversations."):
            return False
        if "slack" in sides:
            return any(text in request or text in response for text in self.texts)
        tokens = _TOKEN.findall(f"{exchange.path} {request}")
        if any(token_hash(token) in self.token_hashes for token in tokens):
            return True
        # The id of a replica is in the requests for its videos too.
        said = response if exchange.method == "POST" and exchange.sender == "bot" else ""
        return exchange.path.rpartition("/")[2] in self.remote_ids or any(
            f'"{each}"' in said for each in self.remote_ids
        )


def job_of(message: Message) -> str | None:
    """Return the id of the job that a message of the bot is about, or None."""
    payload = (message.metadata or {}).get("event_payload", {})
    return str(payload.get("message", "")).partition("/")[0] or None


class JobRequests:
    """Finds the requests of a job, and the job of a request; ``store`` is the bot's, if it runs."""

    def __init__(self, slack: SandboxSlack, store: Callable[[], Store | None]) -> None:
        self._slack = slack
        self._store = store

    async def of_job(self, job_id: str) -> list[int]:
        """Return the numbers of the exchanges that belong to a job, oldest first."""
        jobs = await self._jobs()
        job = jobs.get(job_id)
        return [each.id for each in self._slack.wire.exchanges if job is not None and job.has(each)]

    async def card_of(self, number: int, reader: str) -> Message | None:
        """Return the first message that a person can see about what an exchange belongs to."""
        found = [each for each in self._slack.wire.exchanges if each.id == number]
        if not found:
            return None
        jobs = await self._jobs()
        wanted = {name for name, job in jobs.items() if job.has(found[0])}
        seen = (each for each in self._messages(reader) if job_of(each) in wanted)
        return min(seen, key=lambda each: each.ts, default=None)

    async def _jobs(self) -> dict[str, _Job]:
        if (store := self._store()) is None:
            return {}

        def read(tx: Transaction) -> dict[str, _Job]:
            attempts = tx.all(_ATTEMPTS)
            jobs = {}
            for job in tx.all(_JOBS):
                mine = [each for each in attempts if each["job_id"] == job["id"]]
                ids = {job["remote_id"]}.union(
                    *({each["remote_id"], each["candidate_id"]} for each in mine)
                )
                jobs[job["id"]] = _Job(
                    frozenset({job["id"], job["request_key"]}),
                    frozenset(ids - {None}),
                    frozenset(each["token_hash"] for each in mine),
                )
            return jobs

        jobs = await store.database.run(read, durable=False)
        for message in self._messages(None):
            if (job := jobs.get(job_of(message) or "")) is not None:
                texts = job.texts | {message.ts}
                jobs[job_of(message) or ""] = _Job(texts, job.remote_ids, job.token_hashes)
        return jobs

    def _messages(self, reader: str | None) -> Iterator[Message]:
        for channel in self._slack.channels.values():
            if reader is None or reader in channel.members:
                yield from self._slack.everything(channel.id)
