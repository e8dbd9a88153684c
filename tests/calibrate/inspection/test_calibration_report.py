"""A profile looked at: in a terminal, on a page in a real browser, and beside another profile."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from calibrate.inspection import grid
from calibrate.inspection.compare import compare
from calibrate.inspection.document import document, points
from calibrate.inspection.find import find
from calibrate.inspection.kernels import regime_order
from calibrate.inspection.measured import read
from reports.figures.kernels import arithmetic
from reports.pages.profile.page import SECTIONS, render_profile
from reports.pages.profile.tables import parameters
from sim import catalog
from sim.cli import app
from sim.errors import UsageError
from tests.browser import needs_browser
from tests.profile_fixtures import fit_of, profile_of, row, rows_of, write_gpu, write_table

HOSTILE = "<script>alert(1)</script><b>'\"&"
OPERATORS = ["gemm", "decode_attention", "prefill_attention", "all_reduce", "stream"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.fixture
def measured(tmp_path):
    """A GPU file with the measurements of its profile beside it."""
    path = write_gpu(tmp_path / "my-gpu.yaml", profile_of())
    table = rows_of(profile_of())
    layers = [["layer", "llama eager", "8 decodes at 512", 0.25]]
    write_table(tmp_path / "my-gpu.csv", table, noise={"gemm": [0.011, 0.03, 5]}, layers=layers)
    return path


@pytest.fixture
def alone(tmp_path):
    """A GPU file with a profile and nothing beside it."""
    return write_gpu(tmp_path / "alone.yaml", profile_of())


def page_of(path):
    found = find(str(path))
    table = read(found.measurements) if found.measurements else None
    return render_profile(document(found, table), points(found, table))


# ---- the page ------------------------------------------------------------------------------------


@needs_browser
def test_the_page_draws_everything_offline(measured, show):
    opened = show(page_of(measured))
    assert opened.complaints == []
    expected = [f"predicted-{name}" for name in OPERATORS]
    expected += [f"residuals-{name}" for name in OPERATORS] + ["roofline", "traffic"]
    expected += ["curve-gemm-bf16", "curve-gemm-fp8"]
    expected += [f"curve-{name}-bf16" for name in OPERATORS[1:-1]]  # that of streams is folded
    assert opened.drawn == expected
    for name in SECTIONS:
        opened.section(name)
    assert "predicted / measured" in opened.section("residuals")
    assert "FLOP per byte" in opened.section("roofline")
    assert "circles: measured" in opened.section("curves")
    assert "1 to 16 rows" in opened.section("residuals")
    assert "not determined" in opened.section("parameters")
    assert "given" in opened.section("parameters")
    assert "llama eager" in opened.section("errors")
    assert "50 ok, 1 noisy, 1 out-of-memory" in unescape(opened.section("provenance"))


@needs_browser
def test_without_measurements_the_page_says_so_and_shows_the_rest(alone, show):
    opened = show(page_of(alone))
    assert opened.complaints == []
    assert not any(name.startswith(("predicted", "residuals")) for name in opened.drawn)
    assert "roofline" in opened.drawn
    assert "curve-decode_attention-bf16" in opened.drawn
    assert "This profile came without measurements" in opened.section("summary")
    assert "not shipped with the profile" in opened.dom
    assert 'id="predicted"' not in opened.dom
    assert 'href="#predicted"' not in opened.dom
    assert "Error on held-out shapes by regime" in opened.section("residuals")
    assert "3.4" in opened.section("errors")


def test_times_among_the_parameters_have_the_unit_that_suits_them():
    known = document(find("h100-sxm"), None)
    (entry,) = [each for each in known["parameters"] if each["operator"] == "gemm"]
    (row,) = [each for each in entry["rows"] if each["name"] == "latency"]
    seconds = row["values"]["bf16"]["value"]
    assert 1e-6 < seconds < 2e-6
    cells = next(r for r in parameters(entry, 0).rows if r[0].text == "latency")
    assert cells[1].text == "time"
    assert cells[2].text.startswith(f"{1e6 * seconds:.3g} us")
    assert "e-6" not in cells[2].text
    assert cells[2].value == seconds


def test_ceilings_of_the_roofline_have_their_names():
    known = document(find("h100-sxm"), None)
    drawn = arithmetic(known["roofline"], [], known["curves"])
    ceilings = [line for line in drawn.data if line.line.dash not in (None, "solid")]
    assert {line.name for line in ceilings} == {"ceiling bf16", "ceiling fp8"}
    assert all(line.showlegend for line in ceilings)
    assert len({line.line.dash for line in ceilings}) == len(ceilings)


@needs_browser
def test_hostile_names_are_text_in_the_dark(tmp_path, show):
    gemm = replace(fit_of("gemm"), kernel=HOSTILE, regimes={HOSTILE: fit_of("gemm").holdout})
    profile = replace(
        profile_of(gemm={"bf16": gemm, HOSTILE: gemm}, **{HOSTILE: {HOSTILE: gemm}}),
        source=HOSTILE,
        facts={HOSTILE: HOSTILE},
    )
    path = write_gpu(tmp_path / "gpu.yaml", profile, title=HOSTILE)
    rows = [row("gemm", "bf16", 1e-5 * m, m=m, n=4096, k=4096) | {"kernel": HOSTILE}
            for m in (1, 2, 4, 8)]  # fmt: skip
    rows.append(row(HOSTILE, HOSTILE, 1.0, m=1))
    write_table(tmp_path / "gpu.csv", rows, layers=[[HOSTILE, HOSTILE, HOSTILE, 0.1]])
    html = page_of(path)
    assert HOSTILE not in html
    opened = show(html.replace('lang="en"', 'lang="en" data-theme="dark"'))
    assert opened.complaints == []
    assert opened.drawn == ["predicted-gemm", "residuals-gemm", "roofline", "curve-gemm-bf16"]
    assert unescape(opened.dom).count(HOSTILE) >= 10
    assert not re.search(r"<script>\s*alert", opened.dom)


def test_the_command_writes_the_page_beside_the_file(measured):
    done = invoke("report", measured)
    assert done.exit_code == 0, done.output
    page = measured.with_suffix(".html")
    assert f"Page: {page}" in done.output
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "://" not in page.read_text()


# ---- the terminal --------------------------------------------------------------------------------


def test_the_table_fits_and_tells_what_the_page_does(measured, tmp_path):
    done = invoke("report", measured, "--no-page", "--parameters")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 88
    assert not list(tmp_path.glob("*.html"))
    for text in ("gemm bf16", "3.4%", "12.0%", "-1.1%", "m 1 to 4,096", "not determined", "given"):
        assert text in done.output
    assert "50 ok, 1 noisy, 1 out-of-memory" in done.output
    assert "Measured, but not fitted: launch bf16 (1)." in done.output
    assert done.output.index("1 to 16 rows") < done.output.index("17 to 128 rows")


def test_long_names_do_not_widen_the_table(tmp_path):
    long = replace(fit_of("gemm"), kernel="k" * 300, regimes={"r" * 300: fit_of("gemm").holdout})
    path = write_gpu(tmp_path / "gpu.yaml", profile_of(gemm={"bf16": long}), title="t" * 300)
    for command in (["report", path, "--no-page", "--parameters"], ["diff", path, path]):
        done = invoke(*command)
        assert done.exit_code == 0, done.output
        assert max(map(len, done.output.splitlines())) <= 88


def test_measurements_from_elsewhere(alone, tmp_path):
    assert "This profile came without measurements" in " ".join(
        invoke("report", alone, "--no-page").output.split()
    )
    table = write_table(tmp_path / "other.csv", rows_of(profile_of()))
    done = invoke("report", alone, "--no-page", "--measurements", table)
    assert "Measurements: other.csv" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("l4",), "l4: no profile of 'vllm'; nothing was measured on it"),
        (("h100-sxm.vlm",), "did you mean 'vllm'"),
        (("h100-sxmm",), "did you mean 'h100-sxm'"),
        (("gone.yaml",), "gone.yaml does not exist"),
    ],
)
def test_what_has_no_profile_is_named(arguments, message):
    done = invoke("report", *arguments, "--no-page")
    assert done.exit_code == 2
    assert message in done.output


def test_a_gpu_without_a_profile_says_how_to_get_one():
    path = Path(catalog.__file__).parent / "gpus" / "l4.yaml"
    done = invoke("report", path, "--no-page")
    assert done.exit_code == 2
    assert "`infersim calibrate` measures one" in done.output


@pytest.mark.slow
def test_every_profile_of_the_catalogue_can_be_shown():
    for gpu in catalog.names("gpus"):
        for framework in catalog.frameworks(gpu):
            found = find(gpu, framework)
            described = document(found, None)
            assert found.name == f"{gpu}.{framework}"
            assert len(described["notes"]) == 1  # no measurements; and no form that is unknown
            assert described["curves"]


def test_list_and_show_mention_the_profiles_of_a_gpu():
    listed = CliRunner().invoke(app, ["list", "gpus"]).output
    assert re.search(r"vllm, \d{4}-\d\d-\d\d, error: gemm \d\.\d%, decode", listed)
    assert max(map(len, listed.splitlines())) <= 88
    shown = CliRunner().invoke(app, ["show", "h100-sxm"]).output
    assert "# profile h100-sxm.vllm: " in shown
    assert re.search(r"#   gemm bf16: error on shapes held out \d\.\d% \(median\)", shown)
    assert "profile" not in CliRunner().invoke(app, ["show", "l4"]).output


def test_help_is_quick_and_imports_little():
    code = (
        "import sys; from typer.testing import CliRunner; from sim.cli import app\n"
        "done = CliRunner().invoke(app, ['calibrate', '--help']); assert 'diff' in done.output\n"
        "assert not {'numpy', 'scipy', 'torch', 'plotly', 'yaml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- two profiles --------------------------------------------------------------------------------


def test_a_profile_differs_from_itself_by_nothing(alone):
    found = json.loads(invoke("diff", alone, alone, "--json").output)
    assert [entry["operator"] for entry in found["operators"]] == ["gemm", *OPERATORS]
    for entry in found["operators"]:
        ratio = entry["ratio"]
        assert {ratio[name] for name in ("median", "p10", "p90", "extreme")} == {1.0}
        assert ratio["shapes"] > 8
        assert all(pair["first"] == pair["second"] for pair in entry["parameters"].values())
    assert found["only_first"] == found["only_second"] == []
    assert max(map(len, invoke("diff", alone, alone).output.splitlines())) <= 88


def test_half_the_bandwidth_doubles_long_contexts(tmp_path):
    one = fit_of("decode_attention", share=0.4)
    other = fit_of("decode_attention", share=0.2)
    paths = [
        write_gpu(tmp_path / f"{name}.yaml", profile_of(decode_attention={"bf16": fit}))
        for name, fit in (("whole", one), ("half", other))
    ]
    (pair,) = compare(*map(find, map(str, paths))).pairs
    assert pair.ratios is not None
    assert pair.ratios.extreme == pytest.approx(2, rel=0.05)
    assert "context 32,768" in pair.ratios.at or "context 8,192" in pair.ratios.at
    assert 1.0 < pair.ratios.p10 < pair.ratios.median < pair.ratios.p90 < 2.0
    (back,) = compare(*map(find, map(str, reversed(paths)))).pairs
    assert back.ratios is not None
    assert back.ratios.median == pytest.approx(1 / pair.ratios.median, rel=0.1)
    printed = invoke("diff", *paths).output
    assert re.search(r"share\W+0\.4\W+0\.2\W+0\.5\b", printed)
    assert re.search(r"decode_attention bf16: (2\.00|1\.9\d) at batch", printed)


def test_what_only_one_has_and_what_cannot_be_compared(tmp_path):
    apart = replace(fit_of("gemm"), ranges={"m": (5000, 9000), "n": (1, 2), "k": (1, 2)})
    odd = replace(fit_of("stream"), parameters={"seconds": 1.0})
    one = write_gpu(
        tmp_path / "a.yaml", profile_of(gemm={"bf16": fit_of("gemm")}, stream={"bf16": odd})
    )
    two = write_gpu(
        tmp_path / "b.yaml",
        profile_of(
            gemm={"bf16": apart, "fp8": fit_of("gemm", "fp8")}, stream={"bf16": fit_of("stream")}
        ),
    )
    found = json.loads(invoke("diff", one, two, "--json").output)
    assert [entry["why"] for entry in found["operators"]] == [
        "no usual shape was measured in both",
        "the parameters of A are not those of its form",
    ]
    assert [entry["ratio"] for entry in found["operators"]] == [None, None]
    assert (found["only_first"], found["only_second"]) == ([], ["gemm fp8"])
    printed = invoke("diff", one, two).output
    assert "Only in B: gemm fp8" in printed
    assert "no usual shape" in printed
    described = document(find(str(one)), None)
    assert "No form of this version prices stream bf16" in described["notes"][-1]


def test_two_frameworks_on_one_gpu_of_the_catalogue():
    done = invoke("diff", "h100-sxm.vllm", "h100-sxm.sglang", "--json")
    (gemm,) = (e for e in json.loads(done.output)["operators"][:2] if e["precision"] == "bf16")
    assert 0.8 < gemm["ratio"]["median"] < 1.25


# ---- grids and tables ----------------------------------------------------------------------------


def test_the_grid_stays_within_both_ranges():
    one = {"batch": (1, 64), "context": (1, 9000), "q_heads": (1, 64), "kv_heads": (1, 8),
           "head_dim": (128, 128)}  # fmt: skip
    met = grid.meet(one, one | {"batch": (8, 200), "skew": (1, 4)})
    assert (met["batch"], met["skew"]) == ((8, 64), (1, 1))
    shapes = grid.shapes("decode_attention", met)
    assert set(shapes["batch"]) == {8, 32}
    assert set(shapes["context"]) == {128, 512, 2048, 8192}
    assert set(shapes["head_dim"]) == {128}
    assert set(shapes["skew"]) == {1}
    assert not (shapes["q_heads"] % shapes["kv_heads"]).any()


def test_prompts_without_a_prefix_are_compared_without_one():
    ranges = {"batch": (1, 4), "tokens": (32, 4096), "q_heads": (1, 64), "kv_heads": (1, 8),
              "head_dim": (64, 128)}  # fmt: skip
    met = grid.meet(ranges, ranges | {"context": (0, 32768)})
    assert set(grid.shapes("prefill_attention", met)["context"]) == {0}
    both = grid.shapes("prefill_attention", met | {"context": (0.0, 32768.0)})
    assert set(both["context"]) == {0, 1024, 4096, 32768}


def test_unusual_ranges_are_compared_at_their_ends():
    shapes = grid.shapes("gemm", {"m": (3, 3), "n": (100, 200), "k": (50, 50)})
    rows = np.column_stack([shapes[name] for name in ("m", "n", "k")]).tolist()
    assert rows == [[3, 100, 50], [3, 200, 50]]
    assert not len(grid.shapes("gemm", {"m": (9, 3), "n": (100, 200), "k": (50, 50)})["m"])


def test_regimes_are_listed_from_small_to_large():
    names = [
        "KV from 32M, batch 1 to 8",
        "KV below 4M, batch from 256",
        "KV below 4M, batch 1 to 8",
    ]
    assert sorted(names, key=regime_order) == names[::-1]
    assert sorted(["above", "1025 to 4096 rows", "1 to 16 rows"], key=regime_order)[-1] == "above"


def test_lines_that_make_no_sense_are_left_out_and_counted(tmp_path):
    rows = [row("gemm", "bf16", 1e-5 * m, m=m, n=64, k=64) for m in (1, 2)]
    rows += [row("gemm", "bf16", seconds, m=1, n=64, k=64) for seconds in (None, -1, "x", "inf")]
    rows.append(row("gemm", "bf16", 1e-5, m="many", n=64, k=64))
    path = write_table(tmp_path / "t.csv", rows)
    with path.open("a") as file:
        file.write("gemm,bf16,torn")
    table = read(path)
    assert len(table.points["gemm", "bf16"]) == 2
    assert table.notes == ["6 lines of t.csv could not be read and are left out"]


def test_files_that_are_no_tables_are_named(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="it lacks batch, bytes"):
        read(other)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "gone.csv")


def test_what_a_calibration_says_of_itself_is_optional(tmp_path):
    path = write_table(tmp_path / "t.csv", [row("gemm", "bf16", 1e-5, m=1, n=64, k=64)])
    meta = path.with_name("t.csv.meta.json")
    for text in ("", "[]", '{"noise": 3, "layers": {"a": 1}}', '{"noise": {"gemm": "x"}}'):
        meta.write_text(text)
        assert (read(path).noise, read(path).layers) == ({}, [])
    meta.unlink()
    assert read(path).noise == {}


@pytest.mark.slow
def test_a_large_table_is_quick(measured):
    with measured.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    write_table(measured.with_suffix(".csv"), rows * 400)
    html = page_of(measured)
    assert len(html) < 5e6
    assert "of 3,200" in html
