"""SGLang's attention by Triton in published tables: what is fitted, and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import Tables, triton
from calibrate.importers.aiconfigurator.attention import ceilings
from sim import catalog
from sim.cost.kernels import prefill_attention, triton_attention
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameters
from sim.cost.measured import shaped

SYSTEM, WINDOW = "h200_sxm", 1024
HEADS = ((256, 4, 2), (256, 8, 4), (256, 8, 2), (512, 4, 1), (512, 8, 1), (512, 16, 2))
DECODES = {
    **{"floor": 8e-6, "step": 2e-7, "step_width": 9e-7, "far": 1.9e-6, "busy": 9e-7},
    **{"power": 1.2, "share": 0.8, "blend": 4.0, "cache_share": 0.8, "cache_speed": 1.5},
}
PROMPTS = {
    **{"floor": 1e-5, "unit": 3e-6, "alone_unit": 1.0, "compute": 0.1, "tail": 0.15, "split": 0.5},
    **{"share": 0.8, "write": 1.0, "copy": 1e-9, "blend": 4.0, "cache_share": 0.9},
    **{"cache_speed": 5.0, **triton.UNSEEN},
}


def timed(form: Form, parameters: Parameters, at: Ceilings, frame: pd.DataFrame) -> Floats:
    """Milliseconds by the form."""
    shape = shaped(skew=1.0, **{name: frame[name].to_numpy() for name in frame})
    return 1e3 * form.seconds(parameters, shape, at)


def table(
    frame: pd.DataFrame, heads: dict[str, str], latency: Floats, source: str = "triton"
) -> pd.DataFrame:
    named = frame.rename(columns=heads)
    return named.assign(
        window_size=np.where(named["head_dim"] == 256, WINDOW, 0),
        kernel_source=source,
        attn_dtype="bfloat16",
        latency=latency,
    )


def tables(root: Path, usual: str = "fa3", framework: str = "sglang") -> Tables:
    """Triton at heads of 256 and 512, and the ``usual`` kernel at heads of 128."""
    at, found = ceilings(SYSTEM), {"generation": [], "context": []}
    names = {"batch": "batch_size", "q_heads": "num_heads", "kv_heads": "num_key_value_heads"}
    for kind, precision in (("bfloat16", "bf16"), ("fp8", "fp8")):
        decodes = pd.DataFrame(
            [
                {"batch": b, "context": c, "q_heads": q, "kv_heads": kv, "head_dim": width}
                for width, q, kv in HEADS
                for b in (1, 4, 16, 64, 256)
                for c in (2, 64, 512, 1024, 4096, 32768)
                if b * c <= 262144
            ]
        )
        cut = np.where(decodes["head_dim"] == 256, WINDOW, np.inf)
        seen = decodes.assign(context=np.minimum(decodes["context"], cut))
        milliseconds = timed(triton_attention.form(precision), DECODES, at, seen)
        rows = table(decodes.assign(isl=1, step=decodes["context"] - 1), names, milliseconds)
        found["generation"] += [
            rows.assign(kv_cache_dtype=kind),
            rows.assign(kv_cache_dtype=kind, head_dim=128, window_size=0, kernel_source=usual),
        ]
        prompts = pd.DataFrame(
            [
                {"batch": b, "tokens": n, "q_heads": q, "kv_heads": kv, "head_dim": width}
                for width, q, kv in HEADS
                for b in (1, 4, 16)
                for n in (16, 128, 512, 1024, 2048)
            ]
        )
        milliseconds = timed(
            prefill_attention.form(precision), PROMPTS, at, prompts.assign(context=0.0)
        )
        # other tiles, or a window that cuts: of no use for narrower heads
        other = (prompts["head_dim"] == 512) | (prompts["tokens"] > WINDOW)
        milliseconds = np.where(other, 7.0 * milliseconds, milliseconds)
        rows = table(prompts.assign(step=0), names | {"tokens": "isl"}, milliseconds)
        found["context"].append(rows.assign(kv_cache_dtype=kind))
    for name, frames in found.items():
        folder = root / "data" / SYSTEM / "attention" / framework / "0.5"
        folder.mkdir(parents=True, exist_ok=True)
        pd.concat(frames).to_parquet(folder / f"{name}_attention_perf.parquet")
    return Tables(root)


def test_the_fits_hold_for_narrower_heads(tmp_path: Path) -> None:
    """Of heads that were not timed, and read from memory, which the benchmark hardly did."""
    fits = triton.fit_system(tables(tmp_path), SYSTEM, "sglang")
    assert {name: sorted(found) for name, found in fits.items()} == {
        "decode_attention_triton": ["bf16", "fp8"],
        "prefill_attention_triton": ["bf16", "fp8"],
    }
    warm = ceilings(SYSTEM)
    cold = Ceilings(warm.peak, warm.bandwidth, warm.sms)
    heads = {"q_heads": 16.0, "kv_heads": 1.0, "head_dim": 128.0}
    shape = shaped(
        batch=np.array([1, 9, 64]), context=np.array([4096, 1500, 8192]), skew=1, **heads
    )
    form, fit = triton_attention.form("fp8"), fits["decode_attention_triton"]["fp8"]
    assert form.predict(fit, shape, cold) == pytest.approx(
        form.seconds(DECODES, shape, cold), rel=0.03
    )
    assert (fit.kernel, fit.ranges["head_dim"]) == ("sglang 0.5: triton", (256, 512))
    shape = shaped(batch=1, tokens=np.array([512, 4000]), context=0, **heads)
    form, fit = prefill_attention.form("fp8"), fits["prefill_attention_triton"]["fp8"]
    assert form.predict(fit, shape, cold) == pytest.approx(
        form.seconds(PROMPTS, shape, cold), rel=0.05
    )
    assert fit.ranges["tokens"] == (16, WINDOW)
    assert max(each.holdout.p90 for found in fits.values() for each in found.values()) < 0.02


@pytest.mark.parametrize("usual", ["triton", "flashinfer"])
def test_there_are_none_where_the_usual_kernel_does_not_fall_back(
    tmp_path: Path, usual: str
) -> None:
    assert triton.fit_system(tables(tmp_path, usual=usual), SYSTEM, "sglang") == {}


def test_there_are_none_of_another_framework(tmp_path: Path) -> None:
    assert triton.fit_system(tables(tmp_path, framework="vllm"), SYSTEM, "vllm") == {}


@pytest.mark.parametrize(
    ("heads", "batch", "context", "microseconds"),
    [
        ((4, 1, 512), 1, 4096, 66.6),
        ((4, 1, 512), 1, 65536, 1418.0),
        ((4, 1, 512), 64, 2048, 117.3),
        ((8, 4, 256), 1, 1024, 16.3),
        ((8, 4, 256), 16, 1024, 31.4),
    ],
)
def test_shipped_fits_are_near_single_timings(
    heads: tuple[int, int, int], batch: int, context: int, microseconds: float
) -> None:
    """H200, fp8 cache, SGLang 0.5.14 (generation_attention_perf, triton)."""
    fit = catalog.shipped_profile("h200-sxm", "sglang").kernels["decode_attention_triton"]["fp8"]
    names = dict(zip(("q_heads", "kv_heads", "head_dim"), heads, strict=True))
    shape = shaped(batch=batch, context=context, skew=1, **names)
    seconds = triton_attention.form("fp8").predict(fit, shape, ceilings(SYSTEM))
    assert 1e6 * seconds == pytest.approx(microseconds, rel=fit.holdout.p90)
