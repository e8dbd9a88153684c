"""The exchange of tokens in published tables: units, rows that count, a fit to a made-up one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import Tables, exchange
from sim import catalog
from sim.cost.kernels import all_to_all
from sim.cost.kernels.form import Ceilings
from sim.errors import UsageError

TRUE = {"floor": 4e-5, "link_share": 0.3, "blend": 1.5}
NVLINK = {"floor": 2e-5, "step": 1e-6, "link_share": 0.8, "token": 3e-8, "blend": 1.5}
TOKENS = (1, 4, 16, 64, 256, 1024)


def written(root: Path, framework: str, name: str, frame: pd.DataFrame) -> Tables:
    folder = root / "data" / "h100_sxm" / "comm" / framework / "1.0"
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / f"{name}.parquet")
    return Tables(root)


def of_framework(**changes: object) -> pd.DataFrame:
    """Timings in microseconds under known parameters, on one node."""
    rows = pd.DataFrame(
        [
            {"comm_backend": f"deepep_{kind}", "phase": phase, "comm_dtype": "default",
             "ep_size": 8, "node_num": 1, "hidden_size": hidden, "topk": 8, "num_tokens": tokens}
            for kind in ("ll", "ht", "v2_context")
            for phase in all_to_all.PHASES
            for hidden in (3072, 4096, 7168)
            for tokens in TOKENS
        ]
    )  # fmt: skip
    gpu, seconds = catalog.gpu("h100-sxm"), []
    for row in rows.itertuples():
        kind = str(row.comm_backend).split("_")[1]
        operator = f"{'ll' if kind == 'v2' else kind}_{row.phase}"
        sizes = {"tokens": row.num_tokens, "hidden": row.hidden_size, "width": 2.0, "chosen": 8.0}
        sizes |= {"gpus": 8.0, "nodes": 1.0, "network": 50e9}
        shape = pd.Series(sizes).astype(float).to_dict()
        form = all_to_all.form(operator)
        parameters = all_to_all.USUAL[operator] | TRUE
        seconds.append(float(form.seconds(parameters, shape, Ceilings(1.0, gpu.link.bandwidth, 1))))
    return rows.assign(latency=[each * 1e6 for each in seconds], **changes)


def test_microseconds_of_a_framework_give_its_parameters_back(tmp_path: Path) -> None:
    tables = written(tmp_path, "vllm", "moe_a2a_perf", of_framework())
    found = exchange.fit_system(tables, "h100_sxm", "vllm")
    assert set(found) == {"ll_dispatch", "ll_combine", "ht_dispatch", "ht_combine"}
    for operator, fits in found.items():
        fit = fits["bf16"]
        for name, value in TRUE.items():
            assert fit.parameters[name] == pytest.approx(value, rel=0.03), (operator, name)
        for name in exchange.OF_SEVERAL:  # one node does not determine them
            assert fit.parameters[name] == all_to_all.USUAL[operator][name]
        assert fit.holdout.median < 0.01
        assert fit.holdout.points == 18  # without the kernels that are neither
        assert fit.ranges["nodes"] == (1.0, 1.0)


def over_nvlink() -> pd.DataFrame:
    """Timings in milliseconds under known parameters, on 2 to 16 GPUs."""
    steps = ("alltoall_prepare", "alltoall_dispatch", "alltoall_combine")
    rows = pd.DataFrame(
        [
            {"kernel_source": "NVLinkTwoSided", "op_name": name, "moe_dtype": dtype,
             "num_tokens": tokens, "hidden_size": 7168, "topk": 8, "moe_ep_size": gpus}
            for name in (*steps, "alltoall_combine_low_precision")
            for dtype in ("bfloat16", "nvfp4")
            for gpus in (2, 4, 8, 16)
            for tokens in TOKENS
        ]
    )  # fmt: skip
    link, seconds = catalog.gpu("h100-sxm").link.bandwidth, []
    for row in rows.itertuples():
        if not str(row.op_name).endswith(("dispatch", "combine")):  # in the others' time
            seconds.append(1.0 if "low" in str(row.op_name) else 2e-6)
            continue
        phase = str(row.op_name).rsplit("_", maxsplit=1)[1]
        narrow = phase == "dispatch" and row.moe_dtype == "nvfp4"
        sizes = {"tokens": row.num_tokens, "hidden": 7168.0, "chosen": 8.0, "nodes": 1.0}
        sizes |= {"width": 0.5625 if narrow else 2.0, "gpus": row.moe_ep_size}
        sizes |= {"met": min(8, row.moe_ep_size), "network": 50e9}
        shape = pd.Series(sizes).astype(float).to_dict()
        form = all_to_all.form(f"two_sided_{phase}")
        time = float(form.seconds(NVLINK, shape, Ceilings(1.0, link, 1)))
        seconds.append(time - (2e-6 if phase == "dispatch" else 0.0))
    return rows.assign(latency=[each * 1e3 for each in seconds])


def test_milliseconds_over_nvlink_give_their_parameters_back(tmp_path: Path) -> None:
    """A dispatch lasts as long as it and its preparation; other combines are no part of it."""
    written(tmp_path, "trtllm", "moe_a2a_perf", of_framework())
    tables = written(tmp_path, "trtllm", "trtllm_alltoall_perf", over_nvlink())
    found = exchange.fit_system(tables, "h100_sxm", "trtllm")
    assert "one_sided_dispatch" not in found
    for operator in ("two_sided_dispatch", "two_sided_combine"):
        fit = found[operator]["bf16"]
        assert fit.kernel == "trtllm 1.0: NVLinkTwoSided"
        for name, value in NVLINK.items():
            assert fit.parameters[name] == pytest.approx(value, rel=0.05), (operator, name)
        assert fit.holdout.median < 0.01
        assert fit.ranges["gpus"] == (2.0, 16.0)
        assert "met" not in fit.ranges


def test_what_is_read_of_sglangs_tables() -> None:
    rows = pd.DataFrame(
        {
            "num_token": [8, 8, 8], "hidden_size": 7168, "num_topk": 8, "node_num": [1, 4, 8],
            "dispatch_sms": 24, "dispatch_transmit_us": [20.0, 30.0, 90.0],
            "dispatch_notify_us": [0.0, 50.0, 70.0], "combine_transmit_us": 40.0,
            "combine_notify_us": 10.0,
        }
    )  # fmt: skip
    found = exchange._of_sglang(rows, "ht", "dispatch")
    assert found["seconds"].tolist() == pytest.approx([20e-6, 80e-6])
    assert found["gpus"].tolist() == [8, 32]
    assert found["width"].tolist() == [1 + 4 / 128] * 2
    assert exchange._of_sglang(rows, "ht", "combine")["width"].tolist() == [2.0] * 2
    few = rows.assign(dispatch_sms=20)
    assert exchange._of_sglang(few, "ht", "dispatch").empty


def test_a_table_without_such_kernels_is_refused(tmp_path: Path) -> None:
    tables = written(tmp_path, "vllm", "moe_a2a_perf", of_framework().iloc[-3:])
    with pytest.raises(UsageError, match="vllm on h100_sxm: no exchange of tokens to fit"):
        exchange.fit_system(tables, "h100_sxm", "vllm")
