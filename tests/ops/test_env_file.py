"""The file .env: what it sets, what goes before it, and what is said when it is wrong."""

import os
from pathlib import Path

import pytest

from bot import command_line
from bot.settings import EnvFileError, ManifestSettings, environment
from sandbox.http import free_port
from tests.ops.test_command_line import bot
from tests.processes_of_commands import started
from tests.world import World

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


async def test_a_command_reads_what_is_not_set_from_the_file_in_its_folder(
    tmp_path: Path,
) -> None:
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


def test_a_value_is_what_is_written_there(folder: Path, subtests: pytest.Subtests) -> None:
    for line, value in [
        ("KEY=a$HOME${HOME}b", "a$HOME${HOME}b"),
        ("KEY='a b#c' # why", "a b#c"),
        ('KEY="a\\"b"', 'a"b'),
        ("export KEY = plain # why", "plain"),
        ("\ufeffKEY=after-a-mark\r\n", "after-a-mark"),
        ("KEY=", ""),
    ]:
        with subtests.test(line=line, value=value):
            write(folder, line)
            assert environment()["KEY"] == value


def test_a_wrong_line_is_named_by_its_number_and_never_shown(
    folder: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str | bytes, int]] = [
        (f"# mine\n\nA=1\n\n{_SECRET}\nB=2\n", 5),
        (f"A=1\r\n\r\nKEY='{_SECRET}\r\nB=2\r\n", 3),
        (f'A=1\nKEY="{_SECRET}" {_SECRET}\n', 2),
        (f"A=1\n={_SECRET}\n", 2),
        (b"A=1\nKEY=" + _SECRET.encode() + b"\xff\n", 2),
        (f"KEY={_SECRET}".encode("utf-16"), 1),
    ]
    for content, line in cases:
        with subtests.test(content=content, line=line):
            path = write(folder, content)
            with pytest.raises(EnvFileError) as refused:
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
    path.unlink()
    path.mkdir()
    assert command_line.run(["serve"]) == 1
    unreadable = capsys.readouterr().err
    for printed, said in ((wrong, "Line 1 of "), (unreadable, f"{path} cannot be read (Is a dir")):
        assert printed.startswith(said)
        assert len(printed.splitlines()) == 1
        assert _SECRET not in printed


async def test_serve_runs_on_the_file_alone_and_warns_if_others_can_read_it(
    quiet_world: World, tmp_path: Path
) -> None:
    lines = [f"{name}='{text}'" for name, text in quiet_world.environment(str(free_port())).items()]
    for mode, warned in ((0o600, 0), (0o644, 1)):
        write(tmp_path, "\n".join(lines), mode)
        async with started("serve", environ={}, folder=tmp_path) as process:
            printed = await process.until("event=listening")
        assert printed.count("others can read .env") == warned
        assert printed.count("chmod 600 .env") == warned


def test_where_the_file_was_looked_for_is_said_only_if_it_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SLACK_BOT_TOKEN", "VIDEO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    said = f"there is no .env in {folder}"
    assert command_line.run(["serve"]) == 1
    assert said in capsys.readouterr().err
    write(folder, "VIDEO_API_KEY=k3y-of-mine\n")
    assert command_line.run(["serve"]) == 1
    missing = capsys.readouterr().err
    assert "SLACK_BOT_TOKEN is missing" in missing
    assert said not in missing
