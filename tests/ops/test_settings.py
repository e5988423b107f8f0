"""Settings: what is accepted and what is refused. No refusal shows a value."""

import os
import re
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import command_line
from bot.errors import OperatorError
from bot.settings import ManifestSettings, Settings, SettingsError, environment
from sandbox.http import free_port
from sandbox.scenarios import Scenario
from tests.journeys.test_home import opened, words
from tests.modes import on_both_engines
from tests.ops.report import report
from tests.ops.test_command_line import bot
from tests.processes_of_commands import started
from tests.world import World

_REQUIRED = {
    "SLACK_BOT_TOKEN": "xoxb-1234-abcd",
    "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99eeeeee85a5",
    "VIDEO_API_URL": "https://videos.example.com",
    "VIDEO_API_KEY": "key-1234",
}
_MARK = "s3cr3t"
_NAMES = list(Settings.table())
# Where a value may be a secret, or an address with one in it.
_NOT_SHOWN = [name for name in _NAMES if re.search("TOKEN|SECRET|KEY|URL|PROXY", name)]
_EXAMPLE = (Path(__file__).parent.parent.parent / ".env.example").read_text(encoding="utf-8")


def _read(**changes: str) -> Settings:
    return Settings.read(_REQUIRED | changes)


def _refusal(**changes: str) -> str:
    """Return the one line of the refusal that these changes get."""
    with pytest.raises(SettingsError) as refusal:
        _read(**changes)
    [line] = _listed(refusal.value)
    return line


def _listed(refusal: SettingsError) -> list[str]:
    """Return what a refusal lists, without what it says about ``.env``."""
    return [line.strip() for line in str(refusal).splitlines() if line.startswith("  ")]


def test_all_missing_settings_are_listed_at_once() -> None:
    with pytest.raises(SettingsError) as refusal:
        Settings.read({})
    lines = _listed(refusal.value)
    names = ["SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "VIDEO_API_URL", "VIDEO_API_KEY"]
    assert [line.split()[:3] for line in lines] == [[name, "is", "missing:"] for name in names]
    assert all(line.endswith(".") for line in lines)


def test_a_blank_value_counts_as_missing(subtests: pytest.Subtests) -> None:
    for blank in ["", "  ", "\n"]:
        for name in _REQUIRED:
            with subtests.test(blank=blank, name=name):
                # Of the two of which one is enough, the other one is named.
                missing = name.replace("SLACK_SIGNING_SECRET", "SLACK_APP_TOKEN")
                assert _refusal(**{name: blank}).startswith(f"{missing} is missing:")


def test_every_url_of_postgresql_is_passed_on_as_it_is(subtests: pytest.Subtests) -> None:
    for url in [
        "postgresql://me:p%40ss%2Fword@a.example.com:5432,b.example.com:5433/bot",
        "postgres://me@[::1]:5432/bot?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql:///bot?host=/var/run/postgresql&user=me@here",
        "postgresql://me@%2Fvar%2Frun%2Fpostgresql/bot?target_session_attrs=any",
    ]:
        with subtests.test(url=url):
            settings = Settings.read(_REQUIRED | {"DATABASE_URL": url})
            assert settings.database_address == url
            assert "p@ss/word" in settings.secrets or "p%40" not in url


def test_a_wrong_value_is_refused_with_an_explanation(subtests: pytest.Subtests) -> None:
    for name, text, says in [
        ("SLACK_BOT_TOKEN", "1234", "starts with xoxb-"),
        ("SLACK_BOT_TOKEN", "xoxb-12 34", "has a space, a line break"),
        ("SLACK_APP_TOKEN", "xapp-", "connections:write"),
        ("SLACK_API_URL", "http://slack.com/api/", "not encrypted"),
        ("VIDEO_API_URL", "https://videos.example.com/v2/videos", "leave it out"),
        ("VIDEO_API_URL", "https://me:pass@videos.example.com", "user name or password"),
        ("VIDEO_API_URL", "https://videos.example.com?key=1", "query or fragment"),
        ("VIDEO_API_URL", "http://videos.example.com", "not encrypted"),
        ("VIDEO_API_URL", "ftp://videos.example.com", "not a web URL"),
        ("VIDEO_API_URL", "https://videos example.com", "not a web URL"),
        ("VIDEO_API_URL", "https://vidéos.example.com", "not a web URL"),
        ("SLACK_BOT_TOKEN", "xapp-1-A1-2-b3", "is an app-level token, not the Bot User OAuth"),
        ("SLACK_BOT_TOKEN", "xoxp-1234", "is a user token"),
        ("SLACK_APP_TOKEN", "xoxb-5678-abcd", "is a bot token, not the "),
        ("SLACK_SIGNING_SECRET", "hello", "does not look like a signing secret, which is 32"),
        (
            "SLACK_SIGNING_SECRET",
            "8F742231B10E8888ABCD99EEEEEE85A5",
            "is 32 characters from 0 to 9 and a to f",
        ),
        ("SLACK_SIGNING_SECRET", "A024BE7LH", "the Verification Token is another one): copy it"),
        ("VIDEO_API_KEY", "xapp-1-A1-2-b3", "is an app-level token"),
        ("MEDIA_HOSTS", "https://cdn.example.com", "without https:// and paths"),
        ("MEDIA_HOSTS", "*.com", "has something in it, which is no host"),
        ("VIDEO_API_URL", "foo", "it should look like https://videos.example.com."),
        ("DATABASE_URL", "sqlite:///~/bot.db", "is no database: it should look like"),
        ("HOST", "http://0.0.0.0", "it should look like 0.0.0.0"),
        ("VIDEO_API_KEY", "key 1234", "copy it again"),
        ("VIDEO_API_KEY", "clé", "copy it again"),
        ("PUBLIC_URL", "http://bot.example.com", "not encrypted"),
        ("PUBLIC_URL", "https://bot.example.com/slack/events", "own paths"),
        ("PUBLIC_URL", "https://bot.example.com/a//b", "in its path"),
        ("DATABASE_URL", "postgresql://me:pass@db", "does not name a database"),
        ("DATABASE_URL", "postgresql://db:port/bot", "does not name a database"),
        ("DATABASE_URL", "postgresql+asyncpg://db/bot", "is no database"),
        ("DATABASE_URL", "postgresql://me:pa@ss@db/bot", "as %40 there"),
        ("DATABASE_URL", "postgresql://me:12/ss@db/bot", "as %40 there, and likewise / as %2F"),
        ("DATABASE_URL", "postgresql://me:pa#ss@db/bot", "and # as %23"),
        ("DATABASE_URL", "postgresql://me:100%@db/bot", "as %25"),
        ("DATABASE_URL", "bot.db", "is no database"),
        ("DATABASE_URL", "sqlite:///bot.db?mode=ro", "is no database: it should look like"),
        ("ADMIN_USERS", "@maria", "has “@maria” in it, which is no Slack user id"),
        ("ADMIN_USERS", "U024BE7LH,C024BE7LH", "has “C024BE7LH” in it, which is no Slack"),
        ("RETENTION_DAYS", "-1", "between 1 and 36,500 (in digits alone), not “-1”"),
        ("MAX_OPEN_PER_USER", "0", "must be between 1 and 1,000,000, not 0."),
        ("MAX_PER_DAY", "1,000", "(in digits alone), not “1,000”."),
        ("ALLOW_TEMPORARY_DISK", "perhaps", "must be yes or no, not “perhaps”."),
        ("HOST", "any host", "is not an address to listen on"),
        ("PORT", "65536", "must be between 0 and 65,535, not 65536."),
        ("PORT", "xoxb-5678-abcd", "is a bot token, not what belongs here"),
        ("COMMAND_PREFIX", "Acme", "is “Acme”, which is not the beginning of a command's name"),
        ("APPROVAL_CHANNEL", "#studio", "is “#studio”, which is not the id of a Slack channel"),
    ]:
        with subtests.test(name=name, text=text, says=says):
            refusal = _refusal(**{name: text})
            assert refusal.startswith(f"{name} ")
            assert says in refusal
            assert refusal.endswith(".")


def test_a_secret_that_is_in_another_setting_too_is_not_shown() -> None:
    secret, key = "7c0e5a4bd39f41c68a2e6b1f90d3c857", "sk-" + 50 * "k"
    for name in ("ADMIN_USERS", "MAX_PER_DAY", "COMMAND_PREFIX", "JOIN_PUBLIC_CHANNELS", "PORT"):
        for text in (secret, key, f"U024BE7LH, {secret}"):
            refusal = _refusal(**{"SLACK_SIGNING_SECRET": secret, "VIDEO_API_KEY": key, name: text})
            assert "7c0e" not in refusal
            assert "sk-" not in refusal
            owner = "VIDEO_API_KEY" if text == key else "SLACK_SIGNING_SECRET"
            assert refusal.startswith(f"{name} has the value of {owner} in it")


def test_a_common_mistake_has_a_message_of_its_own(subtests: pytest.Subtests) -> None:
    for text, says in [
        ('"quoted"', "quotes around it"),
        ("'quoted'", "quotes around it"),
        (" spaced", "space or line break before or after"),
        ("broken\n", "space or line break before or after"),
        ("xoxb-YOUR-TOKEN", "placeholder"),
    ]:
        for name in _NAMES:
            with subtests.test(text=text, says=says, name=name):
                assert says in _refusal(**{name: text})


@given(st.sampled_from(_NOT_SHOWN), st.text(min_size=1))
def test_no_refusal_shows_a_value_that_may_be_secret(name: str, text: str) -> None:
    shown = ""
    try:
        _read(**{name: _MARK + text + _MARK})
    except SettingsError as refusal:
        shown = "".join(traceback.format_exception(refusal))
    assert _MARK not in shown


def test_a_token_of_slacks_is_not_shown_wherever_it_was_put(subtests: pytest.Subtests) -> None:
    for name in _NAMES:
        for token in ("xoxb-1-s3cr3t", "xapp-1-s3cr3t", "xoxp-1-s3cr3t", "xoxe.xoxp-1-s3cr3t"):
            with subtests.test(name=name, token=token):
                if name != {"xoxb": "SLACK_BOT_TOKEN", "xapp": "SLACK_APP_TOKEN"}.get(token[:4]):
                    assert _MARK not in _refusal(**{name: token})


def test_bytes_that_are_not_text_are_refused(subtests: pytest.Subtests) -> None:
    for name in _NAMES:
        with subtests.test(name=name):
            assert _refusal(**{name: "\udcff"}).startswith(f"{name} ")


def test_printed_settings_contain_no_secret() -> None:
    settings = _read()
    for shown in (repr(settings), str(settings), str(settings.model_dump())):
        for secret in settings.secrets:
            assert secret not in shown


def test_the_password_of_the_proxy_is_a_secret_as_it_is_set_and_decoded() -> None:
    settings = _read(HTTPS_PROXY="http://user:p%40ssword%2F1@proxy.example.com:3128")
    assert {"p%40ssword%2F1", "p@ssword/1"} <= set(settings.secrets)


def test_with_an_app_token_no_signing_secret_is_needed_and_the_token_is_a_secret() -> None:
    given = {name: text for name, text in _REQUIRED.items() if name != "SLACK_SIGNING_SECRET"}
    with pytest.raises(SettingsError) as refusal:
        Settings.read(given)
    [line] = _listed(refusal.value)
    assert line.split()[:3] == ["SLACK_APP_TOKEN", "is", "missing:"]
    assert line.endswith("(or set SLACK_SIGNING_SECRET, with an https address).")

    settings = Settings.read(given | {"SLACK_APP_TOKEN": "xapp-1-A1-2-b3"})
    assert settings.slack_signing_secret is None
    assert set(settings.secrets) == {
        given["SLACK_BOT_TOKEN"],
        given["VIDEO_API_KEY"],
        "xapp-1-A1-2-b3",
    }
    assert "xapp-1" not in repr(settings)


def test_a_wrong_app_token_is_the_only_mistake_where_there_is_no_signing_secret() -> None:
    assert _refusal(SLACK_SIGNING_SECRET="", SLACK_APP_TOKEN="xoxb-1").startswith("SLACK_APP_TOKEN")


def test_urls_are_normalised(subtests: pytest.Subtests) -> None:
    for given_url, url in [
        ("https://videos.example.com/", "https://videos.example.com"),
        ("https://videos.example.com//", "https://videos.example.com"),
        ("HTTPS://Videos.Example.com:8443/Base/", "https://videos.example.com:8443/Base"),
        ("https://videos.example.com:/", "https://videos.example.com"),
        ("http://localhost:4000", "http://localhost:4000"),
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000"),
        ("http://[::1]:4000/", "http://[::1]:4000"),
    ]:
        with subtests.test(given_url=given_url, url=url):
            settings = _read(VIDEO_API_URL=given_url, SLACK_API_URL=given_url)
            assert settings.video_api_url == url
            assert settings.slack_api_url == url + "/"
            assert ManifestSettings.read({"PUBLIC_URL": given_url}).public_url == url


def test_three_slashes_mean_a_relative_path_and_four_an_absolute_one(
    subtests: pytest.Subtests,
) -> None:
    for url, path in [
        ("sqlite:///bot.db", Path("bot.db")),
        ("sqlite:///data/bot.db", Path("data/bot.db")),
        ("sqlite:////var/lib/bot/bot.db", Path("/var/lib/bot/bot.db")),
    ]:
        with subtests.test(url=url, path=path):
            assert _read(DATABASE_URL=url).database == path


def test_admins_are_separated_by_commas_or_spaces(subtests: pytest.Subtests) -> None:
    for text in ["U024BE7LH,W012A3CDE", "U024BE7LH W012A3CDE", "U024BE7LH, W012A3CDE,"]:
        with subtests.test(text=text):
            assert _read(ADMIN_USERS=text).admin_users == {"U024BE7LH", "W012A3CDE"}


def test_a_temporary_disk_is_refused(subtests: pytest.Subtests) -> None:
    for answer in [{}, {"ALLOW_TEMPORARY_DISK": "no"}]:
        with subtests.test(answer=answer):
            refusal = _refusal(DYNO="web.1", **answer)
            assert refusal.startswith("ALLOW_TEMPORARY_DISK is not yes")
            assert "where the disk is permanent" in refusal


def test_a_temporary_disk_can_be_allowed() -> None:
    assert _read(DYNO="web.1", ALLOW_TEMPORARY_DISK="yes").allow_temporary_disk is True


def test_a_temporary_disk_does_no_harm_where_the_database_is_on_a_server() -> None:
    settings = _read(DYNO="web.1", DATABASE_URL="postgres://bot:secret@db.example.com/bot")
    assert settings.allow_temporary_disk is False


def test_the_unedited_example_is_refused_for_each_required_setting() -> None:
    uncommented = dict(re.findall(r"^([A-Z_]+)=(.*)$", _EXAMPLE, re.MULTILINE))
    with pytest.raises(SettingsError) as refusal:
        Settings.read(uncommented)
    lines = _listed(refusal.value)
    assert [line.split()[0] for line in lines] == list(_REQUIRED)
    assert all("placeholder" in line for line in lines)


_SECRET = "k3y-of-the-file"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory for this test alone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path = folder / ".env"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


async def test_a_command_reads_what_is_not_set_from_the_file_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "PUBLIC_URL=https://file.example.com\nCOMMAND_PREFIX=acme-\n")
    below = tmp_path / "below"
    below.mkdir()
    read = await bot("manifest", environ={"COMMAND_PREFIX": ""}, folder=tmp_path)
    assert "https://file.example.com/slack/events" in read.out
    assert "acme-" not in read.out, "an empty variable switches that of the file off"
    other = await bot("manifest", environ={}, folder=below)
    assert "file.example.com" not in other.out


def test_the_environment_goes_before_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "COMMAND_PREFIX=file-\nPUBLIC_URL=https://file.example.com\nhttps_proxy=file\n")
    monkeypatch.setenv("PUBLIC_URL", "https://set.example.com")
    monkeypatch.setenv("HTTPS_PROXY", "http://set.example.com:3128")
    settings = ManifestSettings.read(environment())
    assert (settings.command_prefix, settings.public_url) == ("file-", "https://set.example.com")
    assert "https_proxy" not in environment()
    assert environment()["HTTPS_PROXY"] == "http://set.example.com:3128"
    assert "COMMAND_PREFIX" not in environment(with_file=False)
    assert "COMMAND_PREFIX" not in os.environ  # noqa: TID251


def test_a_wrong_line_is_named_by_its_number_and_never_shown(
    folder: Path, subtests: pytest.Subtests
) -> None:
    cases = [
        (f"# mine\n\nA=1\n\n{_SECRET}\nB=2\n", 5),
        (f"A=1\r\n\r\nKEY='{_SECRET}\r\nB=2\r\n", 3),
        (f'A=1\nKEY="{_SECRET}" {_SECRET}\n', 2),
        (f"A=1\n={_SECRET}\n", 2),
    ]
    for content, line in cases:
        with subtests.test(content=content, line=line):
            path = write(folder, content)
            with pytest.raises(OperatorError) as refused:
                environment()
            assert str(refused.value).startswith(f"Line {line} of {path} is not ")
            assert str(refused.value).endswith(".")
            assert _SECRET not in str(refused.value)


def test_a_file_that_is_wrong_or_cannot_be_read_is_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(folder, f"{_SECRET}\n")
    assert command_line.run(["serve"]) == 1
    wrong = capsys.readouterr().err
    write(folder, f"KEY={_SECRET}".encode("utf-16"))
    assert command_line.run(["serve"]) == 1
    encoded = capsys.readouterr().err
    path.unlink()
    path.mkdir()
    assert command_line.run(["serve"]) == 1
    unreadable = capsys.readouterr().err
    for printed, said in (
        (wrong, "Line 1 of "),
        (encoded, f"{path} cannot be read (no UTF-8): make it a text file in UTF-8"),
        (unreadable, f"{path} cannot be read (Is a dir"),
    ):
        assert printed.startswith(said)
        assert len(printed.splitlines()) == 1
        assert _SECRET not in printed


async def test_serve_runs_on_the_file_alone_and_warns_if_others_can_read_it(
    quiet: World, tmp_path: Path
) -> None:
    lines = [f"{name}='{text}'" for name, text in quiet.environment(str(free_port())).items()]
    for mode, warned in ((0o600, 0), (0o644, 1)):
        write(tmp_path, "\n".join(lines), mode)
        async with started("serve", environ={}, folder=tmp_path) as process:
            printed = await process.until("event=listening")
        assert printed.count("others can read .env") == warned
        assert printed.count("chmod 600 .env") == warned


LINKS = (
    "https://stream.example.com/v.mp4?signature=4f00ta9e",
    "https://a.cdn.example.com/v.mp4",
    "https://10.0.0.1/v.mp4",
    "https://localhost/v.mp4",
)


@on_both_engines
async def test_the_hosts_of_finished_videos_are_named_with_the_line_to_set(quiet: World) -> None:
    admin: dict[str, Any] = {"ADMIN_USERS": quiet.ana.user.id}
    async with quiet.running_bot(**admin):
        assert "MEDIA_HOSTS" not in words(await opened(quiet, quiet.ana))
        for link in LINKS:
            quiet.service.next_video(Scenario(overrides={"download_url": link}))
            await quiet.after(quiet.request_video(quiet.ana), minutes=5)
        line = "MEDIA_HOSTS=a.cdn.example.com,stream.example.com"
        assert f"`{line}`" in words(await opened(quiet, quiet.ana))
        found = (await report(quiet, **admin))["MEDIA_HOSTS"]
        assert found.state == "warning"
        assert f"set {line}." in found.remedy
    async with quiet.running_bot(**admin, MEDIA_HOSTS="*.cdn.example.com"):
        line = "MEDIA_HOSTS=*.cdn.example.com,stream.example.com"
        assert f"`{line}`" in words(await opened(quiet, quiet.ana))
    settled = "a.cdn.example.com,stream.example.com"
    assert (await report(quiet, MEDIA_HOSTS=settled)).all("MEDIA_HOSTS") == []
