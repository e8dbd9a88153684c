"""Describes what a serving engine adds to the kernels: host time, launches, memory, front end.

Seconds and bytes. The values of each engine, with their sources, are in ``catalog/engines``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sim.units import Bytes, Count, Seconds


class FittedTo(NamedTuple):
    """A run that an engine was fitted to: its name, and the SHA-256 of its files."""

    run: str
    iterations: str
    requests: str


class Releases(NamedTuple):
    """The ``first`` and the ``newest`` release of an engine that are known, such as 0.14."""

    first: str
    newest: str


CHOICES = (
    "scheduler.max_num_seqs",
    "scheduler.max_num_batched_tokens",
    "scheduler.chunked_prefill",
    "scheduler.scheduler_reserve_full_isl",
    "kv_cache.gpu_memory_utilization",
    "kv_cache.block_size",
    "kv_cache.enable_prefix_caching",
)
"""The keys of a scenario that an engine chooses by GPU."""


class EngineDefaults(NamedTuple):
    """The choices of an engine where nothing is said, by the dotted keys of a scenario, on GPUs of
    ``memory`` bytes and more, and less than ``below``, whose titles have one of the words ``gpus``,
    if any are listed, and none of ``other_than``."""

    memory: float
    below: float
    gpus: tuple[str, ...]
    other_than: tuple[str, ...]
    settings: Mapping[str, object]

    def hold(self, title: str, memory: float) -> bool:
        """Whether they are of a GPU of that title and ``memory``."""
        named = not self.gpus or any(word in title for word in self.gpus)
        apart = any(word in title for word in self.other_than)
        return self.memory <= memory < self.below and named and not apart


class Mxfp4Padding(NamedTuple):
    """Multiples to which an engine pads experts in mxfp4 in memory, on ``gpus`` (words of their
    titles): the hidden size, and the width of an expert on one GPU."""

    gpus: tuple[str, ...]
    hidden: int
    width: int


class ExpertInputs(NamedTuple):
    """The format to which an engine quantises the inputs of experts stored in ``weights``, on
    ``gpus`` (words of their titles), where nothing else is asked for."""

    weights: str
    gpus: tuple[str, ...]
    inputs: str


class EngineWish(NamedTuple):
    """A scenario's choices for an engine: experts by ``marlin``, attention by ``triton``, planning
    ``ahead``, no graphs at all (``eager``), graphs of prompts; None leaves it to the engine."""

    marlin: bool = False
    triton: bool = False
    ahead: bool | None = None
    eager: bool = False
    prompt_graphs: bool | None = None


FUSING = ("any", "experts", "wide-llama")
"""The models that a rule of ``FusedSums`` may be of; the last are dense, of Llama's shape, and
wider than 4,096."""


class FusedSums(NamedTuple):
    """Sums of the hidden state that one kernel does together with the norm after them, and with the
    quantisation to nvfp4 after that: on ``gpus`` (words of their titles), over as many tensor ranks
    as one of ``ranks``, of up to ``largest`` bytes and ``tokens``, in ``models`` (``FUSING``)."""

    gpus: tuple[str, ...]
    ranks: tuple[int, ...]
    largest: float
    tokens: float
    models: str


class GgufKernels(NamedTuple):
    """What products with weights in formats of GGUF reach: the shares of the peak ``bandwidth`` at
    which weights are read, and of the int8 ``rate``. Both times add up."""

    bandwidth: float
    rate: float


@dataclass(frozen=True, slots=True)
class Factors:
    """Factors on the times of kernels.

    ``tokens`` is about what projections and everything else that grows with the tokens in a pass
    take beyond a pass of one token; ``kernels`` about all kernels, on top of the others.
    """

    tokens: float = 1.0
    decode_attention: float = 1.0
    prefill_attention: float = 1.0
    kernels: float = 1.0

    def times(self, other: Factors) -> Factors:
        """Both, one after the other."""
        return Factors(
            tokens=self.tokens * other.tokens,
            decode_attention=self.decode_attention * other.decode_attention,
            prefill_attention=self.prefill_attention * other.prefill_attention,
            kernels=self.kernels * other.kernels,
        )


NO_FACTORS = Factors()
"""Kernels that take their predicted times."""


LAUNCH_QUEUE = 1000
"""Launches that wait for a GPU at most: the host stands still at the next one until a kernel has
ended (measured: forums.developer.nvidia.com/t/68937; llama.cpp, pull request 19042)."""

UNALIGNED_RANKS = 8
"""Tensor ranks with which vLLM leaves experts to Triton (pull request 29346)."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The overheads of one engine.

    ``per_iteration``    host time of one iteration: scheduling, input preparation, sampling, output
    ``per_iteration_ahead``  what is left of that where iterations are planned ahead; None: as much
    ``per_sequence``     host time for each sequence in the iteration
    ``per_new_request``  host time when a request enters the batch for the first time or again
    ``per_layer``        time between the kernels of one layer and the next
    ``overlapped``       the host prepares an iteration while the GPU runs another one: an iteration
                         then takes the longer of both, not their sum
    ``cuda_graphs``      kernels are replayed from a graph; otherwise the host launches each of the
                         ``kernels_per_layer``, ``launch`` apart, and the GPU may wait for it
    ``kernels_per_expert_layer``  the same count for a layer with experts; 0: as for any other
    ``per_drafting_pass``  host time of each pass of a drafter: its tensors are prepared, and its
                         tokens brought back, before the next can begin
    ``eager_prefill``    graphs or not, iterations with prompts are launched kernel by kernel
    ``eager_special``    so are those of models with latent attention, of data ranks and of
                         pipelines, even where others are not
    ``gathers_quantised`` where data ranks gather the tokens of all of them, experts' inputs are
                         quantised before (not by blocks), and each token's choice goes along, not
                         its scores
    ``graph_sizes``      numbers of sequences for which decodes were captured as a graph, ascending:
                         iterations without prompts are padded to the next of them, and launched
                         kernel by kernel beyond the last; where none is listed, graphs are taken to
                         be as large as the batch
    ``launches_first``   it launches an iteration before it hands on the tokens of the one before:
                         first ones wait where the host launches prompts kernel by kernel
    ``front_end``        time outside the engine before a request reaches the scheduler: HTTP,
                         tokeniser, hand-over
    ``per_prompt_token`` what each token of its prompt adds to that: a tokeniser reads them all
    ``per_handled_request``  how long a request keeps the one thread of a replica's front end busy,
                         from the beginning of ``front_end`` on: the next one waits for it, which
                         counts as its queue. None waits where prefill and decode are apart, since
                         a front end of its own stands before both
    ``memory_reserve``   GPU memory for context, graphs and communication buffers, besides weights,
                         activations and KV cache
    ``shared_reserve``   and what GPUs that share layers over NVLink take in addition
    ``first_graph``, ``each_graph``  and for CUDA graphs, where those count within the share of the
                         memory that a user allows: the first one, and each one after it
    ``bytes_per_logit``  what each logit of the largest pass takes while tokens are drawn, when the
                         pass has only its hidden states left; 0: two copies of 32 bits of all,
                         next to what layers take
    ``null_blocks``      KV blocks that the engine counts but never gives to a request
    ``kernels``          the framework whose kernels it runs, as profiles of the catalogue are named
    ``per_streamed_token``  time in which the front end hands one token to a client, one after the
                         other: no iteration is shorter than that for all of its sequences
    ``fraction_of_free`` the share of memory that a user allows is one of what weights, activations
                         and the reserve leave free, not of all memory
    ``fraction_of_static`` that share is of weights and KV cache alone; activations and the reserve
                         come on top
    ``marlin``           experts in 4 bits go through the library Marlin, even where the engine has
                         another one for them
    ``older_kernels``    its experts, all-reduces and multi-head decoding are those of an older
                         release of the framework, where a profile has them apart
    ``triton_attention`` attention is Triton's, where a profile has it besides the framework's usual
                         one
    ``pads_extends``     its kernel of prompts by Triton, which decodes that run along go through,
                         too, takes as many tiles of each sequence as of the longest prompt
    ``aligns_experts_on`` GPUs, by a word of their titles, on which experts in fp8 by blocks go
                         through DeepGEMM, which pads the rows of each to whole blocks
    ``pads_mxfp4``       sizes of experts in mxfp4 in memory, by GPU, where Marlin is not asked for
    ``expert_inputs``    the formats to which inputs of experts are quantised by default, by GPU
    ``weight_only``      the share of the peak bandwidth that its kernels for weights alone in few
                         bits reach, by format, where they are not Marlin
    ``gguf``             what its products with weights in formats of GGUF reach; None: it has none
    ``micro_batch``      tokens of one pass at most: an iteration with more makes several, each of
                         which reads the weights; 0: an iteration is one pass
    ``pool_of_context``  its KV cache holds as many tokens as the longest request may have, all
                         requests together
    ``fused_sums``       all-reduces that are one kernel with the norm after them, by GPU and ranks
    ``policy``           the rule by which it batches continuously, a value of ``scheduler.policy``;
                         empty: vLLM's
    ``plans_ahead``      under that rule it plans an iteration while the one before it runs, where
                         nothing is said of ``scheduler.async_scheduling`` and it is modelled
    ``serves_behind_victim``  under vLLM's rule with an order that preempts by rank: where a request
                         is itself the last by rank and gives up its memory, those behind it are
                         served in the same iteration
    ``keeps_interval``   it heeds ``scheduler.prefill_schedule_interval`` without data ranks, too
    ``pads_lone_tokens`` where tokens are drafted: a request that lacks a single token enters an
                         iteration of decodes with as many rows as they have
    ``lifts_cap_alone``  under vLLM's rule ``scheduler.long_prefill_token_threshold`` does not hold
                         for a request that is alone
    ``attends_rows``     it has kernels of attention to compressed rows (DeepSeek V4)
    ``limits_chunks``    under SGLang's rule iterations of prompts that may be cut heed
                         ``scheduler.max_prefill_tokens``, too: a prompt that is not shorter than
                         what others leave of them waits for the next iteration
    ``adapters_block``   under SGLang's rule a request whose LoRA adapter has no slot keeps all
                         prompts out until a request leaves, instead of being passed over
    ``keeps_window_ends``  of layers behind windows its prefix cache keeps only what is found at
                         the ends of prompts and where others go on that begin alike
    ``keeps_last_found`` where tokens are drafted and prefixes cached: blocks enter the cache with
                         the iteration that accepts their tokens, and their hashes cover the token
                         after them, so that EAGLE and MTP do not compute the last one that is found
                         again
    ``cached_states``    states that a running request takes while prefixes are cached, in slots of
                         their pool or blocks of a group; 0: prefixes of models with a state are
                         not cached
    ``checkpoints_mamba``  whether kernels of Mamba-2 keep the state at a token inside a chunk
    ``checkpoints_delta_on``  GPUs, by a word of their titles, on which those of the gated delta
                         rule do
    ``factors``          what its kernels take as multiples of what is predicted, where fitted
                         to observed runs, on the device of those runs
    ``origin``           the preset that its file extends in the end; its own name for one that
                         extends none
    ``releases``         the releases that are known of it; None for what has no releases
    ``release``          the one that this is; "" where there are none
    ``fitted_to``        the observed runs that its times were fitted to, if they were
    ``defaults``         what it chooses for keys that a scenario leaves out, by GPU: of several
                         entries with a key, the first that applies
    """

    name: str
    title: str
    per_iteration: Seconds
    per_sequence: Seconds
    per_new_request: Seconds
    per_layer: Seconds
    overlapped: bool
    cuda_graphs: bool
    launch: Seconds
    kernels_per_layer: Count
    front_end: Seconds
    memory_reserve: Bytes
    null_blocks: Count
    kernels: str
    sources: Mapping[str, str]
    per_iteration_ahead: Seconds | None = None
    per_streamed_token: Seconds = 0.0
    per_handled_request: Seconds = 0.0
    per_prompt_token: Seconds = 0.0
    kernels_per_expert_layer: Count = 0
    per_drafting_pass: Seconds = 0.0
    eager_prefill: bool = False
    eager_special: bool = False
    launches_first: bool = False
    fraction_of_free: bool = False
    fraction_of_static: bool = False
    graph_sizes: tuple[int, ...] = ()
    shared_reserve: Bytes = 0.0
    first_graph: Bytes = 0.0
    each_graph: Bytes = 0.0
    bytes_per_logit: Bytes = 0.0
    gathers_quantised: bool = False
    marlin: bool = False
    older_kernels: bool = False
    triton_attention: bool = False
    pads_extends: bool = False
    aligns_experts_on: tuple[str, ...] = ()
    pads_mxfp4: tuple[Mxfp4Padding, ...] = ()
    expert_inputs: tuple[ExpertInputs, ...] = ()
    fused_sums: tuple[FusedSums, ...] = ()
    weight_only: Mapping[str, float] = field(default_factory=dict)
    gguf: GgufKernels | None = None
    micro_batch: Count = 0
    pool_of_context: bool = False
    policy: str = ""
    plans_ahead: bool = False
    serves_behind_victim: bool = False
    keeps_interval: bool = False
    pads_lone_tokens: bool = False
    lifts_cap_alone: bool = False
    attends_rows: bool = True
    limits_chunks: bool = False
    adapters_block: bool = False
    keeps_last_found: bool = False
    keeps_window_ends: bool = False
    cached_states: Count = 0
    checkpoints_mamba: bool = False
    checkpoints_delta_on: tuple[str, ...] = ()
    factors: Factors = NO_FACTORS
    origin: str = field(default="", compare=False)
    releases: Releases | None = None
    release: str = ""
    fitted_to: tuple[FittedTo, ...] = ()
    defaults: tuple[EngineDefaults, ...] = ()

    @property
    def label(self) -> str:
        """The engine with its release, as a scenario names it: ``vllm@0.18``."""
        return f"{self.name}@{self.release}" if self.release else self.name

    def defaults_on(self, title: str, memory: float) -> dict[str, object]:
        """The choices on a GPU of that title and ``memory``, by dotted keys."""
        found: dict[str, object] = {}
        for each in self.defaults:
            if each.hold(title, memory):
                found = {**each.settings, **found}
        return found

    def states_each(self, *, cached: bool) -> int:
        """Slots of a pool of states that a running request takes, where prefixes are ``cached`` or
        not."""
        return max(1, self.cached_states) if cached else 1

    def with_graphs_up_to(self, most: int) -> EngineSpec:
        """This engine where no batch has more than ``most`` sequences: larger graphs are not
        captured, but one of just that size in their place (NVIDIA/TensorRT-LLM,
        _torch/pyexecutor/model_engine.py, _filter_cuda_graph_batch_sizes)."""
        if not self.graph_sizes or self.graph_sizes[-1] <= most:
            return self
        smaller = tuple(size for size in self.graph_sizes if size < most)
        return replace(self, graph_sizes=(*smaller, most))

    def graph(self, sequences: int) -> int:
        """Sequences of the graph that is replayed to decode so many; 0 where there is none of
        ``graph_sizes``, so that nothing is padded.

        >>> from sim import catalog
        >>> catalog.engine("tensorrt-llm-pytorch").graph(129)
        256
        """
        if not self.cuda_graphs:
            return 0
        at = bisect_left(self.graph_sizes, sequences)
        return self.graph_sizes[at] if at < len(self.graph_sizes) else 0

    def aligns_experts(self, title: str, weights: str, tensor_ranks: int) -> bool:
        """Whether rows of experts are padded on the GPU of that name, by DeepGEMM."""
        ours = any(word in title.split() for word in self.aligns_experts_on)
        return ours and weights == "fp8-block" and tensor_ranks != UNALIGNED_RANKS

    def padding_of_mxfp4(self, title: str) -> tuple[int, int]:
        """Multiples of the hidden size and of an expert's width on the GPU of that name."""
        words = title.split()
        return next(
            (
                (each.hidden, each.width)
                for each in self.pads_mxfp4
                if any(word in words for word in each.gpus)
            ),
            (1, 1),
        )

    def inputs_of_experts(self, title: str, weights: str) -> str | None:
        """The format to which inputs of experts stored in ``weights`` are quantised by default on
        the GPU of that name; None if the activations of the model say it."""
        words = title.split()
        for rule in self.expert_inputs:
            if rule.weights == weights and any(word in words for word in rule.gpus):
                return rule.inputs
        return None

    def asked(self, wish: EngineWish, special: bool) -> EngineSpec:
        """This engine as a scenario asks for it; ``special`` for models with latent attention, data
        ranks and pipelines, whose prompts some releases always launch kernel by kernel."""
        planned = self.plans_ahead if wish.ahead is None else wish.ahead
        left = self.per_iteration_ahead if planned else None
        eager = self.eager_prefill or (self.eager_special and special)
        return replace(
            self,
            marlin=wish.marlin,
            triton_attention=wish.triton,
            per_iteration=self.per_iteration if left is None else left,
            cuda_graphs=self.cuda_graphs and not wish.eager,
            eager_prefill=eager if wish.prompt_graphs is None else not wish.prompt_graphs,
        )

    def fuses_sums(self, title: str, ranks: int, models: Container[str]) -> FusedSums | None:
        """The rule for sums over that many tensor ``ranks`` on the GPU of that name, in a model
        that is one of ``models`` (``FUSING``); None where they are apart from the norms."""
        words = title.split()
        for rule in self.fused_sums:
            named = any(word in words for word in rule.gpus)
            if named and ranks in rule.ranks and rule.models in models:
                return rule
        return None

    def scaled(self, factor: float) -> EngineSpec:
        """This engine with ``factor`` times all of its times; 0 for one that costs nothing."""
        if factor == 1.0:
            return self
        return replace(
            self,
            per_iteration=self.per_iteration * factor,
            per_sequence=self.per_sequence * factor,
            per_new_request=self.per_new_request * factor,
            per_layer=self.per_layer * factor,
            launch=self.launch * factor,
            front_end=self.front_end * factor,
            per_streamed_token=self.per_streamed_token * factor,
            per_handled_request=self.per_handled_request * factor,
            per_prompt_token=self.per_prompt_token * factor,
            per_drafting_pass=self.per_drafting_pass * factor,
        )

    def without_front_end(self) -> EngineSpec:
        """This engine if requests came straight to its scheduler."""
        return replace(self, front_end=0.0, per_prompt_token=0.0, per_handled_request=0.0)

    def without_host(self) -> EngineSpec:
        """This engine if its host needed no time between iterations; kernel launches stay, and
        what it does for each pass of a drafter, since they belong to the iteration."""
        return replace(
            self,
            per_iteration=0.0,
            per_sequence=0.0,
            per_new_request=0.0,
            per_streamed_token=0.0,
            overlapped=False,
        )

    def host_time(self, sequences: int, new_requests: int) -> float:
        """Host seconds of an iteration over ``sequences``, of which ``new_requests`` just came."""
        return (
            self.per_iteration + self.per_sequence * sequences + self.per_new_request * new_requests
        )

    def launches(self, num_layers: int, expert_layers: int = 0) -> int:
        """Kernels of a forward pass, of whose layers ``expert_layers`` have experts."""
        each = self.kernels_per_layer
        more = self.kernels_per_expert_layer - each if self.kernels_per_expert_layer else 0
        return each * num_layers + more * expert_layers

    def launch_time(self, num_layers: int, expert_layers: int = 0, *, prompts: bool) -> float:
        """Seconds the host needs to launch one forward pass, ``prompts`` in it or only decodes,
        kernel by kernel; 0 where a graph is replayed."""
        if self.cuda_graphs and not (prompts and self.eager_prefill):
            return 0.0
        return self.launch * self.launches(num_layers, expert_layers)

    def late_share(self, num_layers: int, expert_layers: int = 0) -> float:
        """How much of an iteration with prompts has run when the tokens of the one before it are
        handed on, where prompts follow prompts: all but the launches that may wait for the GPU."""
        if not (self.launches_first and self.eager_prefill):
            return 0.0
        return max(0.0, 1.0 - LAUNCH_QUEUE / self.launches(num_layers, expert_layers))
