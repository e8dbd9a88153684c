"""Engine presets fitted to observed iterations: known terms come back, and the file says of which
runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
import yaml

from calibrate.validation.document import Validation
from calibrate.validation.engine_file import engine_document, sampled, write_engine
from calibrate.validation.engine_fit import fit_engine
from calibrate.validation.figures import mean_error
from calibrate.validation.observed import read_observed
from calibrate.validation.prediction import Variant, question
from sim import catalog
from sim.errors import UsageError
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.specs.engine import Factors, FittedTo
from tests.observed_fixtures import observe, write_scenario

pytestmark = pytest.mark.slow

POISSON = {"workload.arrivals": {"kind": "poisson", "rate": 4.0}}
TRUTH = Variant(per_iteration=2e-3, per_sequence=1e-4, per_new_request=2e-3, front_end=10e-3)


def run_of(folder, truth=TRUTH, changes=POISSON, *, name="run", noise=0.02, seed=1):
    return read_observed(
        observe(write_scenario(folder, changes), folder / name, truth, noise=noise, seed=seed)
    )


def fit_of(*runs):
    return fit_engine([(run, question(run, None, [], None)) for run in runs])


def written(folder, fit, runs, name="my-engine.yaml"):
    write_engine(folder / name, engine_document(fit, runs, "made up", date(2026, 1, 2)))
    return folder / name


def test_known_terms_come_back_with_their_intervals(tmp_path):
    fit = fit_of(run_of(tmp_path))
    terms = {term.name: term for term in (*fit.terms, fit.front_end)}
    expected = {"per_iteration": 2.5e-3, "per_sequence": 1.05e-4, "per_new_request": 2.1e-3}
    for name, value in (expected | {"front_end": 10e-3}).items():
        assert terms[name].value == pytest.approx(value, rel=0.1), name
        assert terms[name].low <= terms[name].value <= terms[name].high
        assert not terms[name].why
    assert fit.held_out == pytest.approx(0.0135, abs=0.004)  # the median of the noise
    assert (fit.before[0].error, fit.after[0].error) == (
        pytest.approx(-0.54, abs=0.03),
        pytest.approx(0, abs=0.01),
    )
    assert fit.short == 0


def test_without_noise_the_terms_are_exact(tmp_path):
    fit = fit_of(run_of(tmp_path, noise=0.0))
    values = [term.value for term in fit.terms]
    assert values == pytest.approx([2.5e-3, 1.05e-4, 2.1e-3], rel=1e-3)


def test_a_few_odd_iterations_do_not_matter(tmp_path):
    run = run_of(tmp_path, noise=0.0)
    duration = run.iterations.duration.copy()
    duration[::50] *= 8.0
    odd = replace(run, iterations=replace(run.iterations, duration=duration))
    values = [term.value for term in fit_of(odd).terms]
    assert values == pytest.approx([2.5e-3, 1.05e-4, 2.1e-3], rel=0.05)


def test_no_term_is_negative(tmp_path):
    truth = Variant(per_iteration=-5e-4, factors=Factors(kernels=0.8))
    fit = fit_of(run_of(tmp_path, truth))
    assert all(term.value >= 0 and term.low >= 0 for term in fit.terms)
    assert fit.short > 0.9


def test_several_runs_are_fitted_together(tmp_path):
    burst = run_of(tmp_path, changes={}, name="burst")
    poisson = run_of(tmp_path, name="poisson")
    fit = fit_of(burst, poisson)
    assert [quality.run for quality in fit.after] == ["burst", "poisson"]
    assert sum(quality.iterations for quality in fit.after) == len(burst.iterations) + len(
        poisson.iterations
    )
    assert fit.terms[0].value == pytest.approx(2.5e-3, rel=0.06)
    document = engine_document(fit, [burst, poisson], "made up", date(2026, 1, 2))
    assert [entry["run"] for entry in document["fitted_to"]] == ["burst", "poisson"]


def test_what_a_run_cannot_tell_stays_as_it_was(tmp_path):
    changes = {
        "scheduler.max_num_seqs": 1,
        "scheduler.max_num_batched_tokens": 2048,
        "run.requests": 4,
        "workload.output_tokens": {"kind": "fixed", "value": 50},
    }
    fit = fit_of(run_of(tmp_path, changes=changes))
    kept = {term.name: term for term in (*fit.terms, fit.front_end) if term.why}
    assert set(kept) == {"per_sequence", "per_new_request", "front_end"}
    base = catalog.engine("reference")
    assert all(term.value == getattr(base, name) for name, term in kept.items())
    assert fit.terms[0].value == pytest.approx(2.6e-3, rel=0.05)  # with one sequence in it
    document = engine_document(fit, [], "made up", date(2026, 1, 2))
    assert "since all batches are of one size" in document["per_sequence"]["source"]


def test_the_file_is_an_engine_like_any_other(tmp_path):
    run = run_of(tmp_path)
    path = written(tmp_path, fit_of(run), [run])
    spec = catalog.engine(path)
    assert spec.name == "my-engine"
    assert spec.title.endswith("fitted to observed runs")
    assert spec.per_iteration == pytest.approx(2.5e-3, rel=0.06)
    assert not spec.overlapped
    hashes = run.hashes["iterations.csv"], run.hashes["requests.parquet"]
    assert spec.fitted_to == (FittedTo("run", *hashes),)
    assert "2026-01-02" in spec.sources["per_iteration"]
    assert "95 %" in spec.sources["per_iteration"]
    base = catalog.engine("reference")
    for name in ("per_layer", "launch", "kernels_per_layer", "memory_reserve", "kernels"):
        assert getattr(spec, name) == getattr(base, name)
        assert spec.sources[name].startswith("As in reference")
    scenario = load_scenario(write_scenario(tmp_path)).override({"engine": "./my-engine.yaml"})
    assert simulate(scenario).summary["infersim"]["engine"] == "my-engine"
    assert load_scenario(scenario.resolved()).engine == str(path)


def test_in_sample_and_held_out(tmp_path):
    run, again = run_of(tmp_path), run_of(tmp_path, name="again", seed=2)
    path = written(tmp_path, fit_of(run), [run])
    states = {}
    for each in (run, again):
        asked = question(each, None, [f"engine={path}"], None)
        validation = Validation(each, [], asked)
        sample = validation.document["sample"]
        states[each.name] = sample["state"]
        assert "run" in sample["text"]
        assert mean_error(validation.rows) < 0.03
    assert states == {"run": "in sample", "again": "held out"}
    assert sampled(catalog.engine("vllm"), run) is None
    changed = replace(run, hashes=run.hashes | {"iterations.csv": "0"})
    assert sampled(catalog.engine(path), changed) == "held out"


def test_an_engine_fitted_anew_forgets_nothing_that_is_left_in_it(tmp_path):
    run, again = run_of(tmp_path), run_of(tmp_path, changes={}, name="again")
    path = written(tmp_path, fit_of(run), [run])
    pairs = [(again, question(again, None, [f"engine={path}"], None))]
    document = engine_document(fit_engine(pairs), [again], "made up", date(2026, 1, 2))
    assert [entry["run"] for entry in document["fitted_to"]] == ["again", "run"]  # its front end
    assert str(document["title"]).count("fitted") == 1


KERNELS = {"tokens": 1.3, "decode_attention": 0.7, "prefill_attention": 1.5}
OTHERS = Variant(per_iteration=2e-3, factors=Factors(**KERNELS))


def test_kernels_that_are_not_those_priced_come_back_as_factors(tmp_path):
    run = run_of(tmp_path, OTHERS, noise=0.0)
    held_out = run_of(tmp_path, OTHERS, {"scheduler.max_num_seqs": 40}, name="other", noise=0.0)
    pairs = [(run, question(run, None, [], None))]
    fit = fit_engine(pairs, kernels=True)
    found = {term.name: term for term in fit.factors}
    for name, value in KERNELS.items():
        assert found[name].value == pytest.approx(value, rel=0.1), name
        assert found[name].low <= found[name].value <= found[name].high
        assert not found[name].why
    assert fit.terms[0].value == pytest.approx(2.5e-3, rel=0.1)
    assert abs(fit.after[0].error) < 0.01
    path = written(tmp_path, fit, [run])
    spec = catalog.engine(path)
    assert spec.factors.tokens == pytest.approx(found["tokens"].value, rel=1e-4)
    assert spec.factors.kernels == 1.0
    assert "kernels: made up" in spec.sources["decode_attention_factor"]
    validation = Validation(held_out, [], question(held_out, None, [f"engine={path}"], None))
    assert validation.document["sample"]["state"] == "held out"
    assert mean_error(validation.rows) < 0.005
    host_only = written(tmp_path, fit_of(run), [run], "host.yaml")
    asked = question(held_out, None, [f"engine={host_only}"], None)
    assert mean_error(Validation(held_out, [], asked).rows) > 0.015


def test_factors_are_multiplied_when_they_are_fitted_anew_and_kept_when_not(tmp_path):
    run = run_of(tmp_path, OTHERS, noise=0.0)
    path = written(
        tmp_path, fit_engine([(run, question(run, None, [], None))], kernels=True), [run]
    )
    again = run_of(tmp_path, OTHERS, name="again", noise=0.0)
    pairs = [(again, question(again, None, [f"engine={path}"], None))]
    anew = fit_engine(pairs, kernels=True)
    for term in anew.factors:
        assert term.value == pytest.approx(KERNELS[term.name], rel=0.05)
    document = engine_document(anew, [again], "made up", date(2026, 1, 2))
    assert [entry["run"] for entry in document["fitted_to"]] == ["again"]
    kept = engine_document(fit_engine(pairs), [again], "made up", date(2026, 1, 2))
    assert kept["tokens_factor"]["value"] == pytest.approx(1.3, rel=0.05)
    assert kept["tokens_factor"]["source"].startswith("As in my-engine: Fitted")
    assert [entry["run"] for entry in kept["fitted_to"]] == ["again", "run"]


@pytest.mark.parametrize("value", [0, -1, 101, "fast"])
def test_a_factor_that_cannot_be_is_refused(tmp_path, value):
    document = catalog.raw("engines", "vllm") | {"tokens_factor": {"value": value, "source": "x"}}
    path = tmp_path / "engine.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UsageError, match="tokens_factor"):
        catalog.engine(path)


def test_what_cannot_be_fitted_is_said(tmp_path):
    run = run_of(tmp_path)
    with pytest.raises(UsageError, match=r"has no iterations\.csv"):
        fit_of(replace(run, iterations=None))
    short = run_of(
        tmp_path,
        changes={"run.requests": 2, "workload.output_tokens": {"kind": "fixed", "value": 9}},
        name="short",
    )
    with pytest.raises(UsageError, match="iterations are too few"):
        fit_of(short)
    pairs = [
        (run, question(run, None, [f"engine={name}"], None)) for name in ("reference", "ideal")
    ]
    with pytest.raises(UsageError, match="different engines"):
        fit_engine(pairs)
    path = written(tmp_path, fit_of(run), [run])
    with pytest.raises(UsageError, match="exists"):
        write_engine(path, {})
    with pytest.raises(UsageError, match="cannot be written"):
        write_engine(tmp_path / "nowhere" / "e.yaml", {})


@pytest.mark.parametrize(
    ("fitted_to", "message"),
    [
        ("run", "fitted_to: expected a list"),
        ([3], r"fitted_to\.0: expected a mapping"),
        ([{"run": "a", "iterations": "b"}], r"fitted_to\.0\.requests: is missing"),
        ([{"run": "a", "iterations": "b", "requests": "c", "x": 1}], r"fitted_to\.0\.x: unknown"),
    ],
)
def test_a_wrong_list_of_runs_is_refused(tmp_path, fitted_to, message):
    document = catalog.raw("engines", "vllm") | {"fitted_to": fitted_to}
    path = tmp_path / "engine.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UsageError, match=message):
        catalog.engine(path)
