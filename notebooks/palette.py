"""How does the picture of a chart become small?

Browsers write 32 bits a dot. A chart has few colours, so that a table of at most 256 of them, and
one byte a dot, show the same in a quarter of the room.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"

COLOURS = 256
"""As many as a byte can name."""

Dots = NDArray[np.uint8]
"""Rows of dots, each red, green and blue."""


def smaller(png: bytes) -> bytes:
    """The same opaque picture with a table of colours.

    Of neighbouring shades the most frequent stands for all where there are too many. ValueError for
    what is no plain 8-bit PNG without interlacing.
    """
    dots = _dots(png)
    for bits in range(8, 0, -1):
        table, places = _table(dots, bits)
        if len(table) <= COLOURS:
            break
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


def _table(dots: Dots, bits: int) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Colours, of which no two agree in the first ``bits`` of red, green and blue, and the place of
    each dot's colour among them."""
    colour = dots.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    mask = 0xFF & (0xFF << (8 - bits))
    kinds, places = np.unique(colour & (mask << 16 | mask << 8 | mask), return_inverse=True)
    shades, counts = np.unique(colour, return_counts=True)
    order = np.argsort(counts, kind="stable")  # the most frequent is written last, and stays
    table = np.zeros(len(kinds), np.uint32)
    kind = np.searchsorted(kinds, shades & (mask << 16 | mask << 8 | mask))
    table[kind[order]] = shades[order]
    split = table[:, None] >> np.array([16, 8, 0], np.uint32) & 0xFF
    return split.astype(np.uint8), places.reshape(colour.shape)


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
