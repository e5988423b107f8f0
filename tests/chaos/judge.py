"""What a run has shown: figures from what the sandbox recorded, and which break a promise."""

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.workspace import Message
from tests.chaos.people import Ask, mark_in
from tests.chaos.stage import Stage


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. ``promised``: it has to be 0; ``which`` says where it is not."""

    name: str
    figure: int
    promised: bool = False
    which: Sequence[str] = ()

    @property
    def broken(self) -> bool:
        """Whether it breaks a promise."""
        return self.promised and self.figure > 0


def judged(stage: Stage, asks: Sequence[Ask], *, may_look: bool) -> list[Finding]:
    """Return what is to be said of a run that has come to its end."""
    known = {ask.mark: ask for ask in asks}
    accepted = [ask for ask in asks if ask.accepted]
    cards, replies, odd = _sorted(stage.posted, known)
    creates = Counter(
        mark
        for words in (
            *(video.script for video in stage.service.videos.values()),
            *(replica.name for replica in stage.service.replicas.values()),
        )
        if (mark := mark_in(words))
    )

    def promise(name: str, which: Sequence[str]) -> Finding:
        return Finding(name, len(which), promised=True, which=which)

    def doubled(posts: Posts, *, seen: bool) -> list[str]:
        """Return what stands there twice, where the bot may look (``seen``) or may not."""
        twice: list[str] = []
        for mark, messages in posts.items():
            places = [stage.slack.channel(message.channel) for message in messages]
            looked = may_look and all(stage.slack.bot.id in place.members for place in places)
            if len(messages) > 1 and looked is seen:
                twice.append(f"{mark} in {' and '.join(place.name for place in places)}")
        return twice

    deaths, at_random = stage.deaths.total(), stage.deaths["at random"]
    return [
        Finding("forms sent off", len(asks)),
        Finding("forms accepted", len(accepted)),
        Finding("kills", deaths),
        Finding("  of these at a moment with a name", deaths - at_random),
        Finding("faults met, of the service", _met(stage, service=True)),
        Finding("faults met, of Slack", _met(stage, service=False)),
        Finding("callbacks sent", len(stage.service.callbacks)),
        Finding("create calls that came through", creates.total()),
        Finding("times that a person said: create again", sum(ask.presses for ask in asks)),
        Finding("cards posted", sum(map(len, cards.values()))),
        Finding("closing replies posted", sum(map(len, replies.values()))),
        promise(
            "accepted forms without a job",
            [a.mark for a in accepted if not cards[a.mark] and not replies[a.mark]],
        ),
        promise("forms that were never accepted", [a.mark for a in asks if not a.accepted]),
        promise("jobs without an end", [a.mark for a in accepted if not replies[a.mark]]),
        promise(
            "create calls that no person approved",
            [mark for mark, times in creates.items() if times > 1 + known[mark].presses],
        ),
        promise("cards missing", [a.mark for a in accepted if not cards[a.mark]]),
        promise("cards doubled", doubled(cards, seen=True)),
        promise("closing replies doubled", doubled(replies, seen=True)),
        Finding(
            "messages doubled where the bot may not look",
            len(doubled(cards, seen=False) + doubled(replies, seen=False)),
        ),
        promise(
            "closing replies that are not true",
            [r.text for m, those in replies.items() for r in those if _untrue(stage, known[m], r)],
        ),
        promise(
            "messages to somebody or somewhere else",
            [
                m.text
                for posts in (cards, replies)
                for mark, those in posts.items()
                for m in those
                if _astray(stage, known[mark], m)
            ],
        ),
        promise(
            "cards that do not say how it ended",
            [
                m
                for m, those in cards.items()
                if replies[m] and not _ended_alike(stage, those, replies[m])
            ],
        ),
        promise("posts that nobody expected", odd),
        promise("complaints of the database", _complaints(stage)),
        promise(
            "tracebacks in the log",
            [line for line in stage.log_file.read_text().splitlines() if "Traceback" in line],
        ),
    ]


def ended(stage: Stage, asks: Sequence[Ask]) -> bool:
    """Return whether every accepted ask has its closing reply."""
    _, replies, _ = _sorted(stage.posted, {ask.mark: ask for ask in asks})
    return all(replies[ask.mark] for ask in asks if ask.accepted)


Posts = defaultdict[str, list[Message]]


def _sorted(posted: Sequence[Message], known: dict[str, Ask]) -> tuple[Posts, Posts, list[str]]:
    cards, replies, odd = Posts(list), Posts(list), []
    for message in posted:
        mark, role = mark_in(message.text), _role(message)
        if mark not in known or role is None:
            odd.append(message.text)
        else:
            {"card": cards, "reply": replies}[role][mark].append(message)
    return cards, replies, odd


def _role(message: Message) -> str | None:
    payload = (message.metadata or {}).get("event_payload", {})
    role = str(payload.get("message", "")).rpartition("/")[2]
    return role if role in {"card", "reply"} else None


def _untrue(stage: Stage, ask: Ask, reply: Message) -> bool:
    """Return whether a reply tells of something else than what became of the ask."""
    service, now = stage.service, stage.slack.clock.now()
    ends = {
        video.video_id: video.ended(now)
        for video in service.videos.values()
        if mark_in(video.script) == ask.mark
    } | {
        replica.replica_id: replica.ended(now)
        for replica in service.replicas.values()
        if mark_in(replica.name) == ask.mark
    }
    good = {job for job, end in ends.items() if end == "success"}
    if "is ready" in reply.text:
        # A replica's reply has no link, and so no id in it.
        return not good or (ask.kind == "video" and not any(job in reply.text for job in good))
    if "could not make this" in reply.text:
        return "error" not in ends.values()
    if "nothing was made" in reply.text:
        return bool(ends) and not ask.presses
    if "is not known" in reply.text:
        return ask.answer != "give up"
    if "never came to an end" in reply.text:
        return None not in ends.values()
    # The service forgets nothing; what is left is a question that nobody answered.
    return "no longer knows" in reply.text


def _astray(stage: Stage, ask: Ask, message: Message) -> bool:
    """Return whether a message is not where it was asked for, or calls somebody else.

    A card calls nobody; a reply whoever asked.
    """
    user = ask.person.user.id
    places = {stage.slack.channel(ask.place).id, stage.slack.dm(user).id}
    called = {user} if _role(message) == "reply" else set()
    return message.channel not in places or message.pings != called


def _ended_alike(stage: Stage, cards: Sequence[Message], replies: Sequence[Message]) -> bool:
    """Return whether a card says in the end what its closing reply says."""
    shown = [found for card in cards if (found := stage.slack.find(card.channel, card.ts))]
    words = ("Ready",) if "is ready" in replies[0].text else ("Failed", "Given up")
    return any(word in card.text for card in shown for word in words)


def _met(stage: Stage, *, service: bool) -> int:
    return sum(n for operation, n in stage.met.items() if ("." not in operation) is service)


def _complaints(stage: Stage) -> list[str]:
    with contextlib.closing(sqlite3.connect(stage.database)) as db:
        said = [str(row[0]) for row in db.execute("PRAGMA integrity_check")]
        said += [str(row) for row in db.execute("PRAGMA foreign_key_check")]
    return [line for line in said if line != "ok"]
