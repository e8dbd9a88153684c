"""Spreads learnt from errors: they find what was put in, and a source does not judge itself."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.scoring.conditions import conditions
from calibrate.scoring.document import to_document
from calibrate.scoring.errors import coverage
from calibrate.scoring.evidence import trust
from calibrate.scoring.floors import every_group, floors
from calibrate.scoring.learning import (
    BEFORE,
    learn,
    learn_left_out,
    pairs,
    sample,
    sources_of_causes,
)
from calibrate.scoring.predict import Scored
from calibrate.scoring.predict import score as predict
from calibrate.scoring.spreads_file import spreads_yaml
from calibrate.scoring.trust_page import trust_page
from sim.catalog.spreads import Spreads, learnt
from sim.errors import UsageError
from sim.metrics.bands.bands import CAUSES, of_side, spread_of
from tests.calibrate.scoring.test_scoring import row

CAUSE = {"run, tokens": 1.0}


def scored(model: str, error: float, causes: dict[str, float] = CAUSE, **cells: str) -> Scored:
    published = row(model=model, **cells)
    known = conditions(published)
    return Scored(published, known, "vllm", "tpot", math.exp(error), 1.0, "", causes)


MODELS = ("Llama-3.1-8B", "Llama-3.1-70B", "Mistral-7B", "Qwen2.5-72B-Instruct", "Qwen3-32B-FP8")


def made_up(scale: float, rows: int = 8) -> list[Scored]:
    draw = np.random.default_rng(5)
    return [scored(model, scale * draw.standard_t(4)) for model in MODELS for _ in range(rows)]


def test_every_cause_has_a_spread_to_begin_with() -> None:
    assert list(BEFORE) == list(CAUSES)


def test_the_front_end_begins_with_the_range_that_was_fitted() -> None:
    """10 to 17 ms around 12: one spread reaches the end of that range, and not twice as far."""
    spread, why = BEFORE["front end"]
    assert "10 to 17 ms" in why
    assert math.log(17 / 12) <= spread < 2 * math.log(17 / 12)


def test_a_measurement_outside_of_its_band_on_either_side_is_not_covered() -> None:
    within = scored("Llama-3.1-8B", 0.0)
    assert within.bands is not None
    half, ninety = within.bands
    for error, inside in ((0.0, 100.0), (math.log(ninety[0]) - 0.01, 0.0),
                          (math.log(ninety[1]) + 0.01, 0.0)):  # fmt: skip
        found = coverage([scored("Llama-3.1-8B", error)])
        assert found is not None
        assert (found.covered50, found.covered90) == (inside, inside)
    between = coverage([scored("Llama-3.1-8B", math.log(half[0]) - 0.001)])
    assert between is not None
    assert (between.covered50, between.covered90) == (0.0, 100.0)


def test_larger_errors_make_wider_bands() -> None:
    small, large = (learn(sample(made_up(scale))) for scale in (0.02, 0.3))
    assert small.of["run, tokens"] < BEFORE["run, tokens"][0] < large.of["run, tokens"]
    assert small.of["links"] == pytest.approx(
        BEFORE["links"][0], rel=0.01
    )  # nothing is known of it
    for spreads, scale in ((small, 0.02), (large, 0.3)):
        reach = spreads.ninety * spread_of(CAUSE, spreads)
        errors = sample(made_up(scale)).error
        assert (np.abs(errors) <= reach).mean() == pytest.approx(0.9, abs=0.05)


def test_a_source_has_no_part_in_its_own_spreads() -> None:
    rows = made_up(0.05)
    wild = [scored("Llama-3.1-8B", 2.0 if at % 2 else -2.0) for at in range(8)]
    with_wild, without = rows[8:] + wild, learn_left_out(sample(rows))[1]
    name = "vllm, h100-sxm, llama-3.1-8b"
    found = learn_left_out(sample(with_wild))[1]
    assert found[name].of == without[name].of
    others = found["vllm, h100-sxm, mistral-7b"]
    assert others.of["run, tokens"] > 1.5 * without[name].of["run, tokens"]


def test_bands_are_as_wide_as_sources_that_were_left_out_need() -> None:
    """Five sources, each off by an error of its own: bands that saw it hold it more often."""
    draw = np.random.default_rng(9)
    off = [draw.normal(0, 0.3) for _ in MODELS]
    rows = sample(
        [
            scored(m, o + draw.normal(0, 0.02))
            for m, o in zip(MODELS, off, strict=True)
            for _ in range(8)
        ]
    )
    inside, (outside, without) = learn(rows), learn_left_out(rows)
    assert inside.of == outside.of
    assert outside.ninety > inside.ninety
    assert {each.ninety for each in without.values()} != {outside.ninety}


def test_what_rows_of_a_source_share_is_found_from_their_ratios() -> None:
    """Errors of a source alike within 1 %, or each for itself: nearly all is shared, or little."""
    draw = np.random.default_rng(9)
    cells = [{"batch_or_concurrency": str(2**at)} for at in range(8)]
    own = {model: draw.normal(0, 0.3) for model in MODELS}
    alike = [scored(m, own[m] + draw.normal(0, 0.01), **c) for m in MODELS for c in cells]
    apart = [scored(m, draw.normal(0, 0.3), **c) for m in MODELS for c in cells]
    assert learn(sample(alike)).shared == 0.95
    assert learn(sample(apart)).shared <= 0.5
    assert pairs(sample(alike)).shape == (2, 5 * (7 + 4))
    assert pairs(sample([alike[0], alike[0]])).shape == (2, 0)  # one run is not two


def test_what_is_off_more_as_a_whole_has_wider_bands() -> None:
    draw = np.random.default_rng(9)
    settings = {"tpot, dense": 0.02, "tpot, experts": 0.4}
    rows = [
        replace(scored(m, scale * draw.standard_t(4)), setting=name)
        for m in MODELS
        for name, scale in settings.items()
        for _ in range(8)
    ]
    found, without = learn_left_out(sample(rows))
    assert 2 * found.scale("tpot, dense") < found.scale("tpot, experts")
    assert found.scale("ttft, dense") == 1
    assert all(each.scales != found.scales for each in without.values())


def test_bands_of_each_quantity_hold_nine_of_ten() -> None:
    """Errors of tokens come from one law, those of first tokens from a few rows far out."""
    draw = np.random.default_rng(3)
    names = [*MODELS, "Phi-4", "Qwen3-8B", "Qwen3-14B", "Qwen2.5-7B-Instruct"]
    rows = [
        replace(
            scored(m, (0.02 if each == "tpot" else 0.02 * (8 if draw.random() < 0.2 else 1)) * v),
            setting=f"{each}, dense",
            quantity=each,
        )
        for m in names
        for each in ("tpot", "ttft")
        for v in draw.standard_normal(30)
    ]
    known = sample(rows)
    found, _ = learn_left_out(known)
    for each in ("tpot", "ttft"):
        mine = known.of(known.setting == f"{each}, dense")
        reach = found.ninety * found.scale(f"{each}, dense") * spread_of(CAUSE, found)
        assert (np.abs(mine.error) <= reach).mean() == pytest.approx(0.9, abs=0.03)


def test_ways_of_sending_requests_are_two_causes() -> None:
    ways = {"one": 1.0, "other": 3.0}
    tokens = replace(scored("Phi-4", 0.1), ways=ways)
    first = replace(tokens, quantity="ttft")
    assert tokens.causes_of_side[1]["open client, tokens"] == pytest.approx(math.log(3))
    assert first.causes_of_side[1]["open client"] == pytest.approx(math.log(3))
    assert "open client" not in tokens.causes_of_side[1]


def test_errors_of_one_side_make_bands_of_one_side() -> None:
    causes = {"left out, tokens": 1.0, "run, tokens": 1.0}
    draw = np.random.default_rng(5)
    errors = [0.2 * draw.standard_t(4) for _ in range(40)]

    def lopsided(sizes: list[float]) -> float:
        """How many times as far the band reaches up as down."""
        rows = [scored(MODELS[at % 5], size, causes) for at, size in enumerate(sizes)]
        spreads = learn(sample(rows))
        up, down = (of_side(causes, larger=larger) for larger in (True, False))
        return spread_of(up, spreads) / spread_of(down, spreads)

    late = [each if each > 0 else each / 10 for each in errors]
    assert lopsided(late) > 2 * lopsided(errors)


def test_a_hundred_rows_of_a_source_do_not_count_as_a_hundred_sources() -> None:
    few = learn(sample([*made_up(0.02), *(scored("Phi-4", 1.0) for _ in range(2))]))
    many = learn(sample([*made_up(0.02), *(scored("Phi-4", 1.0) for _ in range(200))]))
    assert many.of["run, tokens"] < 2 * few.of["run, tokens"]


def test_the_file_can_be_read_and_says_where_it_comes_from(tmp_path: Path) -> None:
    rows = made_up(0.1)
    path = tmp_path / "spreads.yaml"
    path.write_text(spreads_yaml(rows), encoding="utf-8")
    found = learnt(path)
    assert (found.everything, found.without) == learn_left_out(sample(rows))
    assert found.sources["run, tokens"] == len(MODELS)
    assert found.sources == sources_of_causes(sample(rows))
    assert "40 published figures of 5 sources" in found.origin


def test_too_few_sources_teach_nothing() -> None:
    with pytest.raises(UsageError, match="5 sources"):
        spreads_yaml([each for each in made_up(0.1) if each.row["model"] != MODELS[0]])


def test_bands_are_factors_around_the_prediction_and_count_as_held_or_not() -> None:
    spreads: Spreads = learnt().everything
    held, missed = scored("Phi-4", 0.0), scored("Phi-4", 5.0)
    assert held.bands is not None
    (low50, high50), (low90, high90) = held.bands
    assert low90 < low50 < 1 < high50 < high90
    assert math.log(high90) == pytest.approx(spreads.ninety * spreads.of["run, tokens"])
    found = coverage([held, missed])
    assert found is not None
    assert (found.covered50, found.covered90) == (50, 50)
    assert found.half_width90 == pytest.approx(50 * (high90 - low90))


def test_rows_carry_their_bands_and_groups_their_coverage() -> None:
    document: dict[str, Any] = to_document(predict([row(), row(metric="ttft_mean")], jobs=1))
    token, first = document["rows"]
    assert token["band90"][0] < token["band50"][0] < token["predicted"] < token["band50"][1]
    width = [math.log(each["band90"][1] / each["band90"][0]) for each in (token, first)]
    assert width[0] < width[1]
    (group,) = document["groups"]
    assert 0 <= group["bands"]["covered50"] <= group["bands"]["covered90"] <= 100
    assert group["errors"]["tpot"]["bands"]["half_width90"] > 0


def test_a_client_that_is_not_described_widens_the_time_to_first_token() -> None:
    cells = ("10 x conc", "not stated row by row")
    rows = predict([row(metric="ttft_mean", n_requests=cell) for cell in cells], jobs=1)
    assert "admission" in rows[0].causes
    assert not rows[0].ways
    assert rows[1].ways
    assert "open admission" not in rows[1].causes  # the range of the ways has that already
    down, up = rows[1].causes_of_side
    assert "open client" in down
    assert up["open client"] > 0
    assert rows[1].setting == "ttft, dense, open client"


def test_plausible_ways_of_measuring_reach_to_their_side_only() -> None:
    known = scored("Phi-4", 0.0)
    open_ = replace(known, ways={"one": 1.0, "other": 3.0})
    (_, (low, high)), (_, (lowest, highest)) = known.bands or (), open_.bands or ()
    assert lowest == pytest.approx(low)
    assert highest > 1.5 * high


def test_how_narrow_bands_could_be_follows_from_the_errors() -> None:
    off = [scored("Phi-4", 0.01 * at) for at in range(1, 11)]
    missed = [scored("Mistral-7B", 2.0) for _ in range(10)]
    (alone,) = floors(off)
    assert (alone.rows, alone.of) == (10, "all")
    assert alone.holds90 == pytest.approx(100 * math.sinh(np.quantile(np.arange(1, 11) / 100, 0.9)))
    assert alone.bands == pytest.approx(coverage(off).half_width90)  # type: ignore[union-attr]
    found = every_group([*off, *missed])
    assert found is not None
    bands = missed[0].bands
    assert bands is not None
    assert found.times == pytest.approx(2 / math.log(bands[1][1]))
    assert every_group(off[:9]) is None


def test_a_group_may_have_a_fifth_of_its_rows_outside() -> None:
    """Eight of ten are enough."""
    held, out = ([scored("Phi-4", error) for _ in range(2)] for error in (0.0, 2.0))
    found = every_group([*(held * 4), *out])
    assert found is not None
    assert found.times == 1
    assert "Of every group of ten rows and more at least 80 %" in trust_page(
        trust([*(held * 4), *out])
    )
    more = every_group([*(held * 4), *out, *out])
    assert more is not None
    assert more.times > 1


def test_the_page_says_what_to_do_with_each_kind() -> None:
    held = [scored("Phi-4", 0.01) for _ in range(10)]
    missed = [scored("Mistral-7B", 3.0, engine="sglang") for _ in range(10)]
    missed = [replace(each, engine="sglang") for each in missed]
    page = trust_page(trust([*held, *missed]))
    assert "**vllm, h100-sxm, closed loop**: TPOT good to plan with" in page
    assert "**sglang, h100-sxm, closed loop**: TPOT measure before you rely on it" in page
    assert "1 of 2 hold less than 80 % of their measurements." in page
    assert "in the median 1909 % above the prediction" in page
    assert "| all | 20 | 50 | 50 | ██████████░░░░░░░░░░ |" in page
