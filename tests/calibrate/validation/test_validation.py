"""Validation against truths that are known: runs "observed" under another engine, other kernels or
another memory than the scenario says, and what the error table and the advice make of them."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from calibrate.validation.composition import agreement
from calibrate.validation.document import Validation
from calibrate.validation.figures import ValidatedFigure, figures, mean_error
from calibrate.validation.iterations import read_iterations
from calibrate.validation.observed import check_same_traffic, read_observed
from calibrate.validation.prediction import Variant, predict, question
from calibrate.validation.regimes import NAMES, by_regime, regime_of, scatter
from calibrate.validation.residuals import STUDENT, half_widths, stretches
from calibrate.validation.series import MOST_GAPS, observed_gaps, series
from sim.errors import UsageError
from sim.metrics.latency.gaps import Gaps
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.specs.engine import Factors
from tests.observed_fixtures import observe, write_scenario

POISSON = {"workload.arrivals": {"kind": "poisson", "rate": 8.0}}
CLOSED = {"workload.arrivals": {"kind": "closed", "concurrency": 5, "think_time": 0.05}}


def validate(folder, truth=None, changes=None, *, noise=0.0, seed=1, iterations=True, asked=()):
    """What validate-run makes of a run under ``truth``."""
    directory = observe(
        write_scenario(folder, changes), folder / "observed", truth, noise=noise, seed=seed
    )
    if not iterations:
        (directory / "iterations.csv").unlink()
    run = read_observed(directory)
    return Validation(run, [], question(run, None, list(asked), None))


def only_change(validation, name):
    """The one change that is proposed, which must be of that name."""
    (change,) = validation.advice.changes
    assert change.cause.name == name
    return change


def test_intervals_of_a_mean_are_those_of_its_standard_error():
    """Of one value a stretch, the jackknife finds the textbook's."""
    values = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0])
    means = np.array([[values[kept].mean()] for kept in stretches(len(values))])
    expected = STUDENT * values.std(ddof=1) / np.sqrt(len(values))
    assert half_widths(means) == pytest.approx([expected])


# ---- nothing is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_cache.num_gpu_blocks": 300},  # preemptions
        {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 2048},
        {"scheduler.batching": "static"},
        {"scheduler.batching": "request"},
        {"workload.arrivals": {"kind": "closed", "concurrency": 5}},
        {"scheduler.order": "sjf"},
    ],
    ids=["burst", "tight", "whole-prompts", "static", "request", "closed", "sjf"],
)
def test_the_same_engine_is_predicted_exactly(tmp_path, changes):
    validation = validate(tmp_path, changes=changes)
    assert len(validation.rows) == 24
    assert max(abs(row.error) for row in validation.rows) < 1e-6
    assert validation.agreement.parting is None
    assert validation.agreement.share == 1.0
    assert validation.advice.quiet
    assert not validation.advice.changes
    assert all(abs(regime.error) < 1e-4 for regime in by_regime(*observed_pair(validation)))
    if "kv_cache.num_gpu_blocks" in changes:
        (level,) = (x for x in validation.document["composition"]["levels"]
                    if x["name"] == "preemptions")  # fmt: skip
        assert level["observed"] == level["predicted"] > 0


def observed_pair(validation):
    assert validation.run.iterations is not None
    return validation.run.iterations, validation.expected


def test_the_expected_time_of_an_iteration_is_what_the_simulator_lets_it_take(tmp_path):
    iterations, expected = observed_pair(
        validate(tmp_path, changes={"kv_cache.num_gpu_blocks": 300})
    )
    assert expected.seconds == pytest.approx(iterations.duration, abs=2e-7)
    parts = expected.growth + expected.decode_attention + expected.prefill_attention
    assert (parts < expected.kernels).all()
    host = expected.seconds - expected.kernels
    by_hand = 5e-4 + 5e-6 * expected.sequences + 1e-4 * expected.admitted
    assert host == pytest.approx(by_hand)
    assert expected.admitted.sum() == 60 + iterations.preempted.sum()


def test_noise_alone_asks_for_nothing(tmp_path):
    validation = validate(tmp_path, changes=POISSON, noise=0.03)
    assert validation.advice.quiet
    assert not validation.advice.changes
    assert validation.document["advice"]["text"].startswith("Nothing")
    assert scatter(validation.run.iterations) == pytest.approx(0.02, abs=0.004)  # median, not sigma


# ---- one thing is wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, POISSON], ids=["burst", "poisson"])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_constant_per_iteration_is_found(tmp_path, changes, noise):
    validation = validate(tmp_path, Variant(per_iteration=3e-3), changes, noise=noise)
    change = only_change(validation, "per_iteration")
    assert change.cause.value == pytest.approx(3e-3, rel=0.02)
    assert change.cause.low <= change.cause.value <= change.cause.high
    assert change.share > 0.95
    assert change.confidence == "high"
    assert change.cause.rivals == ()
    (told,) = validation.document["advice"]["changes"]
    assert told["title"].startswith("engine: per_iteration 500 us -> 3.")
    iterations, expected = observed_pair(validation)
    short = (iterations.duration - expected.seconds).sum()
    assert short == pytest.approx(3e-3 * len(iterations), rel=0.02)
    errors = {row.key: row.error for row in validation.rows}
    assert errors["mean_tpot_ms"] < -0.3
    if not changes:
        assert validation.agreement.share == 1.0  # order does not hang on times here
        assert errors["output_throughput"] > 0.3


@pytest.mark.parametrize(
    ("truth", "name", "value"),
    [
        (Variant(per_sequence=2e-4), "per_sequence", 2e-4),
        (Variant(per_new_request=5e-3), "per_new_request", 5e-3),
        (Variant(factors=Factors(decode_attention=1.5)), "decode_attention", 0.5),
        (Variant(factors=Factors(prefill_attention=3.0)), "prefill_attention", 2.0),
        (Variant(factors=Factors(tokens=1.4)), "tokens", 0.4),
        (Variant(per_iteration=-4e-4), "per_iteration", -4e-4),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_other_terms_are_found(tmp_path, truth, name, value, noise):
    change = only_change(validate(tmp_path, truth, noise=noise), name)
    assert change.cause.value == pytest.approx(value, rel=0.02 if not noise else 0.15)
    assert change.share > 0.8
    assert change.confidence == "high"


def test_decode_attention_is_off_by_its_context_in_its_regimes(tmp_path):
    validation = validate(tmp_path, Variant(factors=Factors(decode_attention=1.5)))
    errors = {row["name"]: row["error"] for row in validation.document["iterations"]["regimes"]}
    assert errors["decode, 5 to 16"] < errors["mixed"] < 0
    assert errors["prefill only"] == pytest.approx(0, abs=1e-4)


def test_a_block_count_is_found_and_nothing_else(tmp_path):
    validation = validate(tmp_path, Variant(num_gpu_blocks=300))
    change = only_change(validation, "num_gpu_blocks")
    assert change.cause.value == 300
    assert change.share == pytest.approx(1.0)
    assert change.confidence == "certain"
    assert validation.advice.left < 1e-6
    (told,) = validation.document["advice"]["changes"]
    assert told["title"] == "kv_cache.num_gpu_blocks: 300"
    assert validation.agreement.parting is not None
    assert validation.agreement.share < 0.1
    iterations, expected = observed_pair(validation)
    assert expected.seconds == pytest.approx(iterations.duration, abs=2e-7)  # scheduling alone


def test_blocks_that_make_no_difference_are_named_all_the_same(tmp_path):
    validation = validate(tmp_path, Variant(num_gpu_blocks=1900))
    change = only_change(validation, "num_gpu_blocks")
    assert change.share == 0
    assert validation.advice.quiet
    told = validation.document["advice"]["changes"][0]
    assert told["share_text"] == "no effect on this traffic"


@pytest.mark.parametrize("iterations", [True, False], ids=["iterations", "requests-alone"])
def test_time_outside_the_engine_is_found(tmp_path, iterations):
    truth = Variant(front_end=20e-3)
    validation = validate(tmp_path, truth, POISSON, noise=0.02, iterations=iterations)
    change = only_change(validation, "front_end")
    assert change.cause.value == pytest.approx(20e-3, rel=0.02)
    assert change.share > 0.9


@pytest.mark.parametrize(("later", "proposed"), [(2e-3, True), (3e-4, False)])
def test_a_change_is_proposed_from_a_thirtieth_of_the_error_on(tmp_path, later, proposed):
    """Of what is wrong, 10 % is in requests that enter the batch, or 2 %."""
    validation = validate(tmp_path, Variant(per_iteration=3e-3, per_new_request=later))
    shares = {change.cause.name: change.share for change in validation.advice.changes}
    assert ("per_new_request" in shares) == proposed
    if proposed:
        assert 0.05 < shares["per_new_request"] < 0.15
        assert validation.advice.left < 1e-3
    else:
        assert 0 < validation.advice.left < 0.03 * validation.advice.before


def test_two_things_are_told_apart(tmp_path):
    truth = Variant(per_iteration=2e-3, num_gpu_blocks=300)
    validation = validate(tmp_path, truth, noise=0.01)
    found = {change.cause.name: change.cause.value for change in validation.advice.changes}
    assert found == {"per_iteration": pytest.approx(2e-3, rel=0.02), "num_gpu_blocks": 300}
    assert sum(change.share for change in validation.advice.changes) > 0.97
    assert validation.advice.left < 0.05 * validation.advice.before


@pytest.mark.parametrize(
    ("truth", "name", "value"),
    [
        (Variant(per_iteration=3e-3), "per_iteration", 3e-3),
        (Variant(factors=Factors(kernels=1.5)), "kernels", 0.5),
    ],
    ids=["constant", "proportional"],
)
def test_requests_alone_tell_less_surely(tmp_path, truth, name, value):
    validation = validate(tmp_path, truth, POISSON, noise=0.02, iterations=False)
    change = validation.advice.changes[0]
    assert change.cause.name == name
    assert change.cause.value == pytest.approx(value, rel=0.05)
    assert change.cause.rivals
    assert change.confidence == "low"
    assert validation.document["iterations"] is None
    assert validation.document["composition"]["agreement"] is None
    assert any("no iterations (iterations.csv)" in n for n in validation.document["notes"])


# ---- traffic and scenario ------------------------------------------------------------------------


def test_the_clients_of_a_closed_loop_wait_for_the_simulator(tmp_path):
    validation = validate(tmp_path, Variant(per_iteration=3e-3), CLOSED)
    arrivals = validation.predicted.result.record.requests["arrival"]
    assert arrivals.max() < 0.7 * validation.run.requests["arrival_s"].max()
    lengths = validation.predicted.result.record.requests["prompt_tokens"]
    assert (lengths == validation.run.requests["prompt_tokens"]).all()
    tried = predict(validation.run, validation.asked, Variant(per_iteration=3e-3))
    assert mean_error(figures(validation.run.summary, tried.summary, [])) < 1e-6


def test_requests_keep_their_class(tmp_path):
    classes = [{"name": "chat", "share": 0.5}, {"name": "batch", "share": 0.5, "priority": 3}]
    changes = {"workload.classes": classes, "scheduler.order": "priority"}
    validation = validate(tmp_path, changes=changes)
    assert max(abs(row.error) for row in validation.rows) < 1e-6
    names = validation.predicted.result.requests["class"]
    assert names.tolist() == validation.run.requests["class"].tolist()
    assert set(names) == {"chat", "batch"}


def test_what_failed_is_not_sent_again(tmp_path):
    validation = validate(tmp_path, changes={"max_model_len": 1000})
    assert validation.run.failed > 0
    count = len(validation.run.requests)
    assert count + validation.run.failed == 60
    assert validation.predicted.summary["completed"] == count
    (note,) = [note for note in validation.document["notes"] if "not sent again" in note]
    assert note == f"{validation.run.failed} requests failed and are not sent again."


@pytest.mark.parametrize("longest", [1000, 4096])
def test_nothing_is_concluded_from_a_record_whose_failures_may_explain_all(tmp_path, longest):
    """Without iterations, what the engine did for requests that failed is not to be seen."""
    slow, changes = Variant(factors=Factors(decode_attention=1.5)), {"max_model_len": longest}
    for iterations in (True, False):
        folder = tmp_path / f"{iterations}"
        folder.mkdir()
        validation = validate(folder, slow, changes, iterations=iterations)
        assert validation.run.failed == 0 or validation.run.failed > 6
        told = validation.document["advice"]
        concluded = iterations or not validation.run.failed
        assert bool(told["changes"]) == concluded
        assert ("Failed requests" in told["text"]) == (not concluded)


def test_nothing_is_tried_on_a_run_of_too_few_requests(tmp_path):
    slow = Variant(factors=Factors(kernels=1.5))
    for requests in (1, 4):
        folder = tmp_path / f"{requests}"
        folder.mkdir()
        told = validate(folder, slow, {"run.requests": requests}, iterations=False).document
        assert not told["advice"]["changes"]
        few = "1 request," if requests == 1 else "4 requests,"
        assert told["advice"]["text"].startswith(f"The run has {few} too few to tell")
        assert "at least 5 are needed" in told["advice"]["text"]


def test_warm_up_is_that_of_the_observed_run(tmp_path):
    run = validate(tmp_path, changes={**POISSON, "run.warmup": 7}).run
    asked = question(run, None, [], None)
    assert asked.scenario.run.warmup.requests == 7
    assert predict(run, asked).summary["infersim"]["requests"]["warmup"] == 7


def test_another_scenario_predicts_the_same_requests(tmp_path):
    run = validate(tmp_path).run
    other = tmp_path / "other.yaml"
    changed = load_scenario(write_scenario(tmp_path)).override(
        {"workload.arrivals": {"kind": "poisson", "rate": 1}, "scheduler.max_num_seqs": 8,
         "seed": 7, "run.requests": 5}
    )  # fmt: skip
    other.write_text(changed.to_yaml())
    asked = question(run, other, ["kv_cache.num_gpu_blocks=900"], "l40s")
    assert (asked.scenario.scheduler.max_num_seqs, asked.scenario.fleet[0].gpu) == (8, "l40s")
    assert asked.setup.only.capacity.num_gpu_blocks == 900
    predicted = predict(run, asked)
    assert predicted.summary["completed"] == 60
    assert predicted.summary["infersim"]["batch"]["peak_running"] == 8
    assert predicted.summary["total_output_tokens"] == run.summary["total_output_tokens"]


def test_our_engine_is_predicted_as_ours_whatever_its_scenario_says(tmp_path):
    directory = validate(tmp_path).run.path
    for name in ("resolved.yaml", "scenario.yaml"):
        path = directory / name
        path.write_text(load_scenario(path).override({"engine": "vllm"}).to_yaml())
    run = read_observed(directory)
    asked = question(run, None, [], None)
    assert asked.setup.only.deployment.engine.name == "reference"
    assert any("engine: vllm" in note for note in asked.notes)
    assert question(run, None, ["engine=ideal"], None).setup.only.deployment.engine.name == "ideal"


def test_the_precision_that_ran_is_predicted(tmp_path):
    directory = validate(tmp_path).run.path
    manifest = json.loads((directory / "manifest.json").read_text())
    for ran, predicted in (("fp16", "fp16"), ("fp64", "bf16")):
        manifest["engine"]["precision"] = ran
        (directory / "manifest.json").write_text(json.dumps(manifest))
        asked = question(read_observed(directory), None, [], None)
        assert asked.scenario.precision.weights == predicted
        assert any(ran in note for note in asked.notes)


@pytest.mark.parametrize("override", ["workload.arrivals.rate=3", "workload={}", " workload.x=1"])
def test_the_traffic_cannot_be_overridden(tmp_path, override):
    run = validate(tmp_path).run
    with pytest.raises(UsageError, match="traffic is that of the observed run"):
        question(run, None, [override], None)


# ---- repetitions ---------------------------------------------------------------------------------


def test_repetitions_say_how_noisy_the_engine_is(tmp_path):
    scenario = write_scenario(tmp_path)
    runs = [
        read_observed(observe(scenario, tmp_path / str(seed), noise=0.05, seed=seed))
        for seed in range(1, 4)
    ]
    validation = Validation(runs[0], runs[1:], question(runs[0], None, [], None))
    values = [run.summary["mean_tpot_ms"] for run in runs]
    (row,) = (row for row in validation.rows if row.key == "mean_tpot_ms")
    assert row.noise == pytest.approx(np.std(values, ddof=1) / np.mean(values))
    assert 0 < row.noise < 0.05
    assert validation.document["advice"]["noise"] == "measured over 3 runs"
    assert validation.document["iterations"]["busy_noise"] < 0.02


def test_other_traffic_is_no_repetition(tmp_path):
    run = validate(tmp_path).run
    for number, (changes, message) in enumerate(
        [
            ({"seed": 3}, "requests are others"),
            (POISSON, "other times"),
            (CLOSED, "other times"),
            ({"scheduler.max_num_seqs": 8}, "another scheduler"),
        ]
    ):
        scenario = write_scenario(tmp_path, changes)
        other = read_observed(observe(scenario, tmp_path / str(number)))
        with pytest.raises(UsageError, match=message):
            check_same_traffic(run, other)
    check_same_traffic(run, run)


# ---- figures, iterations, gaps -------------------------------------------------------------------


def test_errors_and_bands_of_a_figure():
    row = ValidatedFigure("mean_tpot_ms", "ms", observed=10.0, predicted=12.0, noise=None, band=0.2)
    assert row.error == pytest.approx(0.2)
    assert row.within_band  # 10 is 17 % below 12
    assert not row._replace(band=0.1).within_band
    assert row._replace(band=None).within_band is None
    twice = row._replace(predicted=20.0)
    assert mean_error([twice, row._replace(predicted=5.0)]) == pytest.approx(np.log(2))
    assert mean_error([]) == 0


def test_what_one_side_lacks_is_no_row():
    band = {"throughput": 0.1, "ttft": 0.1, "tpot": 0.1}
    predicted = {"duration": 3.0, "mean_ttft_ms": 5.0, "infersim": {"error_band": band}}
    rows = figures({"duration": 2.0, "mean_ttft_ms": None}, predicted, [])
    assert [(row.key, row.error) for row in rows] == [("duration", 0.5)]


def test_regimes_by_what_is_in_an_iteration(tmp_path):
    path = tmp_path / "iterations.csv"
    rows = ["1,,3:0+5,0", "1,,,7", "2,,,7", "5,1,,7", "0,,1:0+9 2:4+4,0", "300,,,7"]
    lines = [
        f"0.0,0.1,{r.split(',')[0]},{r.split(',')[1]},{r.split(',')[2]},{r.split(',')[3]}"
        for r in rows
    ]
    path.write_text(
        "start_s,duration_s,decode_seqs,padded_seqs,prefills,context_tokens\n" + "\n".join(lines)
    )
    found = read_iterations(path)
    assert found is not None
    assert [NAMES[place] for place in regime_of(found)] == [
        *("mixed", "decode, 1", "decode, 2 to 4", "decode, 5 to 16", "prefill only"),
        "decode, 257 and more",
    ]
    assert found.admitted.tolist() == [1, 0, 0, 0, 1, 0]
    assert found.prefill_tokens.tolist() == [5, 0, 0, 0, 13, 0]
    assert found.sequences.tolist() == [1, 1, 2, 6, 0, 300]
    assert found.decodes is None


def test_the_first_difference_is_shown(tmp_path):
    validation = validate(tmp_path)
    plans = validation.predicted.result.record.plans.copy()
    plans["context"][17] += 1
    found = agreement(validation.run.iterations, plans)
    assert (found.same, found.parting.iteration) == (17, 17)
    assert found.parting.observed[2] + 1 == found.parting.predicted[2]
    shorter = agreement(validation.run.iterations, validation.predicted.result.record.plans[:30])
    assert shorter.same == 30
    assert shorter.parting.predicted is None
    assert shorter.share == 30 / len(validation.run.iterations)


@pytest.mark.parametrize("changes", [{}, {"kv_cache.num_gpu_blocks": 300}, POISSON])
def test_gaps_of_the_iterations_are_those_of_the_summary(tmp_path, changes):
    validation = validate(tmp_path, changes=changes, noise=0.1)
    gaps = observed_gaps(validation.run)
    assert gaps is not None
    summary = validation.run.summary
    assert gaps.mean() * 1e3 == pytest.approx(summary["mean_itl_ms"], rel=1e-5)
    assert np.percentile(gaps, 99) * 1e3 == pytest.approx(summary["p99_itl_ms"], rel=1e-4)
    assert len(gaps) == summary["total_output_tokens"] - 60
    drawn = series(validation)["itl"]
    assert len(drawn["observed"]["values"]) == len(gaps) < MOST_GAPS
    record = validation.predicted.result.record
    assert sum(drawn["predicted"]["weights"]) == Gaps.recorded(record.plans, record.gaps).total()


# ---- files ---------------------------------------------------------------------------------------


def test_an_observed_directory_is_only_read(tmp_path):
    validation = validate(tmp_path)
    directory = validation.run.path
    before = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}
    assert validation.document
    assert series(validation)
    after = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}
    assert before == after
    assert validation.run.hashes["iterations.csv"] == before["iterations.csv"]


def test_the_document_is_plain_data(tmp_path):
    validation = validate(tmp_path, Variant(per_iteration=3e-3), noise=0.01)
    assert json.loads(json.dumps(validation.document, allow_nan=False)) == validation.document
    assert json.dumps(series(validation), allow_nan=False)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("0,x,1,,,5", "duration_s is 'x'"),
        ("0,nan,1,,,5", "duration_s is 'nan'"),
        ("0,0.1,-1,,,5", "decode_seqs is '-1'"),
        ("0,0.1,1,,3:4,5", "prefills is '3:4'"),
        ("0,0.1,1,,a:0+4,5", "prefills is 'a:0\\+4'"),
        ("0,0.1,1,,", "context_tokens is None"),
        ("0,0.1,1,,,", "context_tokens is ''"),
    ],
)
def test_a_bad_line_of_iterations_is_named(tmp_path, cells, message):
    path = tmp_path / "iterations.csv"
    path.write_text(
        f"start_s,duration_s,decode_seqs,padded_seqs,prefills,context_tokens\n0,1,1,,,5\n{cells}\n"
    )
    with pytest.raises(UsageError, match=f"iterations.csv:3: {message}"):
        read_iterations(path)


def test_iterations_without_a_needed_column(tmp_path):
    path = tmp_path / "iterations.csv"
    path.write_text("start_s,duration_s\n0,1\n")
    with pytest.raises(UsageError, match="has no column decode_seqs, prefills, context_tokens"):
        read_iterations(path)
    path.write_text("start_s,duration_s,decode_seqs,prefills,context_tokens\n")
    assert read_iterations(path) is None
    assert read_iterations(tmp_path / "none.csv") is None


def test_a_simulated_run_is_not_an_observed_one(tmp_path):
    simulate(load_scenario(write_scenario(tmp_path))).save(tmp_path / "simulated")
    with pytest.raises(UsageError, match="directory of a simulated run"):
        read_observed(tmp_path / "simulated")
    with pytest.raises(UsageError, match="does not exist"):
        read_observed(tmp_path / "nothing")
    with pytest.raises(UsageError, match="is a file"):
        read_observed(tmp_path / "known.yaml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"manifest\.json cannot be read"):
        read_observed(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", "{", "is not JSON"),
        ("manifest.json", "[]", "is not a JSON object"),
        ("manifest.json", '{"kind": "observed", "status": "incomplete"}', "is incomplete"),
        ("summary.json", None, "summary.json cannot be read"),
        ("requests.parquet", "no parquet", "requests.parquet: cannot be read"),
        ("requests.parquet", None, "requests.parquet: cannot be read"),
        ("timeseries.parquet", None, "timeseries.parquet: cannot be read"),
    ],
)
def test_a_directory_that_lacks_something_is_refused(tmp_path, name, content, message):
    directory = validate(tmp_path).run.path
    (directory / name).unlink() if content is None else (directory / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        read_observed(directory)


def test_a_figure_is_judged_by_the_band_that_a_run_states_of_it():
    band = {"throughput": 0.1, "ttft": 0.1, "tpot": 0.1}
    stated = {
        "figures": {"mean_ttft_ms": {"band90": [4.0, 9.0]}, "duration": {"band90": [2.9, None]}}
    }
    predicted = {
        **{"duration": 3.0, "mean_ttft_ms": 5.0, "mean_tpot_ms": 5.0},
        "infersim": {"error_band": band, "bands": stated},
    }
    observed = {"duration": 9.0, "mean_ttft_ms": 8.0, "mean_tpot_ms": 8.0}
    found = {row.key: row.within_band for row in figures(observed, predicted, [])}
    assert found == {"mean_ttft_ms": True, "mean_tpot_ms": False, "duration": True}
