"""A part is one file: a policy, an order, a router or a metric says what others must know of it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.memory import ALLOCATORS
from sim.routers import ROUTERS
from sim.schedulers import ASSUMED, ORDERS, POLICIES, BatchShape, ChunkedPrefill, RankedPrefill
from tests.places import ROOT

REGISTRIES = {"batching": POLICIES, "order": ORDERS, "router": ROUTERS, "allocator": ALLOCATORS}

# -- a user's own: one file in the folder of the scenario -----------------------------------------

CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "max_model_len": 1024,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
    "run": {"requests": 60},
}

OWN = """
from sim.memory import PagedAllocator
from sim.routers import Router
from sim.schedulers import BatchShape, Chunk, Order, Plan, Scheduler


class Alone(Scheduler):
    name = "alone"
    about = "one request at a time"
    current = None

    def schedule(self, now):
        if self.current is None:
            if not self.waiting:
                return None
            request = self.current = self.waiting.popleft()
            request.scheduled = now
            tokens = request.prompt_tokens
            self.kv.allocate(request, tokens)
            return Plan(chunks=[Chunk(request, tokens, 0)], admitted=1, running=1, held=tokens)
        self.kv.grow(1)
        held = self.decoding.context
        return Plan(decode=1, context=held, running=1, held=held + 1, stationary=True)

    def members(self):
        return [] if self.current is None else [self.current]

    def _retire(self, request):
        self.kv.free(request)
        self.current = None


class Stated(Alone):
    name = "stated"
    about = "the same, and it says how its full batches look"
    shape = BatchShape(whole=True)


class ShortestPrompt(Order):
    name = "shortest-prompt"
    about = "the shortest prompt"

    def key(self, request):
        return request.prompt_tokens


class Last(Router):
    name = "last"
    about = "the last replica"

    def choose(self, request, targets):
        return len(targets) - 1


class Roomy(PagedAllocator):
    name = "roomy"
    about = "blocks, as paged"


def longest(result):
    return result.requests["e2el_s"].max()
"""
"""One of everything, as a user or a developer writes it."""


def own_run(folder: Path, **changes: str) -> sim.Result:
    """A run of the chat with the parts in ``folder/mine.py``, the only file there."""
    (folder / "mine.py").write_text(OWN)
    scenario = sim.load_scenario(CHAT, changes)
    scenario = scenario.moved(folder)
    found = sim.simulate(scenario)
    assert [path.name for path in folder.iterdir() if path.suffix] == ["mine.py"]
    return found


def test_a_policy_an_order_a_router_and_a_metric_are_one_file(tmp_path: Path) -> None:
    found = own_run(
        tmp_path,
        **{
            "scheduler.batching": "mine:Alone",
            "scheduler.order": "mine:ShortestPrompt",
            "router": "mine:Last",
            "metrics": "mine:longest",
        },
    )
    assert found.summary["completed"] == 60
    assert set(found.requests["replica"]) == {1}
    assert found.timeseries["running"].max() == 1
    assert found.summary["infersim"]["metrics"]["longest"] == found.requests["e2el_s"].max()


def test_the_capacity_of_an_unknown_policy_is_called_an_estimate(tmp_path: Path) -> None:
    texts = {
        policy: own_run(tmp_path, **{"scheduler.batching": policy}).summary["infersim"]["verdict"]
        for policy in ("mine:Alone", "mine:Stated", "continuous")
    }
    estimated = [policy for policy, verdict in texts.items() if "estimate" in verdict["text"]]
    assert estimated == ["mine:Alone"]
    assert "an estimate: mine:Alone does not state the shape" in texts["mine:Alone"]["text"]
    assert all(verdict["utilisation"] is not None for verdict in texts.values())


def test_a_shape_is_stated_by_each_class_for_itself() -> None:
    class Changed(ChunkedPrefill):
        """What it changes is not known."""

    class Same(ChunkedPrefill):
        shape = ChunkedPrefill.shape

    assert Changed.shape is ASSUMED
    assert Same.shape == RankedPrefill.shape == BatchShape()


# -- one that ships: a file in its package; of orders and allocators a word in their registry ------

SHIPPED = """
import json
from sim.memory import ALLOCATORS
from sim.routers.mine import Roomy, ShortestPrompt
from sim.schedulers import ORDERS

for registry, part in ((ALLOCATORS, Roomy), (ORDERS, ShortestPrompt)):
    registry._parts[part.name] = part  # the word that its registry would have

import sim
from reports.frame import theme
from sim.errors import ScenarioError
from sim.planning.causes.counterfactuals import counterfactuals
from sim.planning.causes.techniques import techniques
from sim.planning.fleet.launch import launch_commands
from sim.scenario.reference.json_schema import to_text
from sim.scenario.reference.keys import asked
from sim.selftest.exact import burst_checks

CHAT = json.loads(INPUT)
changes = {
    "scheduler.batching": "stated",
    "scheduler.order": "shortest-prompt",
    "router": "last",
    "kv_cache.allocator": "roomy",
}
scenario = sim.load_scenario(CHAT, changes)
errors = []
for key, value in changes.items():
    try:
        scenario.override({key: value[:-1] + "x"})
    except ScenarioError as error:
        errors.append(str(error))
print(json.dumps({
    "verdict": sim.simulate(scenario).summary["infersim"]["verdict"]["text"],
    "errors": errors,
    "schema": to_text(),
    "reference": [str(key.document()) for key in asked(None)],
    "colour": theme.policy("stated") == theme.OTHER_POLICY,
    "techniques": [technique.name for technique in techniques(scenario)],
    "what-ifs": [change.name for change in counterfactuals(scenario)],
    "notes": launch_commands(scenario)["notes"],
    "bursts": [check.name for check in burst_checks() if "stated" in check.name],
}))
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program says with one more policy, order, router and allocator: the packages as they
    are, and in those of policies and of routers one file more."""
    folder = tmp_path_factory.mktemp("shipped")
    grown = ("sim", "sim/schedulers", "sim/routers")
    for package in grown:
        (folder / package).mkdir()
        for part in (ROOT / package).iterdir():
            if str(part.relative_to(ROOT)) not in grown and part.name != "__pycache__":
                (folder / package / part.name).symlink_to(part)
    for package in grown[1:]:
        (folder / package / "mine.py").write_text(OWN)
    (folder / "program.py").write_text(f"INPUT = {json.dumps(CHAT)!r}\n{SHIPPED}")
    answer: dict[str, Any] = said_by(folder, "program.py")
    return answer


def said_by(folder: Path, *arguments: str) -> Any:
    """What Python prints as JSON, called with ``arguments`` in ``folder``."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NAMES = ("stated", "shortest-prompt", "last", "roomy")


def test_a_part_that_ships_is_in_schema_reference_and_messages(shipped: dict[str, Any]) -> None:
    for name, error in zip(NAMES, shipped["errors"], strict=True):
        assert f"did you mean '{name}'?" in error, error
        assert f'"{name}"' in shipped["schema"]
        assert any(f"{name}: " in key and f", {name}" in key for key in shipped["reference"])


def test_a_policy_that_ships_is_planned_with_and_drawn(shipped: dict[str, Any]) -> None:
    assert "estimate" not in shipped["verdict"]
    assert shipped["colour"]
    assert {"stated-batching", "order"} <= set(shipped["techniques"])
    assert {"continuous", "router"} <= set(shipped["what-ifs"])
    assert any("stated batching was simulated" in note for note in shipped["notes"])


# -- hardware and models: one file in the catalogue ------------------------------------------------

FROM_FILES = """
import json, sys
from pathlib import Path
import sim.catalog, sim.catalog.entries, sim.catalog.lookup

there = Path("catalog").absolute()
sim.catalog.FOLDER = sim.catalog.entries.FOLDER = sim.catalog.lookup.FOLDER = there

import sim
from sim.scenario.reference.json_schema import to_text

chat = json.loads(sys.argv[1]) | {"model": "llama-new", "fleet": {"gpu": "l4-new"}}
summary = sim.simulate(chat).summary
print(json.dumps([summary["completed"], summary["infersim"]["gpu"], to_text()]))
"""


def test_a_gpu_and_a_model_are_one_file_each(tmp_path: Path) -> None:
    """Under their names they are in the schema, are simulated, and need nothing else."""
    for kind in (ROOT / "sim" / "catalog").iterdir():
        if kind.is_dir():
            (tmp_path / "catalog" / kind.name).mkdir(parents=True)
            for file in kind.glob("*.yaml"):
                (tmp_path / "catalog" / kind.name / file.name).symlink_to(file)
    for kind_of, old, new in (("gpus", "l4", "l4-new"), ("models", "llama-3.2-1b", "llama-new")):
        text = (ROOT / "sim" / "catalog" / kind_of / f"{old}.yaml").read_text("utf-8")
        (tmp_path / "catalog" / kind_of / f"{new}.yaml").write_text(text, "utf-8")
    completed, gpu, schema = said_by(tmp_path, "-c", FROM_FILES, json.dumps(CHAT))
    assert (completed, gpu) == (60, "l4-new")
    assert '"l4-new"' in schema
    assert '"llama-new"' in schema


# -- names are nowhere else -----------------------------------------------------------------------

HOMES = {
    "sim/schedulers/iteration_level.py",
    "sim/schedulers/whole_batch.py",
    "sim/schedulers/orders.py",
    "sim/routers/affinity.py",
    "sim/routers/data_parallel.py",
    "sim/routers/load.py",
    "sim/memory/paged.py",
    "sim/memory/contiguous.py",
}


def texts(node: ast.AST) -> set[str]:
    """The string constants in ``node``."""
    return {
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }


def repeated(node: ast.AST) -> Iterator[set[str]]:
    """The names, where ``node`` compares a key of a scenario with names of its registry or lists
    several names of a registry."""
    if isinstance(node, ast.Compare):
        source = ast.unparse(node)
        for key, registry in REGISTRIES.items():
            if key in source and (found := texts(node) & set(registry)):
                yield found
    if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Subscript):
        parts = node.keys if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
        listed = {
            part.value
            for part in parts
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        for registry in REGISTRIES.values():
            if len(found := listed & set(registry)) > 1:
                yield found


def by_number(node: ast.AST) -> Iterator[int]:
    """Lines in which ``node`` takes one pool of a fleet by its place, to read or to override it."""
    match node:
        case ast.Subscript(value=of, slice=ast.Constant() | ast.UnaryOp() as place):
            at = ast.unparse(place).lstrip("-")
            if (at.isdigit() and named(of) in ("fleet", "pools", "deployments")) or overriding(
                place
            ):
                yield node.lineno
        case ast.Dict(keys=keys):
            yield from (key.lineno for key in keys if key is not None and overriding(key))


def named(node: ast.expr) -> str | None:
    """What is indexed: the last name of it, or the key under which a mapping has it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None


def overriding(key: ast.expr) -> bool:
    """Whether ``key`` is the dotted key of a pool by its number."""
    return isinstance(key, ast.Constant) and str(key.value).startswith("fleet.0")


Scanned = tuple[list[tuple[int, set[str]]], list[int]]
"""Lines and names of registries on them; lines with a pool taken by its number."""


LISTED = "|".join(re.escape(name) for registry in REGISTRIES.values() for name in registry)
SUSPECT = re.compile(rf"""["']({LISTED}|fleet\.0[^"']*)["']|(fleet|pools|deployments)\W{{1,3}}\d""")
"""Without any of it a module has nothing of what is looked for; to parse all of them takes long."""


def scan(text: str) -> Scanned:
    """What a module should not have."""
    names: list[tuple[int, set[str]]] = []
    numbers: list[int] = []
    if not SUSPECT.search(text):
        return names, numbers
    for node in ast.walk(ast.parse(text)):
        names += [(getattr(node, "lineno", 0), found) for found in repeated(node)]
        numbers += by_number(node)
    return names, numbers


@cache
def scanned(package: str) -> dict[str, Scanned]:
    """The same of every module of a package."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): scan(path.read_text("utf-8")) for path in paths}


@pytest.mark.parametrize("package", ["sim", "calibrate", "reports"])
def test_no_name_of_a_registry_is_repeated_elsewhere(package: str) -> None:
    found = [
        f"{place}:{line} {sorted(names)}"
        for place, (repetitions, _) in scanned(package).items()
        if place not in HOMES
        for line, names in repetitions
    ]
    assert found == []


def test_the_scan_finds_what_it_looks_for() -> None:
    bad = (
        'if knobs.batching in ("static", "request"): pass\n'
        'if scenario.scheduler.order == "edf": pass\n'
        'KNOWN = ("fcfs", "sjf")\n'
        'COLOURS = {"static": 1, "continuous": 2}\n'
    )
    assert {line for line, _ in scan(bad)[0]} == {1, 2, 3, 4}
    assert scan('if by == "request": row["static"]') == ([], [])


# -- no pool is special ----------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["sim", "calibrate", "reports"])
def test_no_pool_is_read_by_its_number(package: str) -> None:
    found = [
        f"{place}:{line}"
        for place, (_, lines) in scanned(package).items()
        if not place.startswith("sim/scenario/")  # pools are resolved there
        for line in lines
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "scenario.fleet[0].gpu",
        "setup.pools[0]",
        "setup.pools[-1]",
        "fleet[0]",
        "fleet[ 0 ]",
        "deployments[0]",
        'scenario["fleet"][0]',
        'changes = {"fleet.0.replicas": 2}',
        'changes["fleet.0.gpu"] = gpu',
    ],
)
def test_the_scan_finds_pools_by_number(text: str) -> None:
    assert scan(text) == ([], [1])


def test_the_scan_finds_no_other_numbers() -> None:
    assert scan("pools[index]\nparts[0]\nrow['fleet']") == ([], [])


# -- one door to the time of a pass ----------------------------------------------------------------

PASSES = re.compile(r"\bBatches\(")


@pytest.mark.parametrize("package", ["sim", "calibrate", "reports"])
def test_rows_of_plans_become_passes_in_one_module(package: str) -> None:
    """Others ask ``Batches.of``, so that no reader of rows can forget a column."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / package).rglob("*.py"))
        if PASSES.search(path.read_text("utf-8"))
    ]
    assert [place for place in found if place != "sim/cost/batches.py"] == []


# -- what a new part touches -----------------------------------------------------------------------

TOUCHED = re.compile(r"^\| ([\w ]+) \| (.+) \| (.+) \|$", re.MULTILINE)


def test_the_lists_of_files_are_true() -> None:
    """The files that a new part touches, and the tests that show it, are where the list says."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("## What a new part touches")[2].partition("\n## ")[0]
    _, *listed = TOUCHED.findall(section)  # without the head
    rows = {part: (files, shown) for part, files, shown in listed}
    assert {"GPU", "family of models", "policy", "knob of an engine", "metric", "figure"} <= set(
        rows
    )
    for files, shown in rows.values():
        for named in re.findall(r"`([\w./-]+)`", files):
            place = named.replace("NAME", "*")
            assert "*" in place or (ROOT / place).exists(), named
            assert list(ROOT.glob(place)), named
        test_file, _, test = re.findall(r"`([\w./:]+)`", shown)[0].partition("::")
        assert (ROOT / test_file).exists(), test_file
        assert not test or f"def {test}(" in (ROOT / test_file).read_text("utf-8"), test
