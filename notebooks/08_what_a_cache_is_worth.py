# %% [markdown]
# # 8. What a prefix cache is worth
#
# **When does it help that an engine remembers earlier prompts, by how much, and what
# does it not help?**
#
# In a conversation each turn sends everything again: the system prompt, all that was
# asked and answered, and a new question. An engine that has just computed the keys and
# values of the first part still holds them in blocks of memory that it has not needed
# since. A **prefix cache** looks there before it computes. [Notebook
# 3](03_kv_cache.ipynb) is about that memory; here it is about what is found in it.

# %%
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown

import sim
from reports.frame import theme

CACHE = "kv_cache.enable_prefix_caching"
chat = sim.load_scenario(
    {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "max_model_len": 16384,
        "kv_cache": {"enable_prefix_caching": True},
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1.5},
            "prompt_tokens": {"kind": "lognormal", "mean": 150, "p95": 450, "max": 4000},
            "output_tokens": {"kind": "lognormal", "mean": 250, "p95": 700, "max": 2000},
            "shared_prefix": {"tokens": 800, "groups": 4},
            "sessions": {
                "turns": {"kind": "geometric", "mean": 5},
                "think_time": {"kind": "lognormal", "mean": "30s", "cv": 1},
            },
        },
        "run": {"requests": 2500},
        "seed": 1,
    }
)

# %% [markdown]
# ## Conversations, with the cache and without
#
# 1.5 people per second begin to talk with an assistant: five turns on average, half a
# minute apart, behind one of four system prompts of 800 tokens. Both runs meet the same
# people, who write and think alike.

# %%
runs = {on: sim.simulate(chat.override({CACHE: on})) for on in (True, False)}


def row(run: sim.Result) -> dict[str, str]:
    summary, own = run.summary, run.summary["infersim"]
    first, later = own["sessions"]["first_turns"], own["sessions"]["later_turns"]
    found = own.get("prefix_cache")
    return {
        "prompt tokens found": "none" if found is None else f"{found['hit_rate']:.0%}",
        "TTFT, first turns (p50)": f"{first['p50_ttft_ms']:.0f} ms",
        "TTFT, later turns (p50)": f"{later['p50_ttft_ms']:.0f} ms",
        "TTFT, all (p99)": f"{summary['p99_ttft_ms']:.0f} ms",
        "TPOT (mean)": f"{summary['mean_tpot_ms']:.1f} ms",
        "prompt of a later turn (mean)": f"{later['mean_prompt_tokens']:,.0f} tokens",
        "share of the capacity": f"{own['verdict']['utilisation']:.0%}",
    }


pd.DataFrame({"with the cache": row(runs[True]), "without": row(runs[False])})

# %%
summaries = {on: run.summary for on, run in runs.items()}
details = {on: summary["infersim"] for on, summary in summaries.items()}
later = {on: own["sessions"]["later_turns"]["p50_ttft_ms"] for on, own in details.items()}
load = {on: own["verdict"]["utilisation"] for on, own in details.items()}
hits = details[True]["prefix_cache"]["hit_rate"]
assert hits > 0.5
assert later[True] < later[False]
assert load[True] < load[False]
Markdown(
    f"Of all prompt tokens {hits:.0%} were there already. The first token of a later turn "
    f"comes in {later[True]:.0f} instead of {later[False]:.0f} ms, and the same people take "
    f"{load[True]:.0%} of what the GPU could serve instead of {load[False]:.0%}. The "
    f"capacity does not grow in proportion to what is found: answers must still be written, "
    f"token by token."
)

# %% [markdown]
# ## How large must it be?
#
# What is found depends on whether it is still there. While a person thinks, others
# come, and their blocks push out those that were not used for longest. So the memory
# that counts is that of everybody who will come back: the number of people in a
# conversation (those who begin in a second, times the seconds that a conversation
# lasts: Little's law), times the tokens of one. Here one begins every four seconds.

# %%
BLOCKS = (1100, 2500, 6000, 16000)
TIMES = {"5s": 5, "60s": 60}
RATE = 0.25  # people who begin per second
grid = {
    (time, blocks): sim.simulate(
        chat.override(
            {
                "kv_cache.num_gpu_blocks": blocks,
                "workload.sessions.think_time.mean": time,
                "workload.arrivals.rate": RATE,
                "run.requests": 1200,
            }
        )
    ).summary
    for time in TIMES
    for blocks in BLOCKS
}
found = {key: each["infersim"]["prefix_cache"]["hit_rate"] for key, each in grid.items()}
figure = go.Figure()
for (time, seconds), tone in zip(TIMES.items(), theme.SERIES, strict=False):
    figure.add_scatter(
        x=[16 * blocks for blocks in BLOCKS],
        y=[100 * found[time, blocks] for blocks in BLOCKS],
        mode="lines+markers",
        name=f"people think for {seconds} s",
        line={"color": tone.light, "width": 2.5},
        marker={"size": 8},
    )
figure.update_layout(
    **{
        **theme.layout(),
        "showlegend": True,
        "height": 340,
        "margin": {"l": 8, "r": 16, "t": 40, "b": 8},
    },
    xaxis={**theme.axis("KV cache (tokens)"), "type": "log"},
    yaxis={**theme.axis("prompt tokens found (%)"), "range": [0, 100]},
)
figure

# %%
turns, each_turn = 5, 150 + 250
tokens = 800 + turns * each_turn  # of a conversation of five turns at its end
people = {time: RATE * (turns - 1) * seconds for time, seconds in TIMES.items()}
small, large = BLOCKS[0], BLOCKS[-1]
assert all(found["5s", blocks] > found["60s", blocks] for blocks in BLOCKS[:3])
assert all(found[time, small] < found[time, large] for time in TIMES)
assert abs(found["5s", large] - found["60s", large]) < 0.1
Markdown(
    f"With 5 s to think about {people['5s']:.0f} people are between two turns, with 60 s about "
    f"{people['60s']:.0f}; at up to {tokens:,} tokens each that is {people['5s'] * tokens:,.0f} "
    f"and {people['60s'] * tokens:,.0f} tokens. A cache of {16 * BLOCKS[1]:,} finds "
    f"{found['5s', BLOCKS[1]]:.0%} and {found['60s', BLOCKS[1]]:.0%}; one of "
    f"{16 * large:,} finds {found['5s', large]:.0%} and {found['60s', large]:.0%}, nearly the "
    f"same. A cache that is large enough gains nothing from being larger, and one that is too "
    f"small keeps little more than the system prompts."
)

# %% [markdown]
# ## What it does to throughput
#
# Now 100 clients, each of whom has one conversation after the other and thinks for a
# second: the GPU has always something to do, and what the cache saves becomes more
# answers.

# %%
busy = chat.override(
    {
        "workload.arrivals": {"kind": "closed", "concurrency": 100},
        "workload.sessions.think_time.mean": "1s",
        "run.requests": 2000,
        "run.warmup": 200,
    }
)
served = {on: sim.simulate(busy.override({CACHE: on})).summary for on in (True, False)}
answered = {on: summary["output_throughput"] for on, summary in served.items()}
gain = answered[True] / answered[False]
assert gain > 1.05
Markdown(
    f"{answered[True]:,.0f} output tokens per second instead of {answered[False]:,.0f}: "
    f"{gain:.2f} times as many, with {served[True]['infersim']['prefix_cache']['hit_rate']:.0%} "
    f"of the prompt tokens found. If prompts were all the work, finding so many would make it "
    f"{1 / (1 - served[True]['infersim']['prefix_cache']['hit_rate']):.0f} times as fast."
)

# %% [markdown]
# ## What it does not help: decoding
#
# A token of the answer needs all the weights and the keys and values of the whole
# conversation, whether those were computed a moment ago or found. A single conversation
# at a time shows it: there is no other request whose prompts could get in the way.

# %%
lonely = chat.override(
    {
        "workload.arrivals": {"kind": "closed", "concurrency": 1},
        "workload.sessions.think_time": None,
        "run.requests": 200,
        "run.warmup": 0,
    }
)
alone = {on: sim.simulate(lonely.override({CACHE: on})) for on in (True, False)}
tpot = {on: run.summary["mean_tpot_ms"] for on, run in alone.items()}
ttft = {on: run.summary["mean_ttft_ms"] for on, run in alone.items()}
whole = {on: run.summary["mean_e2el_ms"] for on, run in alone.items()}
assert np.isclose(tpot[True], tpot[False], rtol=1e-6)
assert ttft[True] < ttft[False]
Markdown(
    f"The first token comes after {ttft[True]:.1f} instead of {ttft[False]:.1f} ms, each "
    f"further one after {tpot[True]:.2f} ms in both cases. The whole answer takes "
    f"{whole[True] / 1e3:.2f} instead of {whole[False] / 1e3:.2f} s: "
    f"{1 - whole[True] / whole[False]:.1%} less."
)

# %% [markdown]
# So a prefix cache makes **first tokens** come sooner, and gives the time of the
# prompts that it saves to others: those wait less, are interrupted less by prompts, and
# more of them fit on a GPU. It does not make a model write faster. It is worth much
# where prompts are long, begin alike and come again soon (agents, long conversations,
# popular documents), and nothing where they do not.
#
# The same with agents and documents: `infersim run scenarios/agent.yaml` and
# `scenarios/rag.yaml`.
