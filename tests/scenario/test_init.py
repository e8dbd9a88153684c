"""``infersim init``: a first scenario that is explained, valid and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import sim
from sim.cli import app
from sim.errors import UsageError
from sim.scenario import Scenario, shipped, starter
from sim.scenario.text.parsing import parse


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def infersim(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("like", starter.names())
def test_what_is_written_is_valid_and_runs(place: Path, like: str) -> None:
    done = infersim("init", "my-service", "--like", like)
    assert done.exit_code == 0
    assert "next: infersim run my-service.yaml" in done.stdout
    checked = infersim("validate", "--trust", "my-service.yaml")
    assert (checked.exit_code, checked.stdout) == (0, "my-service.yaml: ok\n")
    scenario = sim.load_scenario(place / "my-service.yaml", ["run.requests=20", "run.warmup=0"])
    assert scenario.name == "my-service"
    assert "?" in scenario.description
    assert sim.simulate(scenario).summary["completed"] == 20


@pytest.mark.parametrize("like", starter.names())
def test_every_section_is_explained(like: str) -> None:
    lines = starter.text(like).splitlines()
    data = parse(starter.text(like), "").data
    for key in set(data) - {"version"}:
        (number,) = [index for index, line in enumerate(lines) if line.startswith(f"{key}:")]
        assert lines[number - 1].startswith("# "), key
        assert lines[number - 1].endswith((".", "?", "...")), key
    assert max(map(len, lines)) <= 100


def test_the_chat_template_shows_every_section_that_can_be_used() -> None:
    # the file's own name; off; for benchmarks; for what-ifs; for code of one's own
    hidden = {"name", "speculative", "allow_long_max_model_len", "assume", "metrics"}
    hidden |= {"transfer", "autoscaling", "failures", "admission"}  # of fleets
    hidden |= {"lora"}  # off
    hidden |= {"sampling"}  # for benchmarks, too
    hidden |= {"attention_backend", "moe_backend"}  # kernels that are not the engine's choice
    hidden |= {"host"}  # as the presets' own, unless it is known
    hidden |= {"steering", "energy"}  # of operators; of grids
    hidden |= {"precision"}  # that of the checkpoint, unless it is asked for another
    assert "\n# precision: {" in starter.text("chat")
    assert set(Scenario.model_fields) - set(parse(starter.text("chat"), "").data) == hidden


@pytest.mark.parametrize(
    ("model", "formats"),
    [("gpt-oss-120b", ("bf16", "mxfp4")), ("deepseek-v3", ("fp8-block", None))],
)
def test_a_template_pins_no_format(
    place: Path, model: str, formats: tuple[str, str | None]
) -> None:
    for like in starter.names():
        infersim("init", like, "--like", like)
        precision = sim.load_scenario(place / f"{like}.yaml", [f"model={model}"]).precision
        assert (precision.weights, precision.experts) == formats


def test_the_help_names_the_templates() -> None:
    told = " ".join(infersim("init", "--help").stdout.replace("│", "").split())
    assert "Which template: chat, batch, trace or code (a policy" in told
    assert starter.names() == ["batch", "chat", "code", "trace"]


@pytest.mark.parametrize("like", starter.shipped_names())
def test_a_shipped_scenario_is_a_template_too(place: Path, like: str) -> None:
    assert infersim("init", "mine", "--like", like).exit_code == 0
    text = (place / "mine.yaml").read_text()
    assert text in shipped.found(like).read_text().replace(f"name: {like}\n", "")
    assert "schema.json" not in text
    assert sim.load_scenario(place / "mine.yaml").name == "mine"


def test_shipped_scenarios_are_listed_with_their_questions() -> None:
    lines = infersim("list", "scenarios").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == shipped.names()
    assert any(line.startswith("  chat ") and "hold our latency targets" in line for line in lines)


def test_code_of_ones_own_starts_equal_to_the_engines(place: Path) -> None:
    infersim("init", "mine", "--like", "code")
    settings = "run.requests=400", "workload.arrivals.rate=60"

    def latencies(batching: str) -> list[tuple[float, float]]:
        asked = [*settings, f"scheduler.batching={batching}"]
        table = sim.simulate(sim.load_scenario(place / "mine.yaml", asked)).requests
        return list(zip(table["ttft_s"], table["e2el_s"], strict=True))

    engines, same, ageing = map(latencies, ("continuous", "parts:Same", "parts:Ageing"))
    assert same == engines
    assert ageing != engines


def test_a_trace_comes_with_its_template_and_spares_yours(place: Path) -> None:
    first = infersim("init", "mine", "--like", "trace")
    assert first.exit_code == 0
    assert "requests.csv: written, an example of its trace" in first.stdout
    assert sorted(path.name for path in place.iterdir()) == ["mine.yaml", "requests.csv"]
    (place / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    again = infersim("init", "mine", "--like", "trace", "--force")
    assert again.exit_code == 0
    assert "requests.csv: was there, and is its trace now" in again.stdout
    assert (place / "requests.csv").read_text().endswith("0,1,1\n")
    assert sim.simulate(sim.load_scenario(place / "mine.yaml")).summary["completed"] == 1


def test_the_keys_of_a_trace_that_the_template_offers_work(place: Path) -> None:
    starter.write("mine", "trace")
    lines = starter.text("trace").splitlines()
    offered = [line.strip(" #").split(" #")[0] for line in lines if line.startswith("    # ")]
    assert [text.split(":")[0] for text in offered] == ["overlay", "time_scale", "rate", "limit"]
    plain = sim.load_scenario(place / "mine.yaml")
    for text in offered:
        asked = sim.load_scenario(
            place / "mine.yaml", [f"workload.trace.{text.strip().replace(': ', '=')}"]
        )
        assert asked.workload.trace != plain.workload.trace


def test_a_file_is_never_overwritten_unasked(place: Path) -> None:
    (place / "mine.yaml").write_text("precious")
    refused = infersim("init", "mine")
    assert refused.exit_code == 2
    assert refused.stderr == "error: mine.yaml exists already; --force overwrites it\n"
    assert (place / "mine.yaml").read_text() == "precious"
    assert infersim("init", "mine", "--force").exit_code == 0
    assert (place / "mine.yaml").read_text() == starter.text("chat")


@pytest.mark.parametrize(
    ("name", "file"),
    [("a", "a.yaml"), ("a.yaml", "a.yaml"), ("a.yml", "a.yml"), ("llama-3.1", "llama-3.1.yaml")],
)
def test_the_name_gets_its_suffix_once(place: Path, name: str, file: str) -> None:
    assert starter.write(name) == Path(file)
    assert [path.name for path in place.iterdir()] == [file]


@pytest.mark.parametrize(
    ("name", "like", "phrase"),
    [
        ("a", "caht", "no template is called 'caht' (did you mean 'chat'?); there are batch, chat"),
        ("no/where", "chat", "no/where.yaml: the folder no is missing"),
        ("", "chat", "'' is not the name of a file"),
        ("folder.yaml", "chat", "folder.yaml exists already"),
        ("a\0b", "chat", "a\\x00b.yaml cannot be written"),
        ("x" * 300, "chat", "cannot be written: File name too long"),
    ],
)
def test_what_cannot_be_written_is_said(place: Path, name: str, like: str, phrase: str) -> None:
    (place / "folder.yaml").mkdir()
    with pytest.raises(UsageError) as caught:
        starter.write(name, like)
    assert phrase in str(caught.value)
    assert [path.name for path in place.iterdir()] == ["folder.yaml"]


def test_a_folder_is_not_overwritten_by_force(place: Path) -> None:
    (place / "folder.yaml").mkdir()
    with pytest.raises(UsageError, match=r"folder\.yaml cannot be written: Is a directory"):
        starter.write("folder", force=True)


def test_a_policy_of_ones_own_has_the_engines_limits_and_says_how_it_plans(place: Path) -> None:
    infersim("init", "mine", "--like", "code")

    def pool(*changes: str) -> tuple[int, int, bool]:
        (only,) = sim.load_scenario(place / "mine.yaml", changes).pools
        limits = only.scheduler.max_num_seqs, only.scheduler.max_num_batched_tokens
        return *limits, only.kv_cache.enable_prefix_caching

    engines = pool("scheduler.batching=continuous")
    assert pool() == engines == (1024, 8192, True)
    assert pool("scheduler.async_scheduling=false") == engines
    assert pool("scheduler.max_num_seqs=7")[0] == 7
    assert pool("model=gpt-oss-20b")[2] is False  # windows: the rule of an own policy is not known
    with pytest.raises(UsageError, match="async_scheduling is a key of continuous batching"):
        pool("scheduler.async_scheduling=true")


def test_own_metrics_are_among_the_first_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFERSIM_FULL")
    infersim("init", "mine", "--like", "code")
    done = infersim("run", "mine.yaml", "--set", "run.requests=50", "--no-save")
    assert "Own metrics: p95_ttft.short " in done.stdout
