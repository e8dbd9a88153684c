"""Texts of named parts are plain texts to everyone else, and keep their parts wherever they go."""

import json
import pickle
from copy import deepcopy

import sim
from sim.metrics.texts import Composed
from tests.places import ROOT

TEXT = Composed({"found": "Too few requests.", "asks": " Simulate 200.", "trace": ""})


def test_it_is_a_text() -> None:
    assert TEXT == "Too few requests. Simulate 200."
    assert json.dumps({"text": TEXT}) == '{"text": "Too few requests. Simulate 200."}'


def test_copies_and_processes_keep_the_parts() -> None:
    for copied in (deepcopy({"text": TEXT})["text"], pickle.loads(pickle.dumps(TEXT))):
        assert copied == TEXT
        assert copied.saying(asks=" Ask 9.") == "Too few requests. Ask 9."


def test_a_part_is_put_otherwise_in_its_place() -> None:
    assert TEXT.saying(trace=" It has 9.", asks="").saying(end=" So.") == (
        "Too few requests. It has 9. So."
    )


def test_what_is_said_of_a_run_can_be_put_otherwise() -> None:
    scenario = sim.load_scenario(ROOT / "scenarios" / "chat.yaml").override({"run.requests": 200})
    own = sim.simulate(scenario).summary["infersim"]
    assert "told" in own["verdict"]["text"].parts
    assert "asks" in own["precision"]["text"].parts
