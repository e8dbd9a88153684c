"""Predicts one layer's latent attention to the tokens that an indexer chooses (DSA), in seconds.

The indexer rates every token of a context by a small key in 8 bits, and attention goes over the
``topk`` best ones, or over all where there are fewer. All products are over latent vectors, also
those of prompts, since each query attends to tokens of its own. One SM takes one query's tile of
64 heads through the chosen tokens. The products that come before and after are not in it.

Decoding, in the context a line up to ``topk`` and another one behind it:

- ``waves``      = queries x tiles of heads / SMs; one SM's own time, shortened by ``split``, where
                   that is below 1
- ``arithmetic`` = waves x chosen tokens x FLOP / (SM's peak x compute); kernels that go through
                   ``topk`` places whatever the context are ``flat``
- ``rating``     = indexer's keys of the contexts / (bandwidth x share)
- seconds        = floor + arithmetic + rating + query x (queries and results) / bandwidth

where some kernels cut up to ``TWO`` heads into tiles of 16, each of which takes ``narrow`` times as
long as one of 64: 32 heads longer than 64.

Prompts: the larger of ``host``, what it takes to launch a layer's kernels one by one, and

- seconds        = floor + FLOP of chosen pairs / (peak x compute)
                   + FLOP of rated pairs / (peak x rate) + ``choice`` x tokens

``flat`` of the places without a token count, too. Some kernels take fewer heads than a tile's on
another way, which ``few`` is the speed of, on which ``few_flat`` of these places count, and
``few_pad`` of the heads that are missing in the tile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.cost.kernels.latent_attention import QUERY_BYTES, ROWS
from sim.specs.precision import precision_bytes

DECODE_PARAMETERS = (
    Parameter("floor", 1e-7, 5e-5, 1e-3, "s", "a call of all kernels, however little they read"),
    Parameter("compute", 0.02, 0.7, 1.6, "1", "share of an SM's peak FLOP/s on a full tile"),
    Parameter("split", 0.0, 0.2, 1.0, "1", "how far idle SMs shorten one query's tile", log=False),
    Parameter("flat", 0.0, 0.5, 1.0, "1", "places without a token that count", log=False),
    Parameter("share", 0.02, 0.7, 1.0, "1", "share of the bandwidth at which keys are rated"),
    Parameter("query", 0.1, 2.0, 60.0, "1", "queries and results, in times of moving them once"),
    Parameter("narrow", 0.1, 0.7, 1.5, "1", "time of a tile of 16 heads over one of 64; 0: none",
              before=0.0),
)  # fmt: skip

PREFILL_PARAMETERS = (
    Parameter("floor", 1e-7, 5e-5, 1e-3, "s", "a call of all kernels, however little they compute"),
    Parameter("host", 1e-7, 1e-3, 1e-2, "s", "launching the kernels one by one"),
    Parameter("compute", 0.02, 0.6, 1.6, "1", "share of the peak FLOP/s on chosen pairs"),
    Parameter("rate", 0.01, 0.4, 2.0, "1", "share of the 16-bit peak FLOP/s on rated pairs"),
    Parameter("choice", 1e-11, 5e-8, 1e-5, "s", "choosing and writing for one token"),
    Parameter("few", 0.1, 1.0, 2.0, "1", "ratio of compute for fewer heads than a tile's"),
    Parameter("few_flat", 0.0, 0.1, 1.0, "1", "places without a token that count there", log=False),
    Parameter("few_pad", 0.0, 0.5, 1.0, "1", "missing heads that count there",
              log=False, before=1.0),
    Parameter("flat", 0.0, 0.1, 1.0, "1", "places without a token that count in whole tiles",
              log=False, before=0.0),
)  # fmt: skip
BEFORE = {
    each.name: each.before
    for each in (*DECODE_PARAMETERS, *PREFILL_PARAMETERS)
    if each.before is not None
}

SLIM, TWO = 16, 32
"""Heads of a narrow tile, and of two of them, the most that are cut so."""

WIDTHS = ("q_heads", "latent", "rope", "index_heads", "index_dim", "topk")


def pairs(tokens: float, context: float, most: float) -> float:
    """Causal query-key pairs of ``tokens`` on top of ``context``, each query with ``most`` keys.

    >>> pairs(3, 2, 4), pairs(3, 2, 99)  # 3 + 4 + 4, 3 + 4 + 5
    (11.0, 12.0)
    """
    rising = min(tokens, max(0.0, most - context))
    return rising * context + rising * (rising + 1) / 2 + (tokens - rising) * float(most)


def decode(precision: str) -> Form:
    """The form of decoding for a latent cache in ``precision``; ceilings are those of 16-bit
    arithmetic. ValueError for a precision that sim.specs.precision does not know."""
    precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        p = {**BEFORE, **p}
        tiles, longer = np.ceil(shape["q_heads"] / ROWS), np.ones(())
        if p["narrow"]:
            slim = shape["q_heads"] <= TWO
            tiles = np.where(slim, np.ceil(shape["q_heads"] / SLIM), tiles)
            longer = np.where(slim, p["narrow"], 1.0)
        waves = shape["batch"] * tiles / ceilings.sms
        waves = np.where(waves < 1, waves ** p["split"], waves) * longer
        chosen = np.minimum(shape["context"], shape["topk"])
        places = p["flat"] * shape["topk"] + (1 - p["flat"]) * chosen
        per_place = ROWS * _pair_flops(shape) * ceilings.sms / (ceilings.peak * p["compute"])
        keys = shape["batch"] * shape["context"] * _index_bytes(shape)
        rating = keys / (ceilings.bandwidth * p["share"])
        queries = p["query"] * _query_bytes(shape) / ceilings.bandwidth
        total: Floats = p["floor"] + waves * places * per_place + rating + queries
        return total

    variables = ("batch", "context", *WIDTHS)
    return Form("dsa_decode", variables, WIDTHS, DECODE_PARAMETERS, seconds, coordinates, regime)


def prefill(precision: str) -> Form:
    """The form of prompts for a latent cache in ``precision``, ``batch`` equal ones."""
    precision_bytes(precision)

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        chosen, rated = _pairs(shape)
        each_chosen, each_rated, each_token = prompt_rates(p, shape, ceilings)
        tokens = shape["batch"] * shape["tokens"]
        working = chosen * each_chosen + rated * each_rated + tokens * each_token
        total: Floats = np.maximum(p["host"], p["floor"] + working)
        return total

    variables = ("batch", "tokens", "context", *WIDTHS)
    return Form("dsa_prefill", variables, WIDTHS, PREFILL_PARAMETERS, seconds, _prompts, _lengths)


def prompt_rates(p: Parameters, shape: Shape, ceilings: Ceilings) -> tuple[Floats, Floats, Floats]:
    """Seconds of a chosen pair, of a rated pair, and of a token; ``shape`` has the ``WIDTHS``."""
    few = shape["q_heads"] < ROWS
    p = {**BEFORE, **p}
    padded = np.ceil(shape["q_heads"] / ROWS) * ROWS
    missing = padded - shape["q_heads"]
    width = shape["q_heads"] + np.where(few, p["few_pad"], 1.0) * missing
    speed = ceilings.peak * p["compute"] * np.where(few, p["few"], 1.0)
    place = width * _pair_flops(shape) / speed
    flat = np.where(few, p["few_flat"], p["flat"])
    rated: Floats = _index_flops(shape) / (ceilings.peak * p["rate"])
    return (1 - flat) * place, rated, p["choice"] + flat * shape["topk"] * place


def prefill_flops(shape: Shape) -> Floats:
    """FLOP that have to be done for prompts, unpadded."""
    chosen, rated = _pairs(shape)
    total: Floats = chosen * shape["q_heads"] * _pair_flops(shape) + rated * _index_flops(shape)
    return total


def prefill_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes that have to move for prompts: latent vectors and indexer's keys of all tokens once,
    queries and results."""
    kept = (shape["latent"] + shape["rope"]) * kv_bytes + _index_bytes(shape)
    moved = shape["batch"] * (shape["tokens"] + shape["context"]) * kept
    total: Floats = moved + shape["tokens"] * _query_bytes(shape)
    return total


def _pairs(shape: Shape) -> tuple[Floats, Floats]:
    """Chosen and rated pairs of ``batch`` equal prompts."""
    new, past = shape["tokens"], shape["context"]
    rising = np.minimum(new, np.maximum(shape["topk"] - past, 0))
    chosen = rising * past + rising * (rising + 1) / 2 + (new - rising) * shape["topk"]
    rated = new * past + new * (new + 1) / 2
    return shape["batch"] * chosen, shape["batch"] * rated


def decode_flops(shape: Shape) -> Floats:
    """FLOP that have to be done in decoding, unpadded."""
    chosen = shape["q_heads"] * np.minimum(shape["context"], shape["topk"]) * _pair_flops(shape)
    total: Floats = shape["batch"] * (chosen + shape["context"] * _index_flops(shape))
    return total


def decode_bytes(shape: Shape, kv_bytes: float) -> Floats:
    """Bytes that have to move in decoding: chosen latent vectors, the indexer's keys, queries and
    results."""
    latent = np.minimum(shape["context"], shape["topk"]) * (shape["latent"] + shape["rope"])
    keys = shape["context"] * _index_bytes(shape)
    total: Floats = shape["batch"] * (latent * kv_bytes + keys) + _query_bytes(shape)
    return total


def coordinates(shape: Shape) -> dict[str, Floats]:
    """Base-2 logarithms of batch, context and heads."""
    return {name: np.log2(shape[name]) for name in ("batch", "context", "q_heads")}


def regime(shape: Shape) -> NDArray[np.str_]:
    """By whether tokens are chosen at all, and by the batch."""
    whole = np.where(shape["context"] <= shape["topk"], "all tokens", "chosen tokens")
    batches = np.array(["batch 1 to 8", "batch 16 to 128", "batch from 256"])
    batch = batches[np.searchsorted([9, 129], shape["batch"], side="right")]
    return np.char.add(np.char.add(whole, ", "), batch)


def _prompts(shape: Shape) -> dict[str, Floats]:
    return {name: np.log2(shape[name]) for name in ("batch", "tokens", "q_heads")}


def _lengths(shape: Shape) -> NDArray[np.str_]:
    names = np.array(["below 1,024 tokens", "1,024 to 4,095", "from 4,096"])
    return names[np.searchsorted([1024, 4096], shape["batch"] * shape["tokens"], side="right")]


def _pair_flops(shape: Shape) -> Floats:
    """FLOP of one head for one query and one token."""
    found: Floats = 2 * (2 * shape["latent"] + shape["rope"])
    return found


def _index_flops(shape: Shape) -> Floats:
    """FLOP of the indexer for one rated pair."""
    found: Floats = 2 * shape["index_heads"] * shape["index_dim"]
    return found


def _index_bytes(shape: Shape) -> Floats:
    """Bytes of a token's key of the indexer: 8 bits, and a scale of 32 for each 128 of them."""
    found: Floats = shape["index_dim"] * (1 + 4 / 128)
    return found


def _query_bytes(shape: Shape) -> Floats:
    widths = 2 * shape["latent"] + shape["rope"]
    total: Floats = shape["batch"] * shape["q_heads"] * widths * QUERY_BYTES
    return total
