"""The catalogue's profiles: whole, as good as their page says, and made again by their command."""

import re

import pytest
from typer.testing import CliRunner

from calibrate.importers.aiconfigurator import locate
from calibrate.importers.systems import from_aiconfigurator
from sim import catalog
from sim.catalog.gpu_names import names
from sim.catalog.profile_file import to_document, to_json
from sim.cli import app
from sim.cost import CostModel, Deployment
from sim.errors import UsageError
from sim.iteration import Batch, Part
from sim.specs.layout import Layout
from tests.places import ROOT

FOLDER = ROOT / "sim" / "catalog" / "profiles"
SHIPPED = sorted(tuple(path.stem.rsplit(".", 1)) for path in FOLDER.glob("*.json"))
NVIDIA = [(gpu, framework) for gpu, framework in SHIPPED if framework != "aiter"]
PROMISED = {
    ("h100-sxm", "gemm", "bf16"): (0.040, 0.12), ("h200-sxm", "gemm", "bf16"): (0.040, 0.12),
    ("b200-sxm", "gemm", "bf16"): (0.040, 0.12), ("a100-sxm-80gb", "gemm", "bf16"): (0.05, 0.15),
    ("l40s", "gemm", "bf16"): (0.06, 0.16), ("h100-sxm", "gemm", "fp8"): (0.045, 0.14),
    ("h200-sxm", "gemm", "fp8"): (0.045, 0.14), ("b200-sxm", "gemm", "nvfp4"): (0.045, 0.14),
    ("gb200", "gemm", "nvfp4"): (0.045, 0.14), ("b300-sxm", "gemm", "nvfp4"): (0.045, 0.14),
    ("h100-sxm", "decode_attention", "bf16"): (0.04, 0.12),
    ("h200-sxm", "decode_attention", "bf16"): (0.04, 0.12),
    ("b200-sxm", "decode_attention", "bf16"): (0.06, 0.20),
    ("a100-sxm-80gb", "decode_attention", "bf16"): (0.06, 0.20),
    ("l40s", "decode_attention", "bf16"): (0.06, 0.20),
    ("h100-sxm", "prefill_attention", "bf16"): (0.045, 0.12),
    ("h200-sxm", "prefill_attention", "bf16"): (0.045, 0.12),
    ("b200-sxm", "prefill_attention", "bf16"): (0.05, 0.20),
    ("a100-sxm-80gb", "prefill_attention", "bf16"): (0.05, 0.20),
    ("l40s", "prefill_attention", "bf16"): (0.05, 0.20),
    ("h100-sxm", "all_reduce", "bf16"): (0.05, 0.16),
    ("h200-sxm", "all_reduce", "bf16"): (0.05, 0.16),
    ("a100-sxm-80gb", "all_reduce", "bf16"): (0.05, 0.16),
    ("l40s", "all_reduce", "bf16"): (0.03, 0.20),
    ("h100-sxm", "mla_decode", "bf16"): (0.06, 0.22),
    ("h200-sxm", "mla_decode", "bf16"): (0.06, 0.22),
    ("b200-sxm", "mla_decode", "bf16"): (0.07, 0.22),
    ("b200-sxm", "mla_prefill", "bf16"): (0.055, 0.15),
    ("h200-sxm", "mla_decode", "fp8"): (0.06, 0.22),
    ("h100-sxm", "mla_prefill", "bf16"): (0.05, 0.15),
    ("h200-sxm", "mla_prefill", "bf16"): (0.05, 0.15),
    ("h100-sxm", "dsa_decode", "fp8"): (0.10, 0.30),
    ("h200-sxm", "dsa_decode", "fp8"): (0.10, 0.30),
    ("h100-sxm", "dsa_prefill", "fp8"): (0.10, 0.30),
    ("h200-sxm", "dsa_prefill", "fp8"): (0.10, 0.30),
    ("h100-sxm", "mla_prefill", "fp8"): (0.05, 0.15),
    ("h200-sxm", "mla_prefill", "fp8"): (0.05, 0.15),
    ("b200-sxm", "dsa_decode", "bf16"): (0.10, 0.30),
    ("b200-sxm", "dsa_prefill", "bf16"): (0.10, 0.30),
    ("b200-sxm", "dsa_prefill", "fp8"): (0.10, 0.31),
}  # fmt: skip
"""What vLLM's kernels are to be predicted to: hold-out median and 90th percentile."""


def of(gpu, framework):
    return catalog.gpu(gpu, kernels=framework).profile


def test_every_part_that_was_measured_has_all_three():
    assert {gpu for gpu, of in SHIPPED if of != "aiter"} == set(names("aiconfigurator").values())
    assert len(NVIDIA) == 3 * len(names("aiconfigurator"))


def test_the_documents_name_the_gpus_that_were_timed() -> None:
    timed = [gpu for gpu in catalog.names("gpus") if "vllm" in catalog.frameworks(gpu)]
    in_part = [gpu for gpu in catalog.names("gpus") if catalog.frameworks(gpu) == ["aiter"]]
    texts = {name: (ROOT / name).read_text() for name in ("README.md", "sim/LIMITS.md")}
    for text in texts.values():
        (line,) = re.findall(r"^.*Nine GPUs .*$", text, re.MULTILINE)
        listed = re.sub(r"[ -]", "", line).lower()
        assert len(timed) == 9
        for gpu in timed:
            assert gpu.replace("-sxm", "").replace("-", "") in listed
        for gpu in in_part:
            assert gpu in listed
    named = (ROOT / "sim/catalog/README.md").read_text()
    assert f"timed on {', '.join(timed[:-1])} and {timed[-1]}." in named
    rows = CliRunner().invoke(app, ["list", "gpus"]).output.splitlines()
    assert [row.split()[0] for row in rows if row.endswith("  timed")] == timed
    assert [row.split()[0] for row in rows if row.endswith("timed in part")] == in_part


@pytest.mark.parametrize("command", [["list"], ["show", "h100-sxm"]], ids=lambda words: words[0])
def test_errors_are_listed_as_they_stand_in_the_files(command):
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert f"{of('h100-sxm', 'vllm').kernels['gemm']['bf16'].holdout.median:.1%}" in done.stdout


@pytest.mark.parametrize(("gpu", "framework"), SHIPPED)
def test_a_file_is_what_would_be_written_of_it(gpu, framework):
    text = (FOLDER / f"{gpu}.{framework}.json").read_text(encoding="utf-8")
    assert to_json(to_document(of(gpu, framework))) == text


@pytest.mark.parametrize(("gpu", "framework"), NVIDIA)
def test_it_prices_every_operator_it_has(gpu, framework):
    profile = of(gpu, framework)
    assert gpu == profile.facts["gpu"]
    for arithmetic in {"bf16", "fp8", "nvfp4"} & set(profile.kernels["gemm"]):
        deployment = Deployment(
            catalog.model("llama-3.1-8b"), catalog.gpu(gpu, kernels=framework),
            catalog.engine("ideal"), arithmetic, arithmetic,
            "fp8" if arithmetic == "nvfp4" else arithmetic, layout=Layout(2),
        )  # fmt: skip
        cost = CostModel(deployment)
        priced = {o.name: o for o in cost.pass_operators(Batch(16, 16 * 1000))}
        for name in ("qkv projection", "decode attention", "all-reduce"):
            assert priced[name].measured == 1.0
            assert 0 < priced[name].error < 0.07
        assert "quantise activations" not in priced


BLACKWELL = ("b200-sxm", "gb200", "b300-sxm", "gb300", "rtx-pro-6000")


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "sglang"])
@pytest.mark.parametrize("gpu", BLACKWELL)
def test_every_product_of_an_nvfp4_checkpoint_is_timed_on_blackwell(gpu, engine):
    used = catalog.engine(engine)
    card = catalog.gpu(gpu, kernels=used.kernels)
    model = catalog.model("llama-3.1-70b")
    d = Deployment(model, card, used, "nvfp4", "nvfp4", "fp8", layout=Layout(4))
    for batch in (Batch(1, 1000), Batch(256, 256_000), Batch(0, 0, [Part(8192, 0)])):
        products = [o for o in CostModel(d).pass_operators(batch) if "projection" in o.name]
        assert len(products) == 4
        assert all(o.measured == 1.0 for o in products)


def test_engines_get_the_kernels_of_their_own():
    used = {name: catalog.engine(name).kernels for name in catalog.names("engines")}
    assert {used["vllm"], used["tensorrt-llm"], used["sglang"]} == {"vllm", "trtllm", "sglang"}
    assert "TensorRT-LLM" in of("h100-sxm", used["tensorrt-llm"]).source
    assert "vLLM" in of("h100-sxm", used["reference"]).source
    assert of("l4", "vllm") is None


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_take_the_kernels_of_aiter_on_amd(engine):
    used = catalog.engine(engine)
    for name, precision in (("mi300x", "fp8-block"), ("mi355x", "fp8"), ("mi355x", "mxfp4")):
        card = catalog.gpu(name, kernels=used.kernels)
        arithmetic = precision.removesuffix("-block")
        d = Deployment(catalog.model("llama-3.1-70b"), card, used, precision, arithmetic)
        found = {o.name: o for o in CostModel(d).pass_operators(Batch(16, 16_000))}
        assert found["qkv projection"].measured == 1.0
        assert found["quantise activations"].measured == 0.0  # no part of the timings
        assert found["decode attention"].measured == 0.0


def test_an_amd_part_of_the_same_chip_takes_its_kernels():
    for name, of_it in (("mi325x", "MI300X"), ("mi350x", "MI355X")):
        part = catalog.gpu(name)
        assert f"Taken from the AMD Instinct {of_it}" in part.profile.source
        assert part.profile.relative == of_it.lower()


@pytest.mark.parametrize("inputs", [None, "mxfp4", "fp8"])
def test_experts_in_mxfp4_are_timed_on_amd_whatever_their_inputs(inputs):
    d = Deployment(
        catalog.model("gpt-oss-120b"), catalog.gpu("mi355x"), catalog.engine("vllm"),
        experts="mxfp4", expert_inputs=inputs,
    )  # fmt: skip
    found = {o.name: o for o in CostModel(d).pass_operators(Batch(16, 16_000))}
    assert "experts" in found


@pytest.mark.parametrize(("key", "limits"), PROMISED.items(), ids=lambda v: "-".join(map(str, v)))
def test_errors_are_what_was_promised(key, limits):
    gpu, operator, precision = key
    held = of(gpu, "vllm").kernels[operator][precision].holdout
    assert held.median <= limits[0]
    assert held.p90 <= limits[1]


def test_the_page_states_the_range_of_errors_of_each_operator():
    """The table of calibrate/KERNELS.md has every operator of every profile."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for gpu, framework in SHIPPED:
        for operator, fits in of(gpu, framework).kernels.items():
            rows = found.setdefault(operator, {}).setdefault(framework, [])
            rows += [(100 * fit.holdout.median, 100 * fit.holdout.p90) for fit in fits.values()]
    text = (ROOT / "calibrate" / "KERNELS.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", text, re.M)[: len(found)])
    assert told.keys() == found.keys()
    for operator, cells in told.items():
        for framework, cell in zip(("vllm", "trtllm", "sglang"), cells.split(" | "), strict=True):
            rows = found[operator].get(framework)
            assert cell == (_ranges(rows) if rows else "-"), (operator, framework)


def _ranges(rows):
    parts = []
    for values, digits in zip(zip(*rows, strict=True), (1, 0), strict=True):
        ends = [f"{end:.{digits}f}" for end in (min(values), max(values))]
        parts.append(" to ".join(ends) if len(values) > 1 else ends[0])
    return " / ".join(parts)


def test_one_of_them_made_again():
    try:
        tables = locate()
    except UsageError:
        pytest.skip("the package aiconfigurator-core is not installed")
    shipped, made = of("a100-sxm-80gb", "vllm"), from_aiconfigurator(tables, "a100_sxm", "vllm")
    for operator, fits in shipped.kernels.items():
        for precision, fit in fits.items():
            again = made.kernels[operator][precision]
            assert again.holdout.median == pytest.approx(fit.holdout.median, abs=2e-3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made.date)
