"""Computes what a decoder-only transformer weighs and computes, from its shape alone.

A model is groups of layers (``sim.specs.layers``) between an embedding and an LM head. Positions
are rotary, without parameters. Sizes are in bytes, work in FLOP, and one multiply-add counts as two
FLOP. Each formula says what it counts and what it ignores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sim.specs.compressed import CompressedLatent
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import LayerGroup, Role, Weights, counted, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes
from sim.specs.published import PublishedFormat
from sim.specs.recurrent import Recurrent
from sim.specs.window import Window


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shape of one model; counts are of elements, lengths are in tokens.

    ``norm_bias`` puts biases on the norms, ``head_bias`` one on the LM head. ``part`` is which of
    how many consecutive parts of a model this is (``sim.specs.stages``): the first has the
    embedding, the last the final norm and the LM head. ``mtp_layers`` are those that
    it was published with to predict further tokens; its own passes do not go through them.
    ``assumed_context`` says that ``max_position_embeddings`` is the usual one of its class, since
    its file states none; ``published`` are the formats of its checkpoint, None for 16 bits; between
    layers go ``hyper_connections`` hidden states, which small products mix before and after each
    attention and MLP (manifold-constrained hyper-connections, arXiv 2512.24880; 1: a residual);
    ``remarks`` are sentences on how its name or file was read. Raises ValueError for an impossible
    shape.
    """

    name: str
    hidden_size: int
    layers: tuple[LayerGroup, ...]
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    source: str
    norm_bias: bool = False
    head_bias: bool = False
    part: tuple[int, int] = (0, 1)
    mtp_layers: int = 0
    hyper_connections: int = 1
    assumed_context: bool = field(default=False, compare=False, repr=False)
    published: PublishedFormat | None = field(default=None, compare=False, repr=False)
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(self, "hidden_size", "vocab_size", "max_position_embeddings")
        require_positive(self, "hyper_connections")
        if not self.layers:
            raise ValueError("layers: got none, expected at least one group")
        if self.tie_word_embeddings and self.head_bias:
            raise ValueError("head_bias: a head tied to the embedding has no bias of its own")

    def with_skew(self, skew: float) -> ModelSpec:
        """The model with experts chosen by a power law of this exponent (``popularity``).

        Raises ValueError for a model without experts, unless ``skew`` is 0.
        """
        if not skew:
            return self
        layers = tuple(
            replace(group, mlp=replace(group.mlp, skew=skew))
            if isinstance(group.mlp, MixtureOfExperts)
            else group
            for group in self.layers
        )
        if layers == self.layers:
            raise ValueError(f"expert_skew: {self.name} has no experts")
        return replace(self, layers=layers)

    def with_states(self, precision: str | None) -> ModelSpec:
        """The model with the states of its recurrent layers in this format; its own where there is
        none. ValueError for a model without such layers, and for an unknown format."""
        if precision is None:
            return self
        if not any(isinstance(group.attention, Recurrent) for group in self.layers):
            raise ValueError(f"precision.state: {self.name} has no layers with states")
        layers = tuple(
            replace(group, attention=group.attention.with_states(precision))
            if isinstance(group.attention, Recurrent)
            else group
            for group in self.layers
        )
        return replace(self, layers=layers)

    @property
    def made_for(self) -> str:
        """The longest context in words, with where it comes from if no file states it."""
        said = f"the {self.max_position_embeddings:,} tokens that"
        if not self.assumed_context:
            return f"{said} {self.name} was made for"
        return (
            f"{said} transformers takes by default for {self.name}, whose config.json gives no "
            "max_position_embeddings (add the key)"
        )

    @property
    def num_layers(self) -> int:
        """Layers of all groups together."""
        return sum(group.count for group in self.layers)

    @property
    def embeds(self) -> bool:
        """Whether it begins with the embedding."""
        return self.part[0] == 0

    @property
    def predicts(self) -> bool:
        """Whether it ends with the LM head."""
        return self.part[0] == self.part[1] - 1

    def weights(self, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The weights on one GPU, of all layers and around them.

        The norms of the hidden state are shared out though every GPU has them whole: they are few.
        The last part of a model whose LM head is the embedding has a copy of it.
        """
        h, tensor = self.hidden_size, layout.tensor
        layers = sum(g.count * g.norms for g in self.layers)
        norms = self._norm_parameters() * (self.predicts + layers)
        embedding = self.embedding_parameters() if self.embeds else 0
        head = self.head_parameters() if self.predicts else 0
        if self.tie_word_embeddings and self.predicts and not self.embeds:
            head = self.embedding_parameters()
        mixing = self._mixing_parameters()
        return (
            *(
                each._replace(parameters=group.count * each.parameters)
                for group in self.layers
                for each in group.weights(h, layout)
            ),
            Weights("norms", norms / tensor, "kept"),
            *([Weights("hyper-connections", mixing, "kept")] if mixing else []),
            Weights("embedding", embedding / tensor, "vocabulary"),
            Weights("LM head", head / tensor, "vocabulary"),
        )

    @property
    def mixes(self) -> int:
        """Numbers for each token by which hidden states are mixed around one attention or MLP: how
        they go in, how its result goes out, and how they go past it; 0 for a residual."""
        count = self.hyper_connections
        return (2 + count) * count if count > 1 else 0

    def _mixing_parameters(self) -> int:
        """Weights of the products that mix hidden states, twice a layer and before the LM head,
        with a bias each and scales."""
        count, mixes = self.hyper_connections, self.mixes
        if not mixes:
            return 0
        wide = count * self.hidden_size
        head = count * wide + count + 1 if self.predicts else 0
        return 2 * self.num_layers * (mixes * wide + mixes + 3) + head

    def linear_parameters(self) -> int:
        """Weights of all layers' projections: attention's and the MLP's, all experts included.

        This is the part that quantisation shrinks; biases, norms, embedding and head are not in it.
        """
        return counted(self.weights(), "projections", "experts")

    def small_parameters(self) -> int:
        """All norms (of the hidden state, those inside attention, the final one) and all biases but
        the LM head's, and the routers of experts."""
        return counted(self.weights(), "kept")

    def embedding_parameters(self) -> int:
        """The token embedding: vocabulary times hidden size."""
        return self.vocab_size * self.hidden_size

    def head_parameters(self) -> int:
        """The LM head's own parameters: none when it is tied to the embedding."""
        if self.tie_word_embeddings:
            return 0
        return self.embedding_parameters() + (self.vocab_size if self.head_bias else 0)

    @property
    def parameters(self) -> int:
        """Every parameter once: layers, final norm, embedding, and the LM head unless tied."""
        vocabulary = self.embedding_parameters() + self.head_parameters()
        return counted(self.weights(), "projections", "experts", "kept") + vocabulary

    @property
    def active_parameters(self) -> int:
        """The parameters that one token goes through: all but the experts that it does not choose.

        Embedding and LM head count in full, which some publishers leave out.
        """
        return self.parameters - self._idle_parameters()

    @property
    def is_wide_llama(self) -> bool:
        """Whether all layers are of Llama's shape, dense and with grouped heads that have no
        biases, norms and windows, and wider than 4,096."""
        return self.hidden_size > 4096 and all(
            isinstance(group.mlp, DenseMlp)
            and isinstance(group.attention, GroupedQuery)
            and not (group.attention.attention_bias or group.attention.qk_norm)
            and group.attention.window is None
            for group in self.layers
        )

    @property
    def has_experts(self) -> bool:
        """Whether a token goes through a part of the parameters only."""
        return self._idle_parameters() > 0

    @property
    def num_experts(self) -> int:
        """Experts that the router of a layer chooses from; 0 without."""
        return max((getattr(g.mlp, "num_experts", 0) for g in self.layers), default=0)

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        h = self.hidden_size
        return sum(g.count for g in self.layers if g.mlp.idle_parameters(h))

    def _idle_parameters(self) -> int:
        """Parameters of the experts that a token does not choose."""
        return sum(g.count * g.mlp.idle_parameters(self.hidden_size) for g in self.layers)

    def weight_bytes(
        self,
        precision: str,
        *,
        embedding_precision: str | None = None,
        experts: str | None = None,
    ) -> float:
        """Bytes of GPU memory that the whole model's weights take on one GPU.

        Counts projections and experts in ``precision``, and embedding and LM head (once when tied)
        in ``embedding_precision``; None means as engines do: left in bf16 with fp8, int8 or int4
        projections, otherwise the same precision; ``experts`` may have one of their own. Norms and
        biases stay at 16 bits or more. Scales count where they belong to groups of weights
        (``sim.specs.precision``). Ignores buffers such as rotary tables. ValueError for an unknown
        precision.
        """
        unquantised = precision if precision_bytes(precision) >= 2 else "bf16"
        formats: dict[Role, str] = {
            "projections": precision,
            "experts": experts or precision,
            "vocabulary": embedding_precision or unquantised,
            "kept": unquantised,
        }
        return self.stored_bytes(formats)

    def stored_bytes(self, formats: Mapping[Role, str], layout: Layout = ONE_GPU) -> float:
        """Bytes of the weights on one GPU, those of each role in its format."""
        return sum(
            each.parameters * precision_bytes(formats[each.role]) for each in self.weights(layout)
        )

    def copies(self, layout: Layout = ONE_GPU) -> float:
        """Numbers of 16 bits that engines keep on one GPU of the weights in another form."""
        return sum(g.count * g.attention.copies(layout) for g in self.layers)

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """Bytes of KV cache that one token of context takes on one GPU.

        Counts what the attention of every layer keeps, with the copies that tensor parallelism
        makes. Ignores block rounding, fp8 scales and sliding windows. ValueError for an unknown
        precision.
        """
        return sum(g.count * g.attention.kv_bytes_per_token(precision, layout) for g in self.layers)

    def kv_bytes_of(self, length: int, precision: str, layout: Layout = ONE_GPU) -> float:
        """Bytes that one GPU keeps of a sequence of ``length`` tokens: of each layer all of them,
        or those that its window can show, and its constant state. Ignores block rounding."""
        total = 0.0
        for group in self.layers:
            token, window, state, pages = group.attention.kept(precision, layout)
            rates = [(p.bytes / p.block, p.window) for p in pages] or [(token, window)]
            held = sum(
                each * (length if shown is None else min(length, shown.size))
                for each, shown in rates
            )
            total += group.count * (held + state)
        return total

    def state_bytes(self, layout: Layout = ONE_GPU) -> float:
        """Bytes that a sequence keeps on one GPU however long it is: the states of recurrent
        layers, in formats of their own."""
        return self.kv_bytes_of(0, "bf16", layout)

    @property
    def is_latent(self) -> bool:
        """Whether some of its layers have latent attention."""
        return any(isinstance(g.attention, Latent | CompressedLatent) for g in self.layers)

    @property
    def attends_rows(self) -> bool:
        """Whether some of its layers attend to compressed rows."""
        return any(isinstance(group.attention, CompressedLatent) for group in self.layers)

    @property
    def keeps_state(self) -> bool:
        """Whether some of its layers keep a state of constant size instead of keys and values."""
        return self.state_bytes() > 0

    def linear_flops_per_token(self) -> float:
        """FLOP of all layers' projections for one token, and of mixing hidden states.

        Ignores biases, norms, activations, rotary, embedding look-up, and the LM head, which only
        positions that produce a token go through.
        """
        h = self.hidden_size
        mixing = 2 * self.num_layers * 2.0 * self.mixes * self.hyper_connections * h
        return mixing + sum(
            g.count * (g.attention.flops_per_token(h) + g.mlp.flops_per_token(h))
            for g in self.layers
        )

    def head_flops_per_token(self) -> float:
        """FLOP of the LM head for one position that produces a token, tied or not."""
        return 2.0 * self.embedding_parameters()

    def attention_flops_per_token(self, context: float) -> float:
        """FLOP of scores and weighted values for one query token over ``context`` tokens, itself
        included, in all layers, of which windows hide some; ignores the softmax."""
        total = 0.0
        for group in self.layers:
            window = group.attention.window
            seen = context if window is None else 1 + window.seen_by_equals(1, context - 1)
            total += group.count * group.attention.flops_per_pair() * seen
        return total

    @property
    def windows(self) -> tuple[Window, ...]:
        """The different windows through which its layers see a context, or keep of it what is in
        pages; empty if all see all."""
        found = [group.attention.window for group in self.layers]
        for group in self.layers:
            found += [page.window for page in group.attention.kept("bf16").pages]
        return tuple(dict.fromkeys(window for window in found if window is not None))

    def _norm_parameters(self) -> int:
        """One norm of the hidden size: a weight for each element, and a bias if norms have one."""
        return self.hidden_size * (2 if self.norm_bias else 1)
