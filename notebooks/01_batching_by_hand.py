# %% [markdown]
# # 1. Batching by hand
#
# **What is batched when, and which operators can be batched at all?**
#
# Drawings of static and continuous batching are usually made up. The charts below are
# simulations of four requests on one GPU. At the end an engine in PyTorch serves such
# requests for real. It shows which operators run once for the whole batch, and that a
# request gets the same tokens alone and in company.
#
# Four words are enough to begin with.
#
# - A **request** is a prompt of some tokens, and the output tokens that answer it.
# - An **iteration** is one forward pass of the model.
# - **Prefill**: an iteration reads all tokens of a prompt at once, and the last of them
#   yields the first output token. (A long prompt may be cut into **chunks** over
#   several iterations.)
# - **Decode**: an iteration reads one token, the newest, and yields the next one. So
#   `n` output tokens take one prefill and `n - 1` decodes, one after the other.

# %%
import tempfile
from pathlib import Path

import pandas as pd
from IPython.display import Markdown

import sim
from reports.figures import slots

requests = pd.DataFrame(
    {
        "arrival_s": [0.000, 0.002, 0.004, 0.006],
        "prompt_tokens": [300, 100, 200, 50],
        "output_tokens": [15, 4, 6, 5],
    }
)
requests

# %% [markdown]
# The model is Llama 3.1 8B on one H100. The engine is `ideal`: kernels take their time,
# and nothing else does. `serve` plays the four requests through a scheduler; the table
# above is its trace. `leap=False` writes one row for each iteration.


# %%
def serve(**changes: object) -> sim.Result:
    """The four requests through one replica; ``a__b`` stands for the setting ``a.b``."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "four.csv"
        requests.to_csv(trace, index=False)
        scenario = sim.load_scenario(
            {
                "model": "llama-3.1-8b",
                "fleet": {"gpu": "h100-sxm"},
                "engine": "ideal",
                "scheduler": {"max_num_seqs": 2, "batch_timeout": "3ms"},
                "workload": {"trace": {"path": str(trace)}},
                "run": {"warmup": 0},
            }
        )
        overrides = {key.replace("__", "."): value for key, value in changes.items()}
        return sim.simulate(scenario.override(overrides), leap=False)


AXIS = (0.0, 0.2)  # seconds


def chart(result: sim.Result) -> object:
    """Which request had which slot of the batch, and what was computed for it; on one time
    axis for all, so that their lengths compare."""
    batching = result.scenario.scheduler.batching
    return slots.figure(result.requests, result.timeseries, batching, window=AXIS)


def last_ms(result: sim.Result) -> float:
    """When the last token of all came, in milliseconds."""
    return 1e3 * float(result.requests["finish_s"].max())


# %% [markdown]
# ## One request
#
# One prefill, then decodes. A chart has a row for each slot of the batch; here there is
# one. The number in a bar is that of the request.

# %%
one = serve(workload__trace__limit=1)
chart(one)

# %%
prefill, *decodes = 1e3 * (one.timeseries["end_s"] - one.timeseries["start_s"])
assert len(decodes) == requests["output_tokens"][0] - 1
per_token = prefill / requests["prompt_tokens"][0]
Markdown(
    f"The prefill reads {requests['prompt_tokens'][0]} tokens in {prefill:.1f} ms. A "
    f"decode reads one token, and still takes {decodes[0]:.1f} ms. A token of the prompt "
    f"costs {per_token:.3f} ms, a token of the answer {decodes[0] / per_token:.0f} "
    "times that.\n\nThe reason: whatever an iteration does, it reads the weights of the "
    "model from memory, once. A decode reads them for a single token. "
    "**So let several requests share an iteration**: that is batching. "
    "[Notebook 2](02_prefill_and_decode.ipynb) does the arithmetic."
)

# %% [markdown]
# ## One after the other
#
# Without batching there is one slot. The other requests wait below.

# %%
alone = serve(scheduler__max_num_seqs=1)
chart(alone)

# %% [markdown]
# ## Request-level batching
#
# Two slots. The first two requests start together, and the batch stays as it is until
# both are done. That is how servers batch ordinary models: whole requests, in and out
# together. A slot whose request is done is held until then, which the chart shows in a
# colour of its own.

# %%
level = serve(scheduler__batching="request")
chart(level)

# %%
served = level.requests
idle = 1e3 * (served["finish_s"][0] - served["finish_s"][1])
waits = 1e3 * (served["scheduled_s"][2] - served["arrival_s"][2])
assert served["scheduled_s"][2] >= served["finish_s"][:2].max()
Markdown(
    f"Request 1 is done {idle:.0f} ms before request 0, and its slot is held for all of "
    f"that time. Request 2, which needs a slot, waits for {waits:.0f} ms. How long an "
    "answer will be is not known beforehand, so this cannot be planned away: the longest "
    "answer holds the batch."
)

# %% [markdown]
# **Static batching** is stricter still. It fills up shorter prompts with padding to the
# longest one, and computes every slot until the longest answer is done. What is held
# above is computed here, for no request; the chart hatches it.

# %%
static = serve(scheduler__batching="static")
chart(static)

# %%
assert last_ms(static) > last_ms(level)
pd.DataFrame(
    {
        "prompt tokens computed": {
            "request-level": level.timeseries["prefill_tokens"].sum(),
            "static": static.timeseries["prefill_tokens"].sum(),
        },
        "last token after (ms)": {
            "request-level": round(last_ms(level), 1),
            "static": round(last_ms(static), 1),
        },
    }
)

# %% [markdown]
# ## Continuous batching
#
# Also called token-level or iteration-level batching. The scheduler decides **before
# every iteration** who is in it. A request leaves with its last token, and the next one
# takes the slot at once.

# %%
continuous = serve(scheduler__batching="continuous")
chart(continuous)

# %% [markdown]
# Nothing forces us to two slots either. With four of them every request starts with the
# first iteration after its arrival. (An iteration that runs is never interrupted.)

# %%
four = serve(scheduler__batching="continuous", scheduler__max_num_seqs=4)
chart(four)

# %%
runs = {
    "one after the other": alone,
    "static, 2 slots": static,
    "request-level, 2 slots": level,
    "continuous, 2 slots": continuous,
    "continuous, 4 slots": four,
}
pd.DataFrame(
    {
        name: {
            "last token after (ms)": f"{last_ms(run):.1f}",
            "mean time to first token (ms)": f"{run.summary['mean_ttft_ms']:.1f}",
            "mean time of a request (ms)": f"{run.summary['mean_e2el_ms']:.1f}",
            "output tokens per second": f"{run.summary['output_throughput']:.0f}",
        }
        for name, run in runs.items()
    }
).T

# %% [markdown]
# Each row is the same model, the same GPU and the same four requests. Only who is in
# which iteration differs.
#
# ## Everybody at a position of their own
#
# How can a request join in the middle? Here are the iterations of the last chart. A cell
# says what is computed for a request: a stretch of its prompt, or the token at one
# position (counted from 0, prompt included).


# %%
def position(request: pd.Series, start: float, end: float) -> str:
    """What the iteration from ``start`` to ``end`` computes for one request."""
    if start < request.scheduled_s or start >= request.finish_s:
        return "·"
    if end <= request.first_token_s:
        return f"prompt, 0 to {request.prompt_tokens - 1}"
    before = four.timeseries["end_s"].between(request.first_token_s, start)
    return str(request.prompt_tokens + int(before.sum()) - 1)


table = pd.DataFrame(
    {
        f"request {request.request_id}": [
            position(request, start, end)
            for start, end in four.timeseries[["start_s", "end_s"]].itertuples(index=False)
        ]
        for request in four.requests.itertuples()
    }
)
table.index.name = "iteration"
table

# %%
for row, plan in zip(table.itertuples(index=False), four.timeseries.itertuples(), strict=True):
    positions = [int(cell) for cell in row if cell.isdigit()]
    assert len(positions) == len(set(positions)) == plan.decode_seqs
    assert sum(positions) == plan.decode_context

# %% [markdown]
# No two requests decode at the same position, and one decodes while the others are still
# prefilled. (The check compares the table with what the simulator recorded: how many
# requests decode, and how many tokens they have behind them.)
#
# A textbook batch is a rectangle, so all its rows are at the same position. The trick is
# to give up the rectangle: the tokens of an iteration are **one flat list**, each with
# its request and its position. Whatever is done to each token by itself, the same weights
# for all, does not care whose it is. Only one operator has to keep requests apart.
#
# ## Which operators can be batched?
#
# One layer of a small Llama, in the reference engine of this project. It runs real
# tensors, and PyTorch records every operator that it calls. `infersim explain batching`
# does the same for any model that fits in your memory.

# %%
import json
from importlib.util import find_spec

from rich.console import Console

from sim import catalog

small = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def write_model(folder: str) -> Path:
    """The small model as a file that a scenario can name."""
    path = Path(folder) / "small-llama" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(small))
    return path


has_torch = find_spec("torch") is not None
if has_torch:
    from calibrate.device import open_device
    from calibrate.engine.explain import trace, view

    with tempfile.TemporaryDirectory() as folder:
        spec = catalog.model(str(write_model(folder)))
    cpu = open_device("cpu", threads=1)
    traced = trace(spec, cpu, "fp32", requests=4, context=64)
    Console(width=88, force_jupyter=False, force_terminal=False).print(view(traced))
else:
    print("PyTorch is not installed, so there is nothing to trace: pip install '.[calibrate]'")

# %%
if has_torch:
    apart = [part.name for part in traced.parts if part.runs == "once per request"]
    once = [part.name for part in traced.parts if part.runs == "once for the batch"]
    assert apart == ["attention"]
    assert len(once) + len(apart) == len(traced.parts)

# %% [markdown]
# Every part but one runs once: its matrix has a row for each token, and whose token that
# is does not matter. These parts hold all the weights, so a larger batch reads the
# weights no more often.
#
# **Attention alone runs request by request.** A token looks at the keys and values of
# its own request, of its own length, and no other request has a use for them. A real
# kernel puts this loop inside one launch, which saves launches. It does not save
# reading: every request's cache is read for that request alone.

# %% [markdown]
# ## The same tokens, alone and in company
#
# If batching mixed up requests, it would be useless. So it is checked here, on the same
# small model, in 64 bits: four requests arrive together, and are served alone, then by
# every kind of batching. In the last two ways prompts are cut into chunks of a few tokens
# in the same iterations as running decodes. In the very last one memory is so short that
# requests are preempted and computed again. (`test_engine_proofs.py` has more
# cases, and compares logits too.)

# %%
ways = {
    "alone": {"scheduler.max_num_seqs": 1},
    "static, padded": {"scheduler.batching": "static"},
    "request-level": {"scheduler.batching": "request"},
    "continuous": {},
    "continuous, chunks of at most 16 tokens": {
        "scheduler.max_num_batched_tokens": 16,
    },
    "the same, with too little memory": {
        "scheduler.max_num_batched_tokens": 16,
        "scheduler.scheduler_reserve_full_isl": False,
        "kv_cache.num_gpu_blocks": 20,
    },
}
answers, facts = {}, {}
if has_torch:
    from calibrate.engine.run import run

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(folder)
        together = requests.assign(arrival_s=0.0, prompt_tokens=[90, 30, 60, 15])
        together.to_csv(Path(folder) / "four.csv", index=False)
        scenario = sim.load_scenario(
            {
                "model": str(model),
                "fleet": {"gpu": "h100-sxm"},
                "engine": "reference",
                "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 256},
                "kv_cache": {"num_gpu_blocks": 64, "block_size": 8},
                "max_model_len": 160,
                "workload": {"trace": {"path": f"{folder}/four.csv"}},
                "run": {"warmup": 0},
            }
        )
        for name, changes in ways.items():
            seen = run(scenario.override(changes), cpu, precision="fp64")
            answers[name] = seen.answers
            facts[name] = {
                "iterations": len(seen.iterations),
                "most requests in one": max(
                    len(i.decodes) + len(i.prefills) for i in seen.iterations
                ),
                "slots computed as padding": sum(i.padded for i in seen.iterations),
                "preemptions": sum(len(i.preempted) for i in seen.iterations),
                "same tokens as alone": seen.answers == answers["alone"],
            }
pd.DataFrame(facts).T

# %%
if has_torch:
    assert all(answer == answers["alone"] for answer in answers.values())
    lengths = [len(answers["alone"][request]) for request in range(4)]
    assert lengths == requests["output_tokens"].tolist()
    assert len({tuple(tokens[:4]) for tokens in answers["alone"].values()}) == 4
    assert facts["the same, with too little memory"]["preemptions"] > 0
    for request, tokens in sorted(answers["alone"].items()):
        print(f"request {request}:", *tokens)

# %% [markdown]
# Every way of serving gives these same tokens. The model is random, so they mean nothing,
# but they differ from request to request: what is compared is not a constant.
#
# One caution. This is a statement about the mathematics, checked in 64 bits. On a GPU in
# 16 bits a kernel may add up in another order when the batch has another size. Results
# then differ in their last bits, and where two tokens are almost equally likely the
# choice can flip. Engines that guarantee the same bits for every batch size need kernels
# made for it.
#
# ## What to take away
#
# - Batching shares the reading of the weights. That is why it pays.
# - Request-level batching holds slots for the longest answer, and static batching
#   computes them; continuous batching decides anew before each iteration, and gives a
#   free slot away at once.
# - All operators but attention see a flat list of tokens, so requests at different
#   positions share them without further ado.
# - Attention reads a cache that belongs to one request. That part is not shared, and it
#   grows with the context. Notebooks [2](02_prefill_and_decode.ipynb) and
#   [3](03_kv_cache.ipynb) say what follows from it.
