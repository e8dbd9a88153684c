# %% [markdown]
# # 2. Prefill and decode on the roofline
#
# **Why is decoding slow, what does batching do about it, and where does that end?**
#
# A GPU does two things: it computes, and it moves bytes between its memory and its
# arithmetic units. Both have a speed limit. This notebook counts FLOP (one
# multiplication or one addition) and bytes for Llama 3.1 8B by hand, compares them with
# what the simulator counts, and draws where each operator lies.

# %%
import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown
from rich.console import Console

from reports.frame import theme
from sim import catalog
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Part
from sim.planning.answers import roofline
from sim.planning.rooflines import roofline_document
from sim.terminal.findings import parts_view

model = catalog.model("llama-3.1-8b")
gpu = catalog.gpu("h100-sxm")
deployment = Deployment(model, gpu, catalog.engine("ideal"))
cost = CostModel(deployment)

# %% [markdown]
# ## Two limits
#
# What needs `F` FLOP and moves `B` bytes takes at least the longer of `F / peak` and
# `B / bandwidth`. That is the **roofline**. Which of the two is longer depends on one
# number only, the **arithmetic intensity** `F / B`. Where both are equal is the
# **ridge point**: to the left of it memory is the limit, to the right arithmetic.

# %%
peak, bandwidth = gpu.flops("bf16"), gpu.bandwidth
ridge = peak / bandwidth
Markdown(
    f"An H100 computes {peak / 1e12:.0f} TFLOP/s in bf16 and reads {bandwidth / 1e12:.2f} "
    f"TB/s. Its ridge point is at {ridge:.0f} FLOP per byte. A bf16 weight has 2 bytes, "
    f"so **each weight must be used for {ridge * 2 / 2:.0f} multiply-adds (of 2 FLOP "
    "each) before reading it takes less time than using it**."
)

# %% [markdown]
# ## The model, by hand
#
# Every layer has seven matrices, and every token is multiplied by each of them. Keys and
# values are narrower than queries, since 4 query heads share one key head and one value
# head (GQA). Outside the layers there are two tables with a row for each word of the
# vocabulary: the embedding, in which a token is only looked up, and the LM head, a
# matrix. And two norms for each layer and one at the end, of 4,096 weights each.

# %%
hidden, key_value, mlp, vocabulary, layers = 4096, 1024, 14336, 128256, 32
matrices = {
    "query, key, value": (hidden, hidden + 2 * key_value),
    "attention output": (hidden, hidden),
    "gate and up": (hidden, 2 * mlp),
    "down": (mlp, hidden),
}
in_layers = layers * sum(rows * columns for rows, columns in matrices.values())
head = embedding = hidden * vocabulary
norms = (2 * layers + 1) * hidden
parameters = in_layers + head + embedding + norms
assert parameters == model.parameters == 8_030_261_248
Markdown(
    f"{in_layers:,} in the layers + {head:,} in the head + {embedding:,} in the embedding "
    f"+ {norms:,} in norms = **{parameters:,} parameters**, "
    f"{2 * parameters / 1e9:.2f} GB in bf16."
)

# %% [markdown]
# ## One matrix product
#
# `m` tokens times a matrix of `k x n` weights: `2 m k n` FLOP. To be moved: the weights
# once, the `m x k` inputs, the `m x n` results, 2 bytes each. As long as `m` is small,
# the weights are nearly all of the bytes, and the intensity is nearly `m`.


# %%
def product(m: int, k: int, n: int) -> tuple[int, int]:
    """FLOP and bytes of ``m`` tokens times a matrix of ``k`` by ``n``, in bf16."""
    return 2 * m * k * n, 2 * (k * n + m * k + m * n)


def operator(name: str, batch: int, context: int = 1024) -> object:
    """What the simulator knows of one operator of a decode iteration, all layers."""
    found = cost.pass_operators(Batch(batch, batch * context))
    return next(o for o in found if o.name == name)


rows = []
for tokens in (1, 4, 16, 64, 256, 1024):
    flops, moved = product(tokens, hidden, 2 * mlp)
    simulated = operator("gate and up projection", tokens)
    assert simulated.flops == layers * flops
    assert simulated.bytes == layers * moved
    rows.append(
        {
            "tokens": tokens,
            "GFLOP": f"{flops / 1e9:.2f}",
            "MB": f"{moved / 1e6:.0f}",
            "FLOP/byte": f"{flops / moved:.1f}",
            "µs to compute": f"{1e6 * flops / peak:.1f}",
            "µs to move": f"{1e6 * moved / bandwidth:.1f}",
            "limit": "memory" if flops / moved < ridge else "arithmetic",
        }
    )
pd.DataFrame(rows).set_index("tokens")

# %% [markdown]
# (The matrix is gate and up of one layer, and the cell checks each row against the
# simulator.) Up to some hundred tokens the time to move hardly changes: many
# tokens take nearly the same time as one.
#
# ## One decode, by hand
#
# One request with 1,024 tokens of context wants its next token. The token goes through
# all matrices and the head. And attention looks back at every token of the context: per
# layer and query head, a product of 128 numbers with the key, and one with the value.

# %%
context = 1024
seen = context + 1  # the token itself is seen too
flops_weights = 2 * (in_layers + head)
flops_attention = 2 * 2 * layers * hidden * seen
bytes_weights = 2 * (in_layers + head)
bytes_kv = 2 * 2 * layers * key_value * seen

decode = cost.pass_operators(Batch(1, context))
assert sum(float(o.flops) for o in decode) == flops_weights + flops_attention
simulated_bytes = sum(float(o.bytes) for o in decode)
assert 1 < simulated_bytes / (bytes_weights + bytes_kv) < 1.001

compute_ms = 1e3 * (flops_weights + flops_attention) / peak
move_ms = 1e3 * (bytes_weights + bytes_kv) / bandwidth
assert compute_ms < 0.01 * move_ms
seconds = sum(float(o.seconds) for o in decode)
Markdown(
    f"""
- FLOP: {flops_weights / 1e9:.2f} G for the weights, {flops_attention / 1e9:.2f} G for
  attention. At the peak that is {compute_ms:.3f} ms.
- Bytes: {bytes_weights / 1e9:.2f} GB of weights, {bytes_kv / 1e6:.0f} MB of keys and
  values. At full bandwidth that is {move_ms:.2f} ms.

Moving takes {move_ms / compute_ms:.0f} times as long as computing: the arithmetic units
are idle more than 99 % of the time. **A decode of one request is bound by memory, and
not by a little.** The simulator says {1e3 * seconds:.2f} ms. It counts the same FLOP, and
bytes that differ by {100 * (simulated_bytes / (bytes_weights + bytes_kv) - 1):.2f} %
(hidden states); the rest is that real kernels do not reach the full bandwidth, and that
even the smallest one takes some microseconds.
"""
)

# %% [markdown]
# Every operator of a decode with 1 and with 64 requests, and of the prefill of one
# prompt, as `infersim roofline llama-3.1-8b --gpu h100-sxm --batch 1 --batch 64` prints
# them:

# %%
console = Console(width=88, force_jupyter=False, force_terminal=False)
document = roofline_document(deployment, [1, 64], 1024, 1024)
console.print(parts_view(roofline.parts(deployment, document)))

# %% [markdown]
# ## On the roofline
#
# Both axes are logarithmic. The line is the limit of the H100: rising where memory binds,
# level where arithmetic does. Dots are operators of the simulator, whose times come from
# fits to kernels that were measured. None reaches the line, as none does in reality.

# %%
SERIES = {
    "matrix products, decode": theme.BLUE,
    "matrix products, prefill": theme.GREEN,
    "attention, decode": theme.VERMILLION,
}
BATCHES = (1, 4, 16, 64, 256)
PROMPTS = (128, 512, 2048)


def point(operators: list, names: tuple[str, ...]) -> tuple[float, float]:
    """Intensity, and TFLOP/s reached, of some operators of a pass together."""
    chosen = [o for o in operators if any(name in o.name for name in names)]
    flops = sum(float(o.flops) for o in chosen)
    moved = sum(float(o.bytes) for o in chosen)
    return flops / moved, flops / sum(float(o.seconds) for o in chosen) / 1e12


def prompt(tokens: int) -> list:
    """The operators of the prefill of one prompt."""
    return cost.pass_operators(Batch(0, 0, [Part(tokens, 0)]))


batches = [cost.pass_operators(Batch(b, b * 1024)) for b in BATCHES]
places = {
    "matrix products, decode": [point(o, ("projection",)) for o in batches],
    "matrix products, prefill": [point(prompt(n), ("projection",)) for n in PROMPTS],
    "attention, decode": [point(o, ("decode attention",)) for o in batches],
}
labels = {name: [str(b) for b in BATCHES] for name in places}
labels["matrix products, prefill"] = [f"{n:,}" for n in PROMPTS]

chart = go.Figure(layout=theme.layout())
intensities = [0.5, ridge, 2000]
roof = [min(peak, x * bandwidth) / 1e12 for x in intensities]
assert all(y < min(peak, x * bandwidth) / 1e12 for dots in places.values() for x, y in dots)
chart.add_scatter(
    x=intensities, y=roof, mode="lines", line={"color": theme.GREY.light}, name="limit"
)
for name, tone in SERIES.items():
    x, y = zip(*places[name], strict=True)
    chart.add_scatter(
        x=x,
        y=y,
        mode="lines+markers+text",
        name=name,
        text=labels[name],
        textposition="bottom right" if "attention" not in name else "middle left",
        textfont={"size": 11, "color": tone.light},
        line={"color": tone.light, "width": 1},
        marker={"color": tone.light, "size": 8},
    )
ticks = {"type": "log", "tickvals": [1, 10, 100, 1000]}
chart.update_layout(
    xaxis=theme.axis("arithmetic intensity (FLOP per byte)") | ticks,
    yaxis=theme.axis("reached (TFLOP/s)") | ticks,
    height=460,
    showlegend=True,
)
chart

# %%
decode_x = [x for x, _ in places["matrix products, decode"]]
attention_x = [x for x, _ in places["attention, decode"]]
assert decode_x == sorted(decode_x)
assert max(attention_x) - min(attention_x) < 0.05
assert all(x > ridge for x, _ in places["matrix products, prefill"][1:])
Markdown(
    f"""
The numbers at the dots are the batch size, or the length of the prompt.

- **Batching moves the matrix products of a decode to the right**, from
  {decode_x[0]:.0f} to {decode_x[-1]:.0f} FLOP per byte between batches of 1 and 256, and
  with that upwards: the same weights serve more tokens.
- **Prefill is there already**: a prompt is a batch of tokens. From a few hundred tokens
  on it is bound by arithmetic.
- **Attention does not move to the right.** It stays at {attention_x[0]:.1f} FLOP per byte
  in every batch. (It moves up at first, since a small kernel is mostly overhead.)
"""
)

# %% [markdown]
# ## Why attention stays where it is
#
# Take one token of context, in one layer. For the next token of its request, the key and
# the value of that place are read, and used by all query heads.

# %%
flop = 2 * 2 * hidden  # multiply-adds with key and value, over all query heads
read = 2 * 2 * key_value  # a key and a value, 2 bytes a number
heads = model.layers[0].attention
assert flop / read == heads.num_heads / heads.num_kv_heads == 4.0
Markdown(
    f"{flop:,} FLOP over {read:,} bytes: **{flop / read:.0f} FLOP per byte, whatever the "
    "batch and whatever the context**, because both grow with the tokens in the cache. A "
    "second request brings a second cache. Only sharing within a request helps: here "
    f"{heads.num_heads // heads.num_kv_heads} query heads use each key. Without GQA it "
    "would be 1. (Requests with the same beginning may share the cache of that beginning.)"
)

# %% [markdown]
# So an iteration has a part that a larger batch shares, and a part that it does not. The
# latter grows with the batch times the context, and there is a point from which it is the
# larger one.

# %%
per_token = model.kv_bytes_per_token("bf16")
balance = bytes_weights / per_token
Markdown(
    f"A token of context is {per_token:,.0f} bytes over all layers. Reading the cache "
    f"takes as many bytes as reading the weights when the batch holds {balance:,.0f} "
    f"tokens: {balance / 1024:.0f} requests of 1,024 tokens, or {balance / 8192:.0f} of "
    "8,192."
)

# %%
CONTEXTS = {256: theme.SKY, 1024: theme.BLUE, 8192: theme.VERMILLION}
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def iteration_seconds(batch: int, held: int) -> float:
    """Duration of a decode of ``batch`` requests with ``held`` tokens each."""
    return sum(float(o.seconds) for o in cost.pass_operators(Batch(batch, batch * held)))


chart = go.Figure(layout=theme.layout())
for held, tone in CONTEXTS.items():
    chart.add_scatter(
        x=SIZES,
        y=[batch / iteration_seconds(batch, held) for batch in SIZES],
        mode="lines+markers",
        name=f"{held:,} tokens of context each",
        line={"color": tone.light},
    )
first = 1 / iteration_seconds(1, 256)
chart.add_scatter(
    x=SIZES,
    y=[first * batch for batch in SIZES],
    mode="lines",
    name="if a batch cost no more than one",
    line={"color": theme.GREY.light, "dash": "dot"},
)
chart.update_layout(
    xaxis=theme.axis("requests in the batch") | {"type": "log", "tickvals": SIZES},
    yaxis=theme.axis("output tokens per second")
    | {"type": "log", "tickvals": [100, 1000, 10_000, 100_000], "tickformat": ","},
    height=420,
    showlegend=True,
)
chart

# %%
gain = {held: iteration_seconds(1, held) / iteration_seconds(64, held) * 64 for held in CONTEXTS}
assert gain[256] > gain[1024] > gain[8192]
Markdown(
    "A batch of 64 brings "
    + ", ".join(f"{value:.0f} times as many tokens per second at {held:,} tokens of context"
                for held, value in gain.items())
    + ". **Short contexts gain nearly the whole batch, long ones much less**: there the "
    "iteration is spent on caches, which are not shared. (Whether so many requests fit in "
    "memory at all is the question of [notebook 3](03_kv_cache.ipynb).)"
)  # fmt: skip

# %% [markdown]
# ## What to take away
#
# - One decode reads all weights for one token: bound by memory, by two orders of
#   magnitude.
# - Batching shares that reading, until the intensity (about the number of tokens in the
#   iteration) reaches the ridge point, or until reading caches takes over.
# - Prefill brings its own batch: the tokens of the prompt. It is bound by arithmetic.
#   So prompts and decodes want different things from a GPU, and an iteration that mixes
#   them uses both limits.
# - Attention over the cache has the same low intensity at any batch size. Its cures are
#   fewer bytes: fewer KV heads, fewer bits, shorter contexts, shared prefixes.
#
# What is simplified here: the two limits do not overlap perfectly in a real kernel, a
# product of 65 to 256 tokens fills the GPU unevenly, and a kernel takes some microseconds
# however small it is. The simulator uses kernels as they were measured
# (`infersim show h100-sxm` names the source); the line above is only the ideal.
