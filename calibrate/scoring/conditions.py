"""Turns the words of a published row into the conditions of its measurement, in numbers.

What a publisher leaves out is assumed, and every assumption is stated (``Conditions.assumed``): how
requests were sent matters more for the time to first token than any kernel.
Notes of a row are read for the few settings that change a prediction (``known``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from calibrate.scoring.known import Statement, statement
from calibrate.scoring.lengths import Lengths, lengths_of
from calibrate.scoring.names import (
    Unrepresentable,
    expert_precision_name,
    gpu_name,
    model_name,
    precision_name,
)
from calibrate.scoring.table import Row
from calibrate.scoring.twins import SLOWEST
from calibrate.scoring.workers import INFERENCEX, Disaggregated, told_apart, workers
from sim import catalog
from sim.specs.layout import Layout

TENSORRT = re.compile("tensorrt|trt-?llm", re.I)

Driver = Literal["static", "single", "offline", "closed", "online", "replay"]
"""How requests were sent: one padded batch; one after the other; all at once; by clients that wait
for their answers; at a rate; as a log has them."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is needed to repeat a measurement in the simulator.

    ``engine`` and ``version`` are as published. ``size`` is the batch, or the clients; ``rate`` is
    in requests per second, infinite for all at once; ``requests`` how many there are;
    ``memory_fraction`` what the engine may use of the GPU (None: its default); ``whole_system``
    says that figures per GPU are those of all of them; ``more`` requests than ``size`` are in
    flight; ``static`` that the checkpoint holds the scales of its activations; ``peers`` whether
    cards on PCIe reach each other directly (None: not known); ``steady`` that figures are of the
    time in which all of ``size`` run; ``described`` that the way requests were sent is published.
    Where it is not, they may have come in one ``burst`` of ``size``, and figures may be ``warm``,
    without the first round. ``apart`` are the workers where prefill and decode have their own; the
    layout is then that of those that decode. ``asynchronous`` says that the engine was set to
    schedule ahead, ``ahead`` that its release does so by itself, and that the model has it in,
    ``marlin`` that experts in 4 bits go through that library, ``random_tokens`` that a model with
    experts is asked with such, ``slots`` whether as many requests run at once as there are clients,
    or else ``at_once``, or what memory has room for up to ``most_at_once``, ``whole`` whether
    prompts are not cut into chunks, ``policy`` the rule of batching where it is not the engine's
    own, ``batch_wait`` for how many iterations prompts wait until what share of one is full,
    ``ranks_wait`` for how many those of data ranks wait for each other, and then for others.
    ``streamed`` tokens come together, the first ones too. The engine ``sorts`` all logits to choose
    a token. Attention is ``triton``'s.
    """

    driver: Driver
    engine: str
    version: str
    gpu: str
    gpus: int
    model: str
    weights: str
    kv_cache: str
    tensor_parallel: int
    prompt: Lengths
    output: Lengths
    size: int | None
    rate: float | None
    requests: int | None
    memory_fraction: float | None
    max_num_batched_tokens: int | None
    whole_system: bool = False
    more: int = 0
    static: bool = False
    peers: bool | None = None
    steady: bool = False
    described: bool = True
    burst: bool = False
    warm: bool = False
    asynchronous: bool = False
    ahead: bool = False
    marlin: bool = False
    random_tokens: bool = False
    slots: bool = True
    at_once: int | None = None
    most_at_once: int | None = None
    whole: bool = False
    policy: str = ""
    batch_wait: tuple[int, float] | None = None
    ranks_wait: tuple[int, int] | None = None
    streamed: int = 1
    sorts: bool = False
    triton: bool = False
    experts: str | None = None
    data_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    apart: Disaggregated | None = None
    assumed: tuple[str, ...] = ()


def conditions(row: Row) -> Conditions:
    """The conditions of ``row``. Raises Unrepresentable with the reason if it has others than the
    simulator knows."""
    known = statement(row)
    for column in ("n_gpus", "tp", "pp"):
        if _whole(row[column]) == 0 or (column == "tp" and not re.search(r"\d|^$", row[column])):
            raise Unrepresentable(f"{column} {row[column]!r}: expected a number of at least 1")
    assumed: list[str] = list(known.remarks)
    driver = _driver(row)
    apart = _apart(row, assumed)
    layout = _layout(row, known, assumed) if apart is None else apart.decode
    model, gpu = model_name(row["model"]), gpu_name(row["gpu"])
    if not known.slots:
        assumed.append(f"{USUAL_SLOTS} requests run at once, the middle of the source's other runs")
    experts = None
    if catalog.model(model).has_experts:
        experts = known.experts or expert_precision_name(row["weight_dtype"])
    weights = known.weights or precision_name(row["weight_dtype"], unstated="bf16")
    if not known.weights and precision_name(row["weight_dtype"], unstated="?") == "?":
        assumed.append("weights are not stated: bf16")
    kv_cache = _kv_cache(row, known, weights, assumed)
    spread = known.spread or (1.0, 1.0)
    size = _whole(row["batch_or_concurrency"])
    steady = _steady(row, driver)
    made_up = catalog.model(model).has_experts and _random_tokens(row, driver, steady)
    if made_up:
        assumed.append(RANDOM_TOKENS)
    if driver in ("static", "closed") and size is None:
        raise Unrepresentable(f"no number of requests in {row['batch_or_concurrency']!r}")
    prompt = lengths_of(row["isl"], "prompt", spread, assumed, means=known.texts)
    output = lengths_of(row["osl"], "output", spread, assumed, known.output_tail, means=known.texts)
    tokens = known.max_num_batched_tokens
    if tokens is None and known.beside is not None:
        tokens = prompt.high + (size or 0) + known.beside
    return Conditions(
        driver=driver,
        engine=row["engine"],
        version=row["engine_version"],
        gpu=gpu,
        gpus=apart.gpus if apart else _gpus(row, known) or layout.gpus,
        apart=apart,
        model=model,
        weights=weights,
        kv_cache=kv_cache,
        experts=None if experts == weights else experts,
        tensor_parallel=layout.tensor,
        data_parallel=layout.data,
        pipeline_parallel=layout.pipeline,
        expert_parallel=layout.expert,
        prompt=prompt,
        output=output,
        size=size,
        rate=_rate(row, driver),
        requests=_requests(row, known, driver, size, assumed),
        slots=known.slots,
        marlin=known.marlin,
        random_tokens=made_up,
        asynchronous=known.asynchronous or "async-scheduling" in row["notes"],
        ahead=known.ahead,
        memory_fraction=known.memory_fraction,
        max_num_batched_tokens=tokens,
        whole=known.whole,
        policy=known.policy,
        batch_wait=known.batch_wait,
        ranks_wait=known.ranks_wait,
        streamed=known.streamed,
        sorts=known.sorts,
        triton=known.triton,
        at_once=_slots(row) if known.slots else USUAL_SLOTS,
        whole_system=known.whole_system,
        more=known.more,
        static=known.static,
        peers=known.peers,
        steady=steady,
        described=driver != "closed" or steady or known.client or _described(row),
        assumed=tuple(assumed),
    )


def _driver(row: Row) -> Driver:
    arrival = row["arrival"].lower()
    if "static" in arrival:
        return "static"
    if "single stream" in arrival or row["batch_or_concurrency"] == "single stream":
        return "single"
    if "closed" in arrival or "max_num_seqs running" in arrival:
        return "closed"
    if "t=0" in arrival or row["request_rate_rps"].lower() in ("inf", "offline"):
        return "offline"
    if _number(row["request_rate_rps"]) is not None:
        return "online"
    raise Unrepresentable(
        f"arrivals {row['arrival']!r} are none of the known kinds: closed loop, all at t=0, "
        "static, single stream, or a number in request_rate_rps"
    )


def _steady(row: Row, driver: Driver) -> bool:
    """Whether figures are of the time in which all requests run."""
    return driver == "closed" and "steady state" in row["arrival"].lower()


RANDOM_TOKENS = (
    "prompts are random tokens, which choose experts as unevenly as was measured of such: Gini "
    "indices of 0.29 to 0.38 (arXiv 2605.20982)"
)
"""What is stated where that is so; of real texts the same source has 0.10 to 0.25."""


def _random_tokens(row: Row, driver: Driver, steady: bool) -> bool:
    """Whether the prompts of a row are made up: those of the publishers' closed loops and offline
    runs are, apart from runs over a published data set."""
    texts = re.search("mlperf|ml-energy", f"{row['engine']} {row['source_repo']}", re.I)
    return driver in ("closed", "offline") and not steady and not texts


TWINS = "this condition is published with token times too far apart to be of one"
"""How it is known."""


PHASES = ("prefill", "decode")
"""Names of what workers of either kind do."""


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
    if any(found.split.data):
        who = " and ".join(
            each for each, data in zip(PHASES, found.split.data, strict=True) if data
        )
        assumed.append(f"attention of {who} is split by requests, as in {INFERENCEX}")
    if (passes := found.passes) is not None:
        assumed.append(
            f"a pass of prefill has at most {passes.prompts:,} prompts and {passes.tokens:,} "
            "tokens, of each data rank, as in the same source"
        )
    if found.split.batch == 1:
        assumed.append("each worker that decodes runs one request at a time, as there")
    assumed.append("KV is pulled over a link of the default bandwidth")
    if len(found.plausible) > 1 or _whole(row["n_gpus"]) is None:
        assumed.append(f"{found.split.name}, of the splits that the source's configurations allow")
    return found


def _layout(row: Row, known: Statement, assumed: list[str]) -> Layout:
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
    if not known.ranks:
        data, expert = 1, min(expert, tensor)
    if known.by_requests and data == 1:
        tensor, data = 1, tensor
    if known.twice:
        tensor, data = (max(1, ranks // expert) for ranks in (tensor, data))
    elif known.experts_apart:
        expert = tensor * data
    ranks, stages = tensor * data, _whole(row["pp"]) or 1
    if stages > 1 and data > 1:
        raise Unrepresentable(f"data ranks that are pipelines of {stages} stages are not simulated")
    gpus = _gpus(row, known) or ranks * stages
    if gpus % (ranks * stages) or ranks % expert:
        raise Unrepresentable(
            f"{gpus} GPUs do not hold replicas of {tensor} x {data}, with experts over {expert}"
        )
    node = catalog.gpu(gpu_name(row["gpu"])).node.gpus
    if node is not None and ranks * stages > node:
        assumed.append(f"what joins nodes of {node} GPUs is not stated: the catalogue's network")
    return Layout(tensor=tensor, pipeline=stages, data=data, expert=expert)


def _gpus(row: Row, known: Statement) -> int | None:
    """GPUs that a row states truly; None where it states none, or others than there were."""
    return _whole(row["n_gpus"]) if known.ranks and not known.twice else None


def _kv_cache(row: Row, known: Statement, weights: str, assumed: list[str]) -> str:
    """The format of the KV cache; where nothing is said, 16 bits."""
    if known.kv_cache:
        return known.kv_cache
    published = precision_name(row["kv_dtype"], unstated="?")
    if published == "?" and weights in ("fp8", "nvfp4") and TENSORRT.search(row["engine"]):
        assumed.append("the KV cache's format is not stated: fp8, as in checkpoints for the engine")
        return "fp8"
    if published == "?":
        assumed.append("the KV cache's format is not stated: bf16")
        return "fp16" if weights == "fp16" else "bf16"
    return published


def _rate(row: Row, driver: Driver) -> float | None:
    return _number(row["request_rate_rps"]) if driver == "online" else None


ROUNDS = 10
"""Requests per client where a closed loop does not say how many it had: the usual protocol."""


SLOTS = (4, 8, 16, 32, 64)
"""Requests that may run at once where clients outnumber them: as in its other runs."""

USUAL_SLOTS = SLOTS[len(SLOTS) // 2]
"""The one of them that such a row is predicted with."""

ROUNDS_ASSUMED = f"{ROUNDS} requests per client"
"""What is stated where a client's protocol is not published."""

OFFLINE_REQUESTS = 3000
"""Requests of an offline run that does not say how many it had: what the same publications state
for lengths of 1,000 and 1,024."""

_PROTOCOL = re.compile(r"num_prompts|\d+\s*x\s*conc", re.I)


def _described(row: Row) -> bool:
    """Whether it is published how the clients of a closed loop sent their requests."""
    said = f"{row['n_requests']} {row['notes']}"
    return bool(_PROTOCOL.search(said)) and "not stated row by row" not in said


def _requests(
    row: Row, known: Statement, driver: Driver, size: int | None, assumed: list[str]
) -> int | None:
    """How many there are: by what is known of the publication, or else by the row."""
    if known.queries:
        return known.queries
    if not known.slots:
        return ROUNDS * USUAL_SLOTS
    return _stated(row, known, driver, size, assumed)


def _stated(
    row: Row, known: Statement, driver: Driver, size: int | None, assumed: list[str]
) -> int | None:
    cell = row["n_requests"]
    if (factor := re.search(r"(\d+)\s*x\s*conc", cell)) and size:
        return int(factor[1]) * size
    stated = _whole(cell)
    if _steady(row, driver) and size:  # enough that start and end hardly count
        return max(stated or 0, ROUNDS * size)
    if stated is not None:
        if "?" in cell:
            assumed.append(f"{stated} requests (published with a question mark)")
        return stated
    if driver == "closed" and size:
        if not known.client:
            assumed.append(ROUNDS_ASSUMED)
        return ROUNDS * size
    if driver == "offline":
        assumed.append(f"{OFFLINE_REQUESTS:,} requests, as for other lengths of the same source")
        return OFFLINE_REQUESTS
    if driver == "online":
        raise Unrepresentable("the number of requests is not stated")
    return size


_SLOTS = re.compile(r"max_batch (\d+) per")


def _slots(row: Row) -> int | None:
    """How many requests run at once in a replica at most, where it is stated with the load."""
    found = _SLOTS.match(row["batch_or_concurrency"])
    return int(found[1]) if found else None


def _whole(cell: str) -> int | None:
    found = re.match(r"\d[\d,]*(?=\D|$)", cell)
    return int(found[0].replace(",", "")) if found else None


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
