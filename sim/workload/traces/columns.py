"""Reads columns of token counts from a file, whatever the arrivals.

CSV, JSON lines, a JSON document of lists, or a file of bare numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.errors import TraceError
from sim.workload.traces.head import Head, document, document_block, head
from sim.workload.traces.rows import Block, csv_blocks, json_blocks, listed, reads_as_number
from sim.workload.traces.text import first_line, lines

PAIRS = (
    ("prompt_tokens", "output_tokens"),
    ("num_prefill_tokens", "num_decode_tokens"),
    ("ContextTokens", "GeneratedTokens"),
    ("Request tokens", "Response tokens"),
    ("input_length", "output_length"),
    ("input_toks", "output_toks"),
    ("input_lens", "output_lens"),
)
"""The names of prompts and answers in other projects' files, and in this project's."""

_BLOCK = 8192


def read_column(path: Path, column: str | None) -> NDArray[np.int64]:
    """One column of token counts, or a file of one bare number per line.

    ``column`` None takes the only column there is; bare numbers need no header. TraceError with
    file and line.
    """
    number, line = first_line(path)
    if column is None and reads_as_number(line):
        return np.concatenate([block.tokens("length") for block in _bare_numbers(path)])
    top = head(path)
    if column is None and len(top.names) != 1:
        raise TraceError(
            f"{path}:{number}: which column holds the lengths? Say it with `column`; the file has"
            f" {listed(top.names)}"
        )
    wanted = column or top.names[0]
    return np.concatenate([block.tokens(wanted) for block in _blocks(path, top, [wanted])])


def read_pair(
    path: Path, columns: tuple[str, str] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The prompts and the answers in two columns of one file, row by row.

    ``columns`` None takes the one pair of ``PAIRS`` that the file has. TraceError with file and
    line.
    """
    top = head(path)
    prompt, output = columns or _known_pair(path, top)
    blocks = list(_blocks(path, top, list(dict.fromkeys((prompt, output)))))
    return (
        np.concatenate([block.tokens(prompt) for block in blocks]),
        np.concatenate([block.tokens(output) for block in blocks]),
    )


def _known_pair(path: Path, top: Head) -> tuple[str, str]:
    found = [pair for pair in PAIRS if set(pair) <= set(top.names)]
    if len(found) == 1:
        return found[0]
    known = "; ".join(f"{prompt}, {output}" for prompt, output in PAIRS)
    problem = "more than one known pair of names" if found else "no known pair of names"
    raise TraceError(
        f"{path}: which columns hold the lengths of prompts and answers? Say it with"
        f" `prompt_column` and `output_column`; the file has {listed(top.names)}: {problem}"
        f" ({known})"
    )


def _blocks(path: Path, top: Head, wanted: Sequence[str]) -> Iterator[Block]:
    if top.container == "csv":
        return csv_blocks(path, wanted)
    if top.container == "json" or top.lists & set(wanted):
        return iter([document_block(path, document(path), wanted)])
    return json_blocks(path, wanted)


def _bare_numbers(path: Path) -> Iterator[Block]:
    rows = ((n, text.strip()) for n, text in enumerate(lines(path), 1) if text.strip())
    while block := list(islice(rows, _BLOCK)):
        numbers, values = zip(*block, strict=True)
        yield Block(path, list(numbers), {"length": values})
