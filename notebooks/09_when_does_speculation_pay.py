# %% [markdown]
# # 9. When does speculation pay?
#
# *Speculative decoding* drafts a few tokens cheaply and checks them all in one pass of
# the model. What is right is kept, so the text is the same, and several tokens come at
# once. It is said to make models two to three times as fast. When is that so?
#
# A pass over a small batch waits for the weights. They are read once, however many
# tokens are checked, so drafts are nearly free. A pass over a large batch computes, and
# a rejected draft was computed in vain. Somewhere in between it stops paying. Where?

# %%
import pandas as pd
import plotly.graph_objects as go

import sim
from reports.frame import theme
from sim.iteration import Batch
from sim.metrics.engine.speculation import pays
from sim.setup import prepare


def replica(model: str, drafts: dict | None, gpus: int = 1, gpu: str = "h100-sxm", **keys):
    """One replica, with drafts or without."""
    scenario = {
        "model": model,
        "fleet": {"gpu": gpu, "tensor_parallel": gpus},
        "max_model_len": 8192,
        "scheduler": {"max_num_seqs": 256},
        "speculative": drafts,
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": 1},
            "prompt_tokens": {"kind": "fixed", "value": 1000},
            "output_tokens": {"kind": "fixed", "value": 500},
        },
        "run": {"requests": 20},
        **keys,
    }
    return prepare(sim.load_scenario(scenario)).only


def chart(x: str, y: str) -> go.Figure:
    """An empty figure with the axes of the reports."""
    layout = theme.layout() | {"yaxis": theme.axis(y), "height": 400}
    return go.Figure(layout=layout | {"xaxis": theme.axis(x), "showlegend": True})


# %% [markdown]
# ## One request: how many drafts?
#
# Each further draft is right less often, and costs as much as the one before. For
# DeepSeek-R1 in FP4 on eight B200 NVIDIA has published both the tokens that come of a
# pass (the *acceptance length*) and the speed, with 0 to 5 drafts of its own MTP layer
# (TensorRT-LLM, tech blog 1). The lengths are in the catalogue; the speed is computed
# here.

# %%
R1 = {
    "precision": {"weights": "nvfp4", "activations": "nvfp4", "kv_cache": "fp8"},
    "engine": "tensorrt-llm",
    "scheduler": {"policy": "vllm", "max_num_seqs": 64},
}
MEASURED = [1.0, 1.78, 2.25, 2.28, 2.21, 2.15]
rows = []
for drafts, measured in enumerate(MEASURED):
    table = {"method": "mtp", "num_tokens": drafts, "acceptance": {"table": "deepseek-r1-mtp"}}
    each = replica("deepseek-r1", table if drafts else None, 8, "b200-sxm", **R1)
    given = each.deployment.speculation
    length = given.length if given else 1.0
    seconds = each.cost.seconds(Batch(1, 2000))
    rows.append((drafts, length, 1e3 * seconds, length / seconds, measured))
names = ["drafts", "acceptance length", "ms a pass", "tokens/s", "measured gain"]
r1 = pd.DataFrame(rows, columns=names)
r1["computed gain"] = r1["tokens/s"] / r1["tokens/s"][0]
assert (abs(r1["computed gain"] / r1["measured gain"] - 1) < 0.06).all()
r1.round(2)

# %% [markdown]
# Three drafts are best, and the gain is far from the 2.82 tokens of a pass: checking
# four tokens instead of one takes longer, since they touch more experts, and the
# drafter runs three times.

# %%
figure = chart("drafts", "times as fast as without")
for name, column in {"computed": "computed gain", "measured": "measured gain"}.items():
    tone = theme.SERIES[name == "measured"]
    figure.add_scatter(
        x=r1["drafts"], y=r1[column], name=name, line={"color": tone.light, "width": 2}
    )
figure

# %% [markdown]
# ## Many requests: where does it stop paying?
#
# Three drafts that are right at 75, 55 and 38 %, as a good EAGLE-3 head is, for models
# that are dense and one that is a mixture of experts; all requests decode at 1,000
# tokens.

# %%
EAGLE = {"method": "eagle", "num_tokens": 3, "acceptance": {"rates": [0.75, 0.55, 0.38]}}
MODELS = {
    "Llama 3.1 8B": ("llama-3.1-8b", 1),
    "Llama 3.1 70B, 4 GPUs": ("llama-3.1-70b", 4),
    "Qwen3 30B-A3B": ("qwen3-30b-a3b", 1),
}
figure, found = chart("running requests", "times as fast as without"), {}
figure.update_xaxes(type="log", tickvals=[1, 4, 16, 64, 256])
for (name, (model, gpus)), tone in zip(MODELS.items(), theme.SERIES, strict=False):
    found[name] = told = pays(replica(model, EAGLE, gpus), 1000)
    x, y = zip(*((each["running"], each["speedup"]) for each in told["speedups"]), strict=True)
    figure.add_scatter(x=x, y=y, name=name, line={"color": tone.light, "width": 2})
figure

# %%
gains = {
    name: {each["running"]: each["speedup"] for each in told["speedups"]}
    for name, told in found.items()
}
dense, mixture = gains["Llama 3.1 70B, 4 GPUs"], gains["Qwen3 30B-A3B"]
assert dense[1] > 2 > dense[128]  # a dense model gains most alone
assert mixture[1] < 0.8 * dense[1]  # four tokens touch more experts than one
pd.DataFrame(gains).round(2)

# %% [markdown]
# - **A dense model** gains most when few requests run, nearly the acceptance length,
#   and less and less once its passes compute.
# - **A mixture of experts** gains less at first: a pass over four tokens reads more
#   experts than one over a single token. In a batch that touches them all anyway, that
#   costs nothing more.
#
# ## A weak drafter
#
# The same curve for Llama 3.1 70B with drafts that are right at 60, 36, 22 and 13 %,
# made by a model of its own with a billion parameters.

# %%
WEAK = {
    "method": "draft_model",
    "draft_model": "llama-3.2-1b",
    "num_tokens": 4,
    "acceptance_rate": 0.6,
}
weak = pays(replica("llama-3.1-70b", WEAK, 4), 1000)
by_running = {each["running"]: each["speedup"] for each in weak["speedups"]}
assert by_running[1] > 1.3
assert by_running[256] < 0.9
print(f"pays with up to {weak['pays_up_to']} running requests")
print({running: round(gain, 2) for running, gain in by_running.items()})

# %% [markdown]
# Beyond that number every token costs more than without drafts. vLLM measured the same
# with Llama 3 70B on four H100 (blog of 2024-10-17): up to 1.5 times as fast at one
# request per second, and slower at many.
#
# `infersim run` says at the end of each run with `speculative` up to how many requests
# drafts pay; `infersim ablate` takes them away, and `infersim sensitivity` says what it
# means if fewer are accepted than hoped for. **What is accepted depends on your texts:
# measure it.**
