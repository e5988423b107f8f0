"""The Home tab: its listeners, what admins do in it, and when it is published."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from pydantic import Field
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.service.media import hosts_to_allow
from bot.slack.context import (
    HandlerContext,
    Refusal,
    answer_form,
    field_errors,
    register_clicks,
    updated,
)
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.features.forms import replica_label
from bot.slack.features.replica import open_change, preview
from bot.slack.features.video import open_create_form, use_replica
from bot.slack.payloads import (
    BlockAction,
    HomeOpened,
    Payload,
    PrivateMetadata,
    View,
    ViewSubmission,
    read,
)
from bot.slack.views.blocks import (
    Json,
    context,
    element,
    field,
    joined,
    modal,
    mrkdwn,
    option,
    section,
    unformatted,
)
from bot.slack.views.buttons import (
    CHANGE_LIMITS,
    CHOOSE_MONTH,
    OPEN_CREATE,
    OPEN_SPENDING,
    REPLICA_MENU,
    TURN_PAGE,
    replica_row,
)
from bot.slack.views.home import (
    MAX_COUNTED,
    MAX_MADE,
    MAX_PAST,
    MAX_QUESTIONS,
    MAX_REPLICAS,
    MONTH,
    PAGE,
    admin_sections,
    health_text,
    home_view,
    month_named,
    spending_modal,
)
from bot.slack.views.question import made_with
from bot.slack.views.usage import label, value_words
from bot.store import (
    ANY,
    LIMITS,
    Claimed,
    KnownReplica,
    Limit,
    LimitsInForce,
    Topic,
    limit_hash,
    soonest,
)

_LOG: Final = logging.getLogger(__name__)
_ADMINS_ONLY: Final = "Only admins can change limits."
_GROUPS_SCOPE: Final = "usergroups:read"
_PUBLISH: Final = "views.publish"
_MAX_HOMES: Final = 1000  # more than a workspace has open; the least recently opened is forgotten
_NOT_SHOWN: Final = "Only admins can see this."
_ABOUT: Final = "Changes apply to new requests. Leave a number blank for the default."
_LIMITS_FORM: Final = "limits_form"
_MAX_OPTIONS: Final = 100
"""Of a menu: https://docs.slack.dev/reference/block-kit/block-elements/multi-select-menu-element."""
_CHANNELS: Final = "ALLOWED_CHANNELS"
_OF_GROUPS: Final = "_GROUPS"


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners."""
    app.event("app_home_opened")(partial(on_opened, ctx))
    app.view(_LIMITS_FORM)(partial(answer_form, ctx, change_limits))
    register_clicks(
        app,
        ctx,
        {
            OPEN_CREATE: open_create_form,
            re.compile(f"^{TURN_PAGE}_"): turn_page,
            CHANGE_LIMITS: open_limits,
            OPEN_SPENDING: open_spending,
            REPLICA_MENU: on_menu,
            CHOOSE_MONTH: choose_month,
        },
    )


async def on_opened(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have the tab published, beginning with the first page."""
    opened = read(HomeOpened, body)
    if opened.tab == "home":
        await ctx.open_home(opened.user, 0)
    await ack()


async def turn_page(ctx: HandlerContext, action: BlockAction) -> None:
    """Have another page of the person's requests published."""
    page = int(action.value) if re.fullmatch("[0-9]{1,4}", action.value) else 0
    await ctx.open_home(action.user, page)


async def on_menu(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Do what was chosen in the menu of a replica."""
    verb, _, replica_id = action.value.partition(":")
    match verb:
        case "use":
            return await use_replica(ctx, action, replica_id)
        case "preview":
            ctx.answer_later(action, preview(ctx, replica_id))
            return None
    return await open_change(ctx, verb, action, replica_id)


class _LimitsMetadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    shown: dict[str, str]
    """The hash of each limit as the form showed it, by the name of the setting."""
    drawn: int = Field(0, ge=0)
    """How often it was drawn anew. Its fields have other ids each time: those that nobody has
    touched show what is in force now."""


class Group(Payload):
    """A user group: https://docs.slack.dev/reference/objects/usergroup-object."""

    id: str
    name: str = ""
    handle: str = ""


class _Groups(Payload):
    """The answer of usergroups.list, which comes whole: there are no pages.

    https://docs.slack.dev/reference/methods/usergroups.list
    """

    usergroups: Sequence[Group]


async def open_limits(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form with the limits that are in force."""
    if not await ctx.access.is_admin(action.user):
        return _ADMINS_ONLY
    in_force = await ctx.store.limits.fetch()
    return await ctx.open_view(action.trigger_id, limits_form(in_force, await _groups(ctx)))


async def change_limits(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Have in force what an admin has changed in the form, or say why not."""
    view, user = submission.view, submission.user
    if not await ctx.access.is_admin(user):
        _LOG.warning("somebody who is no admin tried to change limits", extra={"user": user})
        raise Refusal(_ADMINS_ONLY)
    limits, metadata = ctx.store.limits, view.metadata(_LimitsMetadata)
    filled = _entered(view, await limits.fetch())
    if mistakes := limits.mistakes(filled):
        errors = {_block_id(name, metadata.drawn): said for name, said in mistakes.items()}
        return field_errors(view, errors)
    now, homes = ctx.clock.now(), limits.current.admins | {user}
    if not await limits.change(filled, user, now, shown=metadata.shown, homes=homes):
        note = _changed_meanwhile(metadata.shown, limits.known)
        groups, drawn = await _groups(ctx), metadata.drawn + 1
        return updated(limits_form(limits.known, groups, filled, drawn=drawn, note=note))
    return {}


async def _groups(ctx: HandlerContext) -> Sequence[Group]:
    """Return the user groups to choose from; none if Slack does not say them in time.

    There are none without the scope, or in a plan without user groups.
    """
    if not ctx.access.has_scope(_GROUPS_SCOPE):
        return ()
    try:
        async with translated(ctx.timings.message_timeout):
            answer = await ctx.client.usergroups_list()
            return _Groups.model_validate(answer.data).usergroups
    except OutsideError as error:
        _LOG.info("the user groups are not known", extra={"reason": error.reason})
        return ()


def limits_form(
    in_force: LimitsInForce,
    groups: Sequence[Group] = (),
    filled: Mapping[str, str] | None = None,
    *,
    drawn: int = 0,
    note: str = "",
) -> Json:
    """Return the form with the limits that are in force.

    Args:
        in_force: the limits.
        groups: the user groups to choose from; without any, their fields are left out.
        filled: what was filled in instead, by the name of the setting.
        drawn: how often it was drawn anew.
        note: what to say on top of it.
    """
    now, settings = in_force.limits.texts(), in_force.settings.texts()
    values = {**now, **(filled or {})}
    blocks = [section(note)] if note else []
    blocks.append(context(mrkdwn(_ABOUT)))
    for name, limit in LIMITS.items():
        ids = _ids(values[name])
        if limit.most:
            fields = [_number(limit, values[name], settings[name])]
        elif name == _CHANNELS:
            fields = [_channels(limit, ids)]
        else:
            fields = [_people(limit, ids, has_groups=bool(groups))]
            fields += [_groups_field(limit, ids, groups)] if groups else []
        blocks += [{**each, "block_id": _block_id(each["block_id"], drawn)} for each in fields]
    shown = {name: limit_hash(value) for name, value in now.items()}
    return modal(
        _LIMITS_FORM,
        "Change limits",
        submit="Save",
        close="Cancel",
        private_metadata=_LimitsMetadata(shown=shown, drawn=drawn).model_dump_json(),
        blocks=blocks,
    )


def _block_id(name: str, drawn: int) -> str:
    """Return the id of the field of a limit in a form that was drawn anew so often."""
    return f"{name}.{drawn}"


def _entered(view: View, in_force: LimitsInForce) -> dict[str, str]:
    """Return what was changed in a form, by the name of the setting, as it would stand there."""
    metadata, fields = view.metadata(_LimitsMetadata), view.fields()
    there = {block.get("block_id") for block in view.blocks}
    found = {}
    now, settings = in_force.limits.texts(), in_force.settings.texts()
    for name, limit in LIMITS.items():
        text = fields.get(_block_id(name, metadata.drawn), "").strip()
        if limit.most:
            value = str(int(text)) if text.isdecimal() else text or settings[name]
        else:
            chosen = _block_id(name + _OF_GROUPS, metadata.drawn)
            kept = filter(_is_group, _ids(now[name]))
            groups = fields.get(chosen, "").split() if chosen in there else kept
            value = ",".join(sorted({*text.split(), *groups}))
        if limit_hash(value) != metadata.shown.get(name):
            found[name] = value
    return found


def _changed_meanwhile(shown: Mapping[str, str], in_force: LimitsInForce) -> str:
    """Return what others have changed since a form was drawn, for the note on top of it.

    ``shown`` has the hash of each limit as the form showed it.
    """
    sentences = []
    for name, value in in_force.limits.texts().items():
        if limit_hash(value) == shown.get(name):
            continue
        limit, change = LIMITS[name], in_force.changes.get(name)
        now = f"*{limit.words}* to {value_words(limit, value)}"
        by = "An admin" if change is None else f"<@{change.changed_by}>"
        sentences.append(f"{by} has set {now}.")
    return " ".join([*sentences, "Yours aren't saved yet: check them and press *Save*."])


def _number(limit: Limit, value: str, setting: str) -> Json:
    number = element(
        "number_input",
        limit.name,
        min_value="1",
        max_value=str(limit.most),
        initial_value=value,
        placeholder=f"{value_words(limit, setting).capitalize()} (default)",
    )
    number["is_decimal_allowed"] = False  # Slack wants it said
    unit = f", in{limit.unit}" if limit.unit else ""
    return field(limit.name, label(limit) + unit, number, optional=True)


def _people(limit: Limit, ids: Sequence[str], *, has_groups: bool) -> Json:
    which = "both fields" if has_groups else "it"
    return field(
        limit.name,
        label(limit),
        element(
            "multi_users_select",
            limit.name,
            initial_users=[each for each in ids if not _is_group(each)] or None,
            placeholder="Everyone",
        ),
        hint=f"Leave {which} blank for everyone. Admins always can.",
        optional=True,
    )


def _groups_field(limit: Limit, ids: Sequence[str], groups: Sequence[Group]) -> Json:
    offered = {each.id: each for each in groups}
    chosen = [_group_option(offered.pop(each, Group(id=each))) for each in ids if _is_group(each)]
    others = sorted(offered.values(), key=lambda each: each.name.casefold())
    menu = element(
        "multi_static_select",
        limit.name + _OF_GROUPS,
        options=[*chosen, *map(_group_option, others)][:_MAX_OPTIONS],
        initial_options=chosen[:_MAX_OPTIONS] or None,
        placeholder="No group",
    )
    return field(limit.name + _OF_GROUPS, f"User groups {limit.words}", menu, optional=True)


def _group_option(group: Group) -> Json:
    shown = f"{group.name} (@{group.handle})" if group.handle else group.name or group.id
    return option(shown, group.id)


def _channels(limit: Limit, ids: Sequence[str]) -> Json:
    return field(
        limit.name,
        label(limit),
        element(
            "multi_conversations_select",
            limit.name,
            initial_conversations=list(ids) or None,
            filter={"include": ["public", "private"], "exclude_bot_users": True},
            placeholder="All channels",
        ),
        hint="Leave it blank for all. Direct messages are always allowed.",
        optional=True,
    )


def _ids(value: str) -> list[str]:
    return [each for each in value.split(",") if each]


def _is_group(identifier: str) -> bool:
    return identifier.startswith("S")


async def open_spending(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Show what everybody had created this month, with a menu of months."""
    if not await ctx.access.is_admin(action.user):
        return _NOT_SHOWN
    now = ctx.clock.now()
    view = spending_modal(await ctx.store.limits.fetch_spending(now), now, ctx.price)
    return await ctx.open_view(action.trigger_id, view)


async def choose_month(ctx: HandlerContext, action: BlockAction) -> None:
    """Show another month."""
    if (view := action.view) is not None and await ctx.access.is_admin(action.user):
        now = ctx.clock.now()
        month = month_named(view.fields().get(MONTH, ""), now)
        shown = spending_modal(await ctx.store.limits.fetch_spending(month), now, ctx.price)
        await ctx.update_view(view, shown)


def _whose(replica: KnownReplica, user: str) -> str:
    """Return in the words of ``user`` whose face a replica is, and whether others have to ask."""
    if replica.owner is None:
        return ""
    whose = "Yours" if replica.owner == user else f"<@{replica.owner}>"
    return f"{whose} · needs approval" if replica.asks_owner else whose


@dataclass(slots=True, eq=False)
class OpenHome:
    """A Home tab that a person has opened."""

    user: str
    opened_at: datetime
    not_before: datetime
    page: int = 0
    """Which part of the list of jobs it shows, counted from 0."""
    changed: bool = False
    """Whether it is to be published again."""


class HomePublisher:
    """Publishes the Home tabs that are due, of those who have opened theirs within a week here.

    One that fails is published with the next change, or when the tab is opened again. Who has
    opened theirs is in memory: after a restart, a tab is current once it is opened again.
    """

    def __init__(self, ctx: HandlerContext) -> None:
        self._ctx = ctx
        self._homes: dict[str, OpenHome] = {}  # the least recently opened first
        self.due = ctx.store.database.event(Topic.HOMES)
        """Set when one may have become due."""
        ctx.store.database.subscribe(Topic.HOMES, self._on_change)

    async def open(self, user: str, page: int = 0) -> None:
        """Have a user's Home tab published on this page, and whenever it changes."""
        now = self._ctx.clock.now()
        home = self._homes.pop(user, OpenHome(user, now, not_before=now))
        home.opened_at = now
        self._homes[user] = home
        if len(self._homes) > _MAX_HOMES:
            del self._homes[next(iter(self._homes))]
        # Other copies that know this person turn to the same page.
        await self._ctx.store.database.run(
            lambda tx: tx.notify(Topic.HOMES, f"{user} {page}"), durable=False
        )

    def _on_change(self, subject: str) -> None:
        """Note a change: ``subject`` is a user's id, with a page where they have turned to it."""
        if subject == ANY:
            for home in self._homes.values():
                home.changed = True
            return
        user, _, page = subject.partition(" ")
        if (known := self._homes.get(user)) is not None:
            known.changed = True
            known.page = int(page) if page else known.page

    async def claim(self, limit: int, held: Collection[OpenHome] = ()) -> Claimed[OpenHome]:
        """Return up to ``limit`` that are due and not ``held``; they are due after a change.

        None while Slack asks to wait, or refuses our token.
        """
        if self._ctx.calls.refusal:
            return Claimed(next_due=self._ctx.clock.now() + self._ctx.timings.pause)
        if (held_until := self._ctx.calls.limits.until(_PUBLISH)) is not None:
            return Claimed(next_due=held_until)
        now = self._ctx.clock.now()
        due = [
            home
            for home in self._changed(held)
            # A wait that is too long is from before the clock was set back.
            if not now < home.not_before <= now + self._ctx.timings.home_interval
        ]
        claimed = sorted(due, key=lambda home: home.not_before)[:limit]
        for home in claimed:
            home.changed = False
        return Claimed(claimed, soonest(home.not_before for home in self._changed(held)))

    def _changed(self, held: Collection[OpenHome]) -> list[OpenHome]:
        opened_after = self._ctx.clock.now() - self._ctx.timings.home_kept_for
        return [
            home
            for home in self._homes.values()
            if home.changed and home not in held and home.opened_at > opened_after
        ]

    async def step(self, home: OpenHome) -> None:
        """Publish a Home tab as it is now."""
        timings = self._ctx.timings
        try:
            view = await self._view(home)
            async with translated(timings.call_timeout):
                await self._ctx.client.views_publish(user_id=home.user, view=view)
        except Refused as error:
            if ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE:
                self._ctx.calls.limits.limit(_PUBLISH, timings.pause)
            else:
                _LOG.error("Slack refuses a Home tab", extra={"reason": error.reason})
        except OutsideError as error:
            if error.retry_after is not None:
                home.changed = True
                self.due.set()
        finally:  # it is left alone for a moment: then it shows the newest of all changes
            home.not_before = self._ctx.clock.now() + timings.home_interval

    async def _view(self, home: OpenHome) -> Json:
        ctx, store = self._ctx, self._ctx.store
        found = await store.jobs.list_running_first(home.user, home.page * PAGE, PAGE + 1)
        replicas = store.replicas.find_own_first(home.user, MAX_REPLICAS)
        is_admin = await ctx.access.is_admin(home.user, ctx.service_deadline())
        questions = (
            await store.jobs.list_questions_to_others(home.user, MAX_QUESTIONS) if is_admin else ()
        )
        return home_view(
            found[:PAGE],
            ctx.presenters,
            ctx.command,
            page=home.page,
            more=len(found) > PAGE,
            replicas=[
                replica_row(
                    each,
                    joined([unformatted(replica_label(each)), _whose(each, home.user)], by=" · "),
                    may_change=is_admin or each.owner == home.user,
                )
                for each in replicas
            ],
            made=await self._made_with(home.user),
            retried=await store.jobs.list_retried([job.id for job in found]),
            questions=questions,
            to_approve=await store.jobs.list_to_approve(home.user, MAX_COUNTED),
            admin=await self._admin_sections() if is_admin else (),
        )

    async def _made_with(self, user: str) -> Sequence[Json]:
        """Return the part about what others made with a person's replicas, if there are any."""
        ctx = self._ctx
        owned = ctx.store.replicas.list_owned(user)
        made = await ctx.store.jobs.list_of_owner(user, MAX_MADE)
        public = await ctx.access.public(made, ctx.service_deadline())
        if not owned and not made:
            return ()
        muted = any(each.muted for each in owned)
        return made_with(made, public, ctx.presenters, muted=muted).blocks

    async def _admin_sections(self) -> list[Json]:
        ctx, store = self._ctx, self._ctx.store
        in_force = await store.limits.fetch()
        counts, outage = await store.jobs.count_waiting(), ctx.service.outages.current
        health = health_text(
            used=store.limits.used("", ctx.clock.now())["max_per_day"],
            limit=in_force.limits.max_per_day,
            unsent=counts["unsent"],
            key_refused=ctx.service.is_key_refused,
            next_try=ctx.service.next_credit_try,
            slowed_down=ctx.service.is_slowed_down,
            down_since=outage.since if outage else None,
            waiting=counts["held"] if outage else 0,
            to_approve=counts["to_approve"],
        )
        return admin_sections(
            in_force,
            await store.limits.fetch_spending(ctx.clock.now()),
            health,
            past=await store.limits.fetch_past(MAX_PAST),
            media_hosts=hosts_to_allow(await store.jobs.list_finished_videos(), ctx.media_hosts),
            price=ctx.price,
        )
