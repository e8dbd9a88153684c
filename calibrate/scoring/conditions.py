"""Turns a published row into the scenario that repeats its measurement in the simulator.

What a publisher leaves out is assumed, and every assumption is stated (``Conditions.assumed``): how
requests were sent matters more for the time to first token than any kernel. Facts that are known
apart from the table go on top (``facts``).

Requests of fixed lengths under TensorRT-LLM, which admits a request only with memory for its whole
answer, are given contiguous memory of exactly their length: the same arithmetic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from calibrate.published_names import (
    Unrepresentable,
    expert_precision_name,
    gpu_name,
    model_name,
    precision_name,
)
from calibrate.scoring.facts import corrected, facts_of, overridden, settings_of
from calibrate.scoring.lengths import Lengths, lengths_of
from calibrate.scoring.presets import preset
from calibrate.scoring.table import Row
from calibrate.scoring.twins import SLOWEST
from calibrate.scoring.workers import (
    Disaggregated,
    layout_keys,
    split_settings,
    told_apart,
    workers,
)
from sim import catalog
from sim.specs.layout import Layout

TENSORRT = re.compile("tensorrt|trt-?llm", re.I)

Driver = Literal["static", "single", "offline", "closed", "online", "replay"]
"""How requests were sent: one padded batch; one after the other; all at once; by clients that wait
for their answers; at a rate; as a log has them."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions to repeat a measurement in the simulator: the ``scenario`` (JSON), and the
    meaning of its figures.

    ``version`` is the engine's, as published. ``size`` is the batch, or the clients. ``steady``:
    figures are of the time in which all of ``size`` run. ``described``: the way requests were sent
    is published. ``warmed``: others were sent before them. ``limited``: the limits of an iteration
    are published. ``streamed`` tokens come together, the first ones too. ``apart`` are the workers
    where prefill and decode have their own.
    """

    driver: Driver
    version: str
    gpu: str
    gpus: int
    model: str
    prompt: Lengths
    output: Lengths
    size: int | None
    scenario: str
    steady: bool = False
    described: bool = True
    warmed: bool = True
    limited: bool = True
    streamed: int = 1
    apart: Disaggregated | None = None
    assumed: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The scenario as a mapping."""
        found: dict[str, Any] = json.loads(self.scenario)
        return found

    @property
    def engine(self) -> str:
        """The engine's preset, by name or path."""
        return str(self.document["engine"])

    @property
    def weights(self) -> str:
        """The format of the weights."""
        return str(self.document["precision"]["weights"])

    def under(self, settings: Mapping[str, Any], **changes: Any) -> Conditions:
        """These conditions with ``settings`` of the scenario by dotted key, and other ``changes``
        of their fields."""
        document = _fitting(overridden(self.document, settings), self.prompt)
        return replace(self, scenario=written(document), **changes)


def written(document: Mapping[str, Any]) -> str:
    """The one spelling of a scenario: equal ones share a run."""
    return json.dumps(document, sort_keys=True)


def conditions(row: Row, *, outcomes: bool = False) -> Conditions:
    """The conditions of ``row``, with ``outcomes`` by facts read off measured results, too. Raises
    Unrepresentable with the reason if it has others than the simulator knows."""
    facts = facts_of(row, outcomes=outcomes)
    assumed = [each.remark for each in facts]
    row = corrected(row, facts)
    known, layout = _read(row, assumed)
    document = _document(row, known, layout, assumed)
    stated = settings_of(facts, {"clients": known.size or 0, "prompt": known.prompt.high})
    limited = bool(_slots(row) or _tokens(row) or "scheduler.max_num_batched_tokens" in stated)
    free = known.driver == "offline" and not limited and "mlperf" not in row["engine"].lower()
    if known.apart is not None:
        own = split_settings(known.apart, known.model, known.gpu, document["scheduler"])
        stated = own | stated
    written_so = replace(known, scenario=written(document))
    return written_so.under(stated, limited=not free, assumed=tuple(assumed))


def _read(row: Row, assumed: list[str]) -> tuple[Conditions, Layout]:
    """The conditions of a row without their scenario, and the layout of a replica."""
    for column in ("n_gpus", "tp", "pp"):
        if _whole(row[column]) == 0 or (column == "tp" and not re.search(r"\d|^$", row[column])):
            raise Unrepresentable(f"{column} {row[column]!r}: expected a number of at least 1")
    driver = _driver(row)
    apart = _apart(row, assumed)
    layout = _layout(row, assumed) if apart is None else apart.decode
    size, spread = _whole(row["batch_or_concurrency"]), _shares(row)
    if driver in ("static", "closed") and size is None:
        raise Unrepresentable(f"no number of requests in {row['batch_or_concurrency']!r}")
    steady = driver == "closed" and "steady state" in row["arrival"].lower()
    known = Conditions(
        driver=driver,
        version=row["engine_version"],
        gpu=gpu_name(row["gpu"]),
        gpus=apart.gpus if apart else _whole(row["n_gpus"]) or layout.gpus,
        model=model_name(row["model"]),
        prompt=lengths_of(row["isl"], "prompt", spread, assumed),
        output=lengths_of(row["osl"], "output", spread, assumed),
        size=size,
        scenario="",
        steady=steady,
        described=driver != "closed" or steady or _described(row),
        warmed=row.cells.get("warmed") != "no",
        streamed=int(row.cells.get("streamed", 1)),
        apart=apart,
    )
    return known, layout


def _document(row: Row, known: Conditions, layout: Layout, assumed: list[str]) -> dict[str, Any]:
    """The scenario of one pool as a mapping, without the settings of facts."""
    driver, model, prompt, output = known.driver, known.model, known.prompt, known.output
    replicas = known.gpus // layout.gpus if driver in ("offline", "online", "closed") else 1
    made_up = catalog.model(model).has_experts and _random_tokens(row, known)
    if made_up:
        assumed.append(RANDOM_TOKENS)
    pool = {"gpu": known.gpu, **layout_keys(layout), "replicas": max(1, replicas)}
    document: dict[str, Any] = {
        "version": 1,
        "name": driver,
        "model": {"path": model, "expert_skew": RANDOM_SKEW} if made_up else model,
        "precision": _precision(row, model, assumed),
        "fleet": [pool],
        "engine": preset(row, driver, apart=known.apart is not None),
        "max_model_len": prompt.longest + output.longest,
        "allow_long_max_model_len": True,
        "kv_cache": _kv_cache(row, known),
        "workload": {
            "arrivals": _arrivals(row, known),
            "prompt_tokens": prompt.law,
            "output_tokens": output.law,
        },
        "sampling": "greedy",
        "run": {"requests": _requests(row, known, assumed), "warmup": 0},
    }
    return {**document, "scheduler": _scheduler(row, known, document)}


def _driver(row: Row) -> Driver:
    arrival = row["arrival"].lower()
    if "static" in arrival:
        return "static"
    if "single stream" in arrival or row["batch_or_concurrency"] == "single stream":
        return "single"
    if "closed loop" in arrival or "max_num_seqs running" in arrival:
        return "closed"
    if "t=0" in arrival or row["request_rate_rps"].lower() in ("inf", "offline"):
        return "offline"
    if _number(row["request_rate_rps"]) is not None:
        return "online"
    raise Unrepresentable(
        f"arrivals {row['arrival']!r} are none of the known kinds: closed loop, all at t=0, "
        "static, single stream, or a number in request_rate_rps"
    )


RANDOM_TOKENS = (
    "prompts are random tokens, which choose experts as unevenly as was measured of such: Gini "
    "indices of 0.29 to 0.38 (arXiv 2605.20982)"
)
"""The note where that is so; of real texts the same source has 0.10 to 0.25."""

RANDOM_SKEW = 0.01
"""Of experts that random tokens choose: hardly more than 0, with which the popularity of experts is
spread evenly between its least and its largest value, a Gini index of 1/3."""


def _random_tokens(row: Row, known: Conditions) -> bool:
    """Whether the prompts of a row are made up: those of the publishers' closed loops and offline
    runs are, apart from runs over a published data set."""
    texts = re.search("mlperf|ml-energy", f"{row['engine']} {row['source_repo']}", re.I)
    return known.driver in ("closed", "offline") and not known.steady and not texts


TWINS = "this condition is published with token times too far apart to be of one"
"""How it is known that runs of one condition are of different settings."""


def _apart(row: Row, assumed: list[str]) -> Disaggregated | None:
    """The workers of a row in which prefill and decode are apart; None for any other."""
    source = row["engine"], gpu_name(row["gpu"]), _whole(row["isl"])
    size = _whole(row["batch_or_concurrency"])
    found = workers(row["tp"], _whole(row["n_gpus"]), size, source)
    if found is None:
        return None
    if (said := row.cells.get(SLOWEST)) is not None:
        found = told_apart(found, slowest=said == "yes")
        assumed.append(f"{'' if said == 'yes' else 'not '}the slowest setting: {TWINS}")
    if found.split.drafts:
        assumed.append("drafts are accepted as was published of the model, by vLLM's rules")
    else:
        assumed.append("no token is drafted")
    assumed += found.remarks
    if len(found.plausible) > 1 or _whole(row["n_gpus"]) is None:
        assumed.append(f"{found.split.name}, of the splits that the source's configurations allow")
    return found


def _layout(row: Row, assumed: list[str]) -> Layout:
    """How one replica spreads the model; Unrepresentable for layouts that are not simulated.

    Attention data parallelism is stated as a number of ranks, or, as TensorRT-LLM does, as a switch
    by which each of the ``tp`` GPUs becomes a rank. Where it is on and the spread of experts is not
    stated, they are spread over all GPUs.
    """
    tensor = _whole(row["tp"]) or 1
    data, expert = _whole(row["dp_attn"]) or 1, _whole(row["ep"]) or 1
    if re.search("true|enabled", row["dp_attn"], re.I):
        tensor, data = 1, tensor
        if _whole(row["ep"]) is None:
            assumed.append("experts are spread over all GPUs")
            expert = data
    ranks, stages = tensor * data, _whole(row["pp"]) or 1
    if stages > 1 and data > 1:
        raise Unrepresentable(f"data ranks that are pipelines of {stages} stages are not simulated")
    gpus = _whole(row["n_gpus"]) or ranks * stages
    if gpus % (ranks * stages) or ranks % expert:
        raise Unrepresentable(
            f"{gpus} GPUs do not hold replicas of {tensor} x {data}, with experts over {expert}"
        )
    node = catalog.gpu(gpu_name(row["gpu"])).node.gpus
    if node is not None and ranks * stages > node:
        assumed.append(f"what joins nodes of {node} GPUs is not stated: the catalogue's network")
    return Layout(tensor=tensor, pipeline=stages, data=data, expert=expert)


ACTIVATIONS = {"fp8": "fp8", "fp8-block": "fp8", "nvfp4": "nvfp4"}
"""The format that activations are quantised to, by that of the weights; else 16 bits."""


def _precision(row: Row, model: str, assumed: list[str]) -> dict[str, str]:
    """The number formats; where nothing is said, 16 bits, and fp8 for the KV cache of quantised
    checkpoints for TensorRT-LLM."""
    weights = precision_name(row["weight_dtype"], unstated="?")
    if weights == "?":
        assumed.append("weights are not stated: bf16")
        weights = "bf16"
    sixteen = "fp16" if weights == "fp16" else "bf16"
    cache = precision_name(row["kv_dtype"], unstated="?")
    if cache == "?" and weights in ("fp8", "nvfp4") and TENSORRT.search(row["engine"]):
        assumed.append("the KV cache's format is not stated: fp8, as in checkpoints for the engine")
        cache = "fp8"
    elif cache == "?":
        assumed.append("the KV cache's format is not stated: bf16")
        cache = sixteen
    found = {
        "weights": weights,
        "activations": ACTIVATIONS.get(weights, sixteen),
        "kv_cache": cache,
        "quantisation": "dynamic",
    }
    experts = expert_precision_name(row["weight_dtype"])
    if experts not in (None, weights) and catalog.model(model).has_experts:
        found["experts"] = str(experts)
    return found


_SPREAD = re.compile(r"uniform in \[([\d.]+),\s*([\d.]+)\]\s*\*?\s*nominal")
_FRACTION = re.compile(
    r"(?:mem(?:ory)?[-_](?:util\w*|fraction)|kv frac|mem_fraction)\D{0,3}(0\.\d+)"
)
_TOKENS = re.compile(r"max[-_]num[-_]batched[-_]tokens\D{0,3}(\d+)")
_SLOTS = re.compile(r"max_batch (\d+) per")


def _shares(row: Row) -> tuple[float, float]:
    """The shortest and the longest length as shares of the nominal one."""
    found = _SPREAD.search(row["notes"])
    return (float(found[1]), float(found[2])) if found else (1.0, 1.0)


def _tokens(row: Row) -> int | None:
    """The most tokens of an iteration, where the notes state them."""
    found = _TOKENS.search(row["notes"])
    return int(found[1]) if found else None


def _slots(row: Row) -> int | None:
    """How many requests run at once in a replica at most, where it is stated with the load."""
    found = _SLOTS.match(row["batch_or_concurrency"])
    return int(found[1]) if found else None


BLOCK = 16
"""Tokens of a KV block where the number of blocks is given."""


def _kv_cache(row: Row, known: Conditions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (fraction := _FRACTION.search(row["notes"])) is not None:
        found["gpu_memory_utilization"] = float(fraction[1])
    if known.driver in ("static", "single"):  # it did run, so its memory did suffice
        longest = known.prompt.longest + known.output.longest
        found["num_gpu_blocks"] = 1 + (known.size or 1) * -(-longest // BLOCK)
        found["block_size"] = BLOCK
    reserved = known.driver == "offline" and TENSORRT.search(row["engine"])
    if reserved and known.prompt.fixed and known.output.fixed:
        found["allocator"] = "contiguous"
    return found


PASS = 8192
"""Tokens of one iteration where nothing is said: the default of both engines' benchmarks."""

MOST_AT_ONCE = 2048
"""Requests that run at once at most in an engine that was to take as many as it can: the default of
TensorRT-LLM. Buffers grow with the slots, so no more are given than memory has room for."""


def _scheduler(row: Row, known: Conditions, document: Mapping[str, Any]) -> dict[str, Any]:
    tokens = _tokens(row) or PASS
    if known.driver in ("static", "single"):
        size = known.size or 1
        together = max(tokens, size * known.prompt.high)
        return {"batching": "static", "max_num_seqs": size, "max_num_batched_tokens": together}
    if known.driver in ("closed", "online") and catalog.engine(document["engine"]).defaults:
        given = {"max_num_seqs": _slots(row), "max_num_batched_tokens": _tokens(row)}
        return {"batching": "continuous"} | {k: v for k, v in given.items() if v is not None}
    usual = known.size if known.driver == "closed" else room(known, document)
    slots = _slots(row) or usual or MOST_AT_ONCE
    return {
        "batching": "continuous",
        "chunked_prefill": True,
        "max_num_seqs": slots,
        "max_num_batched_tokens": max(tokens, slots),
    }


def _fitting(document: dict[str, Any], prompt: Lengths) -> dict[str, Any]:
    """The document with iterations that have room for a token of every request that runs, and for
    the longest prompt where none is cut."""
    scheduler = document["scheduler"]
    if "max_num_batched_tokens" not in scheduler:
        return document
    least = [scheduler.get("max_num_seqs", 1)]
    if not scheduler.get("chunked_prefill", True):
        least.append(prompt.high)
    tokens = max(scheduler["max_num_batched_tokens"], *least)
    return {**document, "scheduler": {**scheduler, "max_num_batched_tokens": tokens}}


def room(known: Conditions, document: Mapping[str, Any], most: int = MOST_AT_ONCE) -> int:
    """Whole requests that fit into memory with the weights, up to the engine's limit."""
    model, precision = catalog.model(known.model), document["precision"]
    pool, *_ = document["fleet"]
    gpus = pool["tensor_parallel"] * pool["data_parallel"] * pool["pipeline_parallel"]
    weights = model.weight_bytes(precision["weights"], experts=precision.get("experts")) / gpus
    free = catalog.gpu(known.gpu).memory - weights
    request = known.prompt.mean + known.output.mean
    per_token = model.kv_bytes_per_token(precision["kv_cache"]) / pool["tensor_parallel"]
    return max(1, min(most, int(free / (request * per_token))))


def _arrivals(row: Row, known: Conditions) -> dict[str, Any]:
    if known.driver == "closed":
        return {"kind": "closed", "concurrency": known.size or 1}
    if known.driver == "online":
        return {"kind": "poisson", "rate": _number(row["request_rate_rps"])}
    return {"kind": "burst"}


ROUNDS = 10
"""Requests per client where a closed loop does not say how many it had: the usual protocol."""

ROUNDS_ASSUMED = f"{ROUNDS} requests per client"
"""The note where a client's protocol is not published."""

OFFLINE_REQUESTS = 3000
"""Requests of an offline run that does not say how many it had: what the same publications state
for lengths of 1,000 and 1,024."""

_PROTOCOL = re.compile(r"num_prompts|\d+\s*x\s*conc", re.I)


def _described(row: Row) -> bool:
    """Whether it is published how the clients of a closed loop sent their requests."""
    if _PROTOCOL.search(row["n_requests"]):
        return True
    return bool(_PROTOCOL.search(row["notes"])) and "not stated row by row" not in row["notes"]


def _requests(row: Row, known: Conditions, assumed: list[str]) -> int:
    driver, size = known.driver, known.size
    if driver in ("static", "single"):
        return (size or 1) if driver == "static" else 1
    cell = row["n_requests"]
    if (factor := re.search(r"(\d+)\s*x\s*conc", cell)) and size:
        return int(factor[1]) * size
    stated = _whole(cell)
    if known.steady and size:  # enough that start and end hardly count
        return max(stated or 0, ROUNDS * size)
    if stated is not None:
        if "?" in cell:
            assumed.append(f"{stated} requests (published with a question mark)")
        return stated
    if driver == "closed" and size:
        assumed.append(ROUNDS_ASSUMED)
        return ROUNDS * size
    if driver == "online":
        raise Unrepresentable("the number of requests is not stated")
    assumed.append(f"{OFFLINE_REQUESTS:,} requests, as for other lengths of the same source")
    return OFFLINE_REQUESTS


def _whole(cell: str) -> int | None:
    found = re.match(r"\d[\d,]*(?=\D|$)", cell)
    return int(found[0].replace(",", "")) if found else None


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
