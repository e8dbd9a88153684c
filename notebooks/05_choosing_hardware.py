# %% [markdown]
# # 5. Choosing hardware
#
# From a question to a fleet. The question here:
#
# > A chat assistant on Llama 3.1 8B. In the busiest hour 30 requests come per second. Of
# > these 95 % shall see their first token within half a second, and the further ones
# > every 15 ms on average over their answer. What do we rent, and what does a token cost?
#
# Each section below answers a part of it, the cheap ones first: memory, arithmetic, one
# simulated replica, whole fleets, and how far to trust the order in which they come out.
# The same is done by `infersim fit`, `find` and `plan` on the command line.

# %%
import math

import pandas as pd
from IPython.display import Markdown

import sim
from reports.planning import find_curve, plan_pareto
from sim.cost import CostModel
from sim.errors import InfeasibleError
from sim.planning import find as finding
from sim.planning.choose import Question, choose
from sim.planning.constraints import read_constraints
from sim.planning.layouts import layouts
from sim.planning.loads import traffic_of
from sim.planning.plan_document import document as plan_document
from sim.planning.saturation import acceptable, alone, replica_of, saturation
from sim.simulation import prepare

GPUS = ["l4", "l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm"]
RATE, HEADROOM = 30.0, 0.2

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
# The weights are there once per replica. What is left holds the KV cache, and so decides
# how many conversations a replica can have at a time. The last column is the engine's own
# figure: how many requests of the full 8,192 tokens.

# %%
setups = {name: prepare(assistant.override({"fleet.0.gpu": name})) for name in GPUS}
GB = 1e9
rows = []
for name, setup in setups.items():
    memory, gpu = setup.capacity, setup.deployment.gpu
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
# It fits everywhere, if only just on the L4. Where it does not, the answer is not a slow
# fleet but none:

# %%
assert min(setups, key=lambda name: setups[name].capacity.tokens) == "l4"
try:
    prepare(assistant.override({"model": "llama-3.1-70b"}))
except InfeasibleError as error:
    refusal = str(error)
Markdown(f"> {refusal}")

# %% [markdown]
# ## What could one replica do at best?
#
# Still without simulating. Two prices from the cost model bound everything that follows:
#
# - a request that has the replica **for itself** is as fast as any can be;
# - **full batches**, over and over, serve about as many requests per second as can be
#   served at all.
#
# If the first misses the limits, no number of GPUs helps. The second gives the fewest
# GPUs and the lowest price of a token that are possible.

# %%
tpot_limit = assistant.slo.tpot
rows, bounds = [], {}
for name, setup in setups.items():
    replica = replica_of(setup, CostModel(setup.deployment))
    traffic = acceptable(replica, traffic_of(setup.scenario))
    lone, most = alone(replica, traffic), saturation(replica, traffic)
    usd = setup.deployment.gpu.price_per_hour
    tokens = most.rate * float((traffic.prompts + traffic.outputs).mean())
    bounds[name] = (float(lone.tpot.mean()), most.rate, usd / 3600 / tokens * 1e6)
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
Out at once: **{" and ".join(slow)}**. With nobody else there a token takes
{" and ".join(f"{bounds[name][0] * 1e3:.0f}" for name in slow)} ms; the limit is
{tpot_limit * 1e3:.0f} ms, and more GPUs only bring more of the same. On
**{" and ".join(close)}** little room is left for company, so its full batches are something
that this promise does not allow. By the last column, USD per million tokens (prompt and answer)
in full batches, {cheapest} would win, which is out. That column is a bound, not an answer:
**the cheapest token is not the cheapest token in time.**
""")

# %% [markdown]
# ## One replica under load: the knee
#
# Now the traffic is simulated. `find` looks for the highest load at which the promise
# holds, and then draws the curve around it. (Its own load is a third of the traffic here,
# as if three shared it. The curve is of the p99 and the promise is to 95 %, so that a
# load may hold a little above the line.)

# %%
a_third = assistant.override({"workload.arrivals.rate": RATE / 3})
single = finding.document(finding.find(a_third, "rate", tolerance=0.05))
find_curve.figure(single, "tpot")

# %%
find_curve.figure(single, "ttft")

# %%
knee, at_best = single["knee"], single["at_best"]
assert single["first_to_break"] == "tpot"
assert at_best["p99_ttft_ms"] < 500
assert single["load"] < 0.9 * single["saturated"]
Markdown(f"""
One H100 holds {single["load"]:.1f} requests/s; at {single["fails_at"]:.1f} the promise is
broken, and **{single["first_to_break"].upper()}** breaks it. The time to first token is far
from its limit there (p99 {at_best["p99_ttft_ms"]:.0f} ms), and full batches would serve
{single["saturated"]:.1f}. So this replica is bound by *speed for each user*, not by capacity:
the rest of its capacity can only be sold to users who are more patient. The *knee*, where
throughput over latency is best, lies at {knee["load"]:.1f}
requests/s{" or above" if knee["at_end"] else ""}.
""")

# %% [markdown]
# ## Fleets
#
# `plan` does that for every candidate, then sizes the fleets behind their router: the
# smallest that holds 20 % more than the wanted rate. Those that cannot be cheaper than
# the best found are never simulated.

# %%
candidates = layouts(assistant, GPUS, [1], [])
question = Question(tuple(candidates), RATE, HEADROOM, 3, read_constraints(None))
plan = plan_document(choose(assistant, question))
fleets = plan["fleets"]
rows = [
    (
        fleet["rank"],
        f"{fleet['replicas']} x {fleet['gpu']}",
        f"{fleet['usd_per_hour']:.2f}",
        f"{fleet['usd_per_million_tokens']:.3f}",
        f"{fleet['p99_ttft_ms']:.0f}",
        f"{fleet['p99_tpot_ms']:.1f}",
        f"{fleet['rate_at_slo']:.0f}",
        fleet["binds"],
    )
    for fleet in fleets
]
names = ["fleet", "USD/h", "USD per M", "TTFT p99", "TPOT p99", "holds up to", "binds"]
pd.DataFrame(rows, columns=["rank", *names]).set_index("rank")

# %% [markdown]
# Latencies are in ms at 30 requests/s, the price is per million tokens of prompt and
# answer at that rate. Every fleet that was sized, those behind the first three too, under
# the load with its headroom:

# %%
plan_pareto.figure(plan, "tpot")

# %%
first, second = fleets[0], fleets[1]
bound = bounds[first["gpu"]][2]
used = first["usd_per_million_tokens"]
assert used > bound
Markdown(f"""
The cheapest is **{first["replicas"]} x {first["gpu"]}** for {first["usd_per_hour"]:.2f} USD/h.
A million tokens cost {used:.3f} USD, {used / bound:.1f} times the bound of full batches: that
is what the latency limit, the headroom and whole GPUs cost together. The next one is
{second["usd_per_hour"] / first["usd_per_hour"] - 1:.0%} dearer.
""")

# %% [markdown]
# ### What binds the others
#
# A plan that only names a winner teaches nothing. Why not the rest?


# %%
def listed(names: list[str], rows: list[tuple]) -> Markdown:
    """A table with long texts, which stand on the left."""
    lines = [names, ["---"] * len(names), *rows]
    return Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))


losers = [(each["layout"], each["reason"], each["text"]) for each in plan["rejected"]]
listed(["replica", "reason", "in words"], losers)

# %%
smaller = [
    f"{fleet['replicas'] - 1} x {fleet['gpu']} would break {fleet['smaller_breaks']}"
    for fleet in fleets
    if fleet["smaller_breaks"] is not None
]
reasons = {reason for _, reason, _ in losers}
assert reasons == {"tpot missed alone", "too dear"}
Markdown(f"""
Two kinds of losers, with two kinds of remedies. *Missed alone*: no number of them will do; it
takes a faster part, more GPUs for one replica, or fewer bits. *Too dear*: they hold the traffic
and lose on price, so another price list may change that. The fleets in the table are as small
as they can be:
{"; ".join(smaller) or "each is of one replica, or its full batches would not do with one fewer"}.
""")

# %% [markdown]
# ## How far to trust the order
#
# The cost model is a few percent off (notebook 6), and GPUs come in whole numbers. If
# iterations take longer than predicted, some fleets need one GPU more, and others have
# room left. The band says what each fleet costs if its iterations are faster or slower by
# the error of its run.

# %%
rows = [
    (
        f"{fleet['replicas']} x {fleet['gpu']}",
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
band = first["error_band"]
edge = first["rate_at_slo"] * (1 - band["error"])
more = (first["replicas"] + 1) * first["usd_per_hour"] / first["replicas"]
assert band["survives"]
assert plan["target"] < edge
assert more > second["usd_per_hour"]
Markdown(f"""
> {plan["ranking"]["text"]}

That need not be so. This fleet holds {first["rate_at_slo"]:.0f} requests/s, and it was asked
for {plan["target"]:.0f}. From about {edge:.0f} on the band would want one replica more,
{more:.2f} USD/h, which is dearer than the second fleet: **close to the edge of a whole GPU an
error of {band["error"]:.0%} decides the order.**
""")

# %% [markdown]
# That is arithmetic on the band. It can also be tried: the same fleets and the same
# requests, with every kernel and every action of the engine slower. What share of
# requests is still served within the limits?

# %%
rows = []
for fleet in fleets:
    for slower in (1.0, 1.05, 1.1, 1.2, 1.3):
        what_if = {"assume.kernel_time": slower, "assume.host_time": slower}
        trial = assistant.override(fleet["settings"] | what_if | {"run.requests": 1500})
        summary = sim.simulate(trial).summary
        share = summary["request_goodput"] / summary["request_throughput"]
        rows.append((f"{fleet['replicas']} x {fleet['gpu']}", f"{slower - 1:.0%}", share))
tried = pd.DataFrame(rows, columns=["fleet", "slower by", "within the SLO"])
kept = tried.pivot_table(index="fleet", columns="slower by", values="within the SLO", sort=False)
kept.map(lambda share: f"{share:.1%}")

# %%
breaks = {
    fleet: next((column for column in kept.columns if line[column] < 0.95), None)
    for fleet, line in kept.iterrows()
}
words = "; ".join(
    f"**{fleet}** " + ("holds in all of them" if at is None else f"breaks at {at}")
    for fleet, at in breaks.items()
)
assert (kept["10%"] >= 0.95).all()
assert any(breaks.values())
assert all(fleet["error_band"]["error"] <= 0.1 for fleet in fleets)
Markdown(f"""
At the promised 95 %: {words}. An error as large as the band breaks nothing, because
{HEADROOM:.0%} of headroom was asked for: that is what it is for. Without headroom a ranking by
price prefers the fleet that is closest to breaking, and an error of a few percent decides
whether it does.
""")

# %% [markdown]
# ## The price of a token is the price of being busy
#
# A fleet is rented for the busiest hour and paid for at night too. The same fleet, the
# same rent, less traffic:

# %%
rows = []
for share in (1.0, 0.5, 0.25, 0.1):
    changes = first["settings"] | {"workload.arrivals.rate": share * RATE, "run.requests": 1000}
    summary = sim.simulate(assistant.override(changes)).summary
    cost = summary["infersim"]["cost"]
    rows.append(
        (
            f"{share * RATE:g}",
            f"{summary['infersim']['batch']['mean_decode_batch']:.0f}",
            f"{summary['mean_tpot_ms']:.1f}",
            f"{cost['usd_per_million_tokens']:.3f}",
            f"{cost['usd_per_million_output_tokens']:.2f}",
        )
    )
names = ["mean batch", "mean TPOT (ms)", "USD per M tokens", "USD per M output tokens"]
quiet = pd.DataFrame(rows, columns=["requests/s", *names]).set_index("requests/s")
quiet

# %%
dear = float(quiet["USD per M tokens"].iloc[-1]) / float(quiet["USD per M tokens"].iloc[0])
assert dear > 5
Markdown(f"""
At a tenth of the traffic a token costs {dear:.0f} times as much, and is served somewhat faster.
So the shape of the day may matter more than the choice of the GPU; `scenarios/diurnal-day.yaml`
plays one.
""")

# %% [markdown]
# ## The way, in five lines
#
# 1. Memory: what does not fit is out.
# 2. A lone request: what misses the limits alone is out, at any number.
# 3. Full batches: fewest GPUs and lowest price, as a bound.
# 4. Simulation: the knee of one replica, then the smallest fleets with headroom.
# 5. The band: which ranks survive the error, and what would flip them.
#
# Prices are list prices of the catalogue, each with its source and date
# (`infersim show h100-sxm`); with your own, set `fleet.0.price_per_gpu_hour`.
