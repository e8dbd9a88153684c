# %% [markdown]
# # 3. The KV cache: arithmetic and paging
#
# **How much memory does a request need, how many fit, and what is wasted?**
#
# To produce a token, attention looks back at a key and a value of every token before it.
# They never change, so an engine keeps them: that is the KV cache. It grows by one place
# with every token of every request. Batching needs many requests at once, and so the
# memory for their caches decides how far batching can go.

# %%
import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown
from rich.console import Console

import sim
from reports.figures import slots
from reports.frame import theme
from sim import catalog
from sim.cost import Deployment
from sim.memory.capacity import capacity
from sim.planning.answers.fit import memory_table
from sim.planning.fits import fit_document
from sim.terminal.findings import parts_view

# %% [markdown]
# ## Bytes of one token
#
# A key and a value (2), for each layer, for each KV head, of so many numbers, of so many
# bytes. Llama 2 7B has 32 layers with 32 heads of 128 numbers; fp16 has 2 bytes:

# %%
per_token = 2 * 32 * 32 * 128 * 2
assert per_token == catalog.model("llama-2-7b").kv_bytes_per_token("fp16") == 524_288
assert per_token * 4096 == 2_147_483_648 == 2 * 2**30

# %% [markdown]
# That is 524,288 bytes (512 KiB) a token, and 2,147,483,648 bytes (2 GiB, exactly) for
# one request of 4,096 tokens.
#
# A common mistake is to take the number of *query* heads. In newer models several query
# heads share one KV head (**grouped-query attention**, GQA), and the cache shrinks by as
# much. Fewer bits per number shrink it too.

# %%
names = ("llama-2-7b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "qwen3-32b")
rows = {}
for name in names:
    model = catalog.model(name)
    kept, heads = model.kv_bytes_per_token("bf16"), model.layers[0].attention
    assert kept == 2 * model.num_layers * heads.num_kv_heads * heads.head_dim * 2
    rows[name] = {
        "layers": model.num_layers,
        "query heads": heads.num_heads,
        "KV heads": heads.num_kv_heads,
        "KiB per token, 16 bits": f"{kept / 2**10:.0f}",
        "8 bits": f"{model.kv_bytes_per_token('fp8') / 2**10:.0f}",
        "GiB for 8,192 tokens, 16 bits": f"{kept * 8192 / 2**30:.2f}",
    }
pd.DataFrame(rows).T

# %%
old, new = catalog.model("llama-2-7b"), catalog.model("llama-3.1-8b")
assert old.num_layers == new.num_layers
few, many = new.layers[0].attention, old.layers[0].attention
assert many.num_heads == few.num_heads
saved = old.kv_bytes_per_token("bf16") / new.kv_bytes_per_token("bf16")
Markdown(
    f"Llama 3.1 8B has as many layers and query heads as Llama 2 7B, and "
    f"{saved:.0f} times less cache per token, because it has {few.num_kv_heads} KV heads "
    f"instead of {many.num_kv_heads}."
)

# %% [markdown]
# ## How many tokens fit on a GPU?
#
# An engine takes its share of the memory, loads the weights, runs one largest pass to see
# what that needs, and gives what is left to the cache. This is
# `infersim fit llama-3.1-8b --gpu h100-sxm --context 8192`:

# %%
vllm = catalog.engine("vllm")
settings = {
    "block_size": 16,
    "gpu_memory_utilization": 0.9,
    "num_gpu_blocks": None,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 256,
}
deployment = Deployment(new, catalog.gpu("h100-sxm"), vllm)
memory = capacity(deployment, **settings)
console = Console(width=88, force_jupyter=False, force_terminal=False)
document = fit_document(deployment, lambda each: capacity(each, **settings), 8192)
console.print(parts_view([memory_table(deployment, memory, 8192, document)]))

# %%
left = memory.memory * 0.9 - memory.weights - memory.activations - memory.reserve
blocks = int(left // (16 * new.kv_bytes_per_token("bf16")))
assert blocks == memory.num_gpu_blocks
assert old.parameters < new.parameters
older = capacity(Deployment(old, catalog.gpu("h100-sxm"), vllm), **settings)
Markdown(
    f"So {memory.tokens:,} tokens fit, or {memory.max_concurrency(8192):.1f} requests of "
    f"8,192. With Llama 2 7B, whose weights are even smaller, it is {older.tokens:,} "
    f"tokens, or {older.max_concurrency(4096):.1f} requests of its greatest length, 4,096. "
    f"[Notebook 2](02_prefill_and_decode.ipynb) wants batches of a hundred and more."
)

# %% [markdown]
# ## Contiguous and paged
#
# Few requests are as long as they may be. But how long an answer will be is not known
# when a request starts. There are two ways to deal with that.
#
# - **Contiguous**: each request gets one piece of memory, long enough for the maximum
#   length. What it does not use is lost to everybody else.
# - **Paged**: memory is cut into blocks of 16 tokens, say. A request gets a block when
#   its last one is full; a table says which blocks are its own. They may lie anywhere.
#
# The same traffic with both: Llama 2 7B on an A100 with 80 GB, all requests there from
# the beginning, continuous batching with up to 256 slots.

# %%
scenario = sim.load_scenario(
    {
        "model": "llama-2-7b",
        "fleet": {"gpu": "a100-sxm-80gb"},
        "engine": "vllm",
        "scheduler": {"batching": "continuous", "max_num_seqs": 256},
        "max_model_len": 4096,
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "lognormal", "mean": 250, "p95": 700, "max": 2000},
            "output_tokens": {"kind": "lognormal", "mean": 200, "p95": 600, "max": 1500},
        },
        "run": {"requests": 2000, "warmup": 0},
        "seed": 1,
    }
)
kinds = ("contiguous", "paged")
runs = {kind: sim.simulate(scenario.override({"kv_cache.allocator": kind})) for kind in kinds}
table = {}
for kind, run in runs.items():
    cache = run.summary["infersim"]["kv_cache"]
    table[kind] = {
        "cache (tokens)": f"{cache['tokens']:,}",
        "most requests at once": run.summary["infersim"]["batch"]["peak_running"],
        "reserved, mean": f"{cache['mean_reserved']:.0%}",
        "used, mean": f"{cache['mean_used']:.0%}",
        "of what is reserved, empty": f"{cache['fragmentation']:.1%}",
        "output tokens per second": f"{run.summary['output_throughput']:,.0f}",
    }
pd.DataFrame(table)

# %%
chart = go.Figure(layout=theme.layout())
for kind, tone in (("contiguous", theme.ORANGE), ("paged", theme.BLUE)):
    plans = runs[kind].timeseries
    share = 100 / runs[kind].summary["infersim"]["kv_cache"]["tokens"]
    for name, dash in (("reserved", "dot"), ("used", "solid")):
        grid = [plans["end_s"].max() * i / 200 for i in range(201)]
        row = plans["end_s"].searchsorted(grid).clip(max=len(plans) - 1)
        chart.add_scatter(
            x=grid,
            y=(share * plans[f"kv_{name}_tokens"]).iloc[row].tolist(),
            mode="lines",
            name=f"{kind}: {name}",
            line={"color": tone.light, "dash": dash, "width": 1.5},
        )
chart.update_layout(
    xaxis=theme.axis("time since the start (s)"),
    yaxis=theme.axis("of the KV cache (%)") | {"range": [0, 105]},
    height=380,
    showlegend=True,
)
chart

# %%
contiguous, paged = (runs[kind].summary for kind in kinds)
cache = contiguous["infersim"]["kv_cache"]
slabs = cache["tokens"] // 4096
assert contiguous["infersim"]["batch"]["peak_running"] == slabs
gain = paged["output_throughput"] / contiguous["output_throughput"]
most = paged["infersim"]["batch"]["peak_running"]
assert 1.5 < gain < most / slabs
Markdown(
    f"{cache['tokens']:,} tokens are {slabs} pieces of 4,096, so no more than {slabs} "
    f"requests run at once, and {cache['fragmentation']:.0%} of the memory that they hold "
    f"is empty. In blocks, up to {most} requests share the same memory, and **paging alone "
    f"brings {gain:.1f} times the throughput**: on the same GPU, with the same kernels and "
    "the same scheduler. It makes no product faster. It makes room for a larger batch. "
    f"(Not {most / slabs:.0f} times the throughput: of a larger batch each iteration takes "
    "longer, above all to read the caches.)"
)

# %% [markdown]
# ## What paging still wastes
#
# The last block of each request is partly empty: by `(block_size - 1) / 2` tokens on
# average, if all fillings are equally likely. Larger blocks waste more; smaller ones mean
# longer tables and shorter reads.

# %%
rows = {}
for size in (1, 16, 64, 256):
    found = sim.simulate(scenario.override({"kv_cache.block_size": size})).summary["infersim"]
    cache, running = found["kv_cache"], found["batch"]["mean_running"]
    empty = (cache["mean_reserved"] - cache["mean_used"]) * cache["tokens"] / running
    rows[size] = {
        "empty tokens per request": f"{empty:.1f}",
        "(block size - 1) / 2": f"{(size - 1) / 2:.1f}",
        "of what is reserved, empty": f"{cache['fragmentation']:.1%}",
    }
    assert abs(empty - (size - 1) / 2) < max(0.1 * size, 0.01)
pd.DataFrame(rows).T.rename_axis("block size")

# %% [markdown]
# ## When memory runs out
#
# A scheduler that reserves nothing ahead can admit more than fits in the end. All
# requests grow, and at some token no block is free. Then one of them must go: vLLM
# **preempts** the request that was admitted last, gives its blocks to the others, and
# computes its cache again later: prompt and the tokens it already had, in one prefill.
#
# Four requests with prompts of 200 tokens and answers of 120 need 20 blocks of 16 each in
# the end. Here are 64.

# %%
small = sim.load_scenario(
    {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "engine": "ideal",
        "scheduler": {"batching": "continuous", "max_num_seqs": 4},
        "kv_cache": {"num_gpu_blocks": 64},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 200},
            "output_tokens": {"kind": "fixed", "value": 120},
        },
        "run": {"requests": 4, "warmup": 0},
    }
)
tight = sim.simulate(small)
slots.figure(tight.requests, tight.timeseries)

# %%
roomy = sim.simulate(small.override({"kv_cache.num_gpu_blocks": 80}))
assert -(-(200 + 119) // 16) == 20  # the last token is never read, so it needs no place
assert roomy.summary["infersim"]["preemptions"] == 0
again = tight.timeseries["prefill_tokens"].sum() - roomy.timeseries["prefill_tokens"].sum()
lost = tight.requests[tight.requests["preemptions"] > 0]
late = 1e3 * (tight.requests["finish_s"].max() - roomy.requests["finish_s"].max())
out = ", ".join(str(request) for request in lost["request_id"])
(number,) = lost["preemptions"]
assert number == 1
Markdown(
    f"Request {out} is preempted once. {again} tokens are prefilled a second time, and "
    f"the last token of all comes {late:.0f} ms later than with 80 blocks. Nothing is "
    "lost but time: the same tokens come in the end "
    "([notebook 1](01_batching_by_hand.ipynb) shows it), after a pause in the middle of an "
    "answer."
)

# %% [markdown]
# Preemption is a safety valve. If it happens often, the same work is done over and over.
# The cures are more memory for the cache, fewer slots (`max_num_seqs`), or fewer bytes
# per token.
#
# ## What to take away
#
# - KV bytes per token: 2 x layers x **KV** heads x head size x bytes per number. Times
#   the tokens of all requests at once.
# - What the weights leave of the GPU, divided by that, bounds the batch.
# - Reserving the maximum length wastes most of it. Blocks waste half a block per request.
# - Paging is not faster arithmetic. It lets more requests in, and the batch does the
#   rest. How much each technique brings is the question of
#   [notebook 4](04_dissecting_a_speedup.ipynb).
