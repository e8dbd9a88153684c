"""Reads layouts of replicas that prefill and decode apart, and lists how many there may have been.

A row states the layout of a worker of either kind, ``P0x(tp8 dp1 etp1 ep8) D0x(...)``, and may
leave their numbers out (0). Then they follow from the GPUs of the whole system where those are
stated, or else from the concurrency and the layouts that the source publishes (``splits.yaml``).
What fits several splits is an unknown condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.published_names import Unrepresentable
from sim.catalog.files import read_yaml
from sim.specs.layout import Layout


class WorkerSplit(NamedTuple):
    """So many workers that prefill, that many that decode, and the tokens drafted by each step.

    ``batch`` is how many requests each decoding worker is to run at once, 0 where that is open;
    ``data`` whether the workers of either kind split attention by requests, a GPU a rank, and
    experts over all of them, whatever layout is stated; ``sizes`` are the numbers of clients that
    it is published for, where they do not follow from the batch.

    >>> WorkerSplit(1, 9).name, WorkerSplit(1, 11, 3).name
    ('1P9D', '1P11D, 3 tokens drafted')
    """

    prefill: int
    decode: int
    drafts: int = 0
    batch: int = 0
    data: tuple[bool, bool] = (False, False)
    sizes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the split."""
        drafted = f", {self.drafts} tokens drafted" if self.drafts else ""
        return f"{self.prefill}P{self.decode}D{drafted}"

    @property
    def clients(self) -> int:
        """Clients that fill the batches: for a batch of one, two more than there are workers.

        >>> WorkerSplit(1, 11, 3, batch=4).clients, WorkerSplit(1, 7, batch=1).clients
        (44, 9)
        """
        return self.decode * self.batch + (OVER if self.batch == 1 else 0)

    def made_for(self, size: int | None) -> bool:
        """Whether it is published for that many clients."""
        return size in self.sizes or size == self.clients


PHASES = ("prefill", "decode")
"""The tasks of the workers of either kind."""

OVER = 2
"""Clients above one for each worker, in configurations with a batch of one."""


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Workers that prefill and decode apart: the ``layout`` of both kinds, and how many there are.

    ``plausible`` has every split that what is published allows; the first of them is ``split``,
    unless another is looked at. ``passes`` are those of prefill, where they are published.
    """

    prefill: Layout
    decode: Layout
    split: WorkerSplit
    plausible: tuple[WorkerSplit, ...]
    passes: Passes | None = None

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """How a worker of either kind is laid out in this ``split``."""
        found = [
            Layout(data=stated.gpus, expert=stated.gpus) if data else stated
            for stated, data in zip((self.prefill, self.decode), self.split.data, strict=True)
        ]
        return found[0], found[1]

    @property
    def gpus(self) -> int:
        """GPUs of all workers."""
        return self.split.prefill * self.prefill.gpus + self.split.decode * self.decode.gpus

    @property
    def remarks(self) -> list[str]:
        """The values taken from the configurations of its source, and those assumed of links."""
        found = []
        if any(self.split.data):
            who = (each for each, data in zip(PHASES, self.split.data, strict=True) if data)
            found.append(
                f"attention of {' and '.join(who)} is split by requests, as in {_source()}"
            )
        if (passes := self.passes) is not None:
            found.append(
                f"a pass of prefill has at most {passes.prompts:,} prompts and {passes.tokens:,} "
                "tokens, of each data rank, as in the same source"
            )
        if self.split.batch == 1:
            found.append("each worker that decodes runs one request at a time, as there")
        return [*found, "KV is pulled over a link of the default bandwidth"]


class Passes(NamedTuple):
    """The most prompts and tokens of a pass of a worker that prefills, or of each of its data
    ranks; prompts are not cut."""

    prompts: int
    tokens: int


class Published(NamedTuple):
    """The splits that a source publishes for an engine (a pattern), a GPU and nominal prompts of so
    many tokens, those without drafts first, and the ``passes`` of their prefill if it does."""

    engine: str
    gpu: str
    prompt: int
    splits: tuple[WorkerSplit, ...]
    passes: Passes | None = None


FILE = Path(__file__).with_name("splits.yaml")


@cache
def published() -> tuple[Published, ...]:
    """The publications of the sources (``splits.yaml``)."""
    servers: Any = read_yaml(FILE)["servers"]
    return tuple(
        Published(
            each["engine"],
            each["gpu"],
            each["prompt"],
            tuple(split for entry in each["splits"] for split in _splits(entry)),
            Passes(**each["passes"]) if "passes" in each else None,
        )
        for each in servers
    )


def _splits(entry: Mapping[str, Any]) -> Iterator[WorkerSplit]:
    """The split of an entry, for each of its batches."""
    prefill, decode = entry["workers"]
    data = tuple(phase in entry.get("by_requests", ()) for phase in PHASES)
    for batch in entry.get("batches", (0,)):
        yield WorkerSplit(
            prefill,
            decode,
            entry.get("drafts", 0),
            batch,
            (data[0], data[1]),
            tuple(entry.get("clients", ())),
        )


@cache
def _source() -> str:
    """Where they are published."""
    return str(read_yaml(FILE)["source"]).strip()


USUAL = (WorkerSplit(1, 1), WorkerSplit(1, 2), WorkerSplit(2, 1), WorkerSplit(1, 4))
"""Splits that are looked at where nothing is published."""

_LAYOUT = re.compile(r"P(\d+)x\((?P<p>[^)]*)\)\s*D(\d+)x\((?P<d>[^)]*)\)", re.I)


def workers(
    cell: str, gpus: int | None, size: int | None, source: tuple[str, str, int | None]
) -> Disaggregated | None:
    """The workers that ``cell`` states; None if it states none.

    ``gpus`` are those of the whole system, ``size`` the concurrency, None where they are not
    stated; ``source`` the engine, the GPU and the nominal tokens of a prompt. Raises
    Unrepresentable for layouts or numbers that do not go together.

    >>> found = workers("P0x(tp8 dp1 etp8 ep1) D0x(tp4 dp1 etp4 ep1)", 20, 1, ("vllm", "x", None))
    >>> found.split.name, [each.name for each in found.plausible]
    ('2P1D', ['2P1D', '1P3D'])
    """
    found = _LAYOUT.match(cell)
    if found is None:
        return None
    prefill, decode = _layout(found["p"]), _layout(found["d"])
    stated = WorkerSplit(int(found[1]), int(found[3]))
    if stated.prefill and stated.decode:
        return Disaggregated(prefill, decode, stated, (stated,))
    if gpus is not None:
        plausible = _of_gpus(gpus, prefill.gpus, decode.gpus, stated)
        if not plausible:
            raise Unrepresentable(
                f"{gpus} GPUs are no whole number of workers of {prefill.gpus} and {decode.gpus}"
            )
    else:
        plausible = _of_source(size, source, decode)
    servers = _published(source)
    passes = None if servers is None else servers.passes
    return Disaggregated(prefill, decode, plausible[0], plausible, passes)


def _layout(stated: str) -> Layout:
    """``tp8 dp1 etp1 ep8``: the experts of ``ep`` groups, each cut into ``etp``."""
    parts = {name: int(value) for name, value in re.findall(r"([a-z]+)(\d+)", stated.lower())}
    tensor, data, expert = (parts.get(name, 1) for name in ("tp", "dp", "ep"))
    width = parts.get("etp", tensor * data // max(1, expert))
    if width * expert != tensor * data or parts.get("pp", 1) != 1:
        raise Unrepresentable(f"workers laid out as {stated!r} are not simulated")
    return Layout(tensor=tensor, data=data, expert=expert)


def _of_gpus(gpus: int, prefill: int, decode: int, stated: WorkerSplit) -> tuple[WorkerSplit, ...]:
    """The splits that use all ``gpus``, the most even first."""
    found = [
        WorkerSplit(first, rest // decode)
        for first in range(1, gpus // prefill + 1)
        if (rest := gpus - first * prefill) > 0
        and rest % decode == 0
        and stated.prefill in (0, first)
        and stated.decode in (0, rest // decode)
    ]
    return tuple(sorted(found, key=lambda each: (abs(each.prefill - each.decode), each)))


def _of_source(
    size: int | None, source: tuple[str, str, int | None], decode: Layout
) -> tuple[WorkerSplit, ...]:
    """The published splits that this many clients fill, or all where none of them is filled; those
    that spread experts, where one is made for that, if a row states that ``decode`` does."""
    found = _published(source)
    if found is None:
        return USUAL
    fitting = tuple(s for s in found.splits if s.made_for(size))
    wide = tuple(s for s in fitting if s.data[1]) if decode.expert > 1 else ()
    return wide or fitting or found.splits


def _published(source: tuple[str, str, int | None]) -> Published | None:
    """The publication of such a ``source``."""
    engine, gpu, prompt = source
    for each in published():
        if re.search(each.engine, engine, re.I) and each.gpu in gpu and each.prompt == prompt:
            return each
    return None


def told_apart(found: Disaggregated, *, slowest: bool) -> Disaggregated:
    """``found`` where a publication has its condition several times, of which the run is the
    slowest or is not: the slowest has no drafts, or the largest batches where all draft."""
    plausible = found.plausible
    plain = tuple(each for each in plausible if not each.drafts)
    slow = plain or (max(plausible, key=lambda each: each.batch),)
    splits = slow if slowest else tuple(each for each in plausible if each not in slow)
    return replace(found, split=splits[0], plausible=splits) if splits else found


VERIFIES = {"policy": "vllm", "async_scheduling": False}
"""The rule of batching where tokens are drafted; no other one is modelled with drafts."""

ACCEPTANCE = {"deepseek-r1": "deepseek-r1-mtp", "deepseek-v3": "deepseek-r1-mtp"}
"""Tables of published acceptance by model; the second differs from the first in training alone."""


def layout_keys(layout: Layout) -> dict[str, int]:
    """The keys of a pool laid out so."""
    return {
        "tensor_parallel": layout.tensor,
        "data_parallel": layout.data,
        "pipeline_parallel": layout.pipeline,
        "expert_parallel": layout.expert,
    }


def split_settings(
    apart: Disaggregated, model: str, gpu: str, scheduler: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a scenario for the split of the workers ``apart``; ``scheduler`` are those of
    one without. Raises Unrepresentable where what is accepted of drafts is not published."""
    split, settings = apart.split, dict(scheduler) | (VERIFIES if apart.split.drafts else {})
    counts = split.prefill, split.decode
    pools = [
        {"name": phase, "role": phase, "gpu": gpu, **layout_keys(layout), "replicas": count}
        for phase, layout, count in zip(PHASES, apart.layouts, counts, strict=True)
    ]
    prefill, decode = pools
    if (passes := apart.passes) is not None:
        limits = {"max_num_seqs": passes.prompts, "max_num_batched_tokens": passes.tokens}
        prefill["scheduler"] = {**settings, "chunked_prefill": True, **limits}
    if split.batch == 1:  # clients above one for each worker (``OVER``) wait for theirs
        decode["scheduler"] = {**settings, "max_num_seqs": 1}
    found: dict[str, Any] = {"fleet": pools, "scheduler": settings}
    if split.drafts:
        if model not in ACCEPTANCE:
            raise Unrepresentable(f"what is accepted of drafts for {model} is not published")
        accepted = {"table": ACCEPTANCE[model]}
        found["speculative"] = {
            "method": "mtp",
            "num_tokens": split.drafts,
            "acceptance": accepted,
        }
    return found
