"""The results of a run: counts of what the sandbox recorded, and which of them are promises."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from sandbox.block_kit import Json
from sandbox.slack_objects import Message
from sandbox.video_service import CREATES
from tests.chaos.environment import Environment
from tests.chaos.rows import Result, copies_rows, socket_rows
from tests.chaos.users import Approvals, UserRequest, Users, is_open, tag_in, tags_in
from tests.crash import role_of
from tests.leaks import secrets_found
from tests.world import delivery_of

# Create calls under way when the service goes down: for each process, and for all of them.
_MAX_UNDER_WAY: Final = 4
_MAX_QUESTIONS: Final = 10
_GOING_ON: Final = {
    "Waiting for approval",
    "Waiting",
    "Starting",
    "Checking",
    "Needs an answer",
    "Waiting for its replica",
    "Rendering",
    "Training",
    "Overdue",
}


def results_of(
    env: Environment,
    users: Users,
    approvals: Approvals,
    *,
    damaged: Sequence[str],
    usage: Sequence[str],
    can_search: bool,
) -> list[Result]:
    """Return the rows of the table for a finished run."""
    requests = users.requests
    known = {request.tag: request for request in requests}
    accepted = [request for request in requests if request.accepted]
    cards, questions, replies, unexpected = _by_role(env.posted, known)
    files, clips = _files(env), _clips(env, replies)
    asked = _by_delivery(questions)
    creates = Counter(
        tag
        for words in (
            *(video.script for video in env.service.videos.values()),
            *(replica.name for replica in env.service.replicas.values()),
        )
        if (tag := tag_in(words))
    )

    def promise(name: str, broken_by: Sequence[str]) -> Result:
        return Result(name, len(broken_by), 0, broken_by)

    def doubled(posts: Posts, *, searchable: bool) -> list[str]:
        """Return the doubled messages in places that the bot can search, or in the others."""
        twice: list[str] = []
        for tag, messages in posts.items():
            places = [env.slack.channel(message.channel) for message in messages]
            can_be_searched = can_search and all(
                env.slack.bot.id in place.members for place in places
            )
            if len(messages) > 1 and can_be_searched is searchable:
                twice.append(f"{tag} in {' and '.join(place.name for place in places)}")
        return twice

    refused = {
        tag_in(str(each.body))
        for each in env.service.requests
        if each.status in {400, 401, 402} and each.operation.startswith("create")
    }
    kills, at_random = env.kills_by_moment.total(), env.kills_by_moment["at random"]
    return [
        Result("forms submitted", len(requests)),
        Result("forms accepted", len(accepted)),
        Result("kills", kills),
        Result("  of these at a named moment", kills - at_random),
        Result("faults hit, video service", _fault_count(env, service=True)),
        Result("faults hit, Slack", _fault_count(env, service=False)),
        *socket_rows(env),
        Result("callbacks sent", len(env.service.callbacks)),
        Result("create calls carried out", creates.total()),
        Result("presses of Create again", sum(each.create_again_presses for each in requests)),
        Result("cards posted", sum(map(len, cards.values()))),
        Result("questions posted", sum(map(len, questions.values()))),
        Result("closing replies posted", sum(map(len, replies.values()))),
        Result("transcript files shared", sum(map(len, files.values()))),
        Result("video files shared", sum(clips.shared.values())),
        *approvals.rows(creates),
        Result("Home tabs opened", len(users.homes_opened)),
        promise(
            "accepted forms without a job",
            [a.tag for a in accepted if not cards[a.tag] and not replies[a.tag]],
        ),
        promise("forms never accepted", [a.tag for a in requests if not a.accepted]),
        promise("jobs without a closing reply", [a.tag for a in accepted if not replies[a.tag]]),
        promise(
            "create calls that no user approved",
            [tag for tag, times in creates.items() if times > 1 + known[tag].create_again_presses],
        ),
        promise("jobs without a card", [a.tag for a in accepted if not cards[a.tag]]),
        promise("doubled cards", doubled(cards, searchable=True)),
        promise("doubled closing replies", doubled(replies, searchable=True)),
        Result(
            "doubled messages where the bot cannot search",
            sum(
                len(doubled(each, searchable=False))
                for each in (cards, asked, replies, approvals.posted)
            ),
        ),
        promise("doubled questions", doubled(asked, searchable=True)),
        promise("doubled transcript files", [tag for tag, each in files.items() if len(each) > 1]),
        promise("missing transcript files", _missing_files(env, known, replies)),
        promise("transcript files in the wrong place", _misplaced_files(files, replies)),
        promise("doubled video files", clips.doubled),
        promise("missing video files", clips.missing),
        promise("doubled approvals", doubled(approvals.posted, searchable=True)),
        promise(
            "approvals that were left open", approvals.left_open(replies) if can_search else []
        ),
        promise("Home tabs that were not published", _missing_homes(env, users)),
        promise("Home tabs with an old state", list(_outdated_homes(env, replies))),
        promise(
            "questions that were left open",
            [
                key
                for key in _left_open(env, asked)
                if can_search and all(replies[tag] for tag in tags_in(asked[key][0].text))
            ],
        ),
        promise(
            "wrong closing replies",
            [
                reply.text
                for tag, those in replies.items()
                for reply in those
                if _is_wrong(env, approvals, known[tag], reply)
            ],
        ),
        promise(
            "messages to the wrong user or place",
            [
                m.text
                for posts in (cards, questions, replies)
                for tag, those in posts.items()
                for m in those
                if _is_misplaced(env, known[tag], m)
            ],
        ),
        promise(
            "cards without the outcome",
            [
                m
                for m, those in cards.items()
                if replies[m] and not _shows_outcome(env, those, replies[m])
            ],
        ),
        promise(
            "jobs that failed because another was refused",
            [m for m, those in replies.items() if m not in refused and _says_refused(those)],
        ),
        promise("unexpected posts", unexpected),
        *_outage_rows(env, users, creates),
        *copies_rows(env),
        promise("usage that differs from the count of attempts", usage),
        promise("database integrity errors", damaged),
        promise("secrets that got out", secrets_found(env, env.log_files)),
        promise("tracebacks in the log", list(_tracebacks(env))),
        promise("copies that ended by themselves", env.copies.ended),
        promise(
            "exit codes other than 0 after SIGTERM",
            [str(code) for code in env.copies.exit_codes.elements() if code],
        ),
    ]


def _outage_rows(env: Environment, users: Users, creates: Counter[str]) -> Iterator[Result]:
    """Yield what became of the requests of the outage."""
    queued = {each.tag for each in users.queued if each.accepted}
    # After the outage, a call may have no answer in time (no status) where the machine is busy.
    failed = {
        tag_in(str(each.body))
        for each in env.service.requests
        if each.operation in CREATES and each.status not in {None, HTTPStatus.OK}
    }
    asked = queued & {
        tag
        for message in env.posted
        if _role(message) == "question"
        for tag in tags_in(f"{message.text} {message.blocks}")
    }
    left = sorted(queued - asked - creates.keys())
    most = max(_MAX_QUESTIONS, _MAX_UNDER_WAY * env.processes_in_outage)
    yield Result("queued in an outage", len(queued))
    of_outage = sorted(asked & failed)
    yield Result(f"  questions from it (at most {most})", len(of_outage), most, of_outage)
    yield Result("  others of them not made", len(left), 0, left)


def all_done(env: Environment, users: Users, approvals: Approvals, *, can_search: bool) -> bool:
    """Return whether every accepted request has its reply, and other messages say how it ended."""
    requests = users.requests
    known = {request.tag: request for request in requests}
    cards, questions, replies, _ = _by_role(env.posted, known)
    return (
        all(replies[request.tag] for request in requests if request.accepted)
        and all(_shows_outcome(env, cards[tag], those) for tag, those in replies.items() if those)
        and not (can_search and any(_left_open(env, _by_delivery(questions))))
        and not _missing_files(env, known, replies)
        and not _clips(env, replies).missing
        and not (can_search and approvals.left_open(replies))
        and not _missing_homes(env, users)
        and not any(_outdated_homes(env, replies))
    )


Posts = defaultdict[str, list[Message]]


def _by_role(
    posted: Sequence[Message], known: dict[str, UserRequest]
) -> tuple[Posts, Posts, Posts, list[str]]:
    cards, questions, replies, unexpected = Posts(list), Posts(list), Posts(list), []
    for message in posted:
        if message.files or role_of(delivery_of(message)) == "approval":
            continue
        tag, role = tag_in(message.text), _role(message)
        if tag not in known or role is None:
            unexpected.append(message.text)
        else:
            {"card": cards, "question": questions, "reply": replies}[role][tag].append(message)
    return cards, questions, replies, unexpected


def _files(env: Environment) -> Posts:
    """Return the messages with a transcript as a file, by the tag in the file."""
    found = Posts(list)
    for message in env.posted:
        for file in (each for each in message.files if each["filetype"] == "text"):
            content = env.slack.files[file["id"]].content.decode()
            found[tag_in(content) or "no tag"].append(message)
    return found


@dataclass(frozen=True, slots=True)
class _Clips:
    """The MP4 files by their thread: as many as replies there that say that something is ready."""

    shared: Counter[str]
    doubled: list[str]
    missing: list[str]


def _clips(env: Environment, replies: Posts) -> _Clips:
    def place(message: Message) -> str:
        return f"{message.channel} {message.thread_ts or message.ts}"

    shared = Counter(
        place(message)
        for message in env.posted
        for file in message.files
        if file["filetype"] == "mp4"
    )
    ready = [each for those in replies.values() for each in those if "is ready" in each.text]
    missing = [
        tag
        for tag, those in replies.items()
        if any("is ready" in each.text for each in those)
        and all(env.slack.bot.id in env.slack.channel(each.channel).members for each in those)
        and not any(place(each) in shared for each in those)
    ]
    return _Clips(shared, sorted(shared - Counter(map(place, ready))), missing)


def _missing_files(env: Environment, known: Mapping[str, UserRequest], replies: Posts) -> list[str]:
    """Return the tags of long transcripts that are not in a file, where the bot may share one."""
    files, bot = _files(env), env.slack.bot.id
    return [
        tag
        for tag, those in replies.items()
        if those
        and known[tag].is_long
        and known[tag].kind == "video"
        and "is ready" in those[0].text
        and all(bot in env.slack.channel(reply.channel).members for reply in those)
        and not files[tag]
    ]


def _misplaced_files(files: Posts, replies: Posts) -> list[str]:
    """Return the tags of files that are in no thread of their closing reply."""
    return [
        tag
        for tag, those in files.items()
        for message in those
        if (message.channel, message.thread_ts)
        not in {(reply.channel, reply.thread_ts or reply.ts) for reply in replies[tag]}
    ]


def _missing_homes(env: Environment, users: Users) -> list[str]:
    return sorted(set(users.homes_opened) - env.slack.homes.keys())


def _outdated_homes(env: Environment, replies: Posts) -> Iterator[str]:
    """Yield what Home tabs say of requests that have their closing reply, as if they had not."""
    for view in env.slack.homes.values():
        for block in view.body["blocks"]:
            if block["type"] == "rich_text":
                text = "".join(_texts_in(block))
                state = text.rpartition(" · ")[2]
                if replies.get(tag_in(text) or "") and state in _GOING_ON:
                    yield text


def _texts_in(block: Json) -> Iterator[str]:
    for element in block.get("elements", ()):
        yield element.get("text", "")
        yield from _texts_in(element)


def _by_delivery(questions: Posts) -> Posts:
    """Return the questions by what they are marked with: a request may be asked about again."""
    found = Posts(list)
    for messages in questions.values():
        for message in messages:
            found[delivery_of(message)].append(message)
    return found


def _role(message: Message) -> str | None:
    role = role_of(delivery_of(message))
    return role if role in {"card", "question", "reply"} else None


def _left_open(env: Environment, asked: Posts) -> Iterator[str]:
    """Yield the marks of open questions, but for places where the bot cannot search for them."""
    for key, messages in asked.items():
        shown = [found for m in messages if (found := env.slack.find(m.channel, m.ts))]
        members = (env.slack.channel(message.channel).members for message in messages)
        if all(map(is_open, shown)) and all(env.slack.bot.id in each for each in members):
            yield key


def _is_wrong(env: Environment, approvals: Approvals, request: UserRequest, reply: Message) -> bool:
    """Return whether a reply does not say how the request ended."""
    service, now = env.service, env.slack.clock.now()
    ends = {
        video.video_id: video.ended(now)
        for video in service.videos.values()
        if tag_in(video.script) == request.tag
    } | {
        replica.replica_id: replica.ended(now)
        for replica in service.replicas.values()
        if tag_in(replica.name) == request.tag
    }
    good = {job for job, end in ends.items() if end == "success"}
    if "is ready" in reply.text:
        # A replica's reply has no link, and so no id in it.
        return not good or (request.kind == "video" and not any(job in reply.text for job in good))
    if "wasn't approved" in reply.text or "was declined" in reply.text:
        return approvals.is_wrong(request, reply, was_created=bool(ends))
    if "You weren't charged." in reply.text:
        return bool(ends)
    if "You may be charged for an earlier try." in reply.text:
        return not request.create_again_presses
    if "No answer in a week" in reply.text:
        return False
    if "was cancelled" in reply.text:
        return request.decision != "give up"
    if "It took too long" in reply.text:
        return None not in ends.values()
    # Anything else is wrong, "can't find this" too: the sandbox forgets nothing.
    return "couldn't be created" not in reply.text or "error" not in ends.values()


def _says_refused(replies: Sequence[Message]) -> bool:
    words = ("lost access", "Out of video credits", "The video service said", "refused it")
    return any(word in reply.text for reply in replies for word in words)


def _is_misplaced(env: Environment, request: UserRequest, message: Message) -> bool:
    """Return whether a message is in the wrong place or mentions the wrong user.

    A card mentions no one, a reply the user who asked, a question the admin too.
    """
    user = request.person.user.id
    places = {env.slack.channel(request.channel).id, env.slack.dm(user).id}
    mentioned = {"card": set[str](), "question": {user, env.admin.id}, "reply": {user}}[
        _role(message) or "card"
    ]
    # Who declined a request is named in its closing reply.
    pings = message.pings - {env.slack.user(name).id for name in env.approvers}
    return message.channel not in places or pings != mentioned


def _shows_outcome(env: Environment, cards: Sequence[Message], replies: Sequence[Message]) -> bool:
    """Return whether a card shows the outcome of its closing reply."""
    shown = [found for card in cards if (found := env.slack.find(card.channel, card.ts))]
    words = (
        ("Ready",)
        if "is ready" in replies[0].text
        else ("Failed", "Cancelled", "Closed", "Declined", "Not approved")
    )
    return any(word in card.text for card in shown for word in words)


def _fault_count(env: Environment, *, service: bool) -> int:
    return sum(n for operation, n in env.faults_hit.items() if ("." not in operation) is service)


def _tracebacks(env: Environment) -> Iterator[str]:
    for log in env.log_files:
        for line in log.read_text().splitlines():
            if "Traceback" in line:
                yield f"{log.name}: {line}"
