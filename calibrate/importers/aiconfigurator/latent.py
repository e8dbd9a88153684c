"""Fits latent and sparse attention to the published tables ``mla_...`` and ``dsa_...``.

How they were measured: the whole attention block of a layer over and over, from the hidden state to
the output projection, on one GPU with that many heads. A profile's operators are what a block takes
beyond the products and the moves of data that the simulator predicts for it one by one, with the
products of the catalogue's profile of the same framework: errors, which are those of whole blocks,
contain theirs. A block that is timed over and over finds its weights in the last-level cache, if
all that it moves fits there; products were timed without that, as they run in a model. How much
sooner a decoding block is done for it is fitted along (``AGAIN``), and left behind. Where a
framework has timings of attention alone, and none of blocks, these are fitted as they are.

- generation: every sequence adds one token to ``step`` cached ones; where attention is timed alone
  the new token is among them
- context: prompts of ``isl`` tokens, for sparse attention also on top of ``step`` cached ones

Left out: fewer than ``FEWEST_HEADS`` heads, of which no GPU is left with so few; models that the
catalogue lacks; other formats of the products than ``FORMATS``; what ``UNLIKE`` names; calls of
``UNRUN`` tokens and more; decoding blocks of more sequences than are ``GRAPHED``; short prompts
that ``ABSORBED`` kernels take as decoding; prompts with ``QUANTISED`` queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator import gemm
from calibrate.importers.aiconfigurator.tables import L2_BYTES, KernelTable, Tables
from sim import catalog
from sim.cost import Deployment
from sim.cost.kernels import latent_attention, narrow_latent, sparse_attention
from sim.cost.kernels.choice import ATTENTION_WORK
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter, Parameters, Shape
from sim.cost.kernels.gemm import SHARP
from sim.cost.parts import attention_part
from sim.cost.rooflines import Rooflines
from sim.cost.trust import LATENT_ERROR
from sim.errors import InfersimError, UsageError
from sim.specs.latent import Latent
from sim.specs.precision import precision_bytes
from sim.specs.profile import KernelFit
from sim.specs.sparse import SparseLatent

PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8"}
"""The tables' ``kv_cache_dtype`` for each precision of the simulator."""

FORMATS = {"bfloat16": ("bf16", "bf16"), "fp8_block": ("fp8-block", "fp8")}
"""The simulator's precisions of weights and activations for each ``gemm_type`` of the blocks."""

MODELS = {
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3.2",
    "zai-org/GLM-5": "glm-5",
}
"""The catalogue's name of each ``model`` of the blocks."""

BLACKWELL = frozenset({"b200_sxm", "b300_sxm", "gb200", "gb300"})
"""Systems whose tensor cores keep their sums in a memory of their own."""

UNLIKE = {("sglang", "dsa_prefill")}
"""Frameworks whose timings of an operator are of two methods at once: SGLang's prompts go through
dense attention up to a length, and through sparse attention beyond."""

UNRUN = {"FLASHINFER_MLA_SPARSE": 65_536}
"""Tokens of a call from which on a kernel is not timed. On B200 and GB200 a token takes as long
with this one in calls of 8,192 tokens as of 32,768, and from 65,536 on half of that, whatever its
context, as if attention did not run (CUDA has 65,535 blocks at most in the second and third
dimension of a launch). FLASHMLA_SPARSE shows no such step, and no engine has as many
tokens in an iteration."""

GRAPHED = {("sglang", "h100_sxm"): 256, ("sglang", "h200_sxm"): 256}
GRAPHED |= dict.fromkeys((("sglang", system) for system in BLACKWELL), 512)
"""The largest batch for which SGLang captures a CUDA graph by default on one such GPU. Blocks of
more are launched one by one in its tables: 1.3 ms whatever the heads and the context, some ten
times as long as of the largest batch, and 512 sequences longer than 1,024."""

ABSORBED = frozenset({"FLASHMLA"})
"""Kernels that take short prompts as if they decoded, over latent vectors: vLLM's on Hopper with a
cache in fp8, up to 128 tokens, where many prompts take twice as long as longer ones would."""

QUANTISED = "fp8"
"""The ``mla_dtype`` of prompts whose queries are brought to 8 bits before attention: another kernel
at the same shapes, which vLLM runs with ``use_prefill_query_quantization`` alone (off by
default)."""

LONG_TILES = {"FLASH_ATTN": 256.0, "trtllm_mla": 256.0}
"""Query rows of a tile by kernel on ``BLACKWELL``: FlashAttention 4 and the kernels that FlashInfer
has from TensorRT-LLM work on two tiles of 128 rows in turn, the softmax of one next to the products
of the other."""

NARROW_LATENT = frozenset({"FLASHINFER_MLA", "trtllm_mla", "default"})
"""Kernels that decode over latent vectors with the form ``narrow_latent`` on ``BLACKWELL``:
TensorRT-LLM's, in FlashInfer too, whose source says which tiles they choose."""

NARROW_TILES = frozenset(
    {"FLASHINFER_MLA_SPARSE", "sglang_dsa_indexer_trtllm", "sglang_dsa_skip_indexer_trtllm"}
)
"""Sparse kernels that decode up to 32 heads in tiles of 16 on ``BLACKWELL``, as FlashInfer's choice
of kernels for latent attention has it: 32 heads take longer than 64 there, with these kernels
alone."""

FEWEST_HEADS = 4
FEWEST_ROWS = 200
"""A table with fewer rows of a precision is not fitted."""

TABLES: Mapping[str, tuple[str, str, str]] = {
    "mla_decode": ("mla", "mla_generation_module_perf", "generation_mla_perf"),
    "mla_prefill": ("mla", "mla_context_module_perf", "context_mla_perf"),
    "dsa_decode": ("sparse_attention", "dsa_generation_module_perf", ""),
    "dsa_prefill": ("sparse_attention", "dsa_context_module_perf", ""),
}
"""For each operator: the family of tables, that of blocks, and that of attention alone."""

FORMS: Mapping[str, Callable[[str], Form]] = {
    "mla_decode": latent_attention.decode,
    "mla_prefill": latent_attention.prefill,
    "dsa_decode": sparse_attention.decode,
    "dsa_prefill": sparse_attention.prefill,
}

KEYS = ["num_heads", "batch_size", "isl", "step"]
REST = "rest"
"""The variable of a shape that holds the seconds of the block's other operators."""
MOVED = "moved"
"""That of the bytes which a block moves, weights included."""

AGAIN = (
    Parameter("warm", 1.0, 1.3, 3.0, "1", "speed of the rest of a block whose weights are cached"),
    Parameter("kept", 0.2, 0.6, 1.0, "1", "share of the cache that keeps what a block moves"),
)
"""Parameters of the benchmark, no part of a profile: on B200 a block with 41 MB of weights (4 heads
in 16 bits) or 69 (32 heads in 8) is done some 8 us sooner than its products and its attention one
by one, one with 109 or 200 MB (64 heads) is not. They are fitted only where the products of a
profile are those that the blocks ran (``gemm.BLOCKS``): else they would make up for other products.
The 50 MB of Hopper's cache hold so few blocks that fits are no better for it."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and KV-cache precision, from the newest tables unless ``version`` is given.

    ``holdout`` are errors at numbers of heads that the fit had not seen. Operators that the tables
    lack, and fits no better than the simulator's defaults, are left out. Raises UsageError for
    names that the tables lack, or if they lack all.
    """
    found: dict[str, dict[str, KernelFit]] = {}
    missing: list[str] = []
    for operator in TABLES:
        try:
            fits = _fits(tables, operator, system, framework, version)
        except (UsageError, InfersimError) as error:
            missing.append(str(error))
        else:
            found |= {operator: fits} if fits else {}
    if not found:
        raise UsageError("; ".join(missing) or f"{framework} on {system}: no latent attention")
    return found


def _fits(
    tables: Tables, operator: str, system: str, framework: str, version: str | None
) -> dict[str, KernelFit]:
    if (framework, operator) in UNLIKE:
        return {}
    family, blocks, alone = TABLES[operator]
    try:
        table = tables.read(system, family, framework, blocks, version)
    except UsageError:
        if not alone:
            raise
        table = tables.read(system, family, framework, alone, version)
    found: dict[str, KernelFit] = {}
    for precision, name in PRECISIONS.items():
        rows = usable(table, operator, name)
        if len(rows) >= FEWEST_ROWS:
            fitted = fit_rows(table, operator, rows, precision)
            found |= {precision: fitted} if fitted.holdout.median < LATENT_ERROR else {}
    return found


def usable(table: KernelTable, operator: str, kv_cache: str) -> pd.DataFrame:
    """Rows of one ``kv_cache_dtype`` without what the module's docstring leaves out."""
    rows = table.frame
    kept = (rows["kv_cache_dtype"] == kv_cache) & (rows["latency"] > 0)
    kept &= rows["num_heads"] >= FEWEST_HEADS
    if "gemm_type" in rows:
        kept &= rows["gemm_type"].isin(list(FORMATS))
    if "model" in rows:
        kept &= rows["model"].isin(list(MODELS))
    if operator == "dsa_decode":
        kept &= rows["batch_size"] <= GRAPHED.get((table.framework, table.system), np.inf)
    if operator.endswith("prefill"):
        kept &= rows["isl"] > 1
        for kernel, most in UNRUN.items():
            unrun = (rows["kernel_source"] == kernel) & (rows["batch_size"] * rows["isl"] >= most)
            kept &= ~unrun
    if operator == "mla_prefill":
        kept &= (rows["step"] == 0) & ~rows["kernel_source"].isin(ABSORBED)
        if "mla_dtype" in rows:
            kept &= rows["mla_dtype"] != QUANTISED
    chosen: pd.DataFrame = rows.loc[kept]
    return chosen


def fit_rows(table: KernelTable, operator: str, rows: pd.DataFrame, precision: str) -> KernelFit:
    """The fit of one precision."""
    data = to_data(table, operator, rows, precision)
    name = _name(table, operator, rows)
    make = narrow_latent.decode if name == narrow_latent.NAME else FORMS[operator]
    form = make(precision).given(**_given(table, operator, rows))
    gpu = table.gpu
    limits = Ceilings(gpu.flops("bf16"), gpu.bandwidth, gpu.sms)
    fitted = fit(_of_blocks(form, _cache(table, operator)), data, limits, kernel=table.source(rows))
    kept = ("batch", "tokens", "context", "q_heads")
    ranges = {name: span for name, span in fitted.ranges.items() if name in kept}
    if operator == "mla_prefill":
        del ranges["context"]
    known = {each.name for each in form.parameters}
    return replace(
        fitted,
        parameters={name: value for name, value in fitted.parameters.items() if name in known},
        intervals={name: pair for name, pair in fitted.intervals.items() if name in known},
        ranges=ranges,
        form=name,
    )


def _name(table: KernelTable, operator: str, rows: pd.DataFrame) -> str:
    """The name of the form for the kernel of the ``rows``."""
    known = operator == "mla_decode" and table.system in BLACKWELL
    return narrow_latent.NAME if known and set(rows["kernel_source"]) <= NARROW_LATENT else ""


def _given(table: KernelTable, operator: str, rows: pd.DataFrame) -> dict[str, float]:
    """Parameters that the kernel of the ``rows`` says, and no timing has to."""
    kernels = set(rows["kernel_source"])
    blackwell = table.system in BLACKWELL
    if operator == "mla_prefill" and blackwell and kernels <= LONG_TILES.keys():
        return {"rows": max(LONG_TILES[kernel] for kernel in kernels)}
    if operator == "dsa_decode" and not (blackwell and kernels <= NARROW_TILES):
        return {"narrow": 0.0}
    if operator == "dsa_prefill" and len(kernels) > 1:  # of which one has too few heads to tell it
        return {"flat": 0.0}
    return {}


def _cache(table: KernelTable, operator: str) -> float:
    """Bytes of the cache in which blocks find their weights again; 0 where that is not fitted.

    Prompts outgrow it, and their products are bound by arithmetic."""
    if not operator.endswith("decode") or "model" not in table.frame:
        return 0.0
    known = table.system in gemm.BLOCKS.get(table.framework, ())
    return L2_BYTES[table.system] if known else 0.0


def _of_blocks(form: Form, cache: float = 0.0) -> Form:
    """``form`` on top of the other operators of a block, held out by heads alone.

    With the bytes of a ``cache`` these are as much quicker as they find their weights in it.
    """

    def seconds(p: Parameters, shape: Shape, ceilings: Ceilings) -> Floats:
        rest = shape[REST]
        if cache:
            hits = 1 / (1 + (shape[MOVED] / (cache * p["kept"])) ** SHARP)
            rest = rest / (1 + (p["warm"] - 1) * hits)
        total: Floats = rest + form.seconds(p, shape, ceilings)
        return total

    return replace(
        form,
        variables=(*form.variables, REST, MOVED),
        group=("q_heads",),
        parameters=(*form.parameters, *AGAIN) if cache else form.parameters,
        seconds=seconds,
    )


def to_data(table: KernelTable, operator: str, rows: pd.DataFrame, precision: str) -> Data:
    """Points of the form, with the seconds of the rest of each block."""
    named = "model" in rows
    columns = [*(["model", "gemm_type"] if named else []), *KEYS]
    rows = rows.groupby(columns)["latency"].median().reset_index()
    parts = []
    if named:
        for (model, products), own in rows.groupby(["model", "gemm_type"]):
            name, format_ = MODELS[str(model)], FORMATS[str(products)]
            parts.append(_columns(table, operator, own, (name, format_, precision)))
    else:
        parts.append(_columns(table, operator, rows, None))
    shape = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    measured = shape.pop("seconds")
    return Data(shape, measured, np.ones(len(measured)))


def _columns(
    table: KernelTable,
    operator: str,
    rows: pd.DataFrame,
    of: tuple[str, tuple[str, str], str] | None,
) -> dict[str, Floats]:
    """Shape, rest, bytes and seconds of the rows of one model and one format of the products."""
    model = catalog.model(of[0] if of else "deepseek-v3")
    attention = model.layers[0].attention
    assert isinstance(attention, Latent)
    new = rows["isl"].to_numpy(dtype=np.float64)
    cached = rows["step"].to_numpy(dtype=np.float64)
    heads = rows["num_heads"].to_numpy(dtype=np.float64)
    batch = rows["batch_size"].to_numpy(dtype=np.float64)
    shape = {"batch": batch, "q_heads": heads}
    if operator.endswith("decode"):
        shape["context"] = cached + new if of is None else cached
    else:
        shape |= {"tokens": new, "context": cached}
    if operator == "mla_prefill":
        _, _, width = latent_attention.prefill_heads(1, attention.key_size, attention.v_head_dim)
        shape |= {"kv_heads": heads, "head_dim": np.full_like(heads, width)}
    else:
        shape |= _widths(attention, heads)
    rest, moved = np.zeros_like(batch), np.zeros_like(batch)
    if of is not None:
        for number in np.unique(heads):
            same = heads == number
            tokens = batch[same] * (1.0 if operator.endswith("decode") else new[same])
            rest[same], moved[same] = _rest(table, int(number), tokens, *of)
        _, attention_bytes = ATTENTION_WORK[operator]
        moved = moved + attention_bytes(shape, precision_bytes(of[2]))
    seconds = rows["latency"].to_numpy(dtype=np.float64) / 1e3
    return {**shape, REST: rest, MOVED: moved, "seconds": seconds}


def _widths(attention: Latent, like: Floats) -> dict[str, Floats]:
    """The variables of the forms over latent vectors, as columns."""
    found = {"latent": attention.kv_lora_rank, "rope": attention.qk_rope_head_dim}
    if isinstance(attention, SparseLatent):
        found |= {"index_heads": attention.index_n_heads, "index_dim": attention.index_head_dim}
        found["topk"] = attention.index_topk
    return {name: np.full_like(like, value) for name, value in found.items()}


def _rest(
    table: KernelTable,
    heads: int,
    tokens: Floats,
    name: str,
    products: tuple[str, str],
    kv_cache: str,
) -> tuple[Floats, Floats]:
    """Seconds and bytes of a block without its attention, for that many tokens in the pass."""
    model = catalog.model(name)
    group = model.layers[0]
    assert isinstance(group.attention, Latent)
    one = replace(group, count=1, attention=replace(group.attention, num_heads=heads))
    d = Deployment(
        replace(model, layers=(one,)),
        catalog.gpu(table.gpu.name, kernels=table.framework),
        catalog.engine("ideal"),
        *products,
        kv_cache,
    )
    kernels = Rooflines(d)
    part = attention_part(one, d, kernels)
    operators = part.per_token(tokens)
    if kernels.quantises:
        operators = [*operators, kernels.quantise(1, tokens, part.inputs)]
    nothing = np.zeros(len(tokens))
    seconds = sum((np.asarray(o.seconds) for o in operators), nothing)
    return seconds, sum((np.asarray(o.bytes) for o in operators), nothing)
