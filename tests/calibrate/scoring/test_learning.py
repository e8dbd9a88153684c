"""Errors learnt from figures: what was put in is found, and nothing judges itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from calibrate.scoring.conditions import conditions
from calibrate.scoring.document import to_document
from calibrate.scoring.errors import coverage
from calibrate.scoring.evidence import trust
from calibrate.scoring.floors import every_group, floors
from calibrate.scoring.learning import Figure, coverages, figures, learn, left_out, newest, pairs
from calibrate.scoring.predict import Scored
from calibrate.scoring.predict import score as predict
from calibrate.scoring.ratios import ratios
from calibrate.scoring.spreads_file import spreads_yaml
from calibrate.scoring.trust_page import trust_page
from sim.catalog.spreads import PARTS, learnt, place
from sim.errors import UsageError
from sim.metrics.bands.bands import Question
from tests.calibrate.scoring.test_scoring import row

TPOT = "tpot, dense"
MODELS = ("Llama-3.1-8B", "Llama-3.1-70B", "Mistral-7B", "Qwen2.5-72B-Instruct", "Qwen3-32B-FP8")


def scored(model: str, error: float, **cells: str) -> Scored:
    published = row(model=model, **cells)
    known = conditions(published)
    at = Question(place("vllm", known.gpu, known.model, TPOT), "closed loop", False)
    size = math.exp(error)
    return Scored(published, known, "vllm", "tpot", size, 1.0, "", "mean_tpot_ms", at)


def made_up(scale: float, each: int = 8) -> list[Scored]:
    draw = np.random.default_rng(5)
    return [scored(model, scale * draw.standard_t(4)) for model, _ in product(MODELS, range(each))]


def drawn(seed: int, *, gpu: float, own: float, within: float) -> list[Figure]:
    """Figures of 5 GPUs, 2 engines and 4 models, each part of whose errors has such a size."""
    draw = np.random.default_rng(seed)
    of_gpu = {name: gpu * draw.standard_normal() for name in "abcde"}
    found = []
    for name, engine, model in product("abcde", ("vllm", "sglang"), ("qwen3", "llama", "phi", "x")):
        common = of_gpu[name] + own * draw.standard_normal()
        where = place(engine, name, model, TPOT)
        found += [
            Figure(common + within * draw.standard_normal(), where, TPOT, (str(layout),))
            for layout in range(6)
        ]
    return found


def test_the_size_of_what_errors_have_in_common_is_found() -> None:
    """In units of what is within: 2 for GPUs, 1 for deployments."""
    found = learn(drawn(1, gpu=0.2, own=0.1, within=0.1))
    assert set(found.common) == set(PARTS)
    assert 1 < found.common["GPU"] < 4
    assert found.common["engine"] < 0.5
    own = math.hypot(found.common["this deployment"], found.common["this figure"])
    assert own == pytest.approx(1, rel=0.7)
    assert found.kinds[TPOT].within == pytest.approx(0.1, rel=0.4)


def test_a_known_gpu_says_where_another_deployment_on_it_lies() -> None:
    known = drawn(2, gpu=0.1, own=0.02, within=0.1)
    found = learn([each for each in known if each.place.model != "phi"])
    for gpu in "abcde":
        of_it = [e.error for e in known if e.place.gpu == gpu and e.place.model == "phi"]
        expected = found.expected(place("vllm", gpu, "phi", TPOT), TPOT)
        assert expected.centre == pytest.approx(np.mean(of_it), abs=0.08)
        assert expected.common["GPU"] < 0.06
    new = found.expected(place("vllm", "z", "phi", TPOT), TPOT)
    assert new.common["GPU"] > 0.06


def test_bands_hold_what_was_left_out() -> None:
    """Of a normal law, whatever is left out; wider where a whole GPU is new."""
    found = {
        each.left_out: each
        for each in coverages(drawn(3, gpu=0.2, own=0.1, within=0.1))
        if each.quantity == "tpot"
    }
    for name in ("layouts of a deployment", "deployments", "model families"):
        assert found[name].covered90 == pytest.approx(90, abs=6), name
        assert found[name].covered50 == pytest.approx(50, abs=12), name
    widths = [
        found[name].half_width90 for name in ("layouts of a deployment", "deployments", "GPUs")
    ]
    assert widths == sorted(widths)


def test_what_is_left_out_is_judged_without_it() -> None:
    known = drawn(4, gpu=0.0, own=0.0, within=0.1)
    far = [each._replace(error=each.error + 5) if each.place.gpu == "a" else each for each in known]
    sizes = dict.fromkeys(PARTS, 0.1)
    as_known = left_out(known, lambda each: each.place.gpu, sizes)
    assert max(map(abs, as_known)) < 6
    apart = left_out(far, lambda each: each.place.gpu, sizes)
    assert min(abs(z) for z, each in zip(apart, far, strict=True) if each.place.gpu == "a") > 10


def test_another_release_of_a_deployment_is_less_sure_than_the_same() -> None:
    """Each release of a deployment errs by an amount of its own."""
    draw = np.random.default_rng(7)
    known = []
    for gpu, release in product("abcdefgh", ("0.8", "0.9", "0.10")):
        own = 0.3 * draw.standard_normal()
        where = place("vllm", gpu, "phi", TPOT, release)
        known += [
            Figure(own + 0.1 * draw.standard_normal(), where, TPOT, (release, str(layout)))
            for layout in range(6)
        ]
    found = learn(known)
    same, other = (
        found.expected(place("vllm", "a", "phi", TPOT, release), TPOT)
        for release in ("0.9", "0.11")
    )
    reach = [each.multiples.ninety * each.spread for each in (same, other)]
    assert reach[1] > 1.3 * reach[0]


def test_the_newest_releases_are_judged_by_older_ones() -> None:
    """A quarter of the figures or more: of six releases of as many figures two, numbers by size."""
    known = [
        each._replace(layout=(f"0.{8 + int(each.layout[0])}",))
        for each in drawn(6, gpu=0.1, own=0.1, within=0.1)
    ]
    groups = newest(known)
    left = {each.layout[0] for each, group in zip(known, groups, strict=True) if group}
    assert left == {"0.12", "0.13"}
    found = [each for each in coverages(known) if each.left_out == "newest releases"]
    assert {each.figures for each in found} == {len(known) // 3}


def test_figures_of_one_kind_and_deployment_are_pairs() -> None:
    known = drawn(5, gpu=0.1, own=0.1, within=0.1)
    found = pairs(known)
    assert len(found) == 40 * (5 + 3)
    assert all(known[one].place == known[other].place for one, other in found)


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


def test_a_deployment_is_judged_by_bands_without_it() -> None:
    """A deployment that was compared is held to what is known without it."""
    known = scored("Llama-3.1-70B", 0.0)
    assert known.at is not None
    assert learnt().releases(known.at.place, "tpot")
    assert known.bands is not None
    own = learnt().expected(known.at.place, TPOT, without=known.at.place)
    reach = own.multiples.ninety * own.spread
    assert math.log(known.bands[1][1]) == pytest.approx(reach + own.centre)


def test_the_file_says_what_was_learnt(tmp_path: Path) -> None:
    rows = made_up(0.1)
    file = tmp_path / "spreads.yaml"
    file.write_text(spreads_yaml(rows))
    found, expected = learnt(file), learn(figures(rows))
    assert "40 published figures of 5 deployments" in found.origin
    assert found.common == expected.common
    assert (found.multiples, found.shared) == (expected.multiples, expected.shared)
    for one, other in zip(found.rows, sorted(expected.rows), strict=True):
        assert one[:4] == other[:4]
        assert one[4:] == pytest.approx(other[4:], abs=6e-4)


def test_too_few_deployments_teach_nothing() -> None:
    with pytest.raises(UsageError, match="5 deployments"):
        spreads_yaml(made_up(0.1)[:8])


def test_the_page_says_whether_bands_held() -> None:
    rows = made_up(0.1, 12)
    found = trust(rows)
    page = trust_page(found)
    assert "# How far to trust this" in page
    assert "What if a GPU, an engine or a family of models is new?" in page
    assert {each["left_out"] for each in found["left_out"]} == {
        "layouts of a deployment",
        "deployments",
        "model families",
    }
    assert found["figures"] == len(rows)


def test_a_width_that_holds_most_rows_is_known_from_their_errors() -> None:
    rows = made_up(0.1, 12)
    (all_of_them,) = floors(rows)
    errors: Sequence[float] = sorted(abs(math.log(row.measured or 0)) for row in rows)
    assert all_of_them.holds90 == pytest.approx(
        100 * math.sinh(float(np.quantile(errors, 0.9))), rel=1e-9
    )
    wider = every_group(rows)
    assert wider is not None
    assert wider.times >= 1.0


def test_ratios_of_one_deployment_are_narrower_than_of_two() -> None:
    (found,) = ratios(made_up(0.1, 12))
    assert found.quantity == "tpot"
    assert found.half_width90 < found.unshared90


def test_a_real_row_has_bands_of_its_kind() -> None:
    (found,) = predict([row()], jobs=1)
    assert found.kind in {"ttft, closed loop, dense", "tpot, dense"}
    assert found.bands is not None
    (document,) = to_document([found])["rows"]
    assert document["band90"] == pytest.approx(list(found.bands[1]))
