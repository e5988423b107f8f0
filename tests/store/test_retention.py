"""Some time after a request has ended its texts and links are erased, and later all of it."""

from sandbox.scenarios import Scenario
from tests.databases import all_rows
from tests.modes import on_both_engines
from tests.world import REPLICA, World, number_of

SECRETS = ("A secret script.", "secret.mp4", "Secretly too dark.", ".mp4")
KEPT_OF_MADE = ("Secret name", "/watch/")


def _stored(world: World) -> str:
    """Return all that stands in the database."""
    return str(list(all_rows(world.address)))


async def _asks_in_secret(world: World) -> None:
    form = await world.open_form(world.ana, "A secret script.")
    await form.choose("background", "background_source_url")
    values = {"replica_id": REPLICA, "video_name": "Secret name"}
    await form.submit(values | {"background_source_url": "https://example.com/secret.mp4"})
    await world.advance(minutes=5)


@on_both_engines
async def test_scripts_and_links_are_erased_after_the_retention_time_and_not_before(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.next_video(Scenario(), Scenario(end="error", reason="Secretly too dark."))
    async with world.running_bot(RETENTION_DAYS="2"):
        await _asks_in_secret(world)
        await _asks_in_secret(world)
        await world.advance(days=1, hours=23)
    before = _stored(world)
    assert [secret for secret in SECRETS if secret not in before] == []

    async with world.running_bot(RETENTION_DAYS="2"):
        await world.advance(hours=2)
    after = _stored(world)
    assert [secret for secret in SECRETS if secret in after] == []
    assert REPLICA in after
    # Of the one that was made, and not of the one that failed.
    assert [after.count(each) for each in KEPT_OF_MADE] == [1, 1]


@on_both_engines
async def test_no_link_to_footage_outlives_its_request_in_what_is_kept_of_the_replica(
    quiet_world: World,
) -> None:
    world = quiet_world
    reason = "Nothing can be read at https://files.example.com/secret.mp4?sig=1."
    world.service.next_replica(Scenario(end="error", reason=reason))
    async with world.running_bot(RETENTION_DAYS="2"):
        link = "https://files.example.com/secret.mp4"
        await world.request_replica(world.ana, {"train_video_url": link})
        await world.advance(hours=10)
        assert "secret.mp4" in _stored(world)
        await world.advance(days=2, hours=2)
    after = _stored(world)
    assert "secret.mp4" not in after
    assert "Nothing can be read at files.example.com" in after


async def test_the_list_and_the_cards_remain_after_erasing(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(world)
        cards = world.posts()
        await world.advance(days=1, hours=2)

        assert world.posts() == cards, "what stands in Slack is Slack's to keep"
        answer = await world.ana.command("/video", "list")
        assert answer.message is not None
        assert "Ready · Secret name" in answer.message.text
        assert "/watch/" in answer.message.text
        [video_id] = world.service.videos
        answer = await world.ana.command("/video", f"status {video_id}")
        await world.settle()
        [shown] = world.ephemerals(world.ana)[1:]
        assert "Status: Ready" in shown


async def test_a_job_that_has_not_ended_is_never_erased(quiet_world: World) -> None:
    world = quiet_world
    world.service.next_video(Scenario(end="never"))
    async with world.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(world)
        await world.advance(days=1, hours=2)
    assert "A secret script." in _stored(world)


async def test_an_old_retry_button_opens_a_form_that_says_what_was_erased(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.next_video(Scenario(end="error", reason="Secretly too dark."))
    async with world.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(world)
        [card, _] = world.posts()
        await world.advance(days=1, hours=2)

        await world.ana.click(card, "Edit and retry")

        form = world.ana.modal
        assert form is not None
        assert form.values["replica_id"] == REPLICA
        assert form.values["script"] is None
        assert "no longer have what was entered" in str(form.view.body["blocks"])
        await form.submit({"script": "Once more."})
        await world.advance(minutes=5)
    assert world.created_count() == 2


def _counts(world: World) -> dict[str, int]:
    """Return how many rows are about jobs."""
    counts = dict.fromkeys(("jobs", "attempts", "deliveries"), 0)
    for table, _ in all_rows(world.address):
        if table in counts:
            counts[table] += 1
    return counts


@on_both_engines
async def test_an_ended_job_is_deleted_after_twice_the_retention_time_and_not_before(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="20"):
        await _asks_in_secret(world)
        [card, _] = world.posts()
    await world.advance(days=39)
    async with world.running_bot(RETENTION_DAYS="20"):
        await world.settle()
    assert _counts(world) == {"jobs": 1, "attempts": 1, "deliveries": 2}

    await world.advance(days=2)
    async with world.running_bot(RETENTION_DAYS="20"):
        await world.settle()
        assert _counts(world) == {"jobs": 0, "attempts": 0, "deliveries": 0}

        number = number_of(card)
        await world.ana.command("/video", f"status {number}")
        await world.settle()
        assert world.ephemerals(world.ana)[-1].startswith(f"I can't find a video “{number}”")
        await world.request_video(world.ana)
    assert world.created_count() == 2


async def test_an_ended_job_is_kept_for_thirty_days_however_short_the_retention_time_is(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(world)
    for days, left in ((29, 1), (2, 0)):
        await world.advance(days=days)
        async with world.running_bot(RETENTION_DAYS="1"):
            await world.settle()
        assert _counts(world)["jobs"] == left
