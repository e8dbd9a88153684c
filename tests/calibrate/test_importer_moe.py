"""Experts of the published tables: which rows count, the routing that was timed, a fit to a made-up
table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import Tables, moe, older, routing
from calibrate.importers.aiconfigurator.routing import Routing, loads, mean_counts
from calibrate.known_shapes import with_known
from sim import catalog
from sim.catalog.profile_file import from_document, to_document
from sim.cost.kernels import moe as form
from sim.errors import InfersimError, UsageError
from sim.rng import stream
from sim.specs.profile import KernelFit, Profile

TRUE = {p.name: p.start for p in form.PARAMETERS} | {"cached": 1.0}
MODELS = ((4096, 1024, 2, 8), (2048, 768, 4, 32), (3072, 512, 2, 16), (1024, 2688, 2, 8))
TOKENS = (1, 8, 64, 512, 4096)


def row(model: tuple[int, ...], tokens: int, **changes: object) -> dict[str, object]:
    columns = dict(zip(moe.MODEL, model, strict=True))
    return {
        **columns, "moe_dtype": "bfloat16", "kernel_source": "some_triton_experts",
        "num_tokens": tokens, "moe_tp_size": 1, "moe_ep_size": 1, "distribution": "balanced",
        "latency": 0.1, **changes,
    }  # fmt: skip


def made_up() -> pd.DataFrame:
    """Timings of four models under known parameters; the third is a tenth slower than the form."""
    rows = pd.DataFrame(
        [
            row(model, tokens, moe_tp_size=gpus, moe_ep_size=ranks)
            for model in MODELS
            for tokens in TOKENS
            for gpus, ranks in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4))
        ]
    )
    data = moe.to_data(rows)
    gpu = catalog.gpu("h200-sxm")
    ceilings = form_ceilings(gpu.flops("bf16"), gpu.bandwidth, gpu.sms)
    seconds = form.form("bf16").seconds(TRUE, data.shape, ceilings)
    slow = np.where(data.shape["hidden"] == 3072, 1.1, 1.0)
    keys = (*form.GROUP, "gpus", "ranks", "tokens")
    found = pd.DataFrame({name: data.shape[name].astype(int) for name in keys})
    found.columns = pd.Index([*moe.MODEL, *moe.SPLIT, "num_tokens"])
    return rows.drop(columns="latency").merge(found.assign(latency=seconds * slow * 1e3))


def form_ceilings(peak: float, bandwidth: float, sms: int) -> form.Ceilings:
    return form.Ceilings(peak, bandwidth, sms, 50e6)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("systems")
    folder = root / "data" / "h200_sxm" / "moe" / "vllm" / "0.24.0"
    folder.mkdir(parents=True)
    made_up().to_parquet(folder / "moe_perf.parquet")
    return Tables(root)


@pytest.fixture(scope="module")
def fitted(tables: Tables) -> KernelFit:
    found = moe.fit_system(tables, "h200_sxm", "vllm")
    assert list(found) == ["moe"]
    return found["moe"]["bf16"]


def test_a_fit_to_made_up_timings_finds_what_made_them(fitted: KernelFit) -> None:
    """Three of four models follow the form, the fourth is off by a tenth."""
    assert fitted.holdout.p90 < 0.1
    assert fitted.parameters["latency"] == pytest.approx(TRUE["latency"], rel=0.05)
    assert fitted.kernel == "vllm 0.24.0: some_triton_experts"
    assert fitted.ranges["tokens"] == (1, 4096)
    assert fitted.ranges["ranks"] == (1, 4)
    assert "rows" not in fitted.ranges


def test_series_whose_kernel_was_chosen_badly_are_left_out(tmp_path: Path) -> None:
    """One routing of a model takes 1.6 times as long on B200 as the same on GB200, the other as
    long; a fifth more is no reason. Other precisions are not compared."""
    own = [
        row(model, tokens, moe_dtype="nvfp4", distribution=law, latency=latency)
        for law, model, latency in (
            ("balanced", MODELS[0], 0.16),
            ("power_law_1.2", MODELS[0], 0.1),
            ("balanced", MODELS[1], 0.12),
        )
        for tokens in TOKENS
    ]
    rows = pd.DataFrame(own)
    for system, found in (("b200_sxm", rows), ("gb200", rows.assign(latency=0.1))):
        folder = tmp_path / "data" / system / "moe" / "trtllm" / "1.3"
        folder.mkdir(parents=True)
        found.to_parquet(folder / "moe_perf.parquet")
    for other in ("b300_sxm", "gb300"):
        (tmp_path / "data" / other / "moe" / "trtllm").mkdir(parents=True)
    tables = Tables(tmp_path)
    table = tables.read("b200_sxm", "moe", "trtllm", "moe_perf")
    kept = moe.well_chosen(tables, table, rows, "nvfp4")
    assert len(kept) == 2 * len(TOKENS)
    assert kept["latency"].max() == 0.12
    assert len(moe.well_chosen(tables, table, rows, "bf16")) == len(rows)


def test_rows_are_told_apart_where_a_kernel_does_so(tables: Tables, fitted: KernelFit) -> None:
    """Ranks of the made-up kernel take 40 us longer; of others no such time is fitted."""
    assert "apart" not in fitted.parameters
    table = tables.read("h200_sxm", "moe", "vllm", "moe_perf")
    longer = np.where(table.frame["moe_ep_size"] > 1, 0.04, 0.0)
    rows = table.frame.assign(
        kernel_source="vllm_gptossmxfp4moe_triton", latency=table.frame["latency"] + longer
    )
    found = moe.fit_rows(table, rows, "bf16")
    assert found.parameters["apart"] == pytest.approx(4e-5, rel=0.05)


def test_marlin_is_fitted_from_all_frameworks_that_bundle_it(tmp_path: Path) -> None:
    """mxfp4 of one and int4 of the other; rows of whole experts, and of other kernels, are not. The
    sizes of mxfp4 are those that are computed: 1,000 as 1,024, 300 on each of two GPUs as 384."""
    int4 = made_up().assign(moe_dtype="int4_wo", kernel_source="sglang_marlin_moe")
    two = pd.DataFrame([row((1000, 600, 2, 8), tokens, moe_tp_size=2) for tokens in TOKENS])
    mxfp4 = two.assign(moe_dtype="w4a16_mxfp4", kernel_source="vllm_gptossmxfp4moe_marlin")
    other = mxfp4.assign(kernel_source="oaitriton", hidden_size=4096)
    for framework, version, rows in (
        ("sglang", "0.5.10", int4),
        ("vllm", "0.24.0", pd.concat([mxfp4, other])),
    ):
        folder = tmp_path / "data" / "h200_sxm" / "moe" / framework / version
        folder.mkdir(parents=True)
        rows.to_parquet(folder / "moe_perf.parquet")
    found = moe.fit_marlin(Tables(tmp_path), "h200_sxm")
    assert found is not None
    assert found.kernel == "Marlin of sglang 0.5.10, vllm 0.24.0"
    assert found.ranges["ranks"] == (1, 1)
    assert found.known is not None
    assert set(found.known.values) == {*MODELS, (1024, 768, 2, 8)}


def test_a_shape_that_was_timed_keeps_what_the_form_leaves_over(fitted: KernelFit) -> None:
    """The slow model's table says a tenth, the others' hardly anything."""
    known = fitted.known
    assert known is not None
    assert known.names == ("hidden", "width", "chosen", "experts")
    assert len(known.values) == 4
    assert np.median(known.values[3072, 512, 2, 16]) == pytest.approx(np.log(1.1), abs=0.04)
    assert abs(np.median(known.values[4096, 1024, 2, 8])) < 0.04
    assert known.holdout.p90 < fitted.holdout.p90
    assert known.axes["split"] == (-3.0, 0.0, 1.0, 3.0)  # -2 to 2, and the next knots outside


def test_a_profile_keeps_the_tables_through_a_file(fitted: KernelFit, tmp_path: Path) -> None:
    from sim.catalog.fields import Fields
    from sim.catalog.files import read_yaml
    from sim.catalog.profile_file import to_yaml

    path = tmp_path / "profile.yaml"
    path.write_text(to_yaml(to_document(Profile("s", "2026-11-22", {}, {"moe": {"bf16": fitted}}))))
    again = from_document(Fields(str(path), read_yaml(path))).kernels["moe"]["bf16"].known
    assert again is not None
    assert fitted.known is not None
    assert again.axes == fitted.known.axes
    for shape, values in fitted.known.values.items():
        assert again.values[shape] == pytest.approx(values, abs=0.0051)


@pytest.mark.parametrize(
    ("tables_of", "complaint"),
    [
        ([], "expected lists of 3 numbers"),
        ([[1, 2]], "expected lists of 3 numbers"),
        ([[1, 2, "x"]], "expected lists of 3 numbers"),
        (None, "expected lists of 3 numbers"),
    ],
)
def test_a_table_of_another_size_is_refused(tables_of: object, complaint: str) -> None:
    from sim.catalog.fields import Fields

    score = {"median": 0.1, "p90": 0.2, "bias": 0.0, "points": 3}
    known = {"names": ["hidden"], "axes": {"tokens": [0, 1]}, "holdout": score}
    fit = {
        "parameters": {},
        "ranges": {},
        "holdout": score,
        "known": {**known, "tables": tables_of},
    }
    document = {"source": "s", "date": "d", "facts": {}, "kernels": {"moe": {"bf16": fit}}}
    if tables_of == []:
        assert from_document(Fields("f", document)).kernels["moe"]["bf16"].known is not None
        return
    with pytest.raises(UsageError, match=complaint):
        from_document(Fields("f", document))


# -- rows ------------------------------------------------------------------------------------------


def frame(*rows: dict[str, object]) -> moe.KernelTable:
    return moe.KernelTable(pd.DataFrame(rows), "h200_sxm", "vllm", "0.24.0")


def test_rows_that_do_not_measure_what_they_say_are_left_out() -> None:
    plain = MODELS[0]
    table = frame(
        row(plain, 8),
        row(plain, 8, latency=0.0),
        row(plain, 8, moe_ep_size=128),
        row((7168, 2048, 8, 256), 8),  # its experts are chosen in groups
        row((2816, 704, 8, 128), 8, moe_tp_size=8),  # 88 columns
        row(plain, 8, moe_dtype="fp8"),
    )
    assert len(moe.usable(table, "bfloat16")) == 1
    padded = frame(row((2880, 2880, 4, 32), 8, moe_tp_size=8, moe_dtype="w4a16_mxfp4"))
    assert len(moe.usable(padded, "w4a16_mxfp4")) == 1  # 360 columns


def test_another_library_for_whole_experts_is_an_operator_of_its_own() -> None:
    one, other = "vllm_triton_a", "vllm_flashinfer_cutlass_b"
    rows = [row(MODELS[0], 8, kernel_source=one)] * 3
    rows += [row(MODELS[0], 8, kernel_source=other, moe_ep_size=2)] * 2
    rows += [row(MODELS[0], 8, kernel_source=one, moe_ep_size=2)]
    found = moe.by_operator(pd.DataFrame(rows))
    assert {name: len(part) for name, part in found.items()} == {"moe": 3, "moe_ranks": 2}
    same = moe.by_operator(pd.DataFrame(rows[:3] + rows[5:]))
    assert {name: len(part) for name, part in same.items()} == {"moe": 4}


def test_a_table_without_a_known_precision_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "h200_sxm" / "moe" / "vllm" / "1.0"
    folder.mkdir(parents=True)
    pd.DataFrame([row(MODELS[0], 8, moe_dtype="odd")]).to_parquet(folder / "moe_perf.parquet")
    with pytest.raises(InfersimError, match="no experts to fit"):
        moe.fit_system(Tables(tmp_path), "h200_sxm", "vllm")


# -- routing ---------------------------------------------------------------------------------------


def test_balanced_routing_by_hand() -> None:
    """Token 0 takes experts 0, 2, 4 and 6 of 8, token 1 those after them: on the first of four
    ranks each of two experts has a row; with one token the first expert alone."""
    random = stream(0, "test")
    two = Routing(2, 8, 4, 4, "balanced")
    assert loads(two, random).tolist() == [[1, 1]]
    assert loads(two._replace(tokens=1), random).tolist() == [[1, 0]]
    assert mean_counts(loads(Routing(40, 8, 4, 1, "balanced"), random)) == [160, 8, 16, 8, 8, 8, 8]


@pytest.mark.parametrize("exponent", ["1.01", "1.2"])
@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(1, 128, 8), (16, 128, 8), (500, 16, 1)])
def test_every_draw_gives_each_token_its_experts(
    exponent: str, tokens: int, experts: int, chosen: int
) -> None:
    routing_ = Routing(tokens, experts, chosen, 1, f"power_law_{exponent}")
    found = loads(routing_, stream(0, "test"))
    assert found.shape == (routing.DRAWS, experts)
    assert (found.sum(axis=1) == tokens * chosen).all()
    assert found.min() >= 0
    assert found.max() <= tokens


def test_the_busiest_rank_has_more_than_its_share() -> None:
    found = loads(Routing(256, 64, 4, 8, "power_law_1.2"), stream(0, "test"))
    assert found.shape == (routing.DRAWS, 8)
    assert (found.sum(axis=1) >= 256 * 4 / 8).all()


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown distribution 'zipf'"):
        loads(Routing(4, 8, 2, 1, "zipf"), stream(0, "test"))


def test_known_shapes_hold_out_points_that_differ_in_nothing_else(fitted: KernelFit) -> None:
    """A tenth of noise on each point cannot be learned from the points of other token counts."""
    data = moe.to_data(made_up())
    noise = np.where(np.random.default_rng(0).random(len(data)) < 0.5, 1.25, 0.8)
    noisy = moe.Data(data.shape, data.seconds * noise, data.weight)
    ceilings = moe.ceilings(frame(row(MODELS[0], 1)), "bf16")
    kind = form.form("bf16")
    found = with_known(fitted, kind, noisy, ceilings, moe.AXES, ("tokens", "gpus", "ranks"))
    assert found.known is not None
    assert found.known.holdout.median > 0.15


def decodes() -> pd.DataFrame:
    """10 us and 3 TB/s with one query head per KV head; twice the memory's 4.8 TB/s for grouped
    heads, and in 16 bits."""
    rows = [
        {"num_heads": heads, "num_key_value_heads": heads // group, "batch_size": batch}
        | {"step": step, "kv_cache_dtype": kv, "latency": 0.01 + read * width / rate}
        for heads in (8, 16, 32)
        for group in (1, 4)
        for batch in (1, 8, 64, 512)
        for step in (127, 1023, 4095, 16383)
        for kv, width in (("float16", 2), ("fp8", 1))
        for read in [batch * (step + 1) * heads // group * 2 * 128]
        for rate in [3e9 if group == 1 and width == 1 else 9.6e9]
    ]
    return pd.DataFrame(rows).assign(
        isl=1, head_dim=128, beam_width=1, attn_dtype="float16", kernel_source="made up"
    )


def test_an_older_release_comes_from_an_older_package(tmp_path: Path) -> None:
    """Its tables are texts; 16 bits are called float16 there, and both precisions are fitted. The
    made-up sums take 10 us and 100 GB/s. Of decodes those with one query head per KV head are
    fitted, over caches that are never read faster than the memory."""
    folder = tmp_path / "aiconfigurator" / "systems" / "data" / "h200_sxm" / "trtllm" / "1.0.0rc3"
    folder.mkdir(parents=True)
    few = made_up().query("hidden_size < 3000")  # how well they are fitted is seen above
    both = [few.assign(moe_dtype=name) for name in ("float16", "fp8")]
    pd.concat(both).to_csv(folder / "moe_perf.txt", index=False)
    sums = pd.DataFrame(
        [
            {"num_gpus": gpus, "message_size": 2**power, "latency": 0.01 + 2 * 2**power / 100e6}
            for gpus in (2, 4, 8)
            for power in range(7, 26)
        ]
    ).assign(allreduce_dtype="float16", kernel_source="made up")
    sums.to_csv(folder / "custom_allreduce_perf.txt", index=False)
    decodes().to_csv(folder / "generation_attention_perf.txt", index=False)
    fits = older.fit_system(tmp_path, "h200_sxm", "trtllm")
    assert {operator: sorted(each) for operator, each in fits.items()} == {
        "all_reduce_older": ["bf16"],
        "decode_attention_older": ["fp8"],
        "moe_older": ["bf16", "fp8"],
    }
    found = fits["decode_attention_older"]["fp8"]
    assert found.holdout.p90 < 0.05
    assert found.ranges["kv_heads"] == (8, 32)
    assert found.parameters["floor"] == pytest.approx(1e-5, rel=0.1)
    assert fits["all_reduce_older"]["bf16"].holdout.median < 0.1
    assert fits["moe_older"]["bf16"].kernel == "trtllm 1.0.0rc3: some_triton_experts"
    with pytest.raises(UsageError, match=r"h100_sxm.*give the folder of the package"):
        older.fit_system(tmp_path, "h100_sxm", "trtllm")
    with pytest.raises(UsageError, match="no kernels of vllm, only of trtllm"):
        older.fit_system(tmp_path, "h200_sxm", "vllm")
