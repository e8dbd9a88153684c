"""Cards with timings described as if they had none."""

from __future__ import annotations

import pytest

from calibrate import left_out


def test_a_relative_is_nearer_than_the_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "RUNS", (("llama-3.1-8b", "bf16"), ("qwen3-30b-a3b", "bf16")))
    for relatives in ({"h100-sxm": "h200-sxm"}, {"rtx-pro-6000": "l40s"}, {"b200-sxm": "h200-sxm"}):
        found = left_out.errors(relatives, "vllm")
        assert list(found) == [way.name for way in left_out.WAYS]
        for family in ("decode, few", "experts, few", "pass, few", "pass, many"):
            assert found["relative"][family] < found["defaults"][family]
        assert found["relative"]["pass, few"] < found["data sheet"]["pass, few"]
        prompts = found["relative, prompts by sheet"]
        assert prompts["prefill"] == found["data sheet"]["prefill"]
        assert prompts["decode, few"] == found["relative"]["decode, few"]
        assert left_out.table(found).count("\n") == len(left_out.FAMILIES)


def test_the_nearest_is_of_another_chip() -> None:
    found = left_out.nearest_of_another_chip()
    assert set(found) == set(left_out.OTHER_CHIP)
    assert found["l40s"] == "rtx-pro-6000"
    assert found["gb300"] == "h200-sxm"
    assert all(other not in left_out.CHIPS.get(name, {name}) for name, other in found.items())
