"""Every catalogue entry is complete and sourced; every bad name or file is one clear complaint."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import sim
from calibrate.scoring.report import IN_SAMPLE
from sim import catalog
from sim.errors import UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.model import ModelSpec
from sim.specs.window import Window
from tests import huggingface
from tests.dense_models import attention_of, mlp_of

GPUS = catalog.names("gpus")
MODELS = catalog.names("models")
MEASURED = {"h100-sxm", "h200-sxm", "a100-sxm-80gb", "l40s", "b200-sxm", "rtx-pro-6000"}
"""The parts whose efficiency and attention were set against kernel timings."""

SLICES = {f"{gpu}-mig-{size}g" for gpu in ("h100", "a100") for size in (1, 2, 3, 4)}


def root_of(name: str) -> str:
    """The entry at the end of the chain of those that ``name`` extends."""
    base = catalog.raw("gpus", name).get("extends")
    return name if base is None else root_of(str(base))


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def heads_of(spec: ModelSpec) -> tuple[int, int]:
    return attention_of(spec).num_kv_heads, attention_of(spec).head_dim


def biases(spec: ModelSpec) -> tuple[bool, bool, bool]:
    attention = attention_of(spec)
    return attention.attention_bias, attention.output_bias, mlp_of(spec).mlp_bias


def config(folder: Path, base: Mapping[str, Any] = LLAMA, **changes: object) -> ModelSpec:
    return huggingface.config(folder, base, **changes)


def family(architecture: str) -> dict[str, Any]:
    return {**LLAMA, "architectures": [architecture]}


class TestEntries:
    def test_the_first_release_is_complete(self) -> None:
        gpus = {"a100-sxm-40gb", "a100-pcie", "h100-pcie", "gh200", "l4", "a10g", "mi300x"}
        gpus |= {"gb200", "b300-sxm", "gb300", "h100-nvl", "h20", "gb10", "gaudi-3"}
        gpus |= {"rtx-3090", "rtx-4090", "rtx-5090", "rtx-a6000", "a10", "t4", "l20", "l40"}
        gpus |= {"rtx-pro-4500", "rtx-pro-5000", "rtx-pro-6000-workstation"}
        gpus |= {"mi325x", "mi350x", "mi355x", "tpu-v6e", "tpu-v7x"} | SLICES
        assert gpus | MEASURED == set(GPUS)
        llamas = {"llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b"}
        llamas |= {"llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.3-70b"}
        qwens = {"qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}
        experts = {"mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b"}
        assert llamas | qwens | experts | {"mistral-7b", "gpt-j-6b"} <= set(MODELS)

    @pytest.mark.parametrize(
        ("kind", "name"), [("gpus", name) for name in GPUS] + [("models", name) for name in MODELS]
    )
    def test_every_value_has_a_source(self, kind: catalog.Kind, name: str) -> None:
        entry = catalog.raw(kind, name)
        assert isinstance(entry.pop("title"), str)
        entry.pop("names", None)
        entry.pop("extends", None)
        assert (kind == "models") == isinstance(entry.pop("checkpoint", None), str)
        for key, item in entry.items():
            assert isinstance(item, dict), key
            assert set(item) == {"value", "source"}, key
            assert len(item["source"].strip()) > 20, key

    @pytest.mark.parametrize("name", GPUS)
    def test_gpu_is_plausible(self, name: str) -> None:
        gpu = catalog.gpu(name)
        assert gpu.name == name
        assert 9e9 < gpu.memory < 400e9
        assert gpu.flops("bf16") == gpu.flops("fp16") > 2 * gpu.peak_flops["fp32"] * 0.99
        assert 30 < gpu.ridge_point < 600
        assert 0.4 <= gpu.efficiency.compute <= 0.9
        assert 0.5 <= gpu.efficiency.bandwidth <= 0.95
        assert 1e-6 <= gpu.efficiency.operator_latency <= 10e-6
        assert 0.5 <= gpu.attention.bandwidth <= 0.95
        assert 5e-6 <= gpu.attention.floor <= 20e-6
        assert 1e-6 <= gpu.attention.unit <= 10e-6
        assert gpu.attention.floor > gpu.efficiency.operator_latency
        assert gpu.attention.source == gpu.sources["attention"]
        assert gpu.link.bandwidth < gpu.bandwidth
        assert gpu.host_link.kind == (
            "nvlink-c2c" if name in ("gb10", "gb200", "gb300", "gh200") else "pcie"
        )
        assert gpu.relative or "aiconfigurator" in gpu.efficiency.source
        assert set(catalog.raw("gpus", name)) - {"title", "names", "extends"} <= set(gpu.sources)
        assert all(len(source) > 20 for source in gpu.sources.values())

    @pytest.mark.parametrize("name", GPUS)
    def test_what_was_not_measured_says_so(self, name: str) -> None:
        for key in ("efficiency", "attention"):
            source = catalog.gpu(name).sources[key]
            measured = source.startswith(("Fitted by median", "Least median error"))
            assert measured == (name in MEASURED), key
            if not measured and name != "mi300x":
                words = ("Taken from the ", "As the ", "Bandwidth as ", "Not measured")
                assert source.startswith(words), key

    @pytest.mark.parametrize("name", GPUS)
    def test_price_says_whose_and_when(self, name: str) -> None:
        source = catalog.gpu(name).sources["price_per_hour"]
        unknown = catalog.gpu(name).price is None
        assert ("No list price in USD" if unknown else "List price in USD") in source
        assert " 202" in source

    def test_peaks_are_dense(self) -> None:
        """The figures that data sheets print with sparsity are exactly what must not appear."""
        dense = {"h100-sxm": 989.4e12, "h200-sxm": 989.4e12, "a100-sxm-80gb": 312e12}
        dense |= {"l40s": 362.05e12, "b200-sxm": 2250e12, "rtx-4090": 165.2e12}
        dense |= {"a100-sxm-40gb": 312e12, "a100-pcie": 312e12, "h100-pcie": 756.5e12}
        dense |= {"gh200": 989.4e12, "l4": 121e12, "a10g": 70e12, "rtx-pro-6000": 467.8e12}
        dense |= {"mi300x": 1307.4e12, "gb200": 2500e12, "b300-sxm": 2250e12, "gb300": 2500e12}
        dense |= {"rtx-3090": 71.2e12, "rtx-5090": 209.5e12, "rtx-a6000": 154.8e12, "a10": 125e12}
        dense |= {"t4": 65e12, "l20": 119.5e12, "l40": 181.05e12, "h20": 148e12, "gb10": 125e12}
        dense |= {"h100-nvl": 835.5e12, "gaudi-3": 1835e12, "tpu-v6e": 918e12, "tpu-v7x": 2307e12}
        dense |= {"mi325x": 1307.4e12, "mi350x": 2306.9e12, "mi355x": 2516.6e12}
        dense |= {"rtx-pro-4500": 210.9e12, "rtx-pro-5000": 258e12}
        dense |= {"rtx-pro-6000-workstation": 503.8e12}
        assert set(dense) == set(GPUS) - SLICES
        assert {name: catalog.gpu(name).flops("bf16") for name in dense} == dense

    def test_a_slice_is_a_share_of_its_gpu(self) -> None:
        for name in SLICES:
            part, whole = catalog.gpu(name), catalog.gpu(root_of(name))
            assert part.flops("bf16") / whole.flops("bf16") == pytest.approx(
                part.sms / whole.sms, abs=1e-3
            )
            assert round(whole.bandwidth / part.bandwidth, 9) in (8, 4, 2)
            assert part.memory / whole.memory == pytest.approx(
                part.bandwidth / whole.bandwidth, abs=0.012
            )
            assert part.node.gpus == 1
            assert part.draw is None

    def test_older_cards_have_no_narrow_floats(self) -> None:
        for name in ("t4", "a10", "a10g", "rtx-3090", "rtx-a6000", "a100-mig-1g"):
            assert not catalog.gpu(name).computes("fp8")
        for name in ("l20", "l40", "h20", "h100-nvl", "mi325x", "rtx-4090"):
            assert catalog.gpu(name).computes("fp8")
            assert not catalog.gpu(name).computes("fp4")

    def test_units_arrive_as_si(self) -> None:
        h100 = catalog.gpu("h100-sxm")
        assert (h100.memory, h100.bandwidth, h100.sms, h100.power) == (84.9e9, 3.35e12, 132, 700)
        assert (h100.link.kind, h100.link.bandwidth) == ("nvlink", 450e9)
        assert h100.link.latency == pytest.approx(5e-6)
        assert h100.efficiency.operator_latency == pytest.approx(3e-6)
        assert h100.attention.bandwidth == 0.9
        assert h100.attention.floor == pytest.approx(11e-6)
        assert h100.attention.unit == pytest.approx(4e-6)
        assert catalog.gpu("rtx-4090").memory == 25_250_627_584

    @pytest.mark.parametrize(
        ("gpu", "precision", "tera"),
        [
            ("h100-sxm", "fp8", 1978.9),
            ("h100-sxm", "fp4", 1978.9),
            ("h100-sxm", "int4", 1978.9),
            ("a100-sxm-80gb", "fp8", 312),
            ("a100-sxm-80gb", "int4", 1248),
            ("b200-sxm", "fp4", 9000),
            ("rtx-4090", "fp8", 330.3),
            ("a10g", "fp8", 70),
            ("mi300x", "fp4", 2614.9),
        ],
    )
    def test_a_missing_unit_falls_back_to_the_next_wider(
        self, gpu: str, precision: str, tera: float
    ) -> None:
        assert catalog.gpu(gpu).flops(precision) == tera * 1e12

    def test_an_unknown_precision_is_refused(self) -> None:
        with pytest.raises(ValueError, match="unknown precision 'bfloat16'; known: fp32, bf16"):
            catalog.gpu("l40s").flops("bfloat16")

    @pytest.mark.parametrize("name", MODELS)
    def test_parameters_are_the_published_ones(self, name: str) -> None:
        published: Any = catalog.raw("models", name)["parameters"]
        assert catalog.model(name).parameters == published["value"]
        assert catalog.model(name).name == name

    def test_published_counts_are_those_of_the_hub(self) -> None:
        counts = {name: catalog.model(name).parameters for name in MODELS}
        assert counts["llama-2-7b"] == 6_738_415_616
        assert counts["llama-3.1-8b"] == 8_030_261_248
        assert counts["llama-3.1-70b"] == 70_553_706_496
        assert counts["mistral-7b"] == 7_248_023_552
        assert counts["qwen3-32b"] == 32_762_123_264
        assert counts["llama-3.1-405b"] == 405_853_388_800
        assert counts["llama-3.2-1b"] == 1_235_814_400
        assert counts["qwen2.5-7b"] == 7_615_616_512
        assert counts["gpt-j-6b"] == 6_050_882_784
        assert counts["llama-3.3-70b"] == counts["llama-3.1-70b"]


class TestNames:
    @pytest.mark.parametrize(
        ("call", "name", "message"),
        [
            (catalog.gpu, "h100sxm", "unknown gpu 'h100sxm' (did you mean 'h100-sxm'?)"),
            (catalog.gpu, "voodoo", "`infersim list gpus` shows all 44"),
            (catalog.model, "llama-3.1-8", "(did you mean 'llama-3.1-8b'?)"),
            (catalog.model, "", "unknown model ''"),
            (
                catalog.model,
                "meta-llama/Llama-3.1-9B",
                "(did you mean 'llama-3.1-8b'?); give a file",
            ),
            (catalog.gpu, "mine.yaml", "mine.yaml does not exist"),
            (catalog.gpu, Path("h100-sxm"), "h100-sxm does not exist"),
        ],
    )
    def test_unknown_names_say_what_there_is(self, call: Any, name: Any, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            call(name)
        assert message in str(caught.value)

    def test_raw_refuses_unknown_names(self) -> None:
        with pytest.raises(UsageError, match=r"did you mean 'l40s'\?"):
            catalog.raw("gpus", "l40sx")

    def test_a_name_goes_before_a_folder_of_the_same_spelling(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "llama-2-7b").mkdir()
        monkeypatch.chdir(tmp_path)
        assert catalog.model("llama-2-7b").num_layers == 32

    def test_the_catalogue_is_light_to_import(self) -> None:
        heavy = "{'pandas', 'simpy', 'plotly', 'torch', 'pyarrow', 'numpy', 'pydantic'}"
        code = f"import sys, sim.catalog; print(sorted({heavy} & set(sys.modules)))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"


class TestOwnYaml:
    def edited(self, folder: Path, kind: catalog.Kind, name: str, change: Any) -> Path:
        entry: Any = catalog.raw(kind, name)
        change(entry)
        path = folder / "mine.yaml"
        path.write_text(yaml.safe_dump(entry))
        return path

    def test_a_gpu_of_ones_own(self, tmp_path: Path) -> None:
        def cheaper(entry: Any) -> None:
            entry["price_per_hour"] = {"value": None, "source": "Not for rent anywhere."}

        self.edited(tmp_path, "gpus", "l40s", cheaper)
        gpu = catalog.gpu("mine.yaml", base=tmp_path)
        assert isinstance(gpu, GpuSpec)
        assert (gpu.name, gpu.price_per_hour) == ("mine", None)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("memory", "48 gigs", "memory: unknown unit 'gigs' for a bytes"),
            ("sms", 14.2, "sms: expected a whole number of at least 1, found 14.2"),
            ("power", "-350W", "power: got -350.0, expected above 0"),
            ("price_per_hour", "cheap", "price_per_hour: expected a plain number, found 'cheap'"),
            ("link", {"kind": "pcie", "bandwidth": "1GB/s"}, "link.latency: is missing"),
            ("link", "pcie", "link: expected a mapping of keys to values, found 'pcie'"),
            ("peak_flops", {"fp8": "1TFLOP/s"}, "a mapping with bf16 or fp16"),
            (
                "peak_flops",
                {"bf17": 1, "bf16": 1},
                "peak_flops.bf17: unknown key (did you mean 'bf16'?)",
            ),
            (
                "efficiency",
                {"compute": 1.2, "bandwidth": 0.8, "operator_latency": "2us"},
                "compute: got 1.2, expected above 0 and at most 1",
            ),
            (
                "attention",
                {"bandwidth": 0.0, "floor": "9us", "unit": "4us"},
                "bandwidth: got 0.0, expected above 0 and at most 1",
            ),
            (
                "attention",
                {"bandwidth": 1.1, "floor": "9us", "unit": "4us"},
                "bandwidth: got 1.1, expected above 0 and at most 1",
            ),
            (
                "attention",
                {"bandwidth": 0.8, "floor": "-9us", "unit": "4us"},
                "floor: got -9e-06, expected 0 or more",
            ),
            (
                "attention",
                {"bandwidth": 0.8, "floor": "9us", "unit": "-4us"},
                "unit: got -4e-06, expected 0 or more",
            ),
            ("attention", {"bandwidth": 0.8, "floor": "9us"}, "attention.unit: is missing"),
            (
                "attention",
                {"bandwidth": 0.8, "floor": "9us", "unit": "4us", "flor": "1us"},
                "attention.flor: unknown key (did you mean 'floor'?)",
            ),
            (
                "attention",
                {"bandwidth": "80%", "floor": "9us", "unit": "4us"},
                "attention.bandwidth: expected a plain number, found '80%'",
            ),
            (
                "attention",
                {"bandwidth": 0.8, "floor": "9GB", "unit": "4us"},
                "attention.floor: ",
            ),
            ("attention", None, "attention: expected a mapping of keys to values, found null"),
        ],
    )
    def test_a_bad_gpu_value_names_file_and_key(
        self, tmp_path: Path, key: str, value: object, message: str
    ) -> None:
        def spoil(entry: Any) -> None:
            entry[key]["value"] = value

        path = self.edited(tmp_path, "gpus", "l40s", spoil)
        with pytest.raises(UsageError) as caught:
            catalog.gpu(path)
        assert re.match(rf"{re.escape(str(path))}(:\d+:\d+)?: ", str(caught.value))
        assert message in str(caught.value)

    def test_values_need_sources_and_keys_must_be_known(self, tmp_path: Path) -> None:
        path = self.edited(tmp_path, "gpus", "l40s", lambda entry: entry["sms"].pop("source"))
        with pytest.raises(UsageError, match=r"sms\.source: is missing"):
            catalog.gpu(path)
        path = self.edited(tmp_path, "gpus", "l40s", lambda entry: entry.update(bandwith=1))
        with pytest.raises(UsageError, match=r"bandwith: unknown key \(did you mean 'bandwidth'\?"):
            catalog.gpu(path)
        path = self.edited(tmp_path, "gpus", "l40s", lambda entry: entry.pop("bandwidth"))
        with pytest.raises(UsageError, match="bandwidth: is missing"):
            catalog.gpu(path)

    def test_a_model_must_agree_with_its_published_size(self, tmp_path: Path) -> None:
        def spoil(entry: Any) -> None:
            entry["architecture"]["value"]["num_kv_heads"] = 32

        path = self.edited(tmp_path, "models", "llama-3.1-8b", spoil)
        with pytest.raises(UsageError, match="parameters: the architecture makes 8,835,567,616"):
            catalog.model(path)

    def test_an_impossible_model_names_the_key(self, tmp_path: Path) -> None:
        def spoil(entry: Any) -> None:
            entry["architecture"]["value"]["num_kv_heads"] = 7

        path = self.edited(tmp_path, "models", "llama-3.1-8b", spoil)
        with pytest.raises(UsageError, match=r"architecture\.num_kv_heads: got 7"):
            catalog.model(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("title: [", "is not valid YAML"),
            ("- a\n- b\n", "expected a mapping of keys to values"),
            ("", "expected a mapping of keys to values"),
            ("title: \x01", "is not valid YAML"),
        ],
    )
    def test_text_that_is_no_entry(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        for call in (catalog.gpu, catalog.model):
            with pytest.raises(UsageError, match=message):
                call(path)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(UsageError, match="is not a text file in UTF-8"):
            catalog.gpu(path)


PLAIN = """
memory: 22GiB
bandwidth: 600GB/s
peak_flops: {bf16: 120TFLOP/s}
"""


class TestPlainGpu:
    """A file with bare values: what a data sheet says is enough."""

    def gpu(self, folder: Path, text: str = PLAIN, **changes: object) -> GpuSpec:
        document = {**yaml.safe_load(text), **changes}
        document = {key: value for key, value in document.items() if value is not ...}
        (folder / "my-gpu.yaml").write_text(yaml.safe_dump(document))
        return catalog.gpu("./my-gpu.yaml", base=folder)

    def test_three_values_are_enough(self, tmp_path: Path) -> None:
        gpu = self.gpu(tmp_path)
        assert (gpu.name, gpu.title) == ("my-gpu", "my-gpu")
        assert (gpu.memory, gpu.bandwidth) == (22 * 2**30, 600e9)
        assert gpu.flops("bf16") == gpu.flops("fp8") == 120e12
        assert (gpu.price_per_hour, gpu.power, gpu.link.kind) == (None, 1400, "pcie")
        assert gpu.sources["memory"] == "given in my-gpu.yaml"
        assumed = {key for key, text in gpu.sources.items() if "default, not measured" in text}
        assert assumed == set(catalog.raw("gpus", "l40s")) - {
            "title", "names", "memory", "bandwidth", "peak_flops", "sms", "efficiency", "attention",
        }  # fmt: skip
        assert gpu.relative == "a10"
        assert gpu.sms == catalog.gpu("a10").sms
        assert gpu.sources["relative"] == "default: the part nearest by its data sheet"
        assert gpu.efficiency.source == gpu.sources["efficiency"]
        assert gpu.attention.source == gpu.sources["attention"]

    def test_what_is_given_replaces_the_default(self, tmp_path: Path) -> None:
        gpu = self.gpu(
            tmp_path, title="Mine", sms=60, power="72W", price_per_hour=0.5,
            link={"kind": "nvlink", "bandwidth": "300GB/s", "latency": "5us"},
            attention={"bandwidth": 0.8, "floor": "9us", "unit": "3us"},
            memory={"value": "24GB", "source": "The box."},
        )  # fmt: skip
        assert (gpu.title, gpu.sms, gpu.power, gpu.price_per_hour) == ("Mine", 60, 72, 0.5)
        assert (gpu.link.bandwidth, gpu.attention.bandwidth, gpu.memory) == (300e9, 0.8, 24e9)
        assert (gpu.sources["sms"], gpu.sources["memory"]) == ("given in my-gpu.yaml", "The box.")

    def test_the_defaults_favour_no_part(self, tmp_path: Path) -> None:
        mine = self.gpu(tmp_path, attention={"bandwidth": 0.7, "floor": "17us", "unit": "4us"})
        assert (mine.relative, mine.profile) == (None, None)
        for name in MEASURED:
            part = catalog.gpu(name)
            assert mine.sms <= part.sms
            assert mine.efficiency.compute <= part.efficiency.compute
            assert mine.efficiency.bandwidth <= part.efficiency.bandwidth
            assert mine.efficiency.operator_latency >= part.efficiency.operator_latency
            assert mine.attention.bandwidth <= part.attention.bandwidth
            assert mine.attention.floor >= part.attention.floor
            assert mine.attention.unit >= part.attention.unit
            assert mine.link.bandwidth <= part.link.bandwidth
            assert mine.host_link.bandwidth <= part.host_link.bandwidth
        assert mine.power == max(catalog.gpu(name).power for name in GPUS)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"memory": ...}, "memory: is missing"),
            ({"bandwidth": ...}, "bandwidth: is missing"),
            ({"peak_flops": ...}, "peak_flops: is missing"),
            ({"memory": 24}, "memory: 24 is too small for a GPU; write the unit, as in 24GiB"),
            ({"memory": "24"}, "memory: '24' is too small for a GPU"),
            ({"bandwidth": 600}, "bandwidth: 600 is too small for a GPU"),
            (
                {
                    "link": {
                        "kind": "nvlink",
                        "bandwidth": "300GB/s",
                        "latency": "5us",
                        "peer_to_peer": True,
                    }
                },
                "link.peer_to_peer: applies to pcie only, not to nvlink",
            ),
            ({"bandwidth": "600GiB"}, "bandwidth: unknown unit 'GiB' for a bytes per second"),
            ({"bandwidth": "0GB/s"}, "bandwidth: got 0.0, expected above 0"),
            ({"memory_bandwidth": "1TB/s"}, "memory_bandwidth: unknown key (did you mean"),
            ({"peak_flops": "120TFLOP/s"}, "peak_flops: expected a mapping by precision, such as"),
            ({"peak_flops": {"bf16": 120}}, "peak_flops.bf16: 120 is too small for a GPU"),
            ({"peak_flops": {"bfloat16": "1TFLOP/s"}}, "peak_flops.bfloat16: unknown key"),
            ({"peak_flops": {"fp8": "200TFLOP/s"}}, "a mapping with bf16 or fp16"),
            ({"power": 350, "sms": 0}, "sms: expected a whole number of at least 1, found 0"),
            ({"link": {"kind": "pcie", "bandwidth": 32}}, "link.bandwidth: 32 is too small"),
            ({"efficiency": {"compute": 0.7}}, "efficiency.bandwidth: is missing"),
            ({"attention": None}, "attention: expected a mapping of keys to values, found null"),
            ({"memory": {"value": "24GB"}}, "memory.source: is missing"),
            ({"memory": {"vale": "24GB"}}, "memory: expected a bytes, such as 80GiB"),
        ],
    )
    def test_mistakes_name_file_and_key(
        self, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UsageError) as caught:
            self.gpu(tmp_path, **changes)
        assert re.match(
            rf"{re.escape(str(tmp_path / 'my-gpu.yaml'))}(:\d+:\d+)?: ", str(caught.value)
        )
        assert message in str(caught.value)

    def test_a_folder_is_no_gpu(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is a folder; give the YAML file of a GPU"):
            catalog.gpu(tmp_path)

    def test_the_example_of_the_readme_is_one(self, tmp_path: Path) -> None:
        readme = Path(catalog.__file__).with_name("README.md").read_text()
        example = readme.split("```yaml\n")[1].split("```")[0]
        gpu = self.gpu(tmp_path, example)
        assert (gpu.title, gpu.link.bandwidth) == ("Prototype 48 GB", 28e9)
        assert gpu.flops("fp8") == 733e12

    def test_from_a_scenario_to_a_result(self, tmp_path: Path) -> None:
        (tmp_path / "my-gpu.yaml").write_text(PLAIN)
        (tmp_path / "chat.yaml").write_text(
            "model: llama-3.2-3b\nfleet: {gpu: ./my-gpu.yaml}\nworkload:\n"
            "  arrivals: {kind: poisson, rate: 2}\n"
            "  prompt_tokens: {kind: fixed, value: 200}\n"
            "  output_tokens: {kind: fixed, value: 50}\nrun: {requests: 20, warmup: 0}\n"
        )
        summary = sim.simulate(sim.load_scenario(tmp_path / "chat.yaml")).summary
        assert summary["completed"] == 20
        assert summary["infersim"]["gpu"] == "my-gpu"
        assert summary["infersim"]["cost"] is None
        # each token reads 2 x 3.2e9 bytes of weights at no more than 600 GB/s
        assert summary["median_tpot_ms"] > 2 * 3.212e9 / 600e9 * 1e3


class TestHuggingFace:
    def test_config_by_folder_file_and_base(self, tmp_path: Path) -> None:
        folder = tmp_path / "My-Llama"
        folder.mkdir()
        spec = config(folder)
        assert spec == catalog.model(folder / "config.json")
        assert spec.name == "My-Llama"
        by_base = catalog.model("My-Llama", base=tmp_path)
        assert by_base.parameters == spec.parameters == catalog.model("llama-3.1-8b").parameters

    def test_llama_defaults(self, tmp_path: Path) -> None:
        """Without them: one KV head per head, head size 4,096 / 32, no biases, 2,048 positions."""
        spec = config(tmp_path, num_key_value_heads=..., max_position_embeddings=...)
        assert (heads_of(spec), spec.max_position_embeddings) == ((32, 128), 2048)
        assert biases(spec) == (False, False, False)
        assert not spec.tie_word_embeddings
        assert (attention_of(spec).qk_norm, attention_of(spec).sliding_window) == (False, None)

    def test_null_is_as_transformers_reads_it(self, tmp_path: Path) -> None:
        spec = config(
            tmp_path, num_key_value_heads=None, head_dim=None, attention_bias=None, mlp_bias=None
        )
        assert heads_of(spec) == (32, 128)
        assert not attention_of(spec).attention_bias

    def test_llama_biases_are_on_all_projections(self, tmp_path: Path) -> None:
        spec = config(tmp_path, attention_bias=True, mlp_bias=True)
        assert biases(spec) == (True, True, True)

    def test_mistral_window(self, tmp_path: Path) -> None:
        """The class assumes 4,096 tokens and 8 KV heads; an explicit null means no window."""
        mistral = family("MistralForCausalLM")
        assert attention_of(config(tmp_path, mistral)).sliding_window == 4096
        assert attention_of(config(tmp_path, mistral, sliding_window=None)).sliding_window is None
        assert attention_of(config(tmp_path, mistral, sliding_window=1024)).sliding_window == 1024
        assert attention_of(config(tmp_path, mistral, num_key_value_heads=...)).num_kv_heads == 8
        assert attention_of(config(tmp_path, mistral, head_dim=160)).head_dim == 160

    def test_qwen2_always_has_biases_on_q_k_v(self, tmp_path: Path) -> None:
        """Qwen2.5-7B, whose published count is 7,615,616,512."""
        shape = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28}
        shape |= {"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064}
        spec = config(
            tmp_path, {**family("Qwen2ForCausalLM"), **shape}, sliding_window=131072,
            use_sliding_window=False, tie_word_embeddings=False,
        )  # fmt: skip
        assert biases(spec) == (True, False, False)
        assert attention_of(spec).sliding_window is None
        assert spec.parameters == 7_615_616_512

    def test_qwen3_has_norms_on_queries_and_keys(self, tmp_path: Path) -> None:
        """Qwen3-0.6B, tied, head size 128 where 1,024 / 16 is 64: 596,049,920 parameters."""
        shape = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16}
        shape |= {"intermediate_size": 3072, "vocab_size": 151936}
        spec = config(
            tmp_path, {**family("Qwen3ForCausalLM"), **shape}, tie_word_embeddings=True
        )  # fmt: skip
        attention = attention_of(spec)
        assert (attention.head_dim, attention.qk_norm) == (128, True)
        assert biases(spec) == (False, False, False)
        assert spec.parameters == 596_049_920

    @pytest.mark.parametrize(
        ("changes", "window"),
        [
            ({"use_sliding_window": False, "sliding_window": 4096}, None),
            ({"use_sliding_window": None}, None),
            ({"use_sliding_window": True}, 4096),
            ({"use_sliding_window": True, "sliding_window": 2048}, 2048),
            ({"use_sliding_window": True, "max_window_layers": 32}, None),
        ],
    )
    def test_qwen_window_needs_its_switch(
        self, tmp_path: Path, changes: dict[str, Any], window: int | None
    ) -> None:
        spec = config(tmp_path, family("Qwen2ForCausalLM"), **changes)
        assert spec.windows == (() if window is None else (Window(window),))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"architectures": ["DeepseekV41ForCausalLM"]},
                "architectures: found DeepseekV41ForCausalLM",
            ),
            ({"architectures": ["UnheardForCausalLM"]}, "supported are the text models Llama"),
            ({"architectures": ["FalconMambaForCausalLM"]}, "found FalconMambaForCausalLM"),
            ({"architectures": ["LlavaForConditionalGeneration"]}, "is not supported"),
            ({"architectures": ...}, "architectures: is missing"),
            ({"architectures": None}, "architectures: is missing"),
            ({"architectures": "LlamaForCausalLM"}, "architectures: expected a list"),
            ({"architectures": []}, "architectures: expected a list"),
            ({"hidden_size": ...}, "hidden_size: is missing"),
            ({"vocab_size": None}, "vocab_size: expected a whole number of at least 1, found null"),
            ({"num_hidden_layers": "32"}, "num_hidden_layers: expected a whole number"),
            ({"num_hidden_layers": True}, "num_hidden_layers: expected a whole number"),
            ({"num_attention_heads": 0}, "num_attention_heads: expected a whole number of at"),
            ({"intermediate_size": -1}, "intermediate_size: expected a whole number"),
            ({"hidden_size": 4100}, "hidden_size: 4100 is not divisible by num_attention_heads"),
            ({"num_key_value_heads": 7}, "num_key_value_heads: 7 does not divide"),
            ({"tie_word_embeddings": "no"}, "tie_word_embeddings: expected true or false"),
        ],
    )
    def test_a_bad_config_names_file_and_key(
        self, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(UsageError) as caught:
            config(tmp_path, **changes)
        assert str(caught.value).startswith(str(tmp_path / "config.json"))
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"hidden_size": 1,\n}', r"config\.json:2:1: is not valid JSON"),
            ("", "is not valid JSON"),
            ("[1, 2]", "expected a mapping of keys to values, found a list"),
        ],
    )
    def test_text_that_is_no_config(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UsageError, match=message):
            catalog.model(tmp_path)

    def test_a_folder_without_a_config(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"holds no config\.json"):
            catalog.model(tmp_path)


class TestInSample:
    """What was adjusted to a log is no prediction of it, and says so wherever it is quoted."""

    def test_the_rtx_4090_says_what_its_efficiencies_are(self) -> None:
        from tests.planning_fixtures import small

        asked = small(fleet__0__gpu="rtx-4090", max_model_len=1024)
        told = sim.simulate(asked).summary["infersim"]["provenance"]
        assert "default" not in told
        assert "adjusted to one vLLM 0.19 log of this card" in told
        assert "in sample" in told
        assert "adjusted to the same log" in catalog.gpu("rtx-4090").sources["attention"]

    def test_a_gpu_of_ones_own_has_the_default_efficiencies(self, tmp_path: Path) -> None:
        from tests.planning_fixtures import small

        own = f"{PLAIN}\nattention: {{bandwidth: 0.7, floor: 17us, unit: 4us}}\n"
        (tmp_path / "mine.yaml").write_text(own, encoding="utf-8")
        asked = small(fleet__0__gpu=str(tmp_path / "mine.yaml"))
        told = sim.simulate(asked).summary["infersim"]["provenance"]
        assert "GEMM at 60% of the peak compute and 70% of the peak bandwidth" in told
        assert "default, not measured" in told

    def test_a_gpu_that_says_nothing_of_its_kernels_has_those_of_the_nearest(
        self, tmp_path: Path
    ) -> None:
        from tests.planning_fixtures import small

        (tmp_path / "mine.yaml").write_text(PLAIN, encoding="utf-8")
        asked = small(fleet__0__gpu=str(tmp_path / "mine.yaml"))
        told = sim.simulate(asked).summary["infersim"]["provenance"]
        assert "Taken from the NVIDIA A10 24 GB" in told
        assert told.count("not measured on it") == 1
        assert "inf" not in told.replace("infersim", "")

    def test_the_log_is_not_quoted_as_a_test_of_them(self) -> None:
        from sim.catalog.whole_runs import whole_run_errors, whole_runs_text

        told = whole_runs_text("vllm", ["h100-sxm", "rtx-4090"], "online")
        assert "closed loop" in told
        assert "replay" not in told
        assert {e.kind for e in whole_run_errors("vllm") if e.in_sample} == {"replay"}
        assert "The log of `replay, vllm` is in sample" in IN_SAMPLE
