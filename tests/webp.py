"""Joins pictures into one that moves, an animated WebP.

The format: https://developers.google.com/speed/webp/docs/riff_container
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

# The canvas of the file is animated; no frame has an alpha channel.
_ANIMATED: Final = 0b10
# A frame replaces what lies under it, and stays for the next one.
_REPLACES: Final = 0b10
_PICTURES: Final = (b"VP8 ", b"VP8L")


class Frame(NamedTuple):
    """A picture of the part that has changed.

    Attributes:
        x: where it is, in pixels; even.
        y: likewise.
        width: in pixels.
        height: in pixels.
        milliseconds: for how long it is shown.
        picture: a WebP file.
    """

    x: int
    y: int
    width: int
    height: int
    milliseconds: int
    picture: bytes


def animated(width: int, height: int, frames: Sequence[Frame]) -> bytes:
    """Return a file in which the frames follow each other without end."""
    canvas = struct.pack("<I", _ANIMATED) + _uint24(width - 1) + _uint24(height - 1)
    chunks = [_chunk(b"VP8X", canvas), _chunk(b"ANIM", bytes(6))]
    for each in frames:
        numbers = (each.x // 2, each.y // 2, each.width - 1, each.height - 1, each.milliseconds)
        head = b"".join(map(_uint24, numbers)) + bytes([_REPLACES])
        chunks.append(_chunk(b"ANMF", head + b"".join(_pictures(each.picture))))
    return _chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def _pictures(file: bytes) -> Iterator[bytes]:
    """Yield the chunks of a file that hold its picture."""
    at = 12
    while at < len(file):
        name, size = struct.unpack_from("<4sI", file, at)
        if name in _PICTURES:
            yield _chunk(name, file[at + 8 : at + 8 + size])
        at += 8 + size + size % 2


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def _uint24(number: int) -> bytes:
    return number.to_bytes(3, "little")
