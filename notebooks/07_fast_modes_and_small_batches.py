# %% [markdown]
# # 7. Fast modes and small batches: what is true?
#
# Providers sell the same model twice: at the usual speed, and faster at a higher price.
# There is a debate about how that is done and whether it is worth it. Most of its claims
# are about one thing, the size of the batch, and can be computed.
#
# What the offers say, as read in November 2026:
#
# - **Anthropic**: "up to 2.5x" the output tokens per second from the same weights; the
#   time to first token is not what it is for ([documentation][1]). Six times the usual
#   price for Opus 4.6 ([price][2]), twice the usual price for Opus 5 ([price][3]).
# - **OpenAI**: "up to 2.5x" for GPT-5.6 Sol, 40 dollars per million output tokens ([fast
#   mode][4]) where the usual price is 20 ([model][5]).
# - **Alibaba**: 1.5 to 2 times the usual speed for a preview of GLM-5.2
#   ([documentation][6]).
#
# None of these pages says how. The explanation heard most is that the fast mode is *the
# same thing at a smaller batch*, a bus that leaves before it is full (S. Goedecke, "Two
# different tricks for fast LLM inference", February 2026, and [the discussion of it][7]).
# Others name speculation, other hardware, or more GPUs for each copy of the model.
#
# This notebook takes the claims one by one. It is about **dense models** (Llama 3.1, 8B
# and 70B) on GPUs whose kernels were measured. What the providers' models are is not
# public; if they are mixtures of experts, the simulator does not know such models. So
# nothing here says what a provider does. It says what a batch size can do, and what it
# cannot.
#
# [1]: https://platform.claude.com/docs/en/build-with-claude/fast-mode
# [2]: https://openrouter.ai/anthropic/claude-opus-4.6-fast
# [3]: https://openrouter.ai/anthropic/claude-opus-5-fast-20260723
# [4]: https://openai.com/api-fast-mode/
# [5]: https://developers.openai.com/api/docs/models/gpt-5.6-sol
# [6]: https://help.aliyun.com/en/model-studio/fast-mode
# [7]: https://news.ycombinator.com/item?id=47022329

# %%
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown

import sim
from reports.frame import theme
from sim import catalog
from sim.cost import CostModel
from sim.iteration import Batch
from sim.setup import prepare

OFFERS = {  # (times as fast, times the price), from the pages above
    "Anthropic, Opus 4.6": (2.5, 6.0),
    "Anthropic, Opus 5": (2.5, 2.0),
    "OpenAI, GPT-5.6 Sol": (2.5, 2.0),
}
SLOTS = 256  # most requests in a batch, max_num_seqs: a usual setting

# %% [markdown]
# An *iteration* makes one token for everybody in the batch. So the speed that a user sees
# is one over the time of an iteration, and the price of a token is the rent of the GPUs
# over all the tokens they make. Both follow from what an iteration takes, which the cost
# model predicts from measured kernels. Prompts are left out here and come back further
# down.


# %%
@dataclass(frozen=True)
class Replica:
    """One copy of a model on its GPUs; contexts in tokens, times in seconds."""

    label: str
    cost: CostModel
    kv_tokens: int
    gpus: int
    usd_per_hour: float

    def iteration(self, batch: int, context: int) -> float:
        """An iteration in which so many sequences, each with that context, get a token."""
        tokens = batch * context
        return self.cost.seconds(Batch(batch, tokens))

    def speed(self, batch: int, context: int) -> float:
        """Tokens per second of one user."""
        return 1 / self.iteration(batch, context)

    def price(self, batch: int, context: int) -> float:
        """USD per million output tokens if the batch is always that large."""
        return self.usd_per_hour / 3600 * self.iteration(batch, context) / batch * 1e6

    def largest(self, context: int) -> int:
        """The largest power of two that memory and the limit on the batch allow."""
        most = min(SLOTS, self.kv_tokens // context)
        return 1 << (most.bit_length() - 1)


def scenario(model: str, gpu: str, gpus: int = 1, weights: str = "bf16", **changes: object):
    """A closed loop: so many users, each of whom asks again when the answer is there."""
    return sim.load_scenario(
        {
            "model": model,
            "fleet": {"gpu": gpu, "tensor_parallel": gpus},
            "precision": {
                "weights": weights,
                "activations": "fp8" if weights == "fp8" else "bf16",
            },
            "workload": {
                "arrivals": {"kind": "closed", "concurrency": 1},
                "prompt_tokens": {"kind": "fixed", "value": 1024},
                "output_tokens": {"kind": "fixed", "value": 512},
            },
            "run": {"requests": 64},
        }
    ).override(changes)


def replica(label: str, *args: object, **changes: object) -> Replica:
    """The replica of a scenario."""
    setup = prepare(scenario(*args, **changes))
    deployment = setup.only.deployment
    rent = deployment.gpu.price_per_hour * deployment.layout.gpus
    gpus = deployment.layout.gpus
    return Replica(label, CostModel(deployment), setup.only.capacity.tokens, gpus, rent)


def powers(largest: int) -> list[int]:
    """1, 2, 4 and so on."""
    return [1 << n for n in range(largest.bit_length())]


def chart(x: dict, y: dict, height: int = 400) -> go.Figure:
    """An empty figure with the axes of the reports."""
    layout = theme.layout() | {"xaxis": x, "yaxis": y, "height": height}
    return go.Figure(layout=layout | {"showlegend": True})


TICKS = [m * 10.0**k for k in range(-1, 4) for m in (1, 2, 5)]


def logarithmic(title: str) -> dict:
    """A logarithmic axis, labelled at 1, 2, 5, 10 and so on."""
    labels = {"tickvals": TICKS, "ticktext": [f"{tick:,g}" for tick in TICKS]}
    return theme.axis(title) | {"type": "log", **labels}


small = {
    name: replica(name, "llama-3.1-8b", gpu)
    for name, gpu in {"L40S": "l40s", "H100": "h100-sxm", "B200": "b200-sxm"}.items()
}

# %% [markdown]
# ## Claim 1. "A small batch makes every user faster and every token dearer"
#
# Llama 3.1 8B in bf16 on one GPU, from a batch of one to what fits.

# %%
CONTEXTS = (1_024, 8_192, 32_768)
figure = chart(logarithmic("tokens/s of each user"), logarithmic("USD per million output tokens"))
for (name, each), tone in zip(small.items(), theme.SERIES, strict=False):
    for context, dash in ((1_024, "solid"), (32_768, "dot")):
        batches = powers(each.largest(context))
        figure.add_scatter(
            x=[each.speed(n, context) for n in batches],
            y=[each.price(n, context) for n in batches],
            name=f"{name}, {context // 1024}k",
            line={"color": tone.light, "width": 2, "dash": dash},
            mode="lines+markers",
            marker={"size": 5},
        )
figure

# %% [markdown]
# Each line is one GPU and one length of context; each point is a batch, the batch of one
# at the upper right end. Down and to the left the batch doubles from point to point.
# Being on the right is good for the user, being low is good for the bill.

# %%
h100 = small["H100"]
rows = []
for context in CONTEXTS:
    for n in powers(h100.largest(context))[::2]:
        speed, price = h100.speed(n, context), h100.price(n, context)
        rows.append((context, n, f"{speed:.0f}", f"{n * speed:,.0f}", f"{price:.2f}"))
pd.DataFrame(
    rows, columns=["context", "batch", "tokens/s of a user", "tokens/s of the GPU", "USD per M"]
).set_index(["context", "batch"])

# %%
FEW = h100.largest(32_768)
gain = {c: h100.speed(1, c) / h100.speed(FEW, c) for c in CONTEXTS}
cost = {c: h100.price(1, c) / h100.price(FEW, c) for c in CONTEXTS}
others = [each.speed(1, 1_024) / each.speed(FEW, 1_024) for each in small.values()]
crowd = h100.speed(1, 1_024) / h100.speed(64, 1_024)
crowd_cost = h100.price(1, 1_024) / h100.price(64, 1_024)
assert max(others) - min(others) < 0.1 < gain[32_768] - gain[1_024]
Markdown(f"""
**True, and very uneven.** A user who has the H100 alone, instead of sharing it with {FEW - 1}
others, gets {gain[1_024]:.2f} times the speed at {cost[1_024]:.1f} times the price with 1k of
context, and {gain[32_768]:.1f} times the speed at {cost[32_768]:.1f} times the price with 32k.
Alone instead of among 64, at 1k: {crowd:.1f} times the speed at {crowd_cost:.0f} times the
price. On the other GPUs the gain at 1k is nearly the same ({min(others):.2f} to
{max(others):.2f}). *What a smaller batch brings and costs depends on the context far more than
on the GPU.*
""")

# %% [markdown]
# The same with prompts: a simulated closed loop, where each user's prompt of 1,024 tokens
# is computed while the others wait for it. The users of a real system see this one.

# %%
rows = []
for n in (1, 8, 64):
    requests = max(32, 4 * n)
    loop = scenario(
        "llama-3.1-8b",
        "h100-sxm",
        **{"workload.arrivals.concurrency": n, "run.requests": requests},
    )
    summary = sim.simulate(loop).summary
    computed = h100.speed(n, 1024 + 256)  # the context grows from 1,024 to 1,536
    rows.append(
        (
            n,
            f"{computed:.0f}",
            f"{1e3 / summary['mean_tpot_ms']:.0f}",
            f"{h100.price(n, 1024 + 256):.2f}",
            f"{summary['infersim']['cost']['usd_per_million_output_tokens']:.2f}",
        )
    )
    assert 1e3 / summary["mean_tpot_ms"] < 1.01 * computed
pd.DataFrame(
    rows,
    columns=["users", "tokens/s computed", "simulated", "USD per M computed", "as simulated"],
).set_index("users")

# %% [markdown]
# ## Claim 2. "Decode is bound by memory, so a half-empty batch wastes the GPU"
#
# An iteration reads the weights once for everybody, and the KV cache of each sequence for
# that sequence alone. Only the first is shared by a larger batch. What would half the
# batch save?


# %%
def anatomy(each: Replica, batch: int, context: int) -> tuple[float, float, float, float]:
    """Shares of an iteration in decode attention and elsewhere in kernels, and of both peaks."""
    operators = each.cost.pass_operators(Batch(batch, batch * context))
    seconds = each.iteration(batch, context)
    attention = sum(float(o.seconds) for o in operators if o.name == "decode attention")
    moved = sum(float(o.bytes) for o in operators)
    flops = sum(float(o.flops) for o in operators)
    gpu = each.cost.deployment.gpu
    return (
        attention / seconds,
        moved / seconds / gpu.bandwidth,
        flops / seconds / gpu.flops("bf16"),
        seconds,
    )


rows = []
for context in (1_024, 8_192):
    for n in powers(h100.largest(context))[1:]:
        kv, moved, flops, seconds = anatomy(h100, n, context)
        saved = 1 - h100.iteration(n // 2, context) / seconds
        rows.append((context, n, f"{kv:.0%}", f"{moved:.0%}", f"{flops:.0%}", f"{saved:.0%}"))
names = ["time reading KV", "of the bandwidth", "of the arithmetic", "half the batch saves"]
pd.DataFrame(rows, columns=["context", "batch", *names]).set_index(["context", "batch"])

# %%
saves = {n: 1 - h100.iteration(n // 2, 1024) / h100.iteration(n, 1024) for n in (8, 256)}
saves_long = 1 - h100.iteration(16, 8192) / h100.iteration(32, 8192)
_, moved, flops, _ = anatomy(h100, 256, 1024)
ridge = h100.cost.deployment.gpu.ridge_point
assert saves[8] < 0.1 < saves_long < 0.5
assert flops < 0.3 < moved
Markdown(f"""
**Half true.** Arithmetic is never what is short here: even 256 sequences of 1k use {flops:.0%}
of it, and {moved:.0%} of the bandwidth. (The products with the weights alone turn to being
bound by arithmetic at about {ridge:.0f} rows, the ridge point of the H100 in bf16.) But *what*
is read matters. Of 8 sequences with 1k each, leaving out half saves {saves[8]:.0%} of the
iteration: the GPU still reads all weights, and the empty slots are wasted. Of 32 with 8k each
it saves {saves_long:.0%}, where 50 % would mean that no time is wasted at all. *Empty slots are
a waste as long as weights are most of what is read.*
""")

# %% [markdown]
# ## Claim 3. "A fast mode is the same model at a smaller batch"
#
# First an identity that holds for any engine on any chip. Let the usual mode run batches
# of $N$ and the fast one batches of $n$ on the same machine, and let the fast one be $s$
# times as fast. Then a fast token costs
#
# $$\frac{\text{price}_n}{\text{price}_N} = \frac{N / n}{s}$$
#
# times as much: the machine makes $n$ tokens in an iteration instead of $N$, but $s$
# times as many iterations. So an offer gives the ratio of the batches, *if* the batch is
# all that differs and the price follows the cost.

# %%
Markdown(
    "\n".join(
        f"- {name}: {s:g} times as fast at {p:g} times the price, so batches "
        f"**{s * p:g} times smaller**."
        for name, (s, p) in OFFERS.items()
    )
)

# %% [markdown]
# Is there a batch that does it? Here is what speed costs on several replicas. Each
# line starts at the lower left with the largest batch that fits (at most 256) and ends
# with the batch of one. The stars are the offers.

# %%
BIG = "llama-3.1-70b"
large = {
    "4 x H100": replica("4 x H100", BIG, "h100-sxm", 4),
    "8 x H100": replica("8 x H100", BIG, "h100-sxm", 8),
    "8 x H200": replica("8 x H200", BIG, "h200-sxm", 8),
    "4 x B200": replica("4 x B200", BIG, "b200-sxm", 4),
}
shown = [
    ("8B on one H100", small["H100"], 1_024),
    ("8B on one H100", small["H100"], 8_192),
    ("70B on 4 x H100", large["4 x H100"], 1_024),
    ("70B on 8 x H200", large["8 x H200"], 8_192),
    ("70B on 8 x H200", large["8 x H200"], 32_768),
]
TONES = (theme.BLUE, theme.SKY, theme.VERMILLION, theme.GREEN, theme.PURPLE)


def trade(each: Replica, context: int) -> pd.DataFrame:
    """Speed and price of every batch over those of the largest one."""
    largest = each.largest(context)
    batches = range(1, largest + 1)
    times = [each.iteration(largest, context) / each.iteration(n, context) for n in batches]
    prices = [each.price(n, context) / each.price(largest, context) for n in batches]
    return pd.DataFrame({"batch": batches, "times as fast": times, "times the price": prices})


figure = chart(theme.axis("times as fast"), logarithmic("times the price of a token"))
for (name, each, context), tone in zip(shown, TONES, strict=True):
    places = sorted({round(each.largest(context) ** (n / 24)) for n in range(25)})
    line = trade(each, context).set_index("batch", drop=False).loc[places]
    figure.add_scatter(
        x=line["times as fast"],
        y=line["times the price"],
        text=line["batch"],
        mode="lines",
        name=f"{name}, {context // 1024}k",
        line={"color": tone.light, "width": 2},
        hovertemplate="batch %{text}: %{x:.2f} times as fast, %{y:.2f} times the price",
    )
figure.add_scatter(
    x=[s for s, _ in OFFERS.values()],
    y=[p for _, p in OFFERS.values()],
    text=list(OFFERS),
    name="offers",
    mode="markers",
    marker={"symbol": "star", "size": 14, "color": theme.PAGE["ink"].light},
    hovertemplate="%{text}: %{x:g} times as fast, %{y:g} times the price",
)
figure

# %%
SPEED = 2.5
rows, prices = [], []
for name, each, context in shown:
    line = trade(each, context)
    enough = line[line["times as fast"] >= SPEED]
    found = ("not reached", "-")
    if len(enough):
        best = enough.loc[enough["times the price"].idxmin()]
        prices.append(best["times the price"])
        found = (f"{best['times the price']:.1f}", f"{best['batch']:.0f}")
    largest, most = each.largest(context), line["times as fast"].max()
    rows.append(
        (name, context, largest, f"{each.speed(largest, context):.0f}", f"{most:.1f}", *found)
    )
names = ["largest batch", "tokens/s there", "most by batch alone", "price of 2.5 times", "at batch"]
reach = pd.DataFrame(rows, columns=["", "context", *names]).set_index(["", "context"])
reach

# %%
stuck = trade(large["4 x H100"], 1_024)["times as fast"].max()
long_line = trade(large["8 x H200"], 8_192).set_index("batch").loc[64]
assert 0 < len(prices) < len(shown)
assert stuck < SPEED
assert long_line["times the price"] < long_line["times as fast"]
Markdown(f"""
**Possible in some places and impossible in others.** The 70B on four H100 gets at most
{stuck:.1f} times faster than in its largest batch at 1k of context: 2.5 times cannot be had *at
any price*. {len(prices)} of the {len(shown)} cases reach it, at {min(prices):.1f} to
{max(prices):.1f} times the price. Where an iteration is mostly KV cache speed is cheap: on
eight H200 with 8k a batch of 64 instead of 256 is {long_line["times as fast"]:.1f} times as
fast at {long_line["times the price"]:.1f} times the price. Where it is mostly weights the line
turns straight upwards, and no batch is small enough. So an offer of twice the price does not
contradict the claim, nor does it prove it: the usual mode would have to run very full batches.
""")

# %% [markdown]
# ## What else makes tokens fast
#
# More GPUs for one copy, fewer bits per weight, faster memory. Llama 3.1 70B with 8k of
# context; the first line is where we start, the last is a what-if: an H100 with twice
# its bandwidth and nothing else changed (`assume.bandwidth`). Weights in fp8 are not
# quite the same model; an offer of the same weights may not do this. (B200 in fp8 is
# left out: its published timings jump by a factor of two and more from one number of
# rows to the next.)

# %%
CONTEXT = 8_192
ladder = [
    replica("4 x H100, bf16", BIG, "h100-sxm", 4),
    replica("8 x H100, bf16", BIG, "h100-sxm", 8),
    replica("4 x H100, fp8", BIG, "h100-sxm", 4, "fp8"),
    replica("8 x H100, fp8", BIG, "h100-sxm", 8, "fp8"),
    replica("8 x H200, fp8", BIG, "h200-sxm", 8, "fp8"),
    replica("4 x B200, bf16", BIG, "b200-sxm", 4),
    replica("8 x B200, bf16", BIG, "b200-sxm", 8),
    replica("4 x H100, bf16, bandwidth x 2", BIG, "h100-sxm", 4, **{"assume.bandwidth": 2.0}),
]
start = ladder[0]


def share_of(each: Replica, word: str) -> float:
    """Share of an iteration of a lone request in the operators of that name."""
    operators = each.cost.pass_operators(Batch(1, CONTEXT))
    spent = sum(float(o.seconds) for o in operators if word in o.name)
    return spent / each.iteration(1, CONTEXT)


rows = [
    (
        each.label,
        f"{each.speed(1, CONTEXT):.0f}",
        f"{each.speed(1, CONTEXT) / start.speed(1, CONTEXT):.2f}",
        f"{each.speed(16, CONTEXT) / start.speed(16, CONTEXT):.2f}",
        f"{each.price(16, CONTEXT) / start.price(16, CONTEXT):.2f}",
        f"{share_of(each, 'all-reduce'):.0%}",
    )
    for each in ladder
]
pd.DataFrame(
    rows,
    columns=["replica", "tokens/s alone", "times as fast alone", "in a batch of 16",
             "its price there", "all-reduce, alone"],
).set_index("replica")  # fmt: skip

# %%
eight, bits, both, whatif = (
    ladder[n].speed(1, CONTEXT) / start.speed(1, CONTEXT) for n in (1, 2, 3, -1)
)
fuller = ladder[1].speed(16, CONTEXT) / start.speed(16, CONTEXT)
fuller_cost = ladder[1].price(16, CONTEXT) / start.price(16, CONTEXT)
emptied = start.speed(1, CONTEXT) / start.speed(16, CONTEXT)
emptied_cost = start.price(1, CONTEXT) / start.price(16, CONTEXT)
assert 1 < min(eight, bits, whatif) < max(eight, bits, whatif) < 2
assert both < eight * bits
assert emptied < fuller
assert fuller_cost < emptied_cost
Markdown(f"""
Each of these helps, and none as much as its factor suggests. For a lone request, twice the GPUs:
{eight:.2f} times as fast, not 2. Half the bits: {bits:.2f}. Both: {both:.2f}, less than the
product {eight * bits:.2f}. Twice the bandwidth: {whatif:.2f}. What is not weights does not
shrink with them: all-reduces, launches and floors of kernels, the host. Still this is the
better bargain. From a batch of 16, twice the GPUs give {fuller:.2f} times the speed at
{fuller_cost:.2f} times the price; emptying the slots of the machine one has, down to one, gives
{emptied:.2f} times at {emptied_cost:.1f} times.
""")

# %% [markdown]
# ### The Pareto front
#
# On the left the seller's view: tokens per second of a user against tokens per second of
# a GPU. On the right the buyer's: the same with the price. Llama 3.1 70B, 8k of context,
# batches of 1, 2, 4 and so on.

# %%
fleets = ladder[:2] + ladder[3:7]
PALETTE = (*TONES, theme.ORANGE)


figure = chart(theme.axis("tokens/s of each user"), logarithmic("tokens/s of a GPU"), 420)
figure.update_layout(
    xaxis_domain=[0, 0.44],
    xaxis2=theme.axis("tokens/s of each user") | {"domain": [0.56, 1], "anchor": "y2"},
    yaxis2=logarithmic("USD per million output tokens") | {"anchor": "x2"},
)
for each, tone in zip(fleets, PALETTE, strict=True):
    batches = powers(each.largest(CONTEXT))
    rates = [n * each.speed(n, CONTEXT) / each.gpus for n in batches]
    prices_each = [each.price(n, CONTEXT) for n in batches]
    for side, values in (("", rates), ("2", prices_each)):
        figure.add_scatter(
            x=[each.speed(n, CONTEXT) for n in batches],
            y=values,
            xaxis=f"x{side}",
            yaxis=f"y{side}",
            name=each.label,
            showlegend=side == "",
            mode="lines+markers",
            line={"color": tone.light, "width": 2},
            marker={"size": 5},
        )
figure

# %% [markdown]
# What is the cheapest way to a given speed, if one may choose the machine *and* the
# batch?


# %%
def cheapest(candidates: list[Replica], speed: float) -> tuple[float, str, int] | None:
    """(USD per million, replica, batch) of the cheapest that is at least so fast."""
    found = [
        (each.price(n, CONTEXT), each.label, n)
        for each in candidates
        for n in range(1, each.largest(CONTEXT) + 1)
        if each.speed(n, CONTEXT) >= speed
    ]
    return min(found, default=None)


USUAL = 40.0  # tokens/s
FAST = SPEED * USUAL
found = {v: cheapest(fleets, v) for v in (30.0, USUAL, 60.0, 80.0, FAST, 110.0)}
assert all(found.values())
rows = [
    (f"{v:.0f}", label, n, f"{usd:.2f}", f"{usd / found[USUAL][0]:.1f}")
    for v, (usd, label, n) in found.items()
]
pd.DataFrame(
    rows, columns=["tokens/s of a user", "cheapest", "batch", "USD per M", "times that at 40"]
).set_index("tokens/s of a user")

# %%
(usd, machine, batch), (fast_usd, fast_machine, fast_batch) = found[USUAL], found[FAST]
stay = cheapest([each for each in fleets if each.label == machine], FAST)
sixteen = cheapest([each for each in fleets if "bf16" in each.label], FAST)
assert sixteen is not None
alone = (
    f"cannot reach {FAST:.0f} even with one request at a time"
    if stay is None
    else f"reaches {FAST:.0f} with batches of {stay[2]}, at {stay[0] / usd:.1f} times the price"
)
assert machine != fast_machine
assert batch > fast_batch
Markdown(f"""
The cheapest way to {USUAL:.0f} tokens/s is {machine} with batches of {batch}. That machine
{alone}. With a free choice 2.5 times the speed costs {fast_usd / usd:.1f} times as much, on
{fast_machine} with batches of {fast_batch}; in bf16 throughout {sixteen[0] / usd:.1f} times, on
{sixteen[1]} with batches of {sixteen[2]}. *Along the front both change: the batch shrinks and
the machine grows.* A fast mode calls for a second fleet, not for the first one with
empty slots.
""")

# %% [markdown]
# ### Speculation: only arithmetic
#
# Speculation guesses $k$ tokens cheaply and checks them in one iteration. It is **not
# simulated here**; what follows is an upper bound. If each guess is right with
# probability $\alpha$, a check yields $E = (1 - \alpha^{k+1}) / (1 - \alpha)$ tokens on
# average ([Leviathan et al., 2022][7]). A check computes $k + 1$ tokens of each sequence,
# but reads weights and KV cache once. The bound counts that, and takes the guessing
# itself to be free.
#
# [7]: https://arxiv.org/abs/2211.17192


# %%
def tokens_a_check(alpha: float, k: int) -> float:
    """Expected tokens of one check."""
    return (1 - alpha ** (k + 1)) / (1 - alpha)


def bound(each: Replica, batch: int, context: int, alpha: float, k: int) -> float:
    """Times as fast, at most: k + 1 times the rows in everything but attention and host."""
    tokens, rows = batch * context, batch * (k + 1)
    plain = each.cost.pass_operators(Batch(batch, tokens))
    wide = each.cost.pass_operators(Batch(rows, tokens))
    iteration = each.iteration(batch, context)
    added = sum(
        float(after.seconds) - float(before.seconds)
        for before, after in zip(plain, wide, strict=True)
        if before.name != "decode attention"
    )
    return tokens_a_check(alpha, k) * iteration / (iteration + added)


K = 4
rows = [
    (alpha, f"{tokens_a_check(alpha, K):.2f}", *(f"{bound(h100, n, 1024, alpha, K):.2f}" for n in
     (1, 8, 64, 256)))
    for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)
]  # fmt: skip
pd.DataFrame(
    rows,
    columns=["right guesses", "tokens a check", "batch 1", "batch 8", "batch 64", "batch 256"],
).set_index("right guesses")

# %%
sglang = replica("SGLang", "llama-3.1-8b", "h100-sxm", engine="sglang").speed(1, 512)
PLAIN, EAGLE = 158.34, 373.25  # tokens/s of one H100, SGLang's documentation
at_least = {
    n: next((a for a in range(1, 100) if bound(h100, n, 1024, a / 100, K) >= SPEED), None)
    for n in (1, 64, 256)
}
assert at_least[1] < at_least[64] < at_least[256]
assert bound(h100, 1, 1024, 0.7, K) > bound(h100, 64, 1024, 0.7, K) > bound(h100, 256, 1024, 0.7, K)
Markdown(f"""
With {K} guesses, 2.5 times the speed takes at least {at_least[1]} % of right guesses in a batch
of one, {at_least[64]} % in one of 64 and {at_least[256]} % in one of 256: the arithmetic that
idles in a small batch does not idle in a full one. **Speculation is worth least where the batch
is full**, so it belongs *to* a small batch rather than competing with it. It is real: SGLang
reports {EAGLE:g} tokens/s with EAGLE-3 against {PLAIN:g} without, {EAGLE / PLAIN:.2f} times,
for Llama 3.1 8B on one H100 ([documentation][8]). (For the latter the cost model says
{sglang:.0f}, with 512 tokens of context.) So a fast mode could also be speculation where the
usual mode has none, or more of it.

[8]: https://docs.sglang.io/advanced_features/speculative_decoding.html
""")

# %% [markdown]
# ## Claim 4. "Larger batches hurt latency"
#
# In a continuous batch no request waits for a batch to fill: the bus has no departure
# time. Its size is not a knob either. It is what the load makes of it, by Little's law:
# requests per second times the seconds that each stays. The knob, `max_num_seqs`, is a
# *limit*. Chat traffic on one H100, Llama 3.1 8B, the same requests every time. Points
# in a ring are overloaded: there the latency says little more than how long the traffic
# lasted.

# %%
chat = sim.load_scenario(
    {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "max_model_len": 8192,
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 12.0},
            "prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
            "output_tokens": {"kind": "lognormal", "mean": 220, "p95": 600, "max": 1500},
        },
        "run": {"requests": 1500},
    }
)
RATES, LIMITS = (2, 12, 20), (8, 16, 32, 64, 128, 256)
runs = {
    (rate, limit): sim.simulate(
        chat.override({"workload.arrivals.rate": rate, "scheduler.max_num_seqs": limit})
    ).summary
    for rate in RATES
    for limit in LIMITS
}


def state(summary: dict) -> str:
    """The verdict on a run."""
    return summary["infersim"]["verdict"]["state"]


figure = chart(
    logarithmic("limit on the batch, max_num_seqs"), logarithmic("mean latency of a request (s)")
)
for rate, tone in zip(RATES, theme.SERIES, strict=False):
    figure.add_scatter(
        x=list(LIMITS),
        y=[runs[rate, limit]["mean_e2el_ms"] / 1e3 for limit in LIMITS],
        name=f"{rate} requests/s",
        mode="lines+markers",
        line={"color": tone.light, "width": 2},
        marker={"size": 8},
        hovertemplate="limit %{x}: %{y:.2f} s",
    )
too_much = [key for key, summary in runs.items() if state(summary) == "overloaded"]
figure.add_scatter(
    x=[limit for _, limit in too_much],
    y=[runs[key]["mean_e2el_ms"] / 1e3 for key in too_much],
    name="overloaded",
    mode="markers",
    marker={"size": 14, "symbol": "circle-open", "color": theme.PAGE["ink"].light},
    hoverinfo="skip",
)
figure

# %%
rows = []
for limit in LIMITS:
    summary = runs[12, limit]
    rows.append(
        (
            limit,
            f"{summary['infersim']['batch']['mean_decode_batch']:.0f}",
            f"{summary['mean_ttft_ms'] / 1e3:.2f}",
            f"{summary['mean_tpot_ms']:.1f}",
            f"{summary['mean_e2el_ms'] / 1e3:.2f}",
            state(summary),
        )
    )
pd.DataFrame(
    rows, columns=["limit", "batch", "mean TTFT (s)", "TPOT (ms)", "E2EL (s)", "verdict"]
).set_index("limit")  # fmt: skip

# %%
short, tight, widest = runs[12, 16], runs[12, 32], runs[12, 256]
enough = min(n for n in LIMITS if runs[12, n]["mean_e2el_ms"] < 1.01 * widest["mean_e2el_ms"])
assert short["infersim"]["verdict"]["state"] == "overloaded"
assert short["mean_tpot_ms"] < widest["mean_tpot_ms"]
assert tight["mean_e2el_ms"] > 1.05 * widest["mean_e2el_ms"]
quiet, busy = runs[2, 256], runs[20, 256]
assert "overloaded" not in (state(quiet), state(busy)), "both serve all that arrives"
Markdown(f"""
**Rather the other way round, below the knee.** At 12 requests/s a limit of 16 makes each token
faster, {short["mean_tpot_ms"]:.1f} instead of {widest["mean_tpot_ms"]:.1f} ms, and the system
overloaded: requests wait, and the longer the traffic lasts the longer they do. A limit of 32
leaves tokens as they are and makes the mean wait for the first one
{tight["mean_ttft_ms"] / widest["mean_ttft_ms"]:.0f} times as long. From {enough} on the limit
changes nothing, since the load does not fill it. Small batches take *less
traffic per GPU*, not a lower limit: from 20 requests/s down to 2 the mean batch goes from
{busy["infersim"]["batch"]["mean_decode_batch"]:.0f} to
{quiet["infersim"]["batch"]["mean_decode_batch"]:.0f} and TPOT from {busy["mean_tpot_ms"]:.1f}
to {quiet["mean_tpot_ms"]:.1f} ms, while a token costs {RATES[-1] / RATES[0]:.0f} times as much:
the same rent for a tenth of the tokens.
""")

# %% [markdown]
# There is a second way in which company hurts: **prompts**. An iteration that also
# computes a part of one request's prompt takes longer, and everybody's next token waits
# for it. How much of a prompt goes into one iteration is `max_num_batched_tokens`.
# Short and long prompts, 4 requests/s:

# %%
rows = []
for prompt in (512, 6_000):
    for budget in (512, 2_048, 8_192):
        summary = sim.simulate(
            chat.override(
                {
                    "workload.arrivals.rate": 4,
                    "workload.prompt_tokens": {"kind": "fixed", "value": prompt},
                    "scheduler.max_num_batched_tokens": budget,
                    "run.requests": 600,
                }
            )
        ).summary
        figures = [summary[key] for key in ("p50_itl_ms", "p99_itl_ms", "mean_ttft_ms")]
        rows.append((prompt, budget, *(f"{value:.0f}" for value in figures)))
interference = pd.DataFrame(
    rows,
    columns=["prompt", "tokens in an iteration", "ITL p50 (ms)", "ITL p99 (ms)", "mean TTFT (ms)"],
).set_index(["prompt", "tokens in an iteration"])
interference

# %%
p99 = interference["ITL p99 (ms)"].astype(float)
ttft = interference["mean TTFT (ms)"].astype(float)
assert p99[6000, 8192] > 3 * p99[6000, 512]
Markdown(f"""
With prompts of 6,000 tokens computed at once the p99 of the gaps between two tokens is
{p99[6000, 8192]:.0f} ms; in pieces of 512 it is {p99[6000, 512]:.0f} ms. The newcomer
waits longer for it: {ttft[6000, 512]:.0f} instead of {ttft[6000, 8192]:.0f} ms to the first
token. So part of what a fast mode sells could be had by *keeping other people's prompts away*, in
chunks or on other GPUs, with no smaller batch at all.
""")

# %% [markdown]
# ## The claims, once more

# %%
claims = [
    (
        "A small batch: faster for each, dearer for all",
        "true",
        f"alone instead of among {FEW} (8B, H100): {gain[1_024]:.2f} x the speed at "
        f"{cost[1_024]:.1f} x the price (1k), {gain[32_768]:.1f} x at {cost[32_768]:.1f} x (32k)",
    ),
    (
        "A half-empty batch wastes the GPU",
        "true of weights, not of KV",
        f"half the batch saves {saves[8]:.0%} of an iteration (8 of 1k), "
        f"{saves_long:.0%} (32 of 8k)",
    ),
    (
        "A fast mode is a smaller batch",
        "cannot be decided from outside",
        f"by batch alone 2.5 x is reached in {len(prices)} of {len(shown)} cases, at "
        f"{min(prices):.1f} to {max(prices):.1f} x the price",
    ),
    (
        "More GPUs, fewer bits, speculation do it too",
        "true, less than their factors",
        f"8 GPUs for 4: {eight:.2f} x; fp8: {bits:.2f} x; speculation: not simulated, a bound only",
    ),
    (
        "Larger batches hurt latency",
        "beyond the knee, and through prompts",
        f"a limit below what the load needs only moves the wait into the queue; prompts of 6k "
        f"at once: p99 of gaps {p99[6000, 8192] / p99[6000, 512]:.0f} x that in pieces of 512",
    ),
]
Markdown(
    "| claim | verdict | what was found |\n|---|---|---|\n"
    + "\n".join(f"| {claim} | **{verdict}** | {found} |" for claim, verdict, found in claims)
)

# %% [markdown]
# ## What remains unknown
#
# - **What any provider does.** Size, sparsity, precision, hardware, batch sizes and
#   margins are not public. A price is not a cost: it also says what people will pay.
#   Anthropic asked six times the usual price for one model and twice for a later one, at
#   the same advertised speed: that fits another technique, another model, or another
#   margin.
# - **Mixtures of experts.** In a sparse model a batch of one reads only the experts of
#   one token, and the weights read grow with the batch until all experts are in use. That
#   changes the trade between batch and speed, and nothing here is about it: all models
#   are dense.
# - **Speculation, prefix caching and disaggregated prompts** are not simulated. Above is
#   a bound for the first, and nothing for the others.
# - **Chips other than GPUs.** Weights in on-chip memory (SRAM) move the whole trade, and
#   no measured kernels of such chips are in the catalogue.
# - **Errors of the predicted times.** Kernels are a few percent off on shapes they were
#   not fitted to, and the engine's host time, which counts most in small batches, was
#   fitted to few runs. Notebook 6 says what is known of that.
# - **Other prices of GPUs.** Those of the catalogue are list prices, as below. Ratios on
#   one machine do not depend on them; the comparison of machines does.

# %%
used = {name: catalog.gpu(name).price for name in ("l40s", "h100-sxm", "h200-sxm", "b200-sxm")}
assert all(offer.provider.startswith("RunPod") for offer in used.values())
h100_offer = used["h100-sxm"]
Markdown(f"""
{", ".join(f"{name} {offer.usd:.2f} USD an hour ({offer.date})" for name, offer in used.items())}:
list prices of RunPod. Others ask {h100_offer.low:.2f} to {h100_offer.high:.2f} USD for an H100.
""")
