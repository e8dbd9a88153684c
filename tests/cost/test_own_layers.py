"""Kinds of attention and MLP that infersim does not have: what a new kind takes.

A record that says what a layer weighs, keeps and reads, a part that says what it takes, and a line
in ``ATTENTION`` or ``MLP``. The rest of the cost model, the deployment and the KV memory ask these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator
from sim.cost.parts import ATTENTION, MLP
from sim.cost.parts.grouped_query import GroupedQueryPart
from sim.cost.rooflines import Rooflines
from sim.iteration import Batch, Part
from sim.memory.capacity import Capacity, capacity
from sim.specs.engine import Factors
from sim.specs.gpu import GpuSpec
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup, Read, Weights
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.model import ModelSpec
from tests.dense_models import attention_of
from tests.gpus import data_sheet

LLAMA = catalog.model("llama-3.1-8b")
PROFILED, PLAIN = catalog.gpu("h100-sxm"), data_sheet("h100-sxm")
IDEAL = catalog.engine("ideal")
BATCHES = (
    Batch(1, 0),
    Batch(7, 7 * 900),
    Batch(64, 64 * 5000),
    Batch(0, 0, [Part(700, 0)], 1),
    Batch(33, 33 * 1500, [Part(512, 4096), Part(90, 0)], 1),
)


# -- a cap: of the context so many tokens are read, whichever they are -----------------------------


@dataclass(frozen=True, slots=True)
class Capped(GroupedQuery):
    most: int = 1024

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        return (Read(self.kv_bytes_per_token(precision, layout), self.most),)


class CappedPart(GroupedQueryPart):
    def __init__(self, attention: Capped, layers: int, d: Deployment, kernels: Rooflines) -> None:
        super().__init__(attention, layers, d, kernels)
        (self._read,) = attention.reads(d.kv_cache, d.layout)

    def _full(self, sequences: Amount) -> Amount:
        """Tokens that the sequences hold when each reaches the cap with the new one."""
        return sequences * (self._read.cap - 1)

    def decode_lines(self, sequences: int) -> list[Line]:
        full, lines = float(self._full(sequences)), super().decode_lines(sequences)
        rising = [line for line in lines if line[0] < full]
        _, intercept, slope = lines[len(rising)]
        flat = (math.inf, intercept + slope * full, 0.0)
        return [*rising, (full, intercept, slope), flat]

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        return super().decode(sequences, np.minimum(context, self._full(sequences)))

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        seconds, pairs = super().prefill_seconds(parts, sequences)
        seen = 0.0
        for part in parts:
            queries = np.arange(1, part.tokens + 1) + part.context
            seen += float(np.minimum(queries, self._read.cap).sum())
        return seconds * seen / pairs, seen


# -- experts: all are kept, some are multiplied by -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Experts:
    number: int
    chosen: int
    width: int

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        count = self.number * 3 * hidden_size * self.width
        return (Weights("experts", count / layout.tensor, "projections"),)

    def flops_per_token(self, hidden_size: int) -> float:
        return 2.0 * self.chosen * 3 * hidden_size * self.width

    def idle_parameters(self, hidden_size: int) -> int:
        return (self.number - self.chosen) * 3 * hidden_size * self.width

    def widest(self, hidden_size: int, layout: Layout) -> float:
        return 3 * self.chosen * self.width / layout.tensor

    def not_shared(self, layout: Layout) -> str | None:
        return None

    @property
    def left_out(self) -> str | None:
        return None


class ExpertsPart:
    all_reduces = 1

    def __init__(self, mlp: Experts, layers: int, d: Deployment, kernels: Rooflines) -> None:
        self._mlp, self._layers, self._kernels = mlp, layers, kernels
        self._hidden, self._inner = d.model.hidden_size, mlp.width / d.layout.tensor
        self.inputs = (self._hidden, self._inner)

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        return []

    def per_token(self, m: Amount) -> list[Operator]:
        """As if every expert were chosen equally often."""
        times, rows = self._layers * self._mlp.number, m * self._mlp.chosen / self._mlp.number
        into, out = (self._hidden, 2 * self._inner), (self._inner, self._hidden)
        return [
            self._kernels.projection("experts, in", times, rows, *into),
            self._kernels.projection("experts, out", times, rows, *out),
        ]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION, Capped, CappedPart)
    monkeypatch.setitem(MLP, Experts, ExpertsPart)


def capped(most: int, every: int = 24) -> ModelSpec:
    """Llama-3.1-8B, of whose 32 layers so ``every`` read ``most`` tokens only."""
    (group,), a = LLAMA.layers, attention_of(LLAMA)
    local = Capped(a.num_heads, a.num_kv_heads, a.head_dim, a.attention_bias, a.qk_norm, most=most)
    full = (replace(group, count=32 - every),) if every < 32 else ()
    return replace(LLAMA, layers=(*full, LayerGroup(every, local, group.mlp)))


def experts(number: int, chosen: int) -> ModelSpec:
    """Llama-3.1-8B with so many experts in place of each MLP."""
    (group,) = LLAMA.layers
    return replace(LLAMA, layers=(replace(group, mlp=Experts(number, chosen, 14336)),))


def cost(model: ModelSpec, gpu: GpuSpec = PLAIN, factors: Factors | None = None) -> CostModel:
    engine = IDEAL if factors is None else replace(IDEAL, factors=factors)
    return CostModel(Deployment(model, gpu, engine, "fp8", "fp8", layout=Layout(2)))


def memory(model: ModelSpec) -> Capacity:
    return capacity(
        Deployment(model, PLAIN, IDEAL), block_size=16, gpu_memory_utilization=0.9,
        num_gpu_blocks=None, max_num_batched_tokens=8192, max_num_seqs=256,
    )  # fmt: skip


@pytest.mark.parametrize("gpu", [PROFILED, PLAIN], ids=["profile", "data sheet"])
@pytest.mark.parametrize("factors", [None, Factors(1.2, 0.9, 1.1, 1.05)])
@pytest.mark.parametrize("batch", BATCHES)
def test_groups_of_equal_layers_are_the_model_in_one_group(
    gpu: GpuSpec, factors: Factors | None, batch: Batch
) -> None:
    """A cap above any context changes nothing, and neither does the grouping."""
    whole, split = cost(LLAMA, gpu, factors), cost(capped(10**6), gpu, factors)
    assert split.seconds(batch) == pytest.approx(whole.seconds(batch), rel=1e-12)
    for one, other in zip(whole.pass_operators(batch), split.pass_operators(batch), strict=True):
        assert one.name == other.name
        for name in ("flops", "bytes", "seconds", "error", "measured"):
            found, expected = getattr(other, name), getattr(one, name)
            assert float(found) == pytest.approx(float(expected), rel=1e-9), (one.name, name)


def test_groups_of_equal_layers_weigh_and_keep_as_much() -> None:
    split = capped(10**6)
    assert split.num_layers == 32
    assert split.parameters == LLAMA.parameters
    assert split.weight_bytes("int4") == LLAMA.weight_bytes("int4")
    assert memory(split) == memory(LLAMA)


def test_a_cap_ends_what_a_longer_context_costs() -> None:
    """A token of KV is 2 x 8 heads x 128 x 2 B = 4,096 B in a layer, half of it on each of two
    GPUs. One sequence of 9,000 tokens, the new one included: 8 layers read all of them, 24 the last
    1,024; each layer reads and writes 2 x 16 heads x 128 x 2 B = 8,192 B of queries and results."""
    whole, local = cost(LLAMA), cost(capped(1024))
    found = local.attention.decode(1, 8999)
    assert found.bytes == (8 * 9000 + 24 * 1024) * 2048 + 32 * 8192
    assert found.flops == (8 * 9000 + 24 * 1024) * 4 * 16 * 128
    _, _, slope = whole.line(1, 100_000)
    _, _, under = local.line(1, 500)
    _, _, beyond = local.line(1, 100_000)
    assert under == pytest.approx(slope)
    assert beyond == pytest.approx(slope * 8 / 32)


@pytest.mark.parametrize("batch", BATCHES)
def test_operators_of_different_layers_add_up(batch: Batch) -> None:
    """Whichever side of the cap a context is on."""
    for model in (capped(1024), capped(16, every=32), experts(8, 2)):
        local = cost(model)
        parts = sum(float(operator.seconds) for operator in local.pass_operators(batch))
        assert local.seconds(batch) == pytest.approx(parts, rel=1e-9)


def test_a_prompt_sees_fewer_pairs_under_a_cap() -> None:
    """2,000 tokens: 2,001,000 pairs, 1,024 at most 524,800 + 976 x 1,024 = 1,524,224."""
    _, pairs = cost(capped(1024, every=32)).attention.prefill_seconds([Part(2000, 0)], 0)
    assert pairs == 1_524_224
    _, mean = cost(capped(1024)).attention.prefill_seconds([Part(2000, 0)], 0)
    assert mean == pytest.approx((8 * 2_001_000 + 24 * 1_524_224) / 32)
    operator = cost(capped(1024)).attention.prefill([Part(2000, 0)], 0)
    assert operator.flops == pytest.approx(mean * 32 * 4 * 16 * 128)


def test_all_experts_are_kept_and_the_chosen_are_computed() -> None:
    """Eight for each MLP of 3 x 4,096 x 14,336 = 176,160,768 weights: seven more in 32 layers."""
    one, eight = experts(1, 1), experts(8, 2)
    assert one.parameters == LLAMA.parameters
    assert eight.parameters - LLAMA.parameters == 32 * 7 * 176_160_768
    assert eight.linear_flops_per_token() - LLAMA.linear_flops_per_token() == 64 * 176_160_768
    assert memory(eight).weights - memory(LLAMA).weights == 2 * 32 * 7 * 176_160_768
    flops = sum(float(o.flops) for o in cost(eight).by_size.per_token(10.0))
    assert flops == pytest.approx(10 * eight.linear_flops_per_token() / 2)  # of one GPU of two
