"""Describes one replica: a model in some precision, laid out on GPUs, under an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sim.specs.engine import EngineSpec
from sim.specs.experts import MARLIN, PADDED, MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.gpu import UNITS, GpuSpec, Link
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Role
from sim.specs.layout import BACKENDS, DEFAULT_BACKEND, ONE_GPU, OVER_NVLINK, Layout
from sim.specs.lora import AdaptedModule, Lora
from sim.specs.mamba2 import Mamba2
from sim.specs.model import ModelSpec
from sim.specs.precision import GGUF, GGUF_KV, INT4, MULTIPLIES, PLAIN, precision_bytes
from sim.specs.profile import TRITON
from sim.specs.recurrent import Recurrent
from sim.specs.speculation import Speculation
from sim.specs.stages import stages_of
from sim.units import show_rate, show_time


@dataclass(frozen=True, slots=True)
class Deployment:
    """One replica's parts, and the share of the model that falls to each of its GPUs.

    ``weights``, ``activations`` and ``kv_cache`` are precisions, and ``experts`` that of experts
    which differ from the other weights. Where the activations are narrower than 16 bits they are
    quantised as the model runs, or, ``static``, by scales that the checkpoint holds, inside the
    kernels before. Every kernel takes ``kernel_time`` times its predicted time
    (1: as predicted). ``all2all`` is how tokens get to the GPUs of their experts and back, one of
    ``BACKENDS``. ``sorts`` says that the logits of each token are sorted to choose it.
    ``speculation`` is how tokens are drafted ahead, ``lora`` the adapters that are served, if they
    are. Raises ValueError if the GPUs of the ``layout`` cannot share the layers, or for what is not
    known of them.
    """

    model: ModelSpec
    gpu: GpuSpec
    engine: EngineSpec
    weights: str = "bf16"
    activations: str = "bf16"
    kv_cache: str = "bf16"
    layout: Layout = ONE_GPU
    kernel_time: float = 1.0
    experts: str | None = None
    expert_inputs: str | None = None
    static: bool = False
    all2all: str = DEFAULT_BACKEND
    sorts: bool = False
    speculation: Speculation | None = None
    drafter: Drafter | None = None
    lora: Lora | None = None

    def __post_init__(self) -> None:
        for precision in (self.weights, self.activations, self.kv_cache, *self.formats.values()):
            precision_bytes(precision)
        for precision in (*INT4, "fp8-block", *GGUF):
            kept = "" if precision in GGUF_KV else self.kv_cache
            if precision in (self.activations, kept):
                raise ValueError(f"precision: {precision} is for weights only")
        self._check_gguf()
        if self.experts is not None and not self.model.has_experts:
            raise ValueError(
                f"precision: {self.model.name} has no experts to store in {self.experts}"
            )
        for group in self.model.layers:
            for part in (group.attention, group.mlp):
                problem = part.not_shared(self.layout)
                if problem is not None:
                    raise ValueError(f"{problem} of {self.model.name} equally")
        if self.layout.expert > 1 and not self.model.has_experts:
            raise ValueError(
                f"expert_parallel: {self.model.name} has no experts to spread over "
                f"{self.layout.expert} GPUs; leave it false"
            )
        if self.layout.data > 1 and not self.model.has_experts:
            raise ValueError(
                f"data_parallel: {self.model.name} has no experts that {self.layout.data} ranks "
                "could share; without, they are replicas: set those"
            )
        if self.layout.pipeline > 1:
            stages_of(self.model, self.layout.pipeline)
        self._check_32_bits()
        self._check_products()
        assert self.adapted or self.lora is None
        spread = self.layout.data > 1 and 1 < self.layout.expert == self.layout.ranks
        if self.all2all != DEFAULT_BACKEND and not spread:
            raise ValueError(
                f"all2all_backend: {self.all2all} exchanges tokens between data ranks with whole "
                "experts on each GPU; set data_parallel and expert_parallel: true, or leave it out"
            )
        if self.all2all in OVER_NVLINK:
            self._check_nvlink()
        if self.engine.triton_attention:
            self._check_triton()
        if self.engine.marlin and self.formats["experts"] not in MARLIN:
            raise ValueError(
                f"moe_backend: marlin multiplies experts stored in {' or '.join(MARLIN)}, not in "
                f"{self.formats['experts']}; leave it out"
            )

    def _check_gguf(self) -> None:
        """Raise ValueError for formats of GGUF under an engine that is not known to compute them,
        and for layouts that llama.cpp's engine has alone or does not have."""
        stored = (*self.formats.values(), self.kv_cache)
        narrow = next((each for each in stored if each in GGUF), None)
        if self.engine.gguf is None:
            if narrow is not None:
                raise ValueError(
                    f"precision: {narrow} is a format of GGUF files, and not modelled under "
                    f"{self.engine.name}; use engine: llama.cpp"
                )
            if self.layout.split > 1:
                raise ValueError(
                    f"layer_split: GPUs that work in turn are llama.cpp's; {self.engine.name} has "
                    "tensor_parallel and pipeline_parallel"
                )
        elif self.layout.gpus > self.layout.split:
            raise ValueError(
                f"{self.engine.name} splits a model over GPUs by layers, which work in turn: set "
                f"layer_split: {self.layout.gpus} instead of tensor_parallel, pipeline_parallel or "
                "data_parallel"
            )

    @property
    def adapted(self) -> tuple[AdaptedModule, ...]:
        """The modules on one GPU that adapters change; ValueError where that is not modelled."""
        if self.lora is None:
            return ()
        if self.unquantised == "fp32":
            raise ValueError("lora: the kernels of adapters take 16 bits, not fp32; leave lora out")
        return self.lora.modules(self.model, self.layout)

    @property
    def adapter_bytes(self) -> float:
        """Bytes of one adapter on one GPU."""
        rank = 0 if self.lora is None else self.lora.rank
        return sum(module.parameters(rank) for module in self.adapted) * self.activation_bytes

    def _check_triton(self) -> None:
        """Raise ValueError where it is not known how long attention by Triton takes."""
        profile, kernel = self.gpu.profile, self.attention_kernel
        kinds = [group.attention for group in self.model.layers]
        grouped = all(isinstance(k, GroupedQuery) and k.num_heads > k.num_kv_heads for k in kinds)
        if not grouped:
            lacking = f"where several query heads share a KV head, unlike in {self.model.name}"
        elif profile is None or not profile.find(f"decode_attention{TRITON}", kernel or ""):
            lacking = f"on other GPUs or over other caches than {self.kv_cache} on {self.gpu.name}"
        else:
            return
        raise ValueError(
            f"attention_backend: attention by Triton was timed {lacking}; leave it out, for the "
            "attention that the engine chooses"
        )

    def _check_nvlink(self) -> None:
        """Raise ValueError for ranks that no NVLink switch joins."""
        ranks, (_, nodes) = self.layout.ranks, self.gpu.node.split(self.layout.ranks)
        others = " or ".join(name for name in BACKENDS if name.startswith("deepep"))
        if nodes > 1:
            raise ValueError(
                f"all2all_backend: {self.all2all} goes over NVLink alone, which joins "
                f"{self.gpu.node.gpus} of {self.gpu.title}, not {ranks}; take {others}, or leave "
                "it out"
            )
        if self.gpu.link.kind != "nvlink":
            raise ValueError(
                f"all2all_backend: {self.all2all} goes over NVLink, and the GPUs are joined by "
                f"{self.gpu.link.kind}; leave it out"
            )

    def _check_products(self) -> None:
        """Raise ValueError for activations that no weights of the model are multiplied by."""
        inputs = self.expert_inputs
        if inputs is not None:
            if not self.model.has_experts:
                raise ValueError(
                    f"precision: {self.model.name} has no experts, and no inputs of them"
                )
            experts = self.formats["experts"]
            if inputs not in PLAIN and experts not in MULTIPLIES.get(inputs, ()):
                raise ValueError(
                    f"precision: experts stored in {experts} are not multiplied by inputs in "
                    f"{inputs}; leave expert_inputs out for what the engine takes"
                )
        if precision_bytes(self.activations) >= 2:
            return
        if self.static and self.activations == "nvfp4":
            raise ValueError(
                "precision: inputs in nvfp4 have a scale for each block of 16, which no checkpoint "
                "holds; leave quantisation at dynamic"
            )
        partners = MULTIPLIES[self.activations]
        stored = [self.weights]
        if self.model.has_experts:
            stored.append(self.formats["experts"])
        if any(weights in partners for weights in stored):
            return
        raise ValueError(
            f"precision: {self.activations} activations are multiplied by {' or '.join(partners)} "
            f"weights, not by {self.weights} ones; give both, or leave the activations at bf16"
        )

    def _check_32_bits(self) -> None:
        """Raise ValueError for products of 32 bits by another width, or on an unknown unit."""
        if "fp32" not in (self.weights, self.activations):
            return
        if self.weights != self.activations:
            raise ValueError(
                f"precision: fp32 is multiplied by fp32, not {self.activations} activations by "
                f"{self.weights} weights; give both as fp32, or neither"
            )
        if "fp32" not in self.gpu.peak_flops:
            raise ValueError(
                f"precision: nothing says how fast {self.gpu.name} computes in fp32; give its "
                "peak_flops.fp32, or leave weights and activations at 16 bits"
            )

    @property
    def weight_precision_of_vocabulary(self) -> str:
        """Embedding and LM head stay at 16 bits when layers are quantised, as in engines."""
        return self.weights if precision_bytes(self.weights) >= 2 else "bf16"

    @property
    def formats(self) -> dict[Role, str]:
        """The precision in which the weights of each role are stored."""
        vocabulary = self.weight_precision_of_vocabulary
        return {
            "projections": self.weights,
            "experts": self.experts or self.weights,
            "vocabulary": self.weights if self.weights in GGUF else vocabulary,
            "kept": vocabulary,
        }

    @property
    def unquantised(self) -> str:
        """Precision of whatever quantisation leaves alone: hidden states, norms, attention, logits.

        fp32 where the activations are, else bf16, which stands for both formats of 16 bits.
        """
        return "fp32" if self.activations == "fp32" else "bf16"

    @property
    def activation_bytes(self) -> float:
        """Bytes of one number of a hidden state, outside of quantised products."""
        return precision_bytes(self.unquantised)

    @property
    def attention_kernel(self) -> str | None:
        """Which attention of a profile this one is: named after the cache. None, the data sheet's,
        for queries in fp32 over a narrower cache, which no profile has."""
        if self.unquantised == "fp32" and self.kv_cache != "fp32":
            return None
        return self.kv_cache

    @property
    def arithmetic(self) -> str:
        """Precision in which projections are multiplied."""
        return self.arithmetic_of("projections")

    def arithmetic_of(self, role: Role) -> str:
        """Precision in which the products with weights of a role are multiplied.

        That of the activations. Weights in fewer bits are converted to it as they are read
        (weight-only quantisation), and so is everything on a GPU without units for so few bits.
        Weights that narrow activations are not multiplied by leave them at 16 bits.
        """
        if role in ("vocabulary", "kept"):
            return self.unquantised
        inputs, weights = self.activations, self.formats[role]
        if role == "experts":
            chosen = self.engine.inputs_of_experts(self.gpu.title, weights)
            inputs = self.expert_inputs or chosen or inputs
        if precision_bytes(inputs) >= 2:
            return inputs
        fits = weights in MULTIPLIES[inputs]
        return inputs if fits and self.gpu.computes(inputs) else "bf16"

    @property
    def borders(self) -> tuple[Link, ...]:
        """The link from each stage of its pipeline to the next: the link within a node, which has
        as many stages as it has room for, or the network between nodes."""
        node, stages = self.gpu.node, self.layout.pipeline
        together = stages if node.gpus is None else max(1, node.gpus // self.layout.ranks)
        return tuple(
            self.gpu.link if stage % together else node.network for stage in range(1, stages)
        )

    @property
    def largest_fused_sum(self) -> float:
        """Bytes up to which a sum over the tensor ranks is one kernel with the norm after it; 0
        where none is: without a rule of the engine, over other links than NVLink, over nodes."""
        gpu, ranks, model = self.gpu, self.layout.tensor, self.model
        kinds = {"any": True, "experts": model.has_experts, "wide-llama": model.is_wide_llama}
        rule = self.engine.fuses_sums(gpu.title, ranks, [name for name, it in kinds.items() if it])
        if rule is None or gpu.link.kind != "nvlink" or gpu.node.split(ranks)[1] > 1:
            return 0.0
        if model.mixes:  # between the sum and the norm hidden states are mixed
            return 0.0
        return min(rule.largest, rule.tokens * model.hidden_size * self.activation_bytes)

    @property
    def node_note(self) -> str | None:
        """A sentence on a replica that stands on several nodes; None of all other ones."""
        node, gpus = self.gpu.node, self.layout.gpus
        nodes = node.split(gpus)[1]
        if nodes == 1:
            return None
        rate, wait = show_rate(node.network.bandwidth, "B/s"), show_time(node.network.latency)
        return (
            f"The {gpus} GPUs of a replica stand on {nodes} nodes of {node.gpus}: between nodes "
            f"each is taken to reach {rate} after {wait} (fleet.node), which was not measured."
        )

    @property
    def format_note(self) -> str | None:
        """Which format of the products the GPU lacks, and what it does instead; None for none."""
        return missing_format(self.gpu, self.formats["experts"], self.activations)

    def stages(self) -> tuple[Deployment, ...]:
        """The stages of its pipeline, each a deployment of a part of the model; the whole one where
        there is a single stage."""
        count = self.layout.pipeline
        if count == 1:
            return (self,)
        return tuple(self._stage(model) for model in stages_of(self.model, count))

    def _stage(self, model: ModelSpec) -> Deployment:
        layout = replace(self.layout, pipeline=1)
        if model.has_experts or not self.model.has_experts:
            return replace(self, model=model, layout=layout)
        # dense layers alone: nothing is spread or stored as experts are
        narrow = precision_bytes(self.activations) < 2
        fits = not narrow or self.weights in MULTIPLIES[self.activations]
        return replace(
            self,
            model=model,
            layout=replace(layout, expert=1),
            experts=None,
            activations=self.activations if fits else "bf16",
        )

    def weight_bytes(self) -> float:
        """Bytes of weights on one GPU, the one that holds most; with what engines keep twice, and
        those of a drafter."""
        if self.layout.pipeline > 1:
            return max(stage.weight_bytes() for stage in self.stages())
        copies = self.model.copies(self.layout) * self.activation_bytes
        own = self.model.stored_bytes(self.formats, self.layout) + copies + self._padding_bytes()
        return own if self.drafter is None else own + self.drafter.weight_bytes()

    def _padding_bytes(self) -> float:
        """Bytes by which the experts on one GPU are larger than in the checkpoint: those in mxfp4,
        whose sizes are padded before they are stored."""
        if self.formats["experts"] != "mxfp4":
            return 0.0
        gpus = self.layout.expert_width
        marlin = self.engine.marlin
        into, across = PADDED if marlin else self.engine.padding_of_mxfp4(self.gpu.title)
        padding = 0.0
        for group in self.model.layers:
            if isinstance(mlp := group.mlp, MixtureOfExperts):
                inner = mlp.moe_intermediate_size / gpus
                hidden = mlp.expert_hidden(self.model.hidden_size)
                padded = math.ceil(hidden / into) * into * math.ceil(inner / across) * across
                matrices = mlp.held(self.layout) * mlp.mlp_matrices * group.count
                padding += matrices * (padded - hidden * inner)
        return padding * precision_bytes("mxfp4")

    def state_bytes(self) -> float:
        """Bytes that a sequence keeps on one GPU however long it is; on the one that keeps most."""
        if self.layout.pipeline > 1:
            return max(stage.state_bytes() for stage in self.stages())
        return self.model.state_bytes(self.layout)

    def keeps_states_inside(self) -> bool:
        """Whether a pass over a prompt keeps the state at a token inside a chunk: the kernels of
        all layers with a state do on this GPU."""
        engine, words = self.engine, self.gpu.title.split()
        on = any(word in words for word in engine.checkpoints_delta_on)
        able = {Mamba2: engine.checkpoints_mamba, GatedDelta: on}
        kinds = [type(g.attention) for g in self.model.layers]
        return all(able.get(kind, False) for kind in kinds if issubclass(kind, Recurrent))

    def kv_bytes_per_token(self) -> float:
        """Bytes of KV cache of one token on one GPU, on the one that keeps most; with those of a
        drafter."""
        if self.layout.pipeline > 1:
            return max(stage.kv_bytes_per_token() for stage in self.stages())
        own = self.model.kv_bytes_per_token(self.kv_cache, self.layout)
        return own if self.drafter is None else own + self.drafter.deployment.kv_bytes_per_token()


def missing_format(gpu: GpuSpec, weights: str, activations: str) -> str | None:
    """A sentence on the format of ``activations`` if ``gpu`` has no units for it; else None.

    >>> from sim import catalog
    >>> missing_format(catalog.gpu("a100-pcie"), "fp8", "fp8")
    'a100-pcie has no fp8 units: weights are stored in fp8 and computed in bf16.'
    >>> missing_format(catalog.gpu("h100-sxm"), "fp8", "fp8")
    >>> missing_format(catalog.gpu("a100-pcie"), "fp8", "bf16")
    """
    if gpu.computes(activations):
        return None
    unit = gpu.unit("bf16" if precision_bytes(activations) < 2 else activations)
    lacking = f"{gpu.name} has no {activations} units"
    if gpu.own:
        peak = UNITS.get(activations, activations)
        lacking = (
            f"{gpu.name} is taken to have no {activations} units, since its file gives no {peak} "
            f"peak (peak_flops.{peak})"
        )
    return f"{lacking}: weights are stored in {weights} and computed in {unit}."


@dataclass(frozen=True, slots=True)
class Drafter:
    """A model that drafts, as the ``deployment`` of it on the target's GPUs, which drafts for none
    itself.

    ``joins`` are products (width in, width out) that bring the target's hidden states and the
    embedding of the last token together before the first layer; every GPU has them whole, at 16
    bits. ``borrowed`` names weights of the model that are the target's own, in memory once.
    """

    deployment: Deployment
    joins: tuple[tuple[int, int], ...] = ()
    borrowed: tuple[str, ...] = ()

    def weight_bytes(self) -> float:
        """Bytes that it adds to one GPU."""
        d = self.deployment
        own = [w for w in d.model.weights(d.layout) if w.name not in self.borrowed]
        joined = sum(wide * out for wide, out in self.joins)
        kept = precision_bytes(d.weight_precision_of_vocabulary)
        return sum(w.parameters * precision_bytes(d.formats[w.role]) for w in own) + joined * kept
