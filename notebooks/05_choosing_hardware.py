# %% [markdown]
# # 5. Choosing hardware
#
# This notebook goes from a question to a fleet. The question:
#
# > A chat assistant runs on Llama 3.1 8B. In the busiest hour 30 requests arrive per
# > second. 95 % of them must see their first token within half a second, and the other
# > tokens every 15 ms on average. What do we rent, and what does a token cost?
#
# Each section answers a part of it, the cheapest first: memory, arithmetic, one simulated
# replica, whole fleets. The last ones ask how far to trust the ranking of fleets if the
# predicted times are off, and if prices are. `infersim fit`, `find` and `plan` do the
# same on the command line, `sim.find` and `sim.plan` in Python.

# %%
import math

import pandas as pd
from IPython.display import Markdown

import sim
from reports.figures.charts import chart
from sim.cost import CostModel
from sim.errors import InfeasibleError
from sim.iteration import Batch
from sim.planning.answers.find import curve
from sim.planning.answers.plan_drawings import cost_and_latency
from sim.planning.load.loads import traffic_of
from sim.planning.load.saturation import acceptable, alone, saturation
from sim.setup import prepare

GPUS = ["l4", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm"]
RATE, HEADROOM = 30.0, 0.15

assistant = sim.load_scenario(
    {
        "name": "assistant",
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "max_model_len": 8192,
        "workload": {
            "arrivals": {"kind": "poisson", "rate": RATE},
            "prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
            "output_tokens": {"kind": "lognormal", "mean": 220, "p95": 600, "max": 1500},
        },
        "slo": {"ttft": "500ms", "tpot": "15ms", "attainment": 0.95},
        "run": {"requests": 500},
    }
)

# %% [markdown]
# ## Does it fit?
#
# Each replica holds the weights once. The rest of its memory holds the KV cache, which
# decides how many conversations a replica can serve at a time. The last column is the
# figure that engines print: how many requests of the full 8,192 tokens fit.

# %%
setups = {name: prepare(assistant.override({"fleet.0.gpu": name})) for name in GPUS}
GB = 1e9
rows = []
for name, setup in setups.items():
    memory, gpu = setup.only.capacity, setup.only.deployment.gpu
    rows.append(
        (
            name,
            f"{gpu.price_per_hour:.2f}",
            f"{gpu.bandwidth / 1e12:.2f}",
            f"{memory.memory / GB:.0f}",
            f"{memory.weights / GB:.1f}",
            f"{memory.kv_cache / GB:.1f}",
            f"{memory.tokens:,}",
            f"{memory.max_concurrency(8192):.0f}",
        )
    )
names = ["USD/h", "TB/s", "GB", "weights", "KV cache", "KV tokens", "full requests"]
pd.DataFrame(rows, columns=["GPU", *names]).set_index("GPU")

# %% [markdown]
# The model fits on every GPU, on the L4 only just. A model that does not fit is refused:

# %%
assert min(setups, key=lambda name: setups[name].only.capacity.tokens) == "l4"
try:
    prepare(assistant.override({"model": "llama-3.1-70b"}))
except InfeasibleError as error:
    refusal = str(error)
Markdown(f"> {refusal}")

# %% [markdown]
# ## What could one replica do at best?
#
# Two predicted times bound everything that follows, and need no simulation:
#
# - a request that has the replica **for itself** is as fast as any can be;
# - **full batches**, one after the other, serve about the highest rate that the replica
#   can serve at all.
#
# If the first misses the SLO, no number of GPUs helps. The second gives the fewest GPUs
# and the lowest cost of a token that are possible.

# %%
tpot_limit = assistant.slo.tpot
sample = traffic_of(assistant)
tokens = float((sample.prompts + sample.outputs).mean())


def usd_per_million(usd_per_hour: float, rate: float) -> float:
    """What a million tokens cost, prompt and answer, if so many requests per second are served."""
    return usd_per_hour / 3600 / (rate * tokens) * 1e6


rows, bounds = [], {}
for name, setup in setups.items():
    replica = setup.only
    traffic = acceptable(replica, traffic_of(setup.scenario))
    lone, most = alone(replica, traffic), saturation(replica, traffic)
    usd = setup.only.deployment.gpu.price_per_hour
    bounds[name] = (float(lone.tpot.mean()), most.rate, usd_per_million(usd, most.rate))
    rows.append(
        (
            name,
            f"{lone.ttft.mean() * 1e3:.0f}",
            f"{lone.tpot.mean() * 1e3:.1f}",
            f"{most.rate:.1f}",
            math.ceil(RATE * (1 + HEADROOM) / most.rate),
            f"{bounds[name][2]:.3f}",
        )
    )
names = ["TTFT alone (ms)", "TPOT alone (ms)", "requests/s at most", "GPUs at least", "USD per M"]
pd.DataFrame(rows, columns=["GPU", *names]).set_index("GPU")

# %%
slow = [name for name, (tpot, _, _) in bounds.items() if tpot > tpot_limit]
close = [n for n, (tpot, _, _) in bounds.items() if 0.7 * tpot_limit < tpot <= tpot_limit]
cheapest = min(bounds, key=lambda name: bounds[name][2])
assert close
assert cheapest in slow
Markdown(f"""
**{" and ".join(slow)}** are out at once. A request that has the replica for itself waits
{" and ".join(f"{bounds[name][0] * 1e3:.0f}" for name in slow)} ms for each token; the limit is
{tpot_limit * 1e3:.0f} ms, and more GPUs of the same kind do not make a token faster. On
**{" and ".join(close)}** a lone request takes most of the limit, so that the SLO leaves no room
for full batches. The last column is the cost of a million tokens (prompt and answer) in full
batches. {cheapest} has the lowest, and is out: **the cheapest token may come too late.**
""")

# %% [markdown]
# ## One replica under load: the knee
#
# `find` simulates one replica at many loads. It finds the highest that meets the SLO, and
# draws the latencies around it at the percentile that the SLO asks for, here the 95th.
# (The scenario is given a third of the traffic, as if three replicas shared it.)

# %%
a_third = assistant.override({"workload.arrivals.rate": RATE / 3})
single = sim.find(a_third).document()
chart(curve(single, "tpot"))

# %%
chart(curve(single, "ttft"))

# %%
knee, at_best = single["knee"], single["at_best"]
assert single["first_to_break"] == "tpot"
assert at_best["slo_ttft_ms"] < 0.5 * single["limits_ms"]["ttft"]
assert single["load"] < 0.9 * single["saturated"]
chance = single["chance"]
assert chance["holds_up_to"] <= single["load"] < single["fails_at"] <= chance["fails_from"]
Markdown(f"""
One H100 holds {single["load"]:.1f} requests/s. With 95 % confidence the SLO is met at
{chance["holds_up_to"]:.1f} and missed at {chance["fails_from"]:.1f}; between these two
chance decides. **{single["first_to_break"].upper()}** breaks first. The time to first token is far
from its limit (p95 {at_best["slo_ttft_ms"]:.0f} ms at the highest load that holds), and full
batches would serve {single["saturated"]:.1f} requests/s. So *speed for each user* limits this
replica, not its capacity: only users with more patience could use the rest. The *knee*, where
throughput over latency is highest, lies at {knee["load"]:.1f}
requests/s{" or above" if knee["at_end"] else ""}.
""")

# %% [markdown]
# ## Fleets
#
# `plan` does the same for every candidate. Then it simulates fleets behind their router,
# and takes the smallest that holds 15 % more than the wanted rate. It leaves out a fleet
# as soon as that fleet cannot be among the three cheapest.

# %%
plan = sim.plan(assistant, GPUS, tensor_parallel=[1], headroom=HEADROOM, top=3, jobs=1).document()
assert plan["rate"] == RATE
fleets = plan["fleets"]


def called(fleet: dict) -> str:
    """The fleet in a few characters."""
    return f"{fleet['replicas']} x {fleet['gpu']}"


rows = [
    (
        fleet["rank"],
        called(fleet),
        f"{fleet['usd_per_hour']:.2f}",
        f"{usd_per_million(fleet['usd_per_hour'], RATE):.3f}",
        f"{fleet['slo_ttft_ms']:.0f}",
        f"{fleet['slo_tpot_ms']:.1f}",
        f"{fleet['rate_at_slo']:.1f}",
        fleet["binds"].upper(),
    )
    for fleet in fleets
]
names = ["fleet", "USD/h", "USD per M", "TTFT p95", "TPOT p95", "holds up to", "breaks first"]
pd.DataFrame(rows, columns=["rank", *names]).set_index("rank")

# %% [markdown]
# Latencies are in ms at 30 requests/s; the cost of a million tokens (prompt and answer)
# is the rent over what is served at that rate. The figure shows every fleet that was
# simulated, under the load with its headroom:

# %%
chart(cost_and_latency(plan, "tpot"))

# %%
first, second = fleets[0], fleets[1]
bound = bounds[first["gpu"]][2]
used = usd_per_million(first["usd_per_hour"], RATE)
assert used > bound
assert all(fleet["rate_at_slo"] >= plan["target"] for fleet in fleets)
Markdown(f"""
**{first["replicas"]} x {first["gpu"]}** is the cheapest fleet, at {first["usd_per_hour"]:.2f}
USD/h. A million tokens cost {used:.3f} USD, {used / bound:.1f} times the bound of full batches: the
SLO, the headroom and the rounding to whole GPUs make the difference. The second fleet costs
{second["usd_per_hour"] / first["usd_per_hour"] - 1:.0%} more.
""")

# %% [markdown]
# ### Why not the others
#
# The plan says why each of the other GPUs lost:


# %%
def listed(names: list[str], rows: list[tuple]) -> Markdown:
    """A table with long texts, which stand on the left."""
    lines = [names, ["---"] * len(names), *rows]
    return Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))


losers = [(each["layout"], each["reason"], each["text"]) for each in plan["rejected"]]
listed(["replica", "reason", "in words"], losers)

# %%
smaller = [
    f"{fleet['replicas'] - 1} x {fleet['gpu']} would miss {fleet['smaller_breaks'].upper()}"
    for fleet in fleets
    if fleet["smaller_breaks"] is not None
]
reasons = {reason for _, reason, _ in losers}
assert reasons == {"TPOT missed at any load", "more expensive"}
assert {each["gpu"] for each in plan["rejected"] if "missed" in each["reason"]} == set(slow)
assert {each["gpu"] for each in plan["rejected"] if "expensive" in each["reason"]} == set(close)
(slower,) = [point for point in plan["sized"] if point["gpu"] in close]
Markdown(f"""
There are two kinds of losers, with two kinds of remedies. *Missed at any load* means that no number
of them will do: it takes a faster GPU, more GPUs for one replica, or fewer bits. *More expensive*
means that they hold the traffic and lose on price, so that another price list may change the order.
Here that is {slower["layout"]}, of which each replica serves no more than
{plan["target"] / slower["replicas"]:.1f} requests/s within the SLO. No fleet in the table could be
smaller:
{"; ".join(smaller) or "each is of one replica, or its full batches would not do with one fewer"}.
""")

# %% [markdown]
# ## How far to trust the order: predicted times
#
# Predicted iteration times may be tens of percent off (notebook 6). It is tempting to
# expect 5 % less load from 5 % slower iterations, but the load reacts more strongly. So
# `find` searches again with all kernels and all work of the engine slower by the error
# of the run, and once more with them faster:

# %%
ends = single["ends"]
less, more = 1 - ends["slower"] / single["load"], ends["faster"] / single["load"] - 1
assert 1 / (1 - less) > 1 + 1.2 * ends["error"]
assert more > 1.2 * ends["error"]
pd.DataFrame(
    {
        "requests/s": {
            f"iterations {ends['error']:.1%} slower": f"{ends['slower']:.2f} ({-less:+.0%})",
            "as predicted": f"{single['load']:.2f}",
            f"iterations {ends['error']:.1%} faster": f"{ends['faster']:.2f} ({more:+.0%})",
        }
    }
)

# %%
h100 = CostModel(setups["h100-sxm"].only.deployment)


def step(batch: int, context: int = 1000) -> float:
    """Seconds of a decode of a batch."""
    return h100.seconds(Batch(batch, batch * context))


def most_within(limit: float) -> int:
    """The largest batch whose decodes keep to a limit (s)."""
    return max(batch for batch in range(1, 257) if step(batch) <= limit)


LIMIT = 0.010  # s, for decodes alone: prompts take the rest of the 15 ms
before, after = most_within(LIMIT), most_within(LIMIT / (1 + ends["error"]))
assert 1 - after / before > 1.5 * ends["error"]
Markdown(f"""
**The load changes about twice as much as the speed.** The limit on TPOT says how long an
iteration may take. If everything takes {ends["error"]:.0%} longer, each iteration must do less.
Reading the weights takes the same time in any batch, so the requests that share the batch must
make up for all of it. By the cost model, decodes of at most {LIMIT * 1e3:.0f} ms have room for
{before} requests of 1,000 tokens, and if iterations are slower for {after}:
{1 - after / before:.0%} fewer.
""")

# %% [markdown]
# `plan` does the same for whole fleets behind their router: it finds the smallest fleet
# of each kind if its iterations are faster, or slower, by its own error. A rank survives
# if no fleet behind it can be cheaper, even where the errors of both favour the other.

# %%
rows = [
    (
        called(fleet),
        f"{band['error']:.0%}",
        "{} to {}".format(*band["replicas"]),
        "{:.2f} to {:.2f}".format(*band["usd_per_hour"]),
        "yes" if band["holds_if_slower"] else "no",
        ", ".join(band["rivals"]) or "none",
    )
    for fleet in fleets
    for band in [fleet["error_band"]]
]
names = ["error", "replicas", "USD/h", "holds 30/s if slower", "could be cheaper"]
pd.DataFrame(rows, columns=["fleet", *names]).set_index("fleet")

# %%
ranking = plan["ranking"]
error, half = first["error_band"]["error"], first["error_band"]["half"]
assert ranking["sure"]["usd_per_hour"] >= first["usd_per_hour"]
assert half < error
Markdown(f"""
> {ranking["text"]}

Of runs like these nine of ten are expected to be off by at most {error:.0%}, five of ten
by {half:.0%}. `plan` calls a fleet *sure* to hold its load if it does so with iterations slower
by the first, *likely* if only with iterations slower by the second, and otherwise *a guess*:
{", ".join(f"{called(each)} is {each['error_band']['trust']}" for each in fleets)}. It also names
the measurement that would narrow the band most.

> {plan["worth"]["text"]}
""")

# %% [markdown]
# The next table shows how much slower iterations may be before fewer than 95 % of
# requests are within the SLO at 30 requests/s:

# %%
rows = []
for fleet in fleets:
    for slower in (1.0, 1.05, 1.1, 1.2, 1.3):
        what_if = {"assume.kernel_time": slower, "assume.host_time": slower}
        trial = assistant.override(fleet["settings"] | what_if | {"run.requests": 1500})
        summary = sim.simulate(trial).summary
        share = summary["infersim"]["verdict"]["attainment"]
        rows.append((called(fleet), f"{slower - 1:.0%}", share))
tried = pd.DataFrame(rows, columns=["fleet", "slower by", "within the SLO"])
within = tried.pivot_table(index="fleet", columns="slower by", values="within the SLO", sort=False)
within.map(lambda share: f"{share:.1%}")

# %%
breaks = {
    fleet: next((column for column in within.columns if line[column] < 0.95), None)
    for fleet, line in within.iterrows()
}
words = "; ".join(
    f"**{fleet}** " + ("always meets the SLO" if at is None else f"misses the SLO from {at} on")
    for fleet, at in breaks.items()
)
assert (within["10%"] >= 0.95).all()
assert any(breaks.values())
Markdown(f"""
With slower iterations, {words}. An error of 10 % breaks nothing: the {HEADROOM:.0%} of
headroom absorbs it. Without headroom a ranking by price prefers the fleet that is closest to
missing the SLO, and an error of a few percent decides whether it does.
""")

# %% [markdown]
# ## How far to trust the order: prices
#
# Prices differ by more than predicted times are off: the same GPU may cost more than
# twice as much at another provider. The catalogue has list prices with provider and date,
# and where it is known the range that other providers list. `plan` says below which price
# each GPU would win.

# %%
rows = [
    (
        each["gpu"],
        f"{each['usd_per_gpu_hour']:.2f}",
        each["text"],
        "-" if each["fleet"] is None else each["gpus"],
        "-" if each["wins_below"] is None else f"{each['wins_below']:.2f}",
    )
    for each in plan["prices"]
]
listed(["GPU", "USD per GPU hour", "whose price", "GPUs needed", "wins below"], rows)

# %%
even = plan["break_even"]
assert even["gpu"] == first["gpu"]
assert math.isclose(even["usd_per_gpu_hour"] * first["gpus"], second["usd_per_hour"])
assert ranking["prices"]["survives"] is None
offers = {each["gpu"]: each for each in plan["prices"]}
spread = max(each["high"] / each["low"] for each in offers.values() if each["low"] and each["high"])
assert spread > 2
h100_offer = offers["h100-sxm"]
assert h100_offer["low"] > h100_offer["wins_below"]
Markdown(f"""
> {ranking["prices"]["text"]}

The **break-even price** of the first fleet is arithmetic: at {even["usd_per_gpu_hour"]:.2f} USD for
each of its {first["gpus"]} GPUs it costs as much as the second. The H100 would win below
{h100_offer["wins_below"]:.2f} USD; its cheapest known offer is {h100_offer["low"]:.2f}. (The lowest
and the highest known price of one GPU differ by up to a factor of {spread:.1f}.) For each of the
two best only one price is known, so prices leave the order open. Your own quotes decide it, as
`--price b200-sxm=8.50` or as `fleet.0.price_per_gpu_hour`.
""")

# %% [markdown]
# ## The cost of a token depends on how busy the fleet is
#
# A fleet is rented for the busiest hour and paid for at night too. The table has the same
# fleet at the same rent with less traffic:

# %%
rows = []
for share in (1.0, 0.5, 0.25, 0.1):
    changes = first["settings"] | {"workload.arrivals.rate": share * RATE, "run.requests": 1000}
    summary = sim.simulate(assistant.override(changes)).summary
    rows.append(
        (
            f"{share * RATE:g}",
            f"{summary['infersim']['batch']['mean_decode_batch']:.0f}",
            f"{summary['mean_tpot_ms']:.1f}",
            f"{usd_per_million(first['usd_per_hour'], share * RATE):.3f}",
        )
    )
names = ["mean batch", "mean TPOT (ms)", "USD per M tokens"]
quiet = pd.DataFrame(rows, columns=["requests/s", *names]).set_index("requests/s")
quiet

# %%
times = float(quiet["USD per M tokens"].iloc[-1]) / float(quiet["USD per M tokens"].iloc[0])
busy_ms, quiet_ms = (float(quiet["mean TPOT (ms)"].iloc[place]) for place in (0, -1))
assert 9 < times < 11
assert quiet_ms < busy_ms < times * quiet_ms
Markdown(f"""
At a tenth of the traffic a token costs {times:.0f} times as much, and takes {quiet_ms:.1f}
instead of {busy_ms:.1f} ms. So the shape of the day may matter more than the choice of the GPU;
`scenarios/diurnal-day.yaml` simulates a day.
""")

# %% [markdown]
# ## The steps, in six lines
#
# 1. Memory: a GPU on which the model does not fit is out.
# 2. A lone request: a GPU that misses the SLO for it is out, whatever the number of GPUs.
# 3. Full batches: they bound the number of GPUs and the cost from below.
# 4. Simulation: it finds the highest load of one replica, then the smallest fleets.
# 5. Predicted times: both ends of the error are simulated, to see which ranks survive.
# 6. Prices: each has its source, and a price up to which the first place holds.
