"""Drafts are checked for real: the tokens are the target's own, and the batches and blocks those of
a simulator that is told what was accepted."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

import numpy as np

import sim.pools
from calibrate.engine.attention import BySequence
from calibrate.engine.cache import Cache
from calibrate.engine.drafters import DraftModel, SearchedText
from calibrate.engine.drafting import begins
from calibrate.engine.places import kv_places
from calibrate.engine.record import ObservedResult
from calibrate.engine.run import run
from calibrate.engine.verified import verify
from calibrate.validation.observed import read_observed
from calibrate.validation.prediction import predict, question
from sim.errors import UsageError
from sim.growth.courses import DraftCourse, DraftCourses
from sim.scenario import load_scenario
from sim.schedulers import ChunkedPrefill
from sim.simulation import simulate
from sim.specs.speculation import Speculation
from tests.engine_fixtures import batches, llama, write_tiny
from tests.engine_harness import Asked, make_model, scheduler, serve, tiny

CROWD = [
    Asked(13, 30),
    Asked(5, 1),
    Asked(21, 24),
    Asked(2, 40, before=2),
    Asked(40, 5, before=3),
    Asked(9, 11, before=6),
    Asked(17, 28, before=20),
]


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def model():
    return make_model(tiny(num_layers=4))


def drafted(model, kind, drafts=3, layers=1, **limits):
    """What is served with drafts, and the batches of the scheduler."""
    method = "ngram" if kind == "ngram" else "draft_model"
    own = scheduler(ChunkedPrefill, **{"max_num_batched_tokens": 64} | limits)
    speculation = Speculation(method, drafts, (0.5,) * drafts)
    verify(own, speculation)

    def make(tables):
        if kind == "ngram":
            return SearchedText(drafts, shortest=1)
        spec = tiny(num_layers=layers)
        small = model.first_layers(spec) if kind == "layers" else make_model(tiny(hidden_size=32))
        kv = own.kv
        places = kv_places(small.spec)
        cache = Cache(places, kv.num_blocks, kv.block_size, dtype=model.dtype, device="cpu")
        return DraftModel(small, cache, BySequence(), tables, drafts)

    return serve(own, CROWD, model, drafting=make)


@pytest.mark.parametrize("kind", ["ngram", "layers", "stranger"])
@pytest.mark.parametrize("limits", [{}, {"blocks": 26}, {"block_size": 1, "blocks": 256}])
def test_the_tokens_are_those_of_the_target_alone(model, kind, limits):
    alone = serve(scheduler(ChunkedPrefill, max_num_batched_tokens=64), CROWD, model)
    served = drafted(model, kind, **limits)
    assert served.answers == alone.answers
    if kind != "stranger":
        assert served.accepted > 20
    if limits.get("blocks") == 26:
        assert served.preempted
    elif kind != "stranger":
        assert len(served.plans) < len(alone.plans)


def test_a_draft_that_is_the_target_is_always_right(model):
    """Keys and values of the draft are those that the target would have, also after rejections."""
    served = drafted(model, "layers", layers=4)
    decodes = sum(plan.decode for plan in served.plans)
    assert served.accepted == 3 * decodes


def test_layers_are_shared_only_with_a_target_that_begins_with_them():
    assert begins(tiny(num_layers=1), tiny(num_layers=4))
    assert not begins(tiny(num_layers=4), tiny(num_layers=1))
    assert not begins(tiny(num_layers=1, intermediate_size=64), tiny(num_layers=4))
    assert not begins(tiny(num_layers=1, hidden_size=32), tiny(num_layers=4))


DRAFTS = {"method": "draft_model", "num_tokens": 3, "acceptance_rate": 0.5}


@pytest.fixture
def path(tmp_path):
    made = write_tiny(tmp_path, "reference", model=llama(num_hidden_layers=4), outputs=(1, 40))
    (tmp_path / "draft.json").write_text(json.dumps(llama(num_hidden_layers=2)))
    return made


class Witnessed(DraftCourses):
    """The courses that requests really took: what was accepted in each of their decodes."""

    taken: dict[int, list[int]]

    def begin(self, request, drafts=None):
        lacks = request.output_tokens - request.generated
        past = self._past.get(request, 0)
        taken = self.taken[request.id][
            past:
        ]  # shorter where the prompt's pass brings a token again
        right = np.array([*taken, *[0] * lacks])
        self._now[request] = DraftCourse(right, lacks, self.drafts, self._most)
        return self._now[request]


@pytest.mark.parametrize("blocks", [100, 22])
@pytest.mark.parametrize("method", ["draft_model", "ngram"])
def test_the_simulator_told_what_was_accepted_runs_the_same_batches(
    path, device, method, blocks, monkeypatch
):
    drafts = dict(DRAFTS, method=method)
    if method == "draft_model":
        drafts["draft_model"] = "./draft.json"
    scenario = load_scenario(path).override(
        {"speculative": drafts, "kv_cache.num_gpu_blocks": blocks}
    )
    observed = run(scenario, device, precision="fp32")
    taken = {}
    for iteration in observed.iterations:
        for request, right in zip(iteration.decodes, iteration.accepted, strict=True):
            taken.setdefault(request, []).append(right)
    monkeypatch.setattr(Witnessed, "taken", taken, raising=False)
    monkeypatch.setattr(sim.pools, "DraftCourses", Witnessed)
    predicted = simulate(scenario, leap=False).record
    assert batches(observed.record.plans) == batches(predicted.plans)
    for name in ("delivered", "accepted"):
        assert (observed.record.plans[name] == predicted.plans[name]).all()
    assert observed.record.plans["accepted"].sum() > 0
    assert (blocks == 22) == (predicted.plans["preemptions"].sum() > 0)
    for name in ("id", "generated", "preemptions", "status"):
        assert (observed.record.requests[name] == predicted.requests[name]).all()


def test_drafts_that_the_engine_cannot_make_are_refused(path, device):
    eagle = {"method": "eagle", "num_tokens": 2, "acceptance_rate": 0.5}
    with pytest.raises(UsageError, match="eagle needs a layer that was trained"):
        run(load_scenario(path).override({"speculative": eagle}), device, precision="fp32")
    ngram = dict(eagle, method="ngram")
    asked = load_scenario(path).override({"speculative": ngram})
    with pytest.raises(UsageError, match="--sampling random"):
        run(asked, device, precision="fp32", sampling="random")


def test_an_observed_run_is_predicted_with_the_acceptance_that_was_measured(path, device, tmp_path):
    drafts = dict(DRAFTS, draft_model="./draft.json", acceptance_rate=0.01)
    scenario = load_scenario(path).override({"speculative": drafts})
    observed = run(scenario, device, precision="fp32")
    made = read_observed(ObservedResult(observed).save(tmp_path / "it"))
    right = [count for i in observed.iterations for count in i.accepted]
    asked = question(made, None, [], None)
    speculation = asked.setup.only.deployment.speculation
    assert speculation is not None
    length = 1 + sum(right) / len(right)
    assert speculation.length == pytest.approx(length, abs=1e-5)
    assert length > 1.5
    assert any("tokens came of a decode" in note for note in asked.notes)
    told = made.own["speculation"]
    assert told["acceptance_length"] == pytest.approx(length)
    predicted = predict(made, asked).summary["infersim"]["speculation"]
    assert predicted["acceptance_length"] == pytest.approx(length, rel=0.1)


def test_a_searched_text_is_predicted_with_the_drafts_that_were_made(path, device, tmp_path):
    """Random weights: most texts do not repeat, and then the engine checks nothing."""
    drafts = dict(DRAFTS, method="ngram", acceptance_rate=0.01)
    observed = run(load_scenario(path).override({"speculative": drafts}), device, precision="fp32")
    made = read_observed(ObservedResult(observed).save(tmp_path / "it"))
    checked = [count for i in observed.iterations for count in i.drafts]
    right = [count for i in observed.iterations for count in i.accepted]
    assert len(checked) == len(right) == sum(len(i.decodes) for i in observed.iterations)
    match = sum(checked) / (3 * len(checked))
    assert 0 < match < 0.95
    asked = question(made, None, [], None)
    speculation = asked.setup.only.deployment.speculation
    assert speculation is not None
    assert speculation.match == pytest.approx(max(match, speculation.rates[0]), abs=1e-5)
    assert speculation.length == pytest.approx(1 + sum(right) / len(right), abs=1e-4)
    assert any("of the drafts" in note.lower() for note in asked.notes)
