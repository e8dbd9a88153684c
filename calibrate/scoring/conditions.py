"""Turns the words of a published row into the conditions of its measurement, in numbers.

What a publisher leaves out is assumed, and every assumption is stated (``Conditions.assumed``): how
requests were sent matters more for the time to first token than any kernel.
Notes of a row are read for the few settings that change a prediction. ``KNOWN`` holds what is known
of whole publications (never of single rows); whatever it changes is stated as a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from calibrate.scoring.names import Unrepresentable, gpu_name, model_name, precision_name
from calibrate.scoring.table import Row
from sim import catalog


@dataclass(frozen=True, slots=True)
class Statement:
    """Settings found in the notes of a row; None or empty where nothing is stated.

    ``spread`` are the shortest and the longest length as shares of the nominal one.
    """

    weights: str = ""
    kv_cache: str = ""
    spread: tuple[float, float] | None = None
    memory_fraction: float | None = None
    max_num_batched_tokens: int | None = None
    whole_system: bool = False
    more: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What holds for a publication, that is for rows whose cells match ``where`` (column: pattern),
    whatever they state: the format ``kv_cache``, figures of the ``whole_system`` where one of a GPU
    is announced, ``more`` requests in flight than stated. ``why`` says how that is known."""

    where: tuple[tuple[str, str], ...]
    why: str
    kv_cache: str = ""
    whole_system: bool = False
    more: int = 0

    def covers(self, row: Row) -> bool:
        """Whether ``row`` belongs to the publication."""
        return all(re.search(pattern, row[column], re.I) for column, pattern in self.where)


KNOWN = (
    Known(
        (("engine", "^vllm"), ("kv_dtype", "^fp8"), ("notes", "InferenceMAX")),
        "the KV cache is taken for bf16: its capacity and the slope of the token time in the "
        "context say so, although fp8 is stated",
        kv_cache="bf16",
    ),
    Known(
        (("engine", "tensorrt"), ("engine_version", r"^0\.[56]\."), ("tp", "^[^1]")),
        "the figure is that of all GPUs together, although one of a GPU is announced: later "
        "releases on the same hardware give a quarter of it with four GPUs",
        whole_system=True,
    ),
    Known(
        (("engine", "^trtllm"), ("source_path", "silicon_sample"), ("notes", "aic-auto-gap")),
        "one request more is in flight than stated, and waits for a seat: the time to first token "
        "grows with the length of answers as such a wait does",
        more=1,
    ),
)

_SPREAD = re.compile(r"uniform in \[([\d.]+),\s*([\d.]+)\]\s*\*?\s*nominal")
_FRACTION = re.compile(
    r"(?:mem(?:ory)?[-_](?:util\w*|fraction)|kv frac|mem_fraction)\D{0,3}(0\.\d+)"
)
_TOKENS = re.compile(r"max[-_]num[-_]batched[-_]tokens\D{0,3}(\d+)")


def statement(row: Row) -> Statement:
    """What is known of ``row`` in addition to its columns."""
    notes = row["notes"]
    known = next((known for known in KNOWN if known.covers(row)), None)
    spread = _SPREAD.search(notes)
    fraction, tokens = _FRACTION.search(notes), _TOKENS.search(notes)
    return Statement(
        kv_cache=known.kv_cache if known else "",
        whole_system=known.whole_system if known else False,
        more=known.more if known else 0,
        spread=(float(spread[1]), float(spread[2])) if spread else None,
        memory_fraction=float(fraction[1]) if fraction else None,
        max_num_batched_tokens=int(tokens[1]) if tokens else None,
        remarks=(known.why,) if known else (),
    )


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
    if catalog.model(model).has_experts:
        raise Unrepresentable(f"the model {row['model']} has experts: only dense ones are compared")
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
