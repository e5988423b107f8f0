"""The Dockerfile's steps without a container engine, in a mount namespace.

`FROM` gives this machine's own files and Python in place of the base image, as an overlay that is
thrown away; everything else is done as the Dockerfile says. It needs root, and Linux's namespaces.
"""

import contextlib
import fnmatch
import io
import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template
from typing import Final

_SYSTEM_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
# A plain user's path leaves out what administrators run, such as chroot.
_ENVIRONMENT: Final = {"PATH": _SYSTEM_PATH}
_TIMEOUT_S: Final = 400.0
# Everything below is in memory, and gone with the namespace.
_BASE: Final = "/mnt"


@dataclass
class Image:
    """What the last stage of a Dockerfile says, and where its files are in the namespace."""

    root: str
    environ: dict[str, str]
    folder: str = "/"
    user: str = "0:0"
    settings: dict[str, str] = field(default_factory=dict)
    """The last arguments of each other instruction, by its name."""

    def argv(self, instruction: str) -> list[str]:
        """Return the arguments of an instruction in its exec form."""
        text = self.settings[instruction]
        argv = json.loads(text[text.index("[") :])
        assert all(isinstance(each, str) for each in argv)
        return list(argv)


class Namespace:
    """A mount namespace of its own; ``hold`` keeps it and ends it."""

    def __init__(self, pid: int) -> None:
        self._enter = ("nsenter", f"--mount=/proc/{pid}/ns/mnt", "--")

    @classmethod
    @contextlib.contextmanager
    def hold(cls) -> Iterator["Namespace"]:
        """Make a namespace with an empty folder in memory at `_BASE`."""
        script = f"mount -t tmpfs tmpfs {_BASE} && echo ready && read -r _"
        command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            try:
                yield cls(holder.pid)
            finally:
                holder.kill()

    def run(self, *command: str, stdin: bytes = b"") -> str:
        """Run a command in it and return what it printed; fail the test if it fails."""
        done = subprocess.run(
            (*self._enter, *command),
            env=_ENVIRONMENT,
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        said = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, f"{shlex.join(command)}\n{said}"
        return said

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in it, in a process namespace of its own too: it is process 1 there."""
        unshare = ("unshare", "--pid", "--fork", "--kill-child")
        return subprocess.Popen(
            (*self._enter, *unshare, *command),
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def is_possible() -> bool:
    """Return whether this machine lets us make such namespaces."""
    command = ("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", _BASE)
    try:
        done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def build(namespace: Namespace, context: Path) -> Image:
    """Carry out the Dockerfile of a folder and return its last stage."""
    stages: dict[str, Image] = {}
    image = Image("", {})
    for name, rest in instructions((context / "Dockerfile").read_text(encoding="utf-8")):
        match name:
            case "FROM":
                image = base(namespace, str(len(stages)))
                stages[rest.partition(" AS ")[2] or str(len(stages))] = image
                image.settings[name] = rest.partition(" AS ")[0]
            case "WORKDIR":
                image.folder = rest
                namespace.run("mkdir", "-p", image.root + rest)
            case "ENV":
                for pair in shlex.split(rest):
                    key, _, value = pair.partition("=")
                    image.environ[key] = Template(value).substitute(image.environ)
            case "COPY":
                _copy(namespace, context, stages, image, shlex.split(rest))
            case "RUN":
                run(namespace, image, "/bin/sh", "-c", rest)
            case "USER":
                image.user = rest
            case _:
                image.settings[name] = rest
    return image


def base(namespace: Namespace, name: str) -> Image:
    """Return this machine's files, with its Python first in the path and readable for everyone."""
    folder = f"{_BASE}/{name}"
    root = f"{folder}/root"
    namespace.run("mkdir", "-p", root, f"{folder}/upper", f"{folder}/work")
    layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    namespace.run("mount", "-t", "overlay", "overlay", "-o", layers, root)
    for each in ("/dev", "/proc"):
        namespace.run("mount", "--rbind", each, root + each)
    python = Path(sys.base_prefix)
    for above in python.parents:
        namespace.run("chmod", "a+rx", f"{root}{above}")
    path = f"{python}/bin:{_SYSTEM_PATH}"
    return Image(root, {"PATH": path, "HOME": "/root"})


def run(namespace: Namespace, image: Image, *command: str) -> str:
    """Run a command in an image, as its user; return what it printed."""
    return namespace.run(*command_in(image, command))


def command_in(
    image: Image, command: Sequence[str], environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that runs another in an image, as its user and without any privilege."""
    variables = [f"{key}={value}" for key, value in {**image.environ, **(environ or {})}.items()]
    confined = [] if image.user == "0:0" else ["setpriv", "--no-new-privs"]
    chroot = ["chroot", f"--userspec={image.user}", "--groups=", image.root]
    return [*chroot, *confined, "env", "-i", f"--chdir={image.folder}", *variables, *command]


def make_read_only(namespace: Namespace, image: Image, volume: str) -> None:
    """Mount the image read-only, with a volume that begins with what the image has there."""
    root = f"{_BASE}/read-only"
    storage = f"{_BASE}/volume"
    namespace.run("mkdir", root)
    namespace.run("cp", "-a", image.root + volume, storage)
    namespace.run("mount", "--rbind", image.root, root)
    namespace.run("mount", "-o", "remount,bind,ro", root)
    namespace.run("mount", "-t", "tmpfs", "tmpfs", f"{root}/tmp")
    namespace.run("mount", "--bind", storage, root + volume)
    image.root = root


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions with their arguments, without comments and continued lines."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def sent(context: Path, names: Sequence[str]) -> list[str]:
    """Return which of these paths the `.dockerignore` of a folder lets through.

    The last pattern that matches a path or a folder above it decides:
    https://docs.docker.com/build/concepts/context/#dockerignore-files
    """
    text = (context / ".dockerignore").read_text(encoding="utf-8")
    patterns = [line for line in text.splitlines() if line and not line.startswith("#")]

    def matches(path: PurePosixPath, pattern: str) -> bool:
        anywhere = pattern.startswith("**/")
        own, name = pattern.removeprefix("**/"), path.name if anywhere else str(path)
        return fnmatch.fnmatchcase(name, own) and (anywhere or own.count("/") == name.count("/"))

    def is_sent(name: str) -> bool:
        path = PurePosixPath(name)
        result = True
        for pattern in patterns:
            own = pattern.removeprefix("!")
            if any(matches(each, own) for each in (path, *path.parents)):
                result = own != pattern
        return result

    return [name for name in names if is_sent(name)]


def _copy(
    namespace: Namespace,
    context: Path,
    stages: Mapping[str, Image],
    image: Image,
    arguments: list[str],
) -> None:
    option, *paths = arguments if arguments[0].startswith("--from=") else ["", *arguments]
    source, target = paths
    destination = f"{image.root}{PurePosixPath(image.folder, target)}"
    if option:
        origin = stages[option.removeprefix("--from=")].root + source
        namespace.run("cp", "-aT", origin, destination)
        return
    files = [context / source]
    if files[0].is_dir():
        files = [each for each in sorted(files[0].rglob("*")) if each.is_file()]
    elif target == ".":
        destination += f"/{source}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sent(context, [str(each.relative_to(context)) for each in files]):
            archive.add(context / name, name.replace(source, destination, 1).lstrip("/"))
    namespace.run("tar", "--extract", "--no-same-owner", "--directory=/", stdin=packed.getvalue())
