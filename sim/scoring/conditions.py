"""Turns the words of a published row into the conditions of its measurement, in numbers.

What a publisher leaves out is assumed, and every assumption is stated (``Conditions.assumed``): how
requests were sent matters more for the time to first token than any kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sim.scoring.names import Unrepresentable, gpu_name, model_name, precision_name
from sim.scoring.published import Statement, statement
from sim.scoring.table import Row

Driver = Literal["static", "single", "offline", "closed", "online", "replay"]
"""How requests were sent: one padded batch; one after the other; all at once; by clients that wait
for their answers; at a rate; as a log has them."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers: equally likely from ``low`` to ``high``; or ``varied``, when
    only their mean is known, which both then are."""

    low: int
    high: int
    varied: bool = False

    @property
    def mean(self) -> float:
        """Mean tokens."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is needed to repeat a measurement in the simulator.

    ``engine`` and ``version`` are as published. ``size`` is the batch, or the clients; ``rate`` is
    in requests per second, infinite for all at once; ``requests`` how many there are;
    ``memory_fraction`` what the engine may use of the GPU (None: its default); ``whole_system``
    says that figures per GPU are those of all of them; ``more`` requests than ``size`` are in
    flight.
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
    assumed: tuple[str, ...] = ()


def conditions(row: Row) -> Conditions:
    """The conditions of ``row``. Raises Unrepresentable with the reason if it has others than the
    simulator knows."""
    known = statement(row)
    assumed: list[str] = list(known.remarks)
    driver = _driver(row)
    _check_layout(row)
    model, gpu = model_name(row["model"]), gpu_name(row["gpu"])
    weights = precision_name(known.weights or row["weight_dtype"], unstated="bf16")
    if not known.weights and precision_name(row["weight_dtype"], unstated="?") == "?":
        assumed.append("weights are not stated: bf16")
    kv_cache = _kv_cache(row, known, weights, assumed)
    spread = known.spread or (1.0, 1.0)
    size = _whole(row["batch_or_concurrency"])
    if driver in ("static", "closed") and size is None:
        raise Unrepresentable(f"no number of requests in {row['batch_or_concurrency']!r}")
    return Conditions(
        driver=driver,
        engine=row["engine"],
        version=row["engine_version"],
        gpu=gpu,
        gpus=_whole(row["n_gpus"]) or 1,
        model=model,
        weights=weights,
        kv_cache=kv_cache,
        tensor_parallel=_whole(row["tp"]) or 1,
        prompt=_lengths(row["isl"], "prompt", spread, assumed),
        output=_lengths(row["osl"], "output", spread, assumed),
        size=size,
        rate=_rate(row, driver),
        requests=_requests(row, driver, size, assumed),
        memory_fraction=known.memory_fraction,
        max_num_batched_tokens=known.max_num_batched_tokens,
        whole_system=known.whole_system,
        more=known.more,
        assumed=tuple(assumed),
    )


def _driver(row: Row) -> Driver:
    arrival = row["arrival"].lower()
    if "static" in arrival:
        return "static"
    if "single stream" in arrival or row["batch_or_concurrency"] == "single stream":
        return "single"
    if "closed" in arrival:
        return "closed"
    if "t=0" in arrival or row["request_rate_rps"].lower() in ("inf", "offline"):
        return "offline"
    if _number(row["request_rate_rps"]) is not None:
        return "online"
    raise Unrepresentable(f"arrivals {row['arrival']!r} are none of the known kinds")


def _check_layout(row: Row) -> None:
    """Only tensor parallelism is modelled."""
    for column, name in (("pp", "pipeline"), ("ep", "expert")):
        if (_whole(row[column]) or 1) > 1:
            raise Unrepresentable(f"{name} parallelism is not modelled")
    if (_whole(row["dp_attn"]) or 1) > 1 or "enabled" in row["dp_attn"]:
        raise Unrepresentable("data-parallel attention is not modelled")
    tensor = _whole(row["tp"]) or 1
    if (_whole(row["n_gpus"]) or tensor) % tensor:
        raise Unrepresentable(f"{row['n_gpus']} GPUs do not hold replicas of {tensor} each")


def _kv_cache(row: Row, known: Statement, weights: str, assumed: list[str]) -> str:
    """The format of the KV cache; where nothing is said, 16 bits."""
    if known.kv_cache:
        return known.kv_cache
    published = precision_name(row["kv_dtype"], unstated="?")
    if published == "?" and weights == "fp8" and re.search("tensorrt|trtllm", row["engine"], re.I):
        assumed.append("the KV cache's format is not stated: fp8, as in checkpoints for the engine")
        return "fp8"
    if published == "?":
        assumed.append("the KV cache's format is not stated: bf16")
        return "fp16" if weights == "fp16" else "bf16"
    return published


_WHOLE = re.compile(r"[\d,]+(?![\d.,]*\.)")
_MEAN = re.compile(r"(?:mean\D{0,3})?(\d+\.?\d*)")


def _lengths(cell: str, what: str, spread: tuple[float, float], assumed: list[str]) -> Lengths:
    if tokens := _WHOLE.match(cell):
        nominal = int(tokens[0].replace(",", ""))
        low, high = (max(1, round(share * nominal)) for share in spread)
        return Lengths(low, high)
    found = _MEAN.search(cell)
    if found is None or not ("mean" in cell or cell.startswith(found[0])):
        raise Unrepresentable(f"{what} lengths are stated only as {cell!r}")
    assumed.append(f"of {what} lengths only the mean is known: spread as far as it is large")
    mean = max(1, round(float(found[1])))
    return Lengths(mean, mean, varied=True)


def _rate(row: Row, driver: Driver) -> float | None:
    return _number(row["request_rate_rps"]) if driver == "online" else None


ROUNDS = 10
"""Requests per client where a closed loop does not say how many it had: the usual protocol."""


def _requests(row: Row, driver: Driver, size: int | None, assumed: list[str]) -> int | None:
    cell = row["n_requests"]
    if (factor := re.search(r"(\d+)\s*x\s*conc", cell)) and size:
        return int(factor[1]) * size
    stated = _whole(cell)
    if stated is not None:
        if "?" in cell:
            assumed.append(f"{stated} requests (published with a question mark)")
        return stated
    if driver == "closed" and size:
        assumed.append(f"{ROUNDS} requests per client")
        return ROUNDS * size
    if driver in ("offline", "online"):
        raise Unrepresentable("the number of requests is not stated")
    return size


def _whole(cell: str) -> int | None:
    found = re.match(r"\d[\d,]*(?=\D|$)", cell)
    return int(found[0].replace(",", "")) if found else None


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
