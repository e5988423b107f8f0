"""The Slack app's manifest: valid for Slack, and with no more scopes than needed."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
import yaml

from bot.ops import init
from bot.ops.manifest import manifest as manifest_for
from bot.ops.manifest import read
from bot.settings import ManifestSettings
from bot.slack.installation import OPTIONAL_SCOPES, REQUIRED_SCOPES

_ROOT = Path(__file__).parent.parent.parent
_TEXT = (_ROOT / "manifest.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def manifest() -> Any:  # noqa: ANN401 - a document
    return yaml.safe_load(_TEXT)


def _strings(node: object) -> list[str]:
    if isinstance(node, dict):
        return [text for value in node.values() for text in _strings(value)]
    if isinstance(node, list):
        return [text for value in node for text in _strings(value)]
    return [node] if isinstance(node, str) else []


def test_the_manifest_is_valid_by_slacks_schema(manifest: Any) -> None:  # noqa: ANN401
    schema = json.loads((_ROOT / "tests/data/manifest.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    errors = jsonschema.Draft7Validator(schema).iter_errors(manifest)
    assert [error.message for error in errors] == []


@pytest.mark.parametrize("socket_mode", [False, True])
@pytest.mark.parametrize(
    "environ", [{}, {"PUBLIC_URL": "https://bot.example.com/a", "COMMAND_PREFIX": "acme-"}]
)
def test_the_bot_reads_its_manifest_like_a_library_for_yaml(
    environ: dict[str, str], *, socket_mode: bool
) -> None:
    text = manifest_for(ManifestSettings.read(environ), socket_mode=socket_mode)
    assert read(text) == yaml.safe_load(text)


def test_doctor_and_setup_know_each_scope_of_the_manifest(manifest: Any) -> None:  # noqa: ANN401
    scopes = manifest["oauth_config"]["scopes"]
    assert set(scopes["bot_optional"]) == set(OPTIONAL_SCOPES)
    assert set(scopes["bot"]) - set(scopes["bot_optional"]) == set(REQUIRED_SCOPES)


def test_scripts_arrive_as_they_are_typed(manifest: Any) -> None:  # noqa: ANN401
    commands = manifest["features"]["slash_commands"]
    assert [each["should_escape"] for each in commands] == [False] * len(commands)


def test_the_manifest_of_a_deployment_has_its_host_and_the_names_of_its_commands() -> None:
    prefix = "a" * 24
    settings = {"PUBLIC_URL": "https://bot.example.com/videos", "COMMAND_PREFIX": prefix}
    printed = manifest_for(ManifestSettings.read(settings))
    document = yaml.safe_load(printed)
    schema = json.loads((_ROOT / "tests/data/manifest.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(document)

    commands = [each["command"] for each in document["features"]["slash_commands"]]
    assert commands == [f"/{prefix}video", f"/{prefix}replica"]
    assert all(len(each) <= 32 for each in commands)
    urls = [text for text in _strings(document) if re.match("https?:", text)]
    assert urls == ["https://bot.example.com/videos/slack/events"] * len(urls)
    assert "YOUR-HOST" not in printed


def test_with_socket_mode_the_manifest_has_no_request_urls(subtests: pytest.Subtests) -> None:
    for public_url in ["", "https://bot.example.com"]:
        with subtests.test(public_url=public_url):
            settings = {"SLACK_APP_TOKEN": "xapp-1-A0-1-abc", "PUBLIC_URL": public_url}
            printed = manifest_for(ManifestSettings.read(settings))
            assert printed == manifest_for(ManifestSettings.read({}), socket_mode=True)
            document = yaml.safe_load(printed)
            schema = json.loads(
                (_ROOT / "tests/data/manifest.schema.json").read_text(encoding="utf-8")
            )
            jsonschema.Draft7Validator(schema).validate(document)

            assert document["settings"]["socket_mode_enabled"] is True
            assert not re.search(r"https?:|YOUR-HOST|xapp|url", re.sub("(?m)#.*", "", printed))
            assert "xapp" not in printed
            # Everything else is as without it.
            over_http = yaml.safe_load(_TEXT)
            for part in (
                *over_http["features"]["slash_commands"],
                over_http["settings"]["interactivity"],
            ):
                part.pop("url", None)
                part.pop("request_url", None)
                part.pop("message_menu_options_url", None)
            over_http["settings"]["event_subscriptions"].pop("request_url")
            over_http["settings"]["socket_mode_enabled"] = True
            assert document == over_http
            assert manifest_for(ManifestSettings.read(settings), socket_mode=False).count(
                "request_url"
            )


def test_without_settings_the_manifest_is_printed_as_it_is() -> None:
    assert manifest_for(ManifestSettings.read({})) == _TEXT


@pytest.mark.parametrize("socket_mode", [True, False])
def test_the_link_to_slacks_form_has_the_manifest(socket_mode: bool) -> None:  # noqa: FBT001
    settings = ManifestSettings.read({"PUBLIC_URL": "https://bot.example.com"})
    text = manifest_for(settings, socket_mode=socket_mode)
    link = init.link(text)
    assert len(link) < 3000
    [given] = parse_qs(urlsplit(link).query)["manifest_json"]
    assert json.loads(given) == yaml.safe_load(text)
