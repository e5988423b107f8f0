"""The dashboard and the alerts ask for what the bot really measures, and say what to do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.faults import CannedResponse
from tests.web.test_metrics import Scrape, scrape
from tests.world import World

FOLDER: Final = Path(__file__).parent.parent.parent / "docs" / "monitoring"
ALERTS: Final[Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD: Final[Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES: Final = [rule for group in ALERTS["groups"] for rule in group["rules"]]
_SELECTED: Final = re.compile(r"\b((?:replica_bot|process)_[a-z_]+)(?:\{([^}]*)\})?")
_GROUPED: Final = re.compile(r"\bby \(([^)]*)\)")
_MATCHED: Final = re.compile(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"')
#: Those that Prometheus adds itself.
_OF_PROMETHEUS: Final = {"instance", "job"}


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def labels_of(found: Scrape, name: str) -> set[str]:
    return {label for each in found.samples if each.name == name for label in each.labels}


async def test_what_dashboard_and_alerts_ask_for_is_in_a_scrape(world: World) -> None:
    # Of each metric with labels, one happens.
    world.service.faults.next("read_video", CannedResponse(200, ["odd"]))
    await world.request_video(world.ana)
    await world.advance(minutes=5)
    await world.request_video(world.ben)
    found = await scrape(world)
    names = {each.name for each in found.samples}
    for expression in expressions():
        selected = _SELECTED.findall(expression)
        assert selected, expression
        known = set(_OF_PROMETHEUS)
        for name, matchers in selected:
            assert name in names, f"{name} is not measured: {expression}"
            known |= labels_of(found, name)
            for label, pattern in _MATCHED.findall(matchers):
                assert label in known, expression
                if label not in _OF_PROMETHEUS and "=~" in matchers:
                    values = {each.labels.get(label) for each in found.samples}
                    assert set(pattern.split("|")) <= values, expression
        for group in _GROUPED.findall(expression):
            assert {label.strip() for label in group.split(",")} <= known, expression


def test_the_dashboard_shows_every_metric_once_at_a_place_of_its_own() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    assert all(panel["title"] for panel in DASHBOARD["panels"])


async def test_every_metric_of_ours_is_on_the_dashboard(world: World) -> None:
    found = await scrape(world)
    asked = " ".join(expressions())
    ours = {each.name for each in found.families if each.name.startswith("replica_bot_")}
    assert not {name for name in ours if not name.endswith("_created") and name not in asked}


def test_what_all_copies_read_from_one_database_is_not_added_up() -> None:
    shared = r"replica_bot_(?:jobs|due|oldest_due_seconds)\b"
    used = [each for each in expressions() if re.search(shared, each)]
    assert len(used) == 4
    for each in used:
        assert re.match(rf"max by \((?!.*instance.*\) \().*\) \({shared}", each), each
