"""Passes are timed by ``sim.cost`` alone: no other module asks for the parts of a pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sim.cost.passes import GroupAttention, Operators
from tests.test_imports import modules

INSIDE = {
    "by_size",
    "decode_lines",
    "per_output",
    "per_token",
    "prefill_operator",
    "prefill_seconds",
}
"""What operators and attention have for the cost model."""

RECORDED = {"pairs"}
"""A column of plans that only the operators of a pass are made of."""

MAKERS = {
    "sim.loop.clients",  # a client sends one again
    "sim.loop.fleet",  # a request arrives
    "sim.serve.session",  # whether one that has not come yet could be served
    "calibrate.engine.arrivals",
    "calibrate.observers.transformers",  # the engine is warmed up before its run
}
"""Who makes a ``Request``, of whichever kind."""


OF_NO_RECORD = {
    "calibrate.left_out",
    "sim.assembly",  # a prompt on a replica that is just up
    "sim.loop.pipeline",  # a batch that begins now
    "sim.metrics.load.full_batch",
    "sim.metrics.engine.speculation",
    "sim.metrics.words.engine_notes",  # a full pass of prompts
    "sim.planning.rooflines",
    "sim.planning.claims.claim",
    "sim.planning.load.saturation",
    "sim.selftest.exact",
}
"""Who makes a ``Batch`` outside the cost model: one that nobody recorded."""

SEQUENCES = {"computed", "decode_seqs"}
"""Columns of records that hold a batch's sequences, without which it cannot be made again."""


Use = tuple[str, type[ast.AST], str]
"""A module, how it uses a word (attribute, call, subscript), and the word."""


def uses(name: str, path: Path) -> Iterator[Use]:
    """What one module uses."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        word = None
        if isinstance(node, ast.Attribute):
            word = node.attr
        elif isinstance(node, ast.Call):
            word = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            word = node.slice.value
        if isinstance(word, str):
            yield name, type(node), word


@cache
def elsewhere() -> list[Use]:
    """What every module outside the cost model uses."""
    return [
        use
        for package in ("sim", "calibrate", "reports")
        for name, path in modules(package)
        if not name.startswith("sim.cost")
        for use in uses(name, path)
    ]


def found_in(kind: type[ast.AST], words: set[str], among: list[Use] | None = None) -> set[str]:
    """Modules that use one of ``words`` in that way."""
    among = elsewhere() if among is None else among
    return {name for name, how, word in among if how is kind and word in words}


def test_what_is_looked_for_exists() -> None:
    methods = {name for kind in (Operators, GroupAttention) for name in vars(kind)}
    assert INSIDE - {"by_size"} <= methods


def test_only_the_cost_model_asks_for_the_parts_of_a_pass() -> None:
    """But for the import of timings of whole blocks, which takes off them what is no attention, and
    for energy, which is that of each kernel."""
    importer = "calibrate.importers.aiconfigurator.latent"
    assert found_in(ast.Attribute, INSIDE) == {importer, "sim.metrics.record.draws"}


def test_what_is_no_replica_asks_for_the_seconds_of_a_batch() -> None:
    """But for the time that a preempted request takes to be computed again (``sim.host_memory``).
    ``sim.loop.batch_timer`` asks for a replica whose number of drafts changes, or whose model has
    windows."""
    callers = {name for name in found_in(ast.Call, {"iteration"}) if name.startswith("sim.")}
    assert callers == {
        "sim.iteration",
        "sim.loop.batch_timer",
        "sim.loop.lockstep",
        "sim.loop.replica",
        "sim.host_memory",
    }


def test_recorded_plans_become_batches_in_one_place() -> None:
    """But for the page on trust, whose ``pairs`` are pairs of runs."""
    assert found_in(ast.Subscript, RECORDED) == {"calibrate.scoring.trust_page"}


def test_a_recorded_pass_becomes_a_batch_in_one_place() -> None:
    """All that was recorded goes through ``sim.cost.recorded``."""
    makers = found_in(ast.Call, {"Batch"})
    assert makers == OF_NO_RECORD
    assert not makers & found_in(ast.Subscript, SEQUENCES)


def test_no_request_is_made_up_to_time_a_prompt() -> None:
    assert found_in(ast.Call, {"Request"}) == MAKERS


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    """A module that does all of it is found by each of the searches."""
    path = tmp_path / "bad.py"
    path.write_text(
        "seconds = cost.by_size.per_token(8)[0].seconds\n"
        "whole = cost.iteration(0, 0, [Chunk(Request(0, 0.0, 8, 1), 8, 0)], 1)[0]\n"
        "pairs = plans['pairs'].sum()\n"
        "again = cost.seconds(Batch(plans['computed'][0], plans['context'][0]))\n"
    )
    bad = list(uses("bad", path))
    for kind, words in (
        (ast.Attribute, INSIDE),
        (ast.Call, {"iteration"}),
        (ast.Subscript, RECORDED),
        (ast.Call, {"Request"}),
        (ast.Call, {"Batch"}),
        (ast.Subscript, SEQUENCES),
    ):
        assert found_in(kind, words, bad) == {"bad"}
