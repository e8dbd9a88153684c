"""Makes the picture of a chart small by a table of its colours.

Browsers write 32 bits a dot. A chart has few colours, and many shades of them along the edges of
lines and letters. A table of the most frequent, and one byte a dot, look the same in a fraction of
the room.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"

COLOURS = 48
"""More of them cost room and are not seen; a byte can name 256."""

Dots = NDArray[np.uint8]
"""Rows of dots, each red, green and blue."""


def smaller(png: bytes) -> bytes:
    """The same opaque picture with a table of colours.

    Where there are too many, the most frequent stay as they are, and the nearest of them stands for
    each other one. ValueError for what is no plain 8-bit PNG without interlacing.
    """
    table, places = _table(_dots(png))
    height, width = places.shape
    rows = np.zeros((height, width + 1), np.uint8)  # a row begins with its filter: none
    rows[:, 1:] = places
    return SIGNATURE + b"".join(
        [
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", table.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _table(dots: Dots) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """At most ``COLOURS`` colours, and the place of each dot's colour among them."""
    colour = dots.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    shades, places, counts = np.unique(colour, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:COLOURS])
    parts = (shades[:, None] >> np.array([16, 8, 0], np.uint32) & 0xFF).astype(np.int64)
    away = ((parts[:, None] - parts[None, kept]) ** 2).sum(axis=2)
    nearest = away.argmin(axis=1)
    return parts[kept].astype(np.uint8), nearest[places].reshape(colour.shape)


def _dots(png: bytes) -> Dots:
    """The dots of a PNG; what shows through is white."""
    parts = list(_chunks(png))
    width, height, depth, kind, *_, interlaced = struct.unpack(">IIBBBBB", dict(parts)[b"IHDR"])
    if depth != 8 or kind not in (2, 6) or interlaced:
        raise ValueError(f"a PNG of depth {depth}, kind {kind} and interlacing {interlaced}")
    channels = 4 if kind == 6 else 3
    data = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    rows = np.frombuffer(data, np.uint8).reshape(height, 1 + width * channels)
    filters, values = rows[:, 0], rows[:, 1:].copy()
    for y in range(height):
        if filters[y] == 1:
            line = values[y].reshape(width, channels)
            values[y] = np.cumsum(line, axis=0, dtype=np.uint8).reshape(-1)
        elif filters[y] == 2:
            values[y] += values[y - 1]
        elif filters[y] != 0:
            raise ValueError(f"a PNG with filter {filters[y]}")
    dots = values.reshape(height, width, channels)
    if channels == 3:
        return dots
    alpha = dots[..., 3:].astype(np.uint16)
    return ((dots[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and body of each part of the file."""
    place = len(SIGNATURE)
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
