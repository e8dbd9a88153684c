# %% [markdown]
# # 6. Calibrating, and how far to trust a prediction
#
# A simulator is only as good as the times it is given. This notebook shows where they
# come from, how wrong they are, what that error does to a whole run, and where a small
# error in an iteration does not mean a small error in the answer.
#
# Nothing here is measured while the notebook runs. Measurements are either those of the
# catalogue's profiles and of the validation pages of this repository, or **made up** with
# known parameters, which is the only way to see whether a fit finds the truth.

# %%
import json
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown

import calibrate
import sim
from calibrate import fit as fitting
from calibrate.data import Data
from calibrate.residual import residual_table
from reports.figures.axes import logarithmic as measured_axis
from reports.frame import theme
from sim import catalog
from sim.band_runs import run_ends
from sim.cost.kernels import Ceilings, stream
from sim.cost.kernels.choice import choose
from sim.planning.load.loads import traffic_of
from sim.planning.load.saturation import acceptable, saturation
from sim.rng import repetition_seed
from sim.setup import prepare
from sim.specs.profile import KernelFit


def chart(x: dict, y: dict, height: int = 380) -> go.Figure:
    """An empty figure with the axes of the reports."""
    layout = theme.layout() | {"xaxis": x, "yaxis": y, "height": height}
    return go.Figure(layout=layout | {"showlegend": True})


TICKS = [m * 10.0**k for k in range(0, 4) for m in (1, 2, 5)]


def logarithmic(title: str) -> dict:
    """A logarithmic axis, labelled at 1, 2, 5, 10 and so on."""
    labels = {"tickvals": TICKS, "ticktext": [f"{tick:,g}" for tick in TICKS]}
    return theme.axis(title) | {"type": "log", **labels}


# %% [markdown]
# ## What a profile is
#
# A *profile* holds, for each kind of kernel and each precision, the parameters of a
# formula, the range of shapes they were measured in, and the error on shapes **that the
# fit had not seen**. `infersim calibrate` writes one for your own device. The catalogue
# has some, fitted to published timings. Here is that of the H100 under vLLM's kernels.

# %%
gpu = catalog.gpu("h100-sxm")
profile = gpu.profile
Markdown(f"""
> {profile.source}. Fitted {profile.date}.
>
> Not measured: {profile.facts["not measured"]}.
""")


# %%
def listed(names: list[str], rows: list[tuple]) -> Markdown:
    """A table with long texts, which stand on the left."""
    lines = [names, ["---"] * len(names), *rows]
    return Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))


rows = [
    (
        operator.replace("_", " "),
        precision,
        len(fit.parameters),
        fit.holdout.points,
        f"{fit.holdout.median:.1%}",
        f"{fit.holdout.p90:.0%}",
        ", ".join(f"{name} {low:,.0f} to {high:,.0f}" for name, (low, high) in fit.ranges.items()),
    )
    for operator, fits in profile.kernels.items()
    for precision, fit in fits.items()
]
listed(["operator", "precision", "parameters", "points", "median", "p90", "measured"], rows)

# %% [markdown]
# The median says how far a usual prediction is off, the 90th percentile how far one in
# ten is off at least. Neither is a bound: some shapes are further off, and the regimes in
# which they lie are in the profile too.

# %%
gemm = profile.kernels["gemm"]["bf16"]
pd.DataFrame(
    [
        (regime, score.points, f"{score.median:.1%}", f"{score.p90:.0%}", f"{score.bias:+.1%}")
        for regime, score in sorted(gemm.regimes.items(), key=lambda item: -item[1].median)
    ],
    columns=["matrix products, bf16", "points", "median", "p90", "bias"],
).set_index("matrix products, bf16")

# %% [markdown]
# A formula is not a table of numbers: each parameter has a meaning, a unit and an
# interval. The wider the interval, the less these timings say of it. The first ones of
# this formula:

# %%
known = choose("gemm", "bf16", gpu)
listed(
    ["parameter", "fitted", "95 % interval", "unit", "meaning"],
    [
        (
            spec.name,
            f"{gemm.parameters[spec.name]:.3g}",
            "{:.3g} to {:.3g}".format(*gemm.intervals[spec.name]),
            spec.unit,
            spec.meaning,
        )
        for spec in known.form.parameters[:8]
    ],
)

# %% [markdown]
# What such a fit knows and a data sheet does not: a matrix product with few rows is bound
# by the bandwidth, one with many by the arithmetic, and in between lie steps, where tiles
# fill the streaming multiprocessors unevenly. One layer's MLP of Llama 3.1 8B:

# %%
m = np.unique(np.round(np.geomspace(1, 8192, 130)))
shape = {"m": m, "n": np.full(len(m), 14336.0), "k": np.full(len(m), 4096.0)}
fitted = known.form.predict(gemm, shape, known.ceilings)
flop = 2 * shape["m"] * shape["n"] * shape["k"]
moved = 2 * (shape["n"] * shape["k"] + shape["m"] * (shape["n"] + shape["k"]))
roof = np.maximum(flop / gpu.flops("bf16"), moved / gpu.bandwidth)
figure = chart(logarithmic("rows (tokens in the iteration)"), logarithmic("TFLOP/s"))
figure.add_scatter(x=m, y=flop / roof / 1e12, name="data sheet: both peaks",
                   line={"color": theme.GREY.light, "width": 2, "dash": "dash"})  # fmt: skip
figure.add_scatter(x=m, y=flop / fitted / 1e12, name="fitted to measurements",
                   line={"color": theme.BLUE.light, "width": 2})  # fmt: skip
figure

# %%
reached = roof / fitted
worst = int(np.argmin(reached))
assert reached.max() < 1
Markdown(f"""
The fit reaches between {reached.min():.0%} and {reached.max():.0%} of what the data sheet
allows; least with {m[worst]:.0f} rows. *One* efficiency for all sizes would be wrong somewhere
by the difference.
""")

# %% [markdown]
# ## Does the fit find the truth?
#
# With real measurements the truth is not known. So make some up: copies of 1 kB to 4 GB
# on a device with 3.35 TB/s, by the formula for operators that only move data, with
# parameters of our choice. Each is "timed" three times with noise, and one timing in
# twelve was disturbed and took three times as long.

# %%
form = stream.form("stream")
device = Ceilings(peak=989e12, bandwidth=3.35e12, sms=132)
TRUE = {"latency": 3e-6, "share": 0.6, "blend": 2.5}
NOISE = 0.05


def made_up(shapes: int, *, seed: int, own: float = 0.0, noise: float = NOISE) -> Data:
    """Three timings of each of some sizes; ``own`` is by how much each size differs for good."""
    rng = np.random.default_rng(seed)
    size = np.repeat(np.sort(2.0 ** rng.uniform(10, 32, shapes)), 3)
    lasting = np.repeat(rng.normal(0, own, shapes), 3)
    seconds = form.seconds(TRUE, {"bytes": size}, device)
    seconds = seconds * np.exp(lasting + rng.normal(0, noise, len(size)))
    return Data({"bytes": size}, seconds, np.ones(len(size)))


clean = made_up(90, seed=1)
spoilt = Data(clean.shape, clean.seconds.copy(), clean.weight)
spoilt.seconds[::12] *= 3
found = fitting.fit(form, spoilt, device)
pd.DataFrame(
    [
        (
            spec.name,
            f"{TRUE[spec.name]:.3g}",
            f"{found.parameters[spec.name]:.3g}",
            "{:.3g} to {:.3g}".format(*found.intervals[spec.name]),
            spec.unit,
        )
        for spec in form.parameters
    ],
    columns=["parameter", "true", "found", "95 % interval", "unit"],
).set_index("parameter")

# %%
x = np.geomspace(2**10, 2**32, 60)
figure = chart(measured_axis("moved", x, "B"), measured_axis("time", spoilt.seconds, "s"))
disturbed = np.zeros(len(spoilt), dtype=bool)
disturbed[::12] = True
for name, chosen, tone in (
    ("made-up timings", ~disturbed, theme.SKY),
    ("disturbed ones", disturbed, theme.VERMILLION),
):
    figure.add_scatter(
        x=spoilt.shape["bytes"][chosen],
        y=spoilt.seconds[chosen],
        name=name,
        mode="markers",
        marker={"size": 5, "color": tone.light},
    )
figure.add_scatter(
    x=x,
    y=form.seconds(found.parameters, {"bytes": x}, device),
    name="fitted",
    line={"color": theme.PAGE["ink"].light, "width": 2},
)
figure

# %%
exact = form.seconds(TRUE, {"bytes": x}, device)
curve = form.seconds(found.parameters, {"bytes": x}, device)
away = float(np.abs(curve / exact - 1).max())
plain = np.polynomial.Polynomial.fit(spoilt.shape["bytes"], spoilt.seconds, 1)
floor = fitting.score(form.seconds(TRUE, spoilt.shape, device), spoilt.seconds).median
rate = 1 / plain.convert().coef[1] / device.bandwidth
assert away < 0.03
assert all(found.intervals[n][0] <= TRUE[n] <= found.intervals[n][1] for n in ("latency", "share"))
Markdown(f"""
The curve is nowhere more than {away:.1%} from the truth, although one timing in twelve was
three times too long. Two things do that. Errors are logarithms, so that 2 µs weigh as much as 2
ms; and the loss is *soft*, so that far outliers pull little. An ordinary straight line through
the same seconds finds a share of {rate:.2f} of the bandwidth instead of {TRUE["share"]},
because the largest copies, and the disturbed ones among them, decide everything.

The error on held-out shapes is {found.holdout.median:.1%} in the median. Even the *true*
formula is {floor:.1%} off these timings. **No fit can beat the noise of its measurements**, so
`infersim calibrate` measures some points twice and says how far the two looks were apart.
""")

# %% [markdown]
# ## Why errors must be of shapes that the fit had not seen
#
# Real kernels differ from any formula, each shape for itself: another tile, another
# split. So let each made-up size be off by its own lasting 10 %, timed with little
# noise. Besides the formula a fit may use a table of corrections. The finer the table,
# the better it does on the shapes it was made from. Does it also do better on others?

# %%
SHAPES, OWN = 80, 0.10
seen = made_up(SHAPES, seed=2, own=OWN, noise=0.01)
other = made_up(400, seed=3, own=OWN, noise=0.01)
parameters, _ = fitting.solve(form, seen, device)
knots = (2, 4, 8, 16, 32, 64, 128, 256)


def errors(count: int) -> tuple[float, float]:
    """Median errors with a table of so many knots: on its own shapes, and on others."""
    axes = {"bytes": tuple(np.linspace(10, 32, count))}
    table = residual_table(form, seen, device, parameters, axes, ridge=1e-6)
    both = []
    for data in (seen, other):
        plain = form.seconds(parameters, data.shape, device)
        kept = KernelFit(parameters, {}, found.holdout, residual=table)
        predicted = plain * form.correction(kept, data.shape)
        both.append(fitting.score(predicted, data.seconds).median)
    return both[0], both[1]


inside, outside = zip(*(errors(count) for count in knots), strict=True)
bare = [
    fitting.score(form.seconds(parameters, data.shape, device), data.seconds).median
    for data in (seen, other)
]
figure = chart(
    theme.axis("knots of the table") | {"type": "log", "tickvals": knots},
    theme.axis("median error") | {"tickformat": ".0%", "rangemode": "tozero"},
)
for name, values, tone in (
    ("shapes it was made from", inside, theme.BLUE),
    ("shapes it had not seen", outside, theme.VERMILLION),
):
    figure.add_scatter(x=knots, y=values, name=name, mode="lines+markers",
                       line={"color": tone.light, "width": 2})  # fmt: skip
figure.add_hline(y=bare[1], line={"color": theme.GREY.light, "dash": "dash", "width": 1.5},
                 annotation_text="no table, unseen shapes")  # fmt: skip
figure

# %%
axes = {"bytes": tuple(np.linspace(10, 32, 64))}
careful = fitting.choose_ridge(form, seen, device, parameters, axes)
assert careful is None
assert inside[-1] < 0.5 * outside[-1]
assert outside[-1] > bare[1]
Markdown(f"""
The error that one sees on one's own data falls to {inside[-1]:.1%}, and the one that a user of
the profile meets *rises* to {outside[-1]:.1%}, above the {bare[1]:.1%} of the bare formula.
**An error in sample measures how much was memorised.** `calibrate` therefore holds out whole
shapes, never points at random (two timings of one shape give each other away), and keeps a
table only where it helps on shapes not seen. Here, where the differences follow no pattern, it
refuses one.
""")

# %% [markdown]
# The same happens with engines. The page
# [VALIDATION-vllm-cpu](../calibrate/VALIDATION-vllm-cpu.md) is about vLLM on a CPU,
# predicted from kernels that are *not* vLLM's own, with factors fitted until two traces
# came out right. Traces A and B were fitted, C and D were not.


# %%
def tables(page: Path, heading: str) -> list[pd.DataFrame]:
    """The tables of a Markdown page under the heading that begins so."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.lstrip("# ").startswith(heading))
    found, rows = [], []
    for line in [*lines[start + 1 :], "# end"]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if rows:
            found.append(pd.DataFrame(rows[2:], columns=rows[0]))
            rows = []
        if line.startswith("#"):
            break
    return found


pages = Path(calibrate.__file__).parent
other_kernels = tables(pages / "VALIDATION-vllm-cpu.md", "What other kernels would have done")[0]
other_kernels.set_index(list(other_kernels.columns[:2]))


# %%
def worst_of(cells: pd.Series) -> float:
    """The largest error in a row of cells like "+1.4, -0.7"."""
    text = ", ".join(cells).replace("*", "")
    return max(abs(float(word)) for word in text.split(", "))


factors = other_kernels[
    (other_kernels.iloc[:, 0] == "PyTorch's") & (other_kernels.iloc[:, 1] == "host and factors")
].iloc[0]
own = other_kernels[
    (other_kernels.iloc[:, 0] == "vLLM's") & (other_kernels.iloc[:, 1] == "host")
].iloc[0]
in_sample, held_out = worst_of(factors.iloc[2:3]), worst_of(factors.iloc[3:])
assert in_sample < 2
assert held_out > 20
Markdown(f"""
Factors on the wrong kernels bring trace A within {in_sample:g} %, and leave traces that were
not fitted up to {held_out:g} % off. The right kernels with one host term are
{worst_of(own.iloc[2:3]):g} % off on A and {worst_of(own.iloc[3:]):g} % on the others: worse
where it does not count, better where it does.
""")

# %% [markdown]
# ## From kernels to whole runs
#
# Each run prints an *error band*: the errors of its kernels and of the engine's own work
# on the host, weighted by the time spent in each, as if all erred in the same direction.
# It is a statement about predicted times.

# %%
chat = sim.load_scenario(
    {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "max_model_len": 8192,
        "scheduler": {"max_num_seqs": 32},
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 10.0},
            "prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
            "output_tokens": {"kind": "lognormal", "mean": 220, "p95": 600, "max": 1500},
        },
        "run": {"requests": 2000},
    }
)
band = sim.simulate(chat).summary["infersim"]["error_band"]
Markdown(f"> {band['text']}")

# %% [markdown]
# Does that hold for whole runs of real engines?
# [VALIDATION](../calibrate/VALIDATION.md) compares predictions with published
# measurements. Each bar is the median error of one kind of measurement, the line
# reaches to the 90th percentile; grey are kernels of the profile above.

# %%
kinds = tables(pages / "VALIDATION.md", "By kind of measurement")[0]
kinds = kinds.astype({"rows": int, "median": float, "p90": float, "bias": float})
kinds = kinds[kinds["rows"] >= 8]
bars = [
    (f"kernel: {operator.replace('_', ' ')}, {precision}", fit.holdout.median * 100,
     fit.holdout.p90 * 100, theme.GREY)
    for operator, fits in profile.kernels.items()
    for precision, fit in fits.items()
]  # fmt: skip
COLOURS = {"throughput": theme.GREEN, "TPOT": theme.VERMILLION, "ITL": theme.VERMILLION,
           "TTFT": theme.BLUE, "E2EL": theme.PURPLE}  # fmt: skip
kinds = kinds[kinds["of"].isin(COLOURS)]
order = {name: place for place, name in enumerate(COLOURS)}
for row in sorted(kinds.to_dict("records"), key=lambda row: (order[row["of"]], row["median"])):
    bars.append((f"{row['of']}: {row['kind']}", row["median"], row["p90"], COLOURS[row["of"]]))
figure = chart(
    theme.axis("error (%): median, and up to the 90th percentile") | {"range": [0, 90]},
    theme.axis(None) | {"autorange": "reversed", "dtick": 1, "showgrid": False},
    height=50 + 19 * len(bars),
)
figure.add_bar(
    y=[name for name, *_ in bars],
    x=[median for _, median, _, _ in bars],
    orientation="h",
    marker={"color": [tone.light for *_, tone in bars]},
    error_x={
        "type": "data",
        "symmetric": False,
        "array": [p90 - median for _, median, p90, _ in bars],
        "arrayminus": [0 for _ in bars],
        "thickness": 1,
        "width": 3,
        "color": theme.PAGE["muted"].light,
    },
    showlegend=False,
)
figure

# %%
kernels = [fit.holdout.median for fits in profile.kernels.values() for fit in fits.values()]
spread = {of: group["median"] for of, group in kinds.groupby("of")}
worst = [spread[of].max() for of in ("throughput", "TTFT", "TPOT")]
assert min(worst) > 1.5 * 100 * float(np.median(kernels))
Markdown(f"""
Kernels are {min(kernels):.0%} to {max(kernels):.0%} off in the median. Throughputs of whole
runs are {spread["throughput"].min():.0f} to {spread["throughput"].max():.0f} % off, times per
token {spread["TPOT"].min():.0f} to {spread["TPOT"].max():.0f} %, times to first token
{spread["TTFT"].min():.0f} to {spread["TTFT"].max():.0f} %. **So the band is not the error of a
whole run.** What it leaves out: which batches the engine forms, hosts and releases that
were not measured, its front end, memory that it keeps for itself, and everything that a published
row does not say and has to be assumed. Where most of that is known runs are nearly as good as
kernels: the rows of vLLM, to a part of which its host time was fitted.
""")

# %% [markdown]
# A few constants of engines were themselves fitted to part of these rows. The page shows
# both parts, fitted and held out, so that each can be judged by itself.

# %%
judged = tables(pages / "VALIDATION.md", "Fitted here, judged there")[0]
judged.drop(columns="constants").set_index(["kind", "of"])

# %% [markdown]
# ## Where no small error exists
#
# Suppose that every iteration takes 10 % longer than predicted. The time per token is
# then about as wrong, at any load that is served. And the wait for the first token? With
# one server and equal services the mean wait is $\rho s / (2 (1 - \rho))$, where $s$ is
# the service time and $\rho$ the load. An iteration that takes 10 % longer raises both
# $s$ and $\rho$, and the wait by $1.1^2 (1 - \rho) / (1 - 1.1 \rho)$: without bound as
# $1.1 \rho$ comes to 1.
#
# The simulation, with the same requests in every run: `assume.kernel_time` and
# `assume.host_time` make kernels and engine slower.

# %%
setup = prepare(chat)
replica = setup.only
full = saturation(replica, acceptable(replica, traffic_of(chat))).rate
SHARES, SLOWER, SEEDS = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95), 1.1, 4


def means(share: float, factor: float) -> dict[str, float]:
    """Mean figures over the seeds, in ms, at a share of what full batches serve."""
    trial = chat.override(
        {
            "workload.arrivals.rate": share * full,
            "assume.kernel_time": factor,
            "assume.host_time": factor,
        }
    )
    summaries = [
        sim.simulate(trial.override({"seed": repetition_seed(trial.seed, number)})).summary
        for number in range(SEEDS)
    ]
    keys = ("mean_tpot_ms", "mean_ttft_ms", "p99_ttft_ms")
    return {key: float(np.mean([s[key] for s in summaries])) for key in keys}


predicted = {share: means(share, 1.0) for share in SHARES}
slowed = {share: means(share, SLOWER) for share in SHARES}
rows = []
for share in SHARES:
    grown = {key: slowed[share][key] / predicted[share][key] - 1 for key in predicted[share]}
    left = 1 - SLOWER * share
    queue = f"{SLOWER**2 * (1 - share) / left - 1:+.0%}" if left > 0 else "no bound"
    rows.append(
        (
            f"{share:.0%}",
            f"{predicted[share]['mean_ttft_ms']:.0f}",
            f"{slowed[share]['mean_ttft_ms']:.0f}",
            f"{grown['mean_tpot_ms']:+.0%}",
            f"{grown['mean_ttft_ms']:+.0%}",
            f"{grown['p99_ttft_ms']:+.0%}",
            queue,
        )
    )
names = ["TTFT (ms)", "10 % slower", "error of TPOT", "of TTFT", "of its p99", "of a wait, M/D/1"]
pd.DataFrame(rows, columns=["load", *names]).set_index("load")

# %%
figure = chart(
    theme.axis("load, share of what full batches serve") | {"tickformat": ".0%"},
    logarithmic("mean TTFT (ms)"),
)
for name, values, tone in (
    ("as predicted", predicted, theme.BLUE),
    ("every iteration 10 % longer", slowed, theme.VERMILLION),
):
    figure.add_scatter(
        x=SHARES,
        y=[values[share]["mean_ttft_ms"] for share in SHARES],
        name=name,
        mode="lines+markers",
        line={"color": tone.light, "width": 2},
    )
figure

# %%
change = {s: slowed[s]["mean_ttft_ms"] / predicted[s]["mean_ttft_ms"] for s in SHARES}
tokens = {s: slowed[s]["mean_tpot_ms"] / predicted[s]["mean_tpot_ms"] for s in SHARES}
assert change[0.5] < 1.25
assert change[0.95] > 2
assert change[0.95] > change[0.8] > change[0.5]
Markdown(f"""
At half of the capacity the time to first token is {change[0.5] - 1:.0%} longer, much as the
iterations are. At 80 % it is {change[0.8]:.1f} times as long, at 95 % {change[0.95]:.0f} times,
where the prediction says that the load is just held, and really {SLOWER * 0.95:.1%} of what can
be served arrive. That last figure is of these runs only: the longer the traffic lasts, the
larger it grows. The time per token is {tokens[0.5] - 1:.0%} to {tokens[0.8] - 1:.0%} longer: a
little more than a tenth, as slower requests also share their iterations with more others, until
all slots are taken.

So **near saturation believe the verdict and the headroom, not the percentile**. It is no
weakness of this simulator: two identical clusters, one 10 % slower, differ as much.
""")

# %% [markdown]
# One number of error cannot say that, so the program simulates it. Where a run is near
# saturation, or near a limit of its SLO, `infersim run` repeats it with iterations faster
# and slower by its own band, and says what that makes of its latencies. (`find` and
# `plan` do the same with the load that is held and with fleets: see
# [notebook 5](05_choosing_hardware.ipynb).) Here at 80 % of what full batches serve, and
# with limits:

# %%
limited = chat.override(
    {
        "workload.arrivals.rate": 0.8 * full,
        "slo": {"ttft": "500ms", "tpot": "15ms", "attainment": 0.95},
    }
)
ends = run_ends(limited, sim.simulate(limited).summary)
fast, slow = ends["faster"], ends["slower"]
ttft = slow["p95_ttft_ms"] / fast["p95_ttft_ms"]
tpot = slow["p95_tpot_ms"] / fast["p95_tpot_ms"]
assert ttft > 2 * tpot
Markdown(f"""
> {ends["text"]}

From one end to the other iterations take {(1 + ends["error"]) / (1 - ends["error"]) - 1:.0%}
longer, the p95 of TPOT becomes {tpot - 1:.0%} longer, and that of TTFT is {ttft:.1f} times as long.
""")

# %% [markdown]
# ## Compared with a real engine
#
# Three things are checked, in this order. A later one means little while an earlier is
# wrong.
#
# 1. **The batches.** Does the scheduler form the same ones? Recorded iterations of vLLM,
#    replayed:

# %%
recorded = Path(sim.__file__).parents[1] / "tests" / "conformance"
cases = [json.loads(path.read_text()) for path in sorted(recorded.glob("*.json"))]
iterations = sum(len(case["steps"]) for case in cases)
requests = sum(len(case["requests"]) for case in cases)
preempted = sum(len(step[1]) for case in cases for step in case["steps"])
assert min(iterations, requests, preempted) > 0
Markdown(f"""
{len(cases)} recordings, {requests:,} requests, {iterations:,} iterations with {preempted:,}
preemptions; `test_conformance.py` wants every one of these iterations from our scheduler,
token for token.
""")

# %% [markdown]
# 2. **The iterations.** Does one take as long as predicted? `infersim validate-run`
#    compares them one by one; `--fit-engine` finds the host's part.
# 3. **The latencies.** Only then percentiles, with the load known, several runs of the
#    engine, and the error next to the noise between them. On a CPU, with traces that
#    nothing was fitted to marked as held out:

# %%
tables(pages / "VALIDATION-vllm-cpu.md", "Result")[0].set_index("trace")

# %% [markdown]
# And the measurements farthest outside their prediction intervals. A mean error should
# never be shown without these.

# %%
tables(pages / "TRUST.md", "Farthest outside their bands")[0].head(8)

# %% [markdown]
# ## What to take along
#
# - Ask of every error: **on what had it not been fitted?** Without an answer it measures
#   memory.
# - Errors of kernels are small and known. Errors of whole runs are larger and depend on
#   what is known of the engine.
# - Throughput and time per token inherit the error of an iteration. Time to first token
#   inherits it below the knee and multiplies it above. Plan with headroom and read the
#   verdict.
# - Your own device beats any catalogue:
#
#   ```
#   infersim calibrate --device cuda --out my-gpu.yaml      # measure and fit
#   infersim calibrate report my-gpu.yaml                   # look at every error
#   infersim observe scenarios/chat.yaml --device cuda      # serve the traffic for real
#   infersim validate-run runs/...-observed --gpu my-gpu.yaml    # and predict it
#   ```
