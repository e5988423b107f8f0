"""What SQLite has a disk do, operation by operation, and what a kill or a power cut leaves of it.

The library's own VFS is replaced by one that records and passes on (https://sqlite.org/vfs.html).
"""

import _sqlite3
import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, TypeAlias

Files: TypeAlias = tuple[tuple[str, bytes], ...]
"""The names and contents of files."""

_WRITE: Final = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE: Final = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC: Final = CFUNCTYPE(c_int, c_void_p, c_int)
_OPEN: Final = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE: Final = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)


class _Methods(Structure):
    """What can be done with a file: https://sqlite.org/c3ref/io_methods.html."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", _WRITE),
        ("truncate", _TRUNCATE),
        ("sync", _SYNC),
        ("others", c_void_p * 13),
    )


class _Vfs(Structure):
    """https://sqlite.org/c3ref/vfs.html."""

    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("max_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", _OPEN),
        ("delete", _DELETE),
        ("others", c_void_p * 14),
    )


class What(Enum):
    """What is done to a file."""

    OPEN = auto()
    WRITE = auto()
    TRUNCATE = auto()
    SYNC = auto()
    DELETE = auto()


@dataclass(frozen=True)
class Operation:
    """One operation on the file ``name``: ``data`` is written at ``at``, or it is cut there."""

    what: What
    name: str
    at: int = 0
    data: bytes = b""

    def apply(self, files: dict[str, bytes], size: int | None = None) -> None:
        """Do this to files; of what is written, only the first ``size`` bytes."""
        if self.what is What.DELETE:
            files.pop(self.name, None)
            return
        content, data = files.setdefault(self.name, b""), self.data[:size]
        if self.what is What.TRUNCATE:
            files[self.name] = content[: self.at]
        elif self.what is What.WRITE:
            before = content[: self.at].ljust(self.at, b"\0")
            files[self.name] = before + data + content[self.at + len(data) :]


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[list[Operation]]:
    """Record what SQLite does to the files in ``folder``, but not to shared memory."""
    library = ctypes.CDLL(_sqlite3.__file__)  # what it is linked with is found through it
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    original = library.sqlite3_vfs_find(None)
    done: list[Operation] = []
    names: dict[int, str] = {}
    kept: list[Any] = []  # what SQLite has pointers to

    def record(what: What, file: int, *values: Any) -> None:  # noqa: ANN401 - of an operation
        done.append(Operation(what, names[file], *values))

    def watch(file: int) -> None:
        of_file = ctypes.cast(file, POINTER(POINTER(_Methods)))
        methods = of_file.contents.contents

        def write(file: int, data: int, size: int, at: int) -> int:
            record(What.WRITE, file, at, ctypes.string_at(data, size))
            return int(methods.write(file, data, size, at))

        def truncate(file: int, size: int) -> int:
            record(What.TRUNCATE, file, size)
            return int(methods.truncate(file, size))

        def sync(file: int, how: int) -> int:
            record(What.SYNC, file)
            return int(methods.sync(file, how))

        ours = _Methods.from_buffer_copy(methods)
        ours.write, ours.truncate, ours.sync = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
        kept.extend((methods, ours))
        of_file[0] = ctypes.pointer(ours)

    def open_file(vfs: int, path: int | None, file: int, flags: int, flags_out: int) -> int:
        code = int(original.contents.open(vfs, path, file, flags, flags_out))
        name = Path(ctypes.string_at(path).decode()) if path else Path()
        if not code and name.parent == folder:
            names[file] = name.name
            record(What.OPEN, file)
            watch(file)
        return code

    def delete(vfs: int, path: bytes, sync: int) -> int:
        name = Path(path.decode())
        if name.parent == folder:
            done.append(Operation(What.DELETE, name.name))
        return int(original.contents.delete(vfs, path, sync))

    ours = _Vfs.from_buffer_copy(original.contents)
    ours.name, ours.open, ours.delete = b"recorded", _OPEN(open_file), _DELETE(delete)
    library.sqlite3_vfs_register(ctypes.byref(ours), 1)
    try:
        yield done
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(ours))
        library.sqlite3_vfs_register(original, 1)


def left_by_kills(done: Sequence[Operation]) -> Iterator[Files]:
    """Yield what a process leaves that is killed before, or in the middle of, each operation."""
    files: dict[str, bytes] = {}
    for operation in done:
        yield tuple(files.items())
        # Every byte of a header; a page is torn every few bytes.
        for size in range(1, len(operation.data), 1 if len(operation.data) <= 32 else 61):
            torn = files.copy()
            operation.apply(torn, size)
            yield tuple(torn.items())
        operation.apply(files)
    yield tuple(files.items())


def left_by_power_cuts(done: Sequence[Operation]) -> Iterator[Files]:
    """Yield what a power cut leaves before each operation: what was synced, and any of the rest.

    Of the rest, nothing, each operation alone, or all but one. A new file's first sync is that of
    its folder, as SQLite has it, so what was deleted before is gone then.
    """
    certain: dict[str, bytes] = {}
    pending: list[Operation] = []
    synced: set[str] = set()
    for operation in done:
        left = [[], *([each] for each in pending)]
        left += [[each for each in pending if each is not one] for one in pending]
        for operations in left:
            files = certain.copy()
            for each in operations:
                each.apply(files)
            yield tuple(files.items())
        if operation.what is not What.SYNC:
            pending.append(operation)
            continue
        is_new = operation.name not in synced
        synced.add(operation.name)
        for each in pending.copy():
            if each.name == operation.name or (is_new and each.what is not What.WRITE):
                each.apply(certain)
                pending.remove(each)
