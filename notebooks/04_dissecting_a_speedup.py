# %% [markdown]
# # 4. Dissecting a 10x
#
# **A serving engine is ten times as fast as a naive one. Which of its techniques brought
# what?**
#
# Announcements say "10x faster", and there are usually several techniques behind it. To
# ask for the share of each sounds simple. It is not: what a technique brings depends on
# which of the others are there already. This notebook takes one such number apart.

# %%
import math
from itertools import permutations
from pathlib import Path

import pandas as pd
from IPython.display import Markdown

import sim
from reports.figures.charts import chart
from sim.planning.answers.ablate import waterfall as steps_of
from sim.planning.causes.ablate import ablate, document
from sim.planning.points.executors import local

scenarios = Path(sim.__file__).parents[1] / "scenarios"
ladder = sim.load_scenario(scenarios / "batching-ladder.yaml", ["run.requests=1000"])
print(ladder.description)

# %% [markdown]
# ## From a naive server to vLLM's rule
#
# The scenario serves Llama 2 7B on one A100 under more traffic than it can serve.
# `ablate` asks what it would be without its techniques. The baseline has the same model,
# GPU, engine overheads and traffic, but static batches of 8, and a contiguous cache that
# reserves 4,096 tokens for each request. Then it simulates **every set** of techniques
# once. (`infersim ablate scenarios/batching-ladder.yaml` prints the same and writes a
# page.)

# %%
found = ablate(ladder, local(1))
result = document(found)
figures = {figure["key"]: figure for figure in result["figures"]}
throughput = figures["output_throughput"]
titles = {t["name"]: t["title"] for t in result["techniques"]}
assert {t["name"]: t["settings"] for t in result["techniques"]} == {
    "continuous-batching": {"scheduler.batching": "continuous"},
    "large-batch": {"scheduler.max_num_seqs": 64},
    "chunked-prefill": {"scheduler.chunked_prefill": True},
    "paging": {"kv_cache.allocator": "paged"},
}
Markdown(
    f"{len(result['techniques'])} techniques, {len(result['subsets'])} different runs. "
    f"The baseline makes {throughput['baseline']:,.0f} output tokens per second, all "
    f"techniques together {throughput['full']:,.0f}: **{throughput['factor']:.1f} times as "
    "many**."
)

# %% [markdown]
# (Chunked prefill changes nothing without continuous batching, so there are fewer
# different runs than sets.) The usual picture is a waterfall: the techniques are added
# one after the other.

# %%
assert 9 < throughput["factor"] < 12
chart(steps_of(result, "output_throughput"))

# %% [markdown]
# - **Continuous batching**: no request waits for the longest answer of a batch, and
#   nothing is padded. See [notebook 1](01_batching_by_hand.ipynb).
# - **Batches of up to 64**: the weights are read once for more tokens. See
#   [notebook 2](02_prefill_and_decode.ipynb).
# - **Chunked prefill**: a prompt is cut to what an iteration has room for. Here nearly
#   all fit, and in vLLM V1 whole ones share iterations with decodes, too.
# - **Paging**: the memory holds more requests. See [notebook 3](03_kv_cache.ipynb).
#
# ## The same, in another order
#
# Nothing forces this order. Suppose that paging came first.

# %%
other = document(
    ablate(
        ladder,
        local(1),
        order=["paging", "large-batch", "continuous-batching", "chunked-prefill"],
    )
)
chart(steps_of(other, "output_throughput"))

# %%
steps = {
    name: {step["technique"]: step["factor"] for step in run["figures"][0]["steps"]}
    for name, run in (("first picture", result), ("second picture", other))
}
for order in steps.values():
    assert math.isclose(math.prod(order.values()), throughput["factor"])
assert round(steps["second picture"]["paging"], 2) == 1.0
assert steps["first picture"]["paging"] > 1.2
table = pd.DataFrame(steps).rename(index=titles)
table.loc["all together"] = throughput["factor"]
table.map("× {:.2f}".format)

# %%
Markdown(
    "The same four techniques, the same beginning, the same end, and quite different "
    "parts. Paging brings "
    f"{100 * steps['first picture']['paging'] - 100:.0f} % in the first picture and "
    "**nothing at all** in the second: 8 requests fit in memory without it, so more room "
    "is of no use. A large batch brings "
    f"{steps['first picture']['large-batch']:.1f} times as much as a small one where "
    "requests come and go, and next to nothing with static batches: among more requests "
    "the longest answer is longer, and all the others wait for it."
)

# %% [markdown]
# So "paging brings a lot" and "paging brings nothing" can both be true. What a technique
# brings is no property of that technique alone.
#
# ## Fair shares
#
# One rule treats all techniques alike: **take every order, and average**. The averages
# are called Shapley values, after Lloyd Shapley, who asked how players should divide what
# they won together. Speed-ups multiply, so the average is one of logarithms, and the
# shares are factors.
#
# By hand, over all orders of four techniques:


# %%
def tokens_per_second(present: frozenset[str]) -> float:
    """Throughput with a set of techniques; each set was simulated once."""
    summary = found.outcome(present).summary
    assert summary is not None
    return float(summary["output_throughput"])


orders = list(permutations(titles))
gains: dict[str, list[float]] = {name: [] for name in titles}
for order in orders:
    for place, name in enumerate(order):
        before = tokens_per_second(frozenset(order[:place]))
        after = tokens_per_second(frozenset(order[: place + 1]))
        gains[name].append(after / before)
shares = {
    name: math.exp(sum(map(math.log, factors)) / len(orders)) for name, factors in gains.items()
}
parts = {part["technique"]: part["factor"] for part in throughput["parts"]}
assert len(orders) == math.factorial(4) == 24
assert all(math.isclose(shares[name], parts[name]) for name in titles)
assert math.isclose(math.prod(shares.values()), throughput["factor"])

table = pd.DataFrame(
    {
        titles[name]: {
            "least": min(factors),
            "fair share": shares[name],
            "most": max(factors),
        }
        for name, factors in gains.items()
    }
).T
table.map("× {:.2f}".format)

# %%
first = max(shares, key=lambda name: shares[name])
assert first == "continuous-batching"
product = " × ".join(f"{share:.2f}" for share in shares.values())
log_share = math.log(shares[first]) / math.log(throughput["factor"])
Markdown(
    f"{product} = {math.prod(shares.values()):.1f}: the shares multiply to the whole, "
    "whatever the order, and they are what `ablate` reports. The other two columns are "
    "the least and the most that a technique brings in any order. **The wider that range "
    "is, the less a single number says.** Here continuous batching brings by far the most, "
    f"{100 * log_share:.0f} % of the way on a logarithmic scale. It also is what makes the "
    "others pay."
)

# %% [markdown]
# ## It depends on where one begins
#
# "Naive" is a choice. With a baseline that serves one request at a time the whole is
# larger, and another technique gets most of it.

# %%
single = document(ablate(ladder, local(1), batch=1))["figures"][0]
both = {
    "baseline: batches of 8": throughput,
    "baseline: one at a time": single,
}
table = pd.DataFrame(
    {
        name: {titles[part["technique"]]: part["factor"] for part in figure["parts"]}
        | {"all together": figure["factor"]}
        for name, figure in both.items()
    }
)
table.map("× {:.2f}".format)

# %%
batch = {name: figure["parts"][1]["factor"] for name, figure in both.items()}
assert single["parts"][1]["technique"] == "large-batch"
assert math.isclose(single["full"], throughput["full"])
assert batch["baseline: one at a time"] > single["parts"][0]["factor"]
Markdown(
    f"The end is the same, {single['full']:,.0f} tokens per second. The speed-up is now "
    f"{single['factor']:.0f} times, and the large batch gets × "
    f"{batch['baseline: one at a time']:.1f} of it. **The choice of the baseline makes the "
    "headline.** A speed-up without its baseline says nothing."
)

# %% [markdown]
# ## It depends on the metric
#
# Throughput is not all that matters. The same techniques, other metrics:

# %%
keys = ("output_throughput", "p99_ttft_ms", "p99_tpot_ms")
table = pd.DataFrame(
    {
        figures[key]["title"]: {
            titles[part["technique"]]: part["factor"] for part in figures[key]["parts"]
        }
        | {"all together": figures[key]["factor"]}
        for key in keys
    }
)
table.map("× {:.3g}".format)

# %%
ttft, tpot = figures["p99_ttft_ms"], figures["p99_tpot_ms"]
assert ttft["factor"] < 0.2
assert tpot["factor"] > 1.3
Markdown(
    f"The time to the first token falls, from {ttft['baseline'] / 6e4:.0f} minutes to "
    f"{ttft['full'] / 1e3:.0f} seconds: it is mostly waiting in a queue, and the queue "
    "moves faster. (Both would grow without end in a longer run, for this traffic is more "
    "than can be served.) But the time per output token **grows** by "
    f"{100 * tpot['factor'] - 100:.0f} %: a request shares each iteration with more others. "
    "Throughput is bought with the speed of the single answer. How far to go is what a "
    "latency limit (SLO) decides; [notebook 7](07_fast_modes_and_small_batches.ipynb) is "
    "about that."
)

# %% [markdown]
# ## It depends on the traffic
#
# All of the above is under full load. The same scenario with one request every ten
# seconds:

# %%
calm = ladder.override({"workload.arrivals.rate": 0.1, "run.requests": 200})
quiet = document(ablate(calm, local(1)))
quiet_figures = {figure["key"]: figure for figure in quiet["figures"]}
gain = quiet_figures["output_throughput"]["factor"]
waits = quiet_figures["p99_ttft_ms"]
assert 0.9 < gain < 1.2
Markdown(
    f"Throughput × {gain:.2f}. **Every server keeps up, so the traffic sets the throughput, "
    "and no technique can raise it.** What remains is latency: the p99 time to the first "
    f"token goes from {waits['baseline'] / 1e3:.0f} s, most of it spent waiting for seven "
    f"other requests to fill the batch, to {waits['full']:.0f} ms."
)

# %% [markdown]
# So "10x" was a statement about one baseline, one metric and one load.
#
# ## What to take away
#
# - Techniques help each other. What one of them brings depends on those before it, so a
#   waterfall shows one order out of many.
# - Shapley values average over all orders. They add up (here: multiply) to the whole, and
#   the least and the most in any order say how far to trust them.
# - Removing a bottleneck brings little while another one binds: paging without a large
#   batch, a large batch without continuous batching.
# - Ask of every speed-up: over what, in which metric, under which load?
