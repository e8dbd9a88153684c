# %% [markdown]
# # 1. Batching by hand
#
# Placeholder.

# %%
import sim
from reports.figures import slots

scenario = sim.load_scenario(
    {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "engine": "ideal",
        "scheduler": {"batching": "continuous", "max_num_seqs": 4},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "uniform", "low": 4, "high": 12},
        },
        "run": {"requests": 4, "warmup": 0},
    }
)
result = sim.simulate(scenario)
slots.figure(result.requests, result.timeseries)

# %%
result.requests.T
