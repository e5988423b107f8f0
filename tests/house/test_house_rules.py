"""Rules for the whole project: complete tables, and documents that are true."""

import ast
import json
import re
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
import yaml
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.app import FEATURES
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.model import Failure, Job, Snapshot, State, Verdict
from bot.ops import init
from bot.ops.manifest import manifest as manifest_for
from bot.ops.manifest import read
from bot.settings import ManifestSettings
from bot.slack.app import register_listeners
from bot.slack.context import HandlerContext
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.installation import OPTIONAL_SCOPES, REQUIRED_SCOPES
from bot.slack.views.buttons import TURN_PAGE
from bot.slack.views.card import card, reply
from bot.slack.views.home import home_view
from bot.slack.views.presenters import state_word
from sandbox.block_kit import objects
from sandbox.faults import CannedResponse
from tests import messages
from tests.messages import literals, sources
from tests.planted import load_bugs
from tests.world import REPLICA, World

KINDS = {feature.kind.name: feature.kind for feature in FEATURES}
PRESENTERS = {feature.kind.name: feature.presenter for feature in FEATURES}
ROOT = Path(__file__).parent.parent.parent
MANIFEST = yaml.safe_load((ROOT / "manifest.yml").read_text(encoding="utf-8"))
DOCUMENTED = tomllib.loads((ROOT / "tests/data/slack_errors.toml").read_text(encoding="utf-8"))
MODULES = sorted((ROOT / "bot").rglob("*.py"))

HISTORY = {"channels:history", "groups:history", "im:history"}
# The scopes of the methods that the bot calls: https://docs.slack.dev/reference/methods.
SCOPES: dict[str, set[str]] = {
    "chat_getPermalink": set(),  # https://docs.slack.dev/reference/methods/chat.getPermalink
    "auth_test": set(),
    # With an app-level token: https://docs.slack.dev/reference/methods/apps.connections.open
    "apps_connections_open": set(),
    "bots_info": {"users:read"},
    # This and files_delete are for `doctor --post`.
    "chat_delete": {"chat:write"},
    "chat_postMessage": {"chat:write"},
    "chat_update": {"chat:write"},
    "conversations_history": HISTORY,
    "conversations_join": {"channels:join"},
    # Those of direct messages are not looked up.
    "conversations_info": {"channels:read", "groups:read"},
    "conversations_open": {"im:write"},
    "conversations_replies": HISTORY,
    "files_completeUploadExternal": {"files:write"},
    "files_getUploadURLExternal": {"files:write"},
    "files_delete": {"files:write"},
    "files_info": {"files:read"},
    "usergroups_list": {"usergroups:read"},
    "usergroups_users_list": {"usergroups:read"},
    "users_info": {"users:read"},
    "views_open": set(),
    "views_publish": set(),
    "views_update": set(),
}
# Those of events: https://docs.slack.dev/reference/events.
EVENT_SCOPES = {"app_mention": "app_mentions:read", "message.im": "im:history"}


# Listeners


class Listeners:
    """Stands in for the Bolt app and keeps the ids that listeners are registered for."""

    def __init__(self) -> None:
        kinds = ("command", "view", "action", "options", "shortcut", "event")
        self.ids: dict[str, list[str]] = {kind: [] for kind in kinds}
        # All else is used by listeners only.
        context = cast("HandlerContext", SimpleNamespace(command="/{}".format))
        register_listeners(cast("AsyncApp", self), context, FEATURES)

    def __getattr__(self, method: str) -> Callable[[str | re.Pattern[str]], Callable[..., object]]:
        def register(constraint: str | re.Pattern[str]) -> Callable[..., object]:
            if isinstance(constraint, str):
                self.ids[method].append(constraint)
            return lambda listener: listener

        return register


LISTENERS = Listeners().ids


# The manifest


def test_the_manifest_has_the_commands_that_the_bot_answers() -> None:
    manifested = [each["command"] for each in MANIFEST["features"]["slash_commands"]]
    assert sorted(manifested) == sorted(LISTENERS["command"])


def test_the_manifest_has_the_shortcuts_and_events_that_the_bot_answers() -> None:
    shortcuts = [each["callback_id"] for each in MANIFEST["features"]["shortcuts"]]
    assert sorted(shortcuts) == sorted(LISTENERS["shortcut"])
    subscribed = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    types = {name.partition(".")[0] for name in subscribed}
    assert types == set(LISTENERS["event"])
    assert {EVENT_SCOPES.get(name, "commands") for name in subscribed} <= set(
        MANIFEST["oauth_config"]["scopes"]["bot"]
    )


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documents:
            yield str(node.value)


def test_no_text_of_the_bot_names_a_command_without_the_prefix_of_the_settings() -> None:
    named = [
        f"{path}: {text}"
        for path in MODULES
        if path.is_relative_to(ROOT / "bot/slack")
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if re.search(r"(?<![\w.-])/(video|replica)\b", text)
    ]
    assert named == []


def called_methods() -> set[str]:
    """Return the methods of Slack's that the bot's code names, as its client calls them."""
    known = {name for name in dir(AsyncWebClient) if re.fullmatch(r"[a-z]+(_[a-zA-Z]+)+", name)}
    known -= {"api_call", "send_slack_request"}
    return {
        node.attr
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in known
    }


def test_the_manifest_asks_for_the_scopes_of_the_methods_used_and_for_no_others() -> None:
    needed = {scope for method in called_methods() for scope in SCOPES[method]}
    # One is for slash commands; the other lets chat.postMessage into channels without invitation.
    needed |= {"commands", "chat:write.public", *EVENT_SCOPES.values()}
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == needed


# Ids of buttons, fields and forms

JOB = Job("1", "video", {}, "U0ANA", "C0STUDIO", None, datetime(2026, 3, 2, tzinfo=UTC))
LINKS = ("hosted_url", "download_url", "stream_url", "thumbnail_video_url")
READY = Snapshot(
    "x1", "ready", Verdict.SUCCEEDED, facts=dict.fromkeys(LINKS, "https://a.example/x1")
)


def jobs() -> Iterator[Job]:
    """Yield a job of each kind in each state, as often as there are ways to be in it."""
    for kind in KINDS:
        for state in State:
            for asked in (0, 1):
                for failure in Failure:
                    yield replace(
                        JOB,
                        kind=kind,
                        state=state,
                        asked=asked,
                        failure=failure,
                        remote_id="x1",
                        snapshot=READY,
                    )


def test_every_button_has_a_listener_or_is_a_link() -> None:
    rendered = [
        each
        for job in jobs()
        for message in (card(job, PRESENTERS[job.kind]), reply(job, PRESENTERS[job.kind]))
        for each in objects(message.blocks)
        if each.get("type") == "button"
    ]
    shown = home_view(list(jobs()), PRESENTERS, "/{}".format, page=1, more=True, replicas=())
    rendered += [each for each in objects(shown["blocks"]) if each.get("type") == "button"]
    # One listener answers both of them.
    rendered = [each for each in rendered if not each["action_id"].startswith(TURN_PAGE)]
    assert rendered
    unanswered = {each["action_id"] for each in rendered if not each.get("url")}
    assert unanswered <= set(LISTENERS["action"])


async def test_every_form_and_field_that_asks_has_a_listener(quiet: World) -> None:
    approval: dict[str, Any] = {"APPROVERS": quiet.ben.user.id, "APPROVAL_ABOVE": "20000"}
    admin = quiet.ana.user.id
    async with quiet.running_bot(callbacks=False, ADMIN_USERS=admin, **approval):
        forms = [
            await quiet.open_form(quiet.ben, command=command) for command in LISTENERS["command"]
        ]
        quiet.service.faults.next("create_video", CannedResponse(500))
        posted = await quiet.request_video(quiet.ana)
        await quiet.ana.click(quiet.question(posted), "I found it")
        assert quiet.ana.modal is not None
        forms.append(quiet.ana.modal)
        await quiet.ana.modal.close()
        await quiet.advance(seconds=5)  # after a failed call, creates wait for a moment
        quiet.service.faults.next("create_video", CannedResponse(500))
        await quiet.request_video(quiet.ana)
        await quiet.ana.click(quiet.questions(posted)[0], "Answer each")
        assert quiet.ana.modal is not None
        forms.append(quiet.ana.modal)
        await quiet.ana.modal.close()
        await quiet.after(quiet.ana.open_home())
        assert quiet.ana.home is not None
        await quiet.ana.home.click("Change limits")
        assert quiet.ana.modal is not None
        forms.append(quiet.ana.modal)
        await quiet.ana.modal.close()
        for verb in ("rename", "remove"):
            await quiet.after(quiet.ana.command("/replica", f"add {REPLICA}"))
            await quiet.ana.command("/replica", f"{verb} {REPLICA}")
            assert quiet.ana.modal is not None
            forms.append(quiet.ana.modal)
            await quiet.ana.modal.close()
        await quiet.request_replica(quiet.ana)
        [asked] = quiet.slack.messages(quiet.slack.dm("ben").id)
        await quiet.ben.click(asked, "Decline")
        assert quiet.ben.modal is not None
        forms.append(quiet.ben.modal)
    views = [form.view.body for form in forms]
    assert {view["callback_id"] for view in views} == set(LISTENERS["view"])
    fields = [each for each in objects(views) if each.get("type") == "input"]
    asking = {each["element"]["action_id"] for each in fields if each.get("dispatch_action")}
    assert asking
    assert asking <= set(LISTENERS["action"])
    searching = {
        each["action_id"] for each in objects(views) if each.get("type") == "external_select"
    }
    assert searching
    assert searching <= set(LISTENERS["options"])


# Kinds


def test_every_kind_has_words_for_every_state() -> None:
    for job in jobs():
        presenter = PRESENTERS[job.kind]
        assert presenter.noun in card(job, presenter).text.casefold()
        assert presenter.noun in reply(job, presenter).text
        assert state_word(job, presenter)


def test_slack_shows_the_whole_label_of_each_button() -> None:
    # https://docs.slack.dev/reference/block-kit/block-elements/button-element: about 30 characters
    labels = [
        node.args[0].value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "button"
        if isinstance(node.args[0], ast.Constant)
    ]
    assert len(labels) > 10
    assert [label for label in labels if len(str(label)) > 30] == []


def test_the_service_is_only_ever_asked_to_create_and_to_read() -> None:
    source = (ROOT / "bot/service/client.py").read_text(encoding="utf-8")
    calls = [
        node.args[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_call"
    ]
    assert {each.value for each in calls if isinstance(each, ast.Constant)} == {"POST", "GET"}
    assert all(isinstance(each, ast.Constant) for each in calls)
    assert source.count(".stream(") == 1, "all of them go through one place"


# What Slack's refusals mean


def codes_for(*actions: ErrorAction) -> list[str]:
    return [code for code, action in ERROR_ACTIONS.items() if action in actions]


REFUSALS = codes_for(*set(ErrorAction) - {ErrorAction.RETRY, ErrorAction.RECONCILE})


def test_every_code_that_slack_documents_has_an_action() -> None:
    documented = {code for codes in DOCUMENTED.values() for code in codes.split()}
    assert len(documented) >= 100
    assert documented - ERROR_ACTIONS.keys() == set()


def answer(
    code: str, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> SlackApiError:
    response = AsyncSlackResponse(
        client=None,
        http_verb="POST",
        api_url="https://slack.com/api/chat.postMessage",
        req_args={},
        data={"ok": False, "error": code},
        headers=headers or {},
        status_code=status,
    )
    return SlackApiError("", response)  # type: ignore[no-untyped-call]


async def meaning(raised: BaseException) -> OutsideError:
    with pytest.raises(OutsideError) as caught:
        async with translated(timedelta(seconds=1)):
            raise raised
    return caught.value


async def test_a_refusal_by_slack_keeps_its_code() -> None:
    for code in (*REFUSALS, "a_code_that_nobody_knows", "h264_not_taken"):
        error = await meaning(answer(code))
        assert isinstance(error, Refused), code
        assert error.code == code


async def test_slack_outages_are_distinguished_from_refusals() -> None:
    for code in codes_for(ErrorAction.RETRY):
        assert type(await meaning(answer(code))) is Unavailable
    for code in codes_for(ErrorAction.RECONCILE):
        assert type(await meaning(answer(code))) is Uncertain
    for code in ("channel_not_found", "ratelimited", ""):
        slow = await meaning(answer(code, 429, {"Retry-After": "30"}))
        assert isinstance(slow, Unavailable)
        assert slow.retry_after == timedelta(seconds=30)
        assert isinstance(await meaning(answer("channel_not_found", 503)), Uncertain)


def kinds_of(base: type[Exception]) -> list[type[Exception]]:
    found = [base]
    for each in found:
        found += each.__subclasses__()
    return found


async def test_any_other_exception_of_slacks_client_means_uncertain() -> None:
    others = [each for each in kinds_of(SlackClientError) if each is not SlackApiError]
    assert len(others) >= 5
    for raised in others:
        assert type(await meaning(raised.__new__(raised))) is Uncertain, raised


def test_the_sandbox_draws_each_emoji_that_the_bot_writes() -> None:
    drawn = (ROOT / "sandbox/page/static/js/emoji.js").read_text(encoding="utf-8")
    written = {
        name
        for path in (ROOT / "bot/slack").rglob("*.py")
        for name in re.findall(r"[\"' ]:([a-z][a-z_]+):[\"' ]", path.read_text(encoding="utf-8"))
    }
    assert {"white_check_mark", "warning"} <= written
    assert [name for name in sorted(written) if f"\n  {name}: " not in drawn] == []


# Documents


def test_the_bot_has_at_most_ten_direct_dependencies_and_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert len(tomllib.loads(text)["project"]["dependencies"]) <= 10
    [listed] = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    reasons = re.split(r'^ *"[^"]+",\n', listed, flags=re.MULTILINE)[:-1]
    assert all(re.search(r"\bMIT|BSD-3|Apache-2\.0", each) for each in reasons)


def test_dependencies_are_installed_from_wheels_with_hashes() -> None:
    # A source distribution runs its own code while it is installed.
    for path in ROOT.glob("requirements*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert "--only-binary :all:" in lines, path
        pinned = [line for line in lines if re.match(r"[\w.-]+==", line)]
        assert pinned, path
        assert [line for line in pinned if not line.endswith("\\")] == [], "a hash follows"


def test_node_packages_are_pinned_by_hash_without_the_address_of_a_registry() -> None:
    lock = json.loads((ROOT / "tests/axe/package-lock.json").read_text(encoding="utf-8"))
    packages = [each for name, each in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in each and "resolved" not in each for each in packages)


def test_documented_installations_require_hashes() -> None:
    for document in ("README.md", "docs/install.md", ".ci/run"):
        text = (ROOT / document).read_text(encoding="utf-8")
        assert text.count("pip install") == text.count("--require-hashes") > 0, document


def test_the_example_of_settings_can_be_read_by_a_shell_and_is_copied_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    copy = next(
        line.removeprefix("#").strip()
        for line in (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
        if line.startswith("#   install")
    )
    lines = (ROOT / "docs/install.md").read_text(encoding="utf-8").splitlines()
    assert copy in map(str.strip, lines)
    shutil.copy(ROOT / ".env.example", tmp_path)
    quoted = "VIDEO_API_KEY='a&b $HOME;#'"
    script = f'{copy}; echo "{quoted.replace("$", chr(92) + "$")}" >> .env; set -a; . ./.env; env'
    shell = ["/bin/sh", "-euc", script]
    read = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "VIDEO_API_KEY=a&b $HOME;#" in read.stdout.splitlines()
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


BOT = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "bot").rglob("*.py"))
}
TREES = {name: ast.parse(text) for name, text in BOT.items()}


KIND_NAMES = {feature.kind.name for feature in FEATURES}
# The modules of one kind: its feature, its parameters, and what its cards and forms say.
OF_ONE_KIND = re.compile(
    r"bot/(kinds/(video|replica|answers)"
    r"|slack/(features/(video|replica)|views/presenters)"
    r"|store/replicas)\.py"
)


def test_a_generic_module_names_no_kind() -> None:
    naming = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        if not OF_ONE_KIND.fullmatch(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in KIND_NAMES
    ]
    assert naming == []


def test_each_planted_bug_can_be_planted_and_its_tests_are_there() -> None:
    mistakes = []
    for bug in load_bugs():
        if (ROOT / bug.file).read_text(encoding="utf-8").count(bug.old) != 1:
            mistakes.append(f"{bug.name}: its old text has moved or changed")
        for test in bug.caught_by:
            file, _, name = test.partition("[")[0].partition("::")
            tests = (ROOT / file).read_text(encoding="utf-8")
            if not re.search(rf"^(async )?def {name}\(", tests, re.MULTILINE):
                mistakes.append(f"{bug.name}: there is no {test}")
    assert mistakes == [], "see tests/planted.toml"


async def test_the_page_of_all_texts_is_current() -> None:
    written = messages.PAGE.read_text(encoding="utf-8")
    assert written == await messages.page(), "python -m tests.messages writes it"


def test_no_sentence_of_the_source_is_missing_on_the_page() -> None:
    page = messages.PAGE.read_text(encoding="utf-8")
    assert messages.rest(page) == {}
    found = [text for _, source in sources() for text in literals(source)]
    assert len(found) > 200


@pytest.mark.parametrize(
    "words", ["somebody", "nobody", "at once", "after all", "runs this bot", "charged for it"]
)
def test_people_read_plain_words(words: str) -> None:
    assert words not in messages.PAGE.read_text(encoding="utf-8").casefold()


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
