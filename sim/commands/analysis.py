"""Provides ``infersim roofline`` and ``infersim fit``, without a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import INFEASIBLE, plain_errors
from sim.commands.options import AsJson, Full
from sim.commands.output import print_view
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.cost import Deployment
    from sim.planning.fits import CapacityOf
    from sim.specs.layout import Layout

LARGEST = 2**31 - 1
"""No count of anything is more."""

MOST_SLOTS = 262_144
"""Requests of the largest batch; time and memory of a prediction grow with it."""

FIT_CONTEXT = 8192
"""Tokens of a request of ``fit``, where the model was made for as many."""


def _a_model(context: typer.Context, name: str) -> str:
    """``name``, unless it is that of a scenario: then the error says what to write instead."""
    with plain_errors():
        from sim.catalog.files import read_yaml
        from sim.scenario import load_scenario
        from sim.scenario.shipped import found

        path = found(name)
        if path.suffix == ".yaml" and path.is_file() and "workload" in read_yaml(path):
            scenario = load_scenario(path)
            pool, *_ = scenario.pools
            tensor = f" --tensor-parallel {tp}" if (tp := pool.layout.tensor) > 1 else ""
            raise UsageError(
                f"{name!r} is a scenario; this command takes a model and a GPU: "
                f"`infersim {context.info_name} {scenario.model} --gpu {pool.gpu}{tensor}`"
            )
    return name


Model = Annotated[
    str,
    typer.Argument(
        help="Catalogue name, id on Hugging Face, or path of a config.json.", callback=_a_model
    ),
]
Gpu = Annotated[str, typer.Option(help="Catalogue name, or path of a GPU file.")]
Engine = Annotated[str, typer.Option(help="Overhead preset.")]
Weights = Annotated[
    str | None,
    typer.Option(help="Precision of the weights.  [default: as published, mostly bf16]"),
]
Activations = Annotated[
    str | None,
    typer.Option(help="Precision of the activations.  [default: what goes with the weights]"),
]
Experts = Annotated[
    str | None,
    typer.Option(
        help="Precision of the experts, where it is another.  [default: as published, or as the "
        "weights]"
    ),
]
KvCache = Annotated[
    str | None,
    typer.Option(help="Precision of the KV cache.  [default: as published, mostly bf16]"),
]
Tp = Annotated[
    int, typer.Option("--tensor-parallel", min=1, max=LARGEST, help="GPUs that share each layer.")
]

PipelineParallel = Annotated[
    int,
    typer.Option("--pipeline-parallel", min=1, max=LARGEST, help="Stages of consecutive layers."),
]

LayerSplit = Annotated[
    int,
    typer.Option("--layer-split", min=1, max=LARGEST, help="GPUs that work in turn (llama.cpp)."),
]

ExpertParallel = Annotated[
    bool,
    typer.Option(
        "--expert-parallel",
        help="Place whole experts on each GPU instead of a part of every expert.",
    ),
]

DataParallel = Annotated[
    int,
    typer.Option("--data-parallel", min=1, max=LARGEST, help="Ranks that share the experts."),
]


Drafting = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        help="Drafter whose weights also take memory: eagle, mtp, or the name or path of a draft "
        "model.",
    ),
]

Link = Annotated[
    str | None,
    typer.Option(
        help="Link between the GPUs: nvlink, pcie, or as in fleet.link '{kind: pcie, peer_to_peer: "
        "true}' or '{bandwidth: 50GB/s, latency: 5us}'; default: the GPU's own."
    ),
]


class ServedOptions(NamedTuple):
    """The options on how a model is served: its precisions, its GPUs and their link."""

    weights: Weights = None
    experts: Experts = None
    activations: Activations = None
    kv_cache: KvCache = None
    tensor_parallel: Tp = 1
    pipeline_parallel: PipelineParallel = 1
    layer_split: LayerSplit = 1
    expert_parallel: ExpertParallel = False
    data_parallel: DataParallel = 1
    link: Link = None


def _deployment(model: str, gpu: str, engine: str, served: ServedOptions) -> Deployment:
    layout, weights, experts, link = _layout(served), served.weights, served.experts, served.link
    from sim import catalog
    from sim.catalog.published import INSTEAD
    from sim.cost import Deployment
    from sim.scenario.sections import checkpoint
    from sim.scenario.sections.link import read_link

    preset = catalog.engine(engine)
    part = catalog.gpu(gpu, kernels=preset.kernels)
    spec = catalog.model(model)
    found = None if weights or experts else spec.published
    usual: dict[str, str] = {}
    if found is not None:
        if found.problem is not None:
            raise UsageError(f"{found.problem}; {INSTEAD}: here --weights (and --experts)")
        computes = part.computes(checkpoint.activations(found))
        usual = checkpoint.formats(found, computes=computes)
    try:
        return Deployment(
            model=spec,
            gpu=part if link is None else read_link(link).on(part),
            engine=preset,
            weights=weights or usual.get("weights", "bf16"),
            activations=served.activations or usual.get("activations", "bf16"),
            kv_cache=served.kv_cache or usual.get("kv_cache", "bf16"),
            experts=experts or usual.get("experts"),
            static="quantisation" in usual and served.activations is None,
            layout=layout,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _drafted(d: Deployment, drafter: str) -> Deployment:
    from sim import catalog
    from sim.deployments import with_drafts

    if d.layout.pipeline > 1 or d.layout.data > 1:
        raise UsageError("--drafter: pipelines and data ranks are not modelled with drafts")
    named = drafter in ("eagle", "mtp")
    model = None if named else catalog.model(drafter)
    try:
        return with_drafts(d, drafter if named else "draft_model", (1.0,), model)
    except (UsageError, ValueError) as error:
        raise UsageError(f"--drafter {drafter}: {error}") from None


def _says(link: str | None) -> bool:
    """Whether a link leaves nothing open: of PCIe, if cards reach each other directly."""
    from sim.scenario.sections.link import read_link

    if link is None:
        return False
    found = read_link(link)
    return found.kind != "pcie" or found.peer_to_peer is not None


def _layout(served: ServedOptions) -> Layout:
    from sim.specs.layout import Layout

    tensor, data = served.tensor_parallel, served.data_parallel
    if served.pipeline_parallel > 1 and data > 1:
        raise UsageError(
            "--pipeline-parallel: data ranks of one engine are not pipelines here; leave "
            "--data-parallel at 1"
        )
    whole = tensor * data if served.expert_parallel else 1
    return Layout(tensor, served.pipeline_parallel, data, whole, served.layer_split)


FIT_ENGINE = "vllm"
"""The engine by whose memory limits ``fit`` and ``roofline`` say what fits, where none is named."""


OWN = "default: what the engine's release chooses on the GPU"


class FitLimits(NamedTuple):
    """The options of ``fit`` that an engine chooses by itself where they are left out."""

    block_size: Annotated[int | None, typer.Option(min=1, max=LARGEST, help=OWN)] = None
    gpu_memory_utilization: Annotated[float | None, typer.Option(min=0.01, max=1.0, help=OWN)] = (
        None
    )
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, max=LARGEST, help=OWN)] = None
    max_num_seqs: Annotated[int | None, typer.Option(min=1, max=LARGEST, help=OWN)] = None


class AdapterOptions(NamedTuple):
    """The options of ``fit`` for LoRA adapters, by vLLM's names."""

    max_loras: Annotated[
        int, typer.Option(min=0, max=LARGEST, help="Slots for LoRA adapters of all linear modules.")
    ] = 0
    max_lora_rank: Annotated[int, typer.Option(min=1, max=512, help="Rank of the slots.")] = 16

    def of(self, d: Deployment) -> Deployment:
        """``d`` with the slots."""
        from sim.specs.lora import Lora

        if not self.max_loras:
            return d
        try:
            return replace(d, lora=Lora(self.max_loras, self.max_lora_rank, self.max_loras))
        except ValueError as error:
            raise UsageError(str(error)) from None


def _engine_limits(
    model: str, gpu: str, engine: str, tensor: int, limits: FitLimits
) -> dict[str, Any]:
    """``limits`` with the engine's choices for what they leave out, as a run has them."""
    from sim import catalog
    from sim.scenario.sections.deployment import SchedulerSettings
    from sim.scenario.sections.kv_cache import KvCache
    from sim.scenario.sections.own_settings import completed

    given = {key: value for key, value in limits._asdict().items() if value is not None}
    kv = {key: given[key] for key in ("block_size", "gpu_memory_utilization") if key in given}
    knobs = {key: value for key, value in given.items() if key not in kv}
    pool = {"gpu": gpu, "tensor_parallel": tensor}
    asked = {"model": model, "fleet": [pool], "engine": engine, "scheduler": knobs, "kv_cache": kv}
    found = completed(asked, None)
    usual = {name: field.default for name, field in SchedulerSettings.model_fields.items()}
    usual |= {name: field.default for name, field in KvCache.model_fields.items()}
    chosen = {**found.get("scheduler", {}), **found.get("kv_cache", {})}
    cached = chosen.get("enable_prefix_caching", usual["enable_prefix_caching"])
    each = catalog.engine(engine).states_each(cached=cached)
    return {key: chosen.get(key, usual[key]) for key in FitLimits._fields} | {"states_each": each}


def _capacity_of(
    model: str, gpu: str, engine: str, served: ServedOptions, limits: FitLimits
) -> CapacityOf:
    """The memory of a deployment on ``engine`` under ``limits``: ``fit`` and ``roofline`` ask it,
    so that both say the same."""
    from sim.memory.capacity import capacity

    asked = _engine_limits(model, gpu, engine, served.tensor_parallel, limits)
    return lambda d: capacity(d, num_gpu_blocks=None, **asked)


@with_records
def roofline(
    model: Model,
    gpu: Gpu,
    *,
    batch: Annotated[
        list[int],
        typer.Option(min=1, max=MOST_SLOTS, help="Batch size, of each data rank; may be repeated."),
    ] = [1, 32, 256],
    context: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Context of each sequence, in tokens.")
    ] = 1024,
    prompt: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Length of the prompt to prefill, in tokens.")
    ] = 1024,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Overhead preset, which decides the kernels.  [default: ideal, with vllm's memory]"
        ),
    ] = None,
    served: ServedOptions,
    as_json: AsJson = False,
    full: Full = False,
) -> None:
    """Print FLOPs, bytes, time and bound of every operator: what batching amortises."""
    with plain_errors():
        from sim.planning.answers.roofline import first_parts, parts
        from sim.planning.rooflines import roofline_document
        from sim.terminal.findings import parts_view

        d = _deployment(model, gpu, engine or "ideal", served)
        limits = engine or FIT_ENGINE
        served_by = _deployment(model, gpu, limits, served)
        memory = _capacity_of(model, gpu, limits, served, FitLimits())(served_by)
        document = roofline_document(
            d,
            batch,
            context,
            prompt,
            joined=_says(served.link),
            room=memory.decoding(context),
            weights_fit=memory.weights <= memory.budget,
        )
        if as_json:
            typer.echo(json.dumps(document, allow_nan=False))
            return
        print_view(parts_view((parts if full else first_parts)(d, document)), full=full)


@with_records
def fit(
    model: Model,
    gpu: Gpu,
    *,
    context: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST,
            help="Length of one request, in tokens.  [default: 8192, or the model's longest]",
        ),
    ] = None,
    engine: Engine = FIT_ENGINE,
    served: ServedOptions,
    limits: FitLimits,
    drafter: Drafting = None,
    adapters: AdapterOptions,
    as_json: AsJson = False,
    full: Full = False,
) -> None:
    """Compute how many requests fit in memory, line by line."""
    with plain_errors():
        from sim.planning.answers.fit import first_parts, parts
        from sim.planning.fits import fit_document
        from sim.terminal.findings import parts_view

        d = _deployment(model, gpu, engine, served)
        if drafter is not None:
            d = _drafted(d, drafter)
        d = adapters.of(d)
        context = context or min(FIT_CONTEXT, d.model.max_position_embeddings)
        capacity_of = _capacity_of(model, gpu, engine, served, limits)
        document = fit_document(d, capacity_of, context)
        memory = capacity_of(d)
        if as_json:
            typer.echo(json.dumps(document, allow_nan=False))
        else:
            shown = parts if full else first_parts
            print_view(parts_view(shown(d, memory, context, document)), full=full)
        if memory.usable_blocks == 0:
            raise typer.Exit(INFEASIBLE)
