"""A GPU or engine file that changes one value keeps all others, fitted kernels included."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sim import catalog, simulate
from sim.cli import app
from sim.errors import UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.profile import COLLECTIVES, Profile, without_variant
from tests.planning_fixtures import small

H100 = catalog.gpu("h100-sxm")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a file of that name, and returns the GPU in it."""

    def written(name: str, text: str, **more: str) -> GpuSpec:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return catalog.gpu(f"./{name}", base=tmp_path, **more)

    return written


def saved(folder: Path, name: str, *arguments: str) -> Path:
    """What `infersim show` prints, as a file."""
    shown = CliRunner().invoke(app, ["show", *arguments])
    assert shown.exit_code == 0, shown.output
    path = folder / name
    path.write_text(shown.stdout, encoding="utf-8")
    return path


def unmeasured(profile: Profile | None) -> bool:
    assert profile is not None
    return bool(profile.relative)


class TestGpu:
    def test_a_price_alone_changes_the_price_alone(self, write: Any) -> None:
        mine = write("cheap.yaml", "extends: h100-sxm\nprice_per_hour: 2.40\n")
        assert (mine.name, mine.price_per_hour, mine.price.provider) == ("cheap", 2.4, None)
        assert mine.price.low is None  # half of the catalogue's offer would be nobody's
        assert (mine.memory, mine.peak_flops, mine.link) == (
            H100.memory,
            H100.peak_flops,
            H100.link,
        )
        assert mine.profile == H100.profile
        assert mine.sources["price_per_hour"] == "given in cheap.yaml"
        assert mine.sources["memory"] == H100.sources["memory"]

    def test_runs_are_those_of_the_base(self, write: Any, tmp_path: Path) -> None:
        write("cheap.yaml", "extends: h100-sxm\nprice_per_hour: 1.00\n")
        mine = simulate(small(fleet__0__gpu=str(tmp_path / "cheap.yaml")))
        base = simulate(small())
        assert (mine.record.requests == base.record.requests).all()
        dollars = [each.summary["infersim"]["cost"]["usd"] for each in (mine, base)]
        assert dollars[0] == pytest.approx(dollars[1] / 3.99)

    def test_the_kernels_are_those_of_the_engine(self, write: Any) -> None:
        mine = write("cheap.yaml", "extends: h100-sxm\nprice_per_hour: 2\n", kernels="sglang")
        assert mine.profile == catalog.gpu("h100-sxm", kernels="sglang").profile != H100.profile

    def test_another_speed_is_that_of_a_relative(self, write: Any) -> None:
        mine = write("slow.yaml", "extends: h100-sxm\nbandwidth: 2TB/s\n")
        assert set(mine.profile.kernels) == set(H100.profile.kernels)
        assert unmeasured(mine.profile)
        assert "not measured" in mine.profile.source
        memory = write("large.yaml", "extends: h100-sxm\nmemory: 90GB\npower: 500W\n")
        assert memory.profile == H100.profile

    def test_another_link_loses_its_collectives_alone(self, write: Any) -> None:
        link = "{kind: pcie, bandwidth: 20GB/s, latency: 15us}"
        mine = write("pcie.yaml", f"extends: h100-sxm\nlink: {link}\n")
        lost = set(H100.profile.kernels) - set(mine.profile.kernels)
        assert {without_variant(name) for name in lost} == set(COLLECTIVES)
        assert mine.profile.kernels["gemm"] == H100.profile.kernels["gemm"]

    def test_a_profile_of_ones_own_goes_first(self, write: Any, tmp_path: Path) -> None:
        from sim.catalog.profile_file import to_document

        other = catalog.gpu("l40s").profile
        assert other is not None
        text = yaml.safe_dump({"extends": "h100-sxm", "profile": to_document(other)})
        mine = write("mine.yaml", text)
        assert mine.profile.source == other.source
        assert write("again.yaml", "extends: mine.yaml\npower: 1W\n").profile == mine.profile
        assert unmeasured(write("slow.yaml", "extends: mine.yaml\nsms: 100\n").profile)

    def test_nested_values_are_merged_and_say_whose_they_are(self, write: Any) -> None:
        mine = write("mine.yaml", "extends: h100-sxm\npeak_flops: {fp8: 1500TFLOP/s}\n")
        assert mine.flops("fp8") == 1500e12
        assert mine.flops("bf16") == H100.flops("bf16")
        source = mine.sources["peak_flops"]
        assert source.startswith("fp8: given in mine.yaml; the rest: NVIDIA H100 Tensor Core GPU")
        link = write("link.yaml", "extends: h100-sxm\nlink: {latency: 9us}\n").link
        assert (link.kind, link.bandwidth, link.latency) == ("nvlink", 450e9, pytest.approx(9e-6))

    def test_files_extend_files(self, write: Any, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        write("base.yaml", "extends: h100-sxm\nmemory: 70GB\nprice_per_hour: 2\n")
        mine = write("deep/mine.yaml", "extends: ../base.yaml\npower: 600W\n")
        assert (mine.memory, mine.price_per_hour, mine.power) == (70e9, 2, 600)
        assert mine.sources["memory"] == "given in base.yaml"
        assert mine.sources["power"] == "given in mine.yaml"
        assert mine.profile == H100.profile

    def test_a_part_without_kernels_can_be_extended(self, write: Any) -> None:
        assert write("mine.yaml", "extends: l4\nprice_per_hour: 0.5\n").profile is None
        gh200 = catalog.gpu("gh200").profile
        assert write("mine.yaml", "extends: gh200\nprice_per_hour: 2\n").profile == gh200


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("extends: h100sxm\n", "mine.yaml:1:10: extends: unknown gpu 'h100sxm' (did you mean "),
            ("power: 5W\nextends: ./no.yaml\n", "mine.yaml:2:10: extends: "),
            (
                "extends: mine.yaml\n",
                "files extend each other in a circle (mine.yaml -> mine.yaml)",
            ),
            ("extends: [h100-sxm]\n", "mine.yaml:1:10: extends: expected the name of an entry"),
            ("extends: .\n", "is a folder; give a file in it"),
            ("extends: vllm\n", "mine.yaml:1:10: extends: unknown gpu 'vllm'"),
            ("extends: h100-sxm\nprize: 2\n", "mine.yaml:2:8: prize: unknown key"),
            ("extends: h100-sxm\nprice_per_hour: -2\n", "mine.yaml:2:17: price_per_hour: got -2.0"),
            (
                "extends: h100-sxm\npeak_flops:\n  fp7: 3TFLOP/s\n",
                "mine.yaml:3:8: peak_flops.fp7: unknown key (did you mean",
            ),
            (
                "extends: h100-sxm\nlink: {kind: pcie, bandwidth: 1GB/s}\n",
                "mine.yaml:2:7: link.latency: is missing",
            ),
            (
                "extends: h100-sxm\npower: {value: 3W}\n",
                "mine.yaml:2:8: power.source: is missing",
            ),
        ],
    )
    def test_each_is_one_clear_sentence(self, write: Any, text: str, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            write("mine.yaml", text)
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    def test_circles_and_endless_chains_are_found(self, write: Any, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text("extends: b.yaml\n", encoding="utf-8")
        with pytest.raises(UsageError, match=re.escape("(b.yaml -> a.yaml -> b.yaml)")):
            write("b.yaml", "extends: a.yaml\n")
        for number in range(11):
            base = "h100-sxm" if number == 0 else f"c{number - 1}.yaml"
            (tmp_path / f"c{number}.yaml").write_text(f"extends: {base}\n", encoding="utf-8")
        assert catalog.gpu("./c8.yaml", base=tmp_path).profile == H100.profile
        with pytest.raises(UsageError, match="more than 10 files extend each other in a row"):
            catalog.gpu("./c10.yaml", base=tmp_path)

    def test_a_mistake_of_the_base_is_said_of_the_base(self, write: Any, tmp_path: Path) -> None:
        (tmp_path / "base.yaml").write_text("memory: 8GB\nbandwidth: 100GB/s\n", encoding="utf-8")
        with pytest.raises(UsageError, match=r"base\.yaml: peak_flops: is missing"):
            write("mine.yaml", "extends: base.yaml\npeak_flops: {bf16: 100TFLOP/s}\n")


class TestCopies:
    def test_what_show_prints_is_the_same_gpu(self, tmp_path: Path) -> None:
        path = saved(tmp_path, "h100-sxm.yaml", "h100-sxm")
        mine = catalog.gpu(path)
        assert mine.profile is not None
        assert H100.profile is not None
        assert mine.profile.kernels == H100.profile.kernels
        assert mine.sources == H100.sources
        assert "# A file with `extends: h100-sxm` keeps these kernels" in path.read_text("utf-8")
        assert (mine.price, mine.efficiency, mine.link) == (H100.price, H100.efficiency, H100.link)

    def test_a_copy_with_another_price_keeps_its_kernels(self, tmp_path: Path) -> None:
        entry: Any = catalog.raw("gpus", "h100-sxm")  # as older versions showed it
        entry["price_per_hour"] = 2.4
        path = tmp_path / "ours.yaml"
        path.write_text(yaml.safe_dump(entry), encoding="utf-8")
        mine = catalog.gpu(path)
        assert mine.profile is not None
        assert mine.profile.kernels == H100.profile.kernels
        assert "the catalogue's h100-sxm" in mine.profile.source

    @pytest.mark.parametrize("change", [{"bandwidth": "3TB/s"}, {"sms": 100}])
    def test_a_copy_with_another_speed_says_what_it_lost(
        self, change: dict[str, object], tmp_path: Path
    ) -> None:
        path = tmp_path / "ours.yaml"
        path.write_text(yaml.safe_dump({**catalog.raw("gpus", "h100-sxm"), **change}), "utf-8")
        assert catalog.gpu(path).profile is None
        told = simulate(small(fleet__0__gpu=str(path))).summary["infersim"]["provenance"]
        assert f"other numbers are given ({next(iter(change))})" in told
        assert "`extends: h100-sxm`" in told
        with path.open("a", encoding="utf-8") as file:
            file.write("extends: h100-sxm\n")
        assert unmeasured(catalog.gpu(path).profile)

    def test_a_part_of_ones_own_is_no_copy(self, write: Any) -> None:
        text = "memory: 80GB\nbandwidth: 3.35TB/s\npeak_flops: {bf16: 989.4TFLOP/s}\nsms: 132\n"
        mine = write("mine.yaml", text)
        assert unmeasured(mine.profile)
        assert (mine.relative, mine.efficiency.compute) == ("h100-sxm", 0.8)
        assert "profile" not in mine.sources

    def test_a_relative_is_nearest_by_the_data_sheet(self, write: Any) -> None:
        bare = "memory: 40GB\nbandwidth: {}\npeak_flops: {{bf16: {}TFLOP/s{}}}\nsms: {}\n"
        card = bare.format("700GB/s", 300, ", fp8: 600TFLOP/s", 130)
        assert write("card.yaml", card).relative == "l40s"
        card = bare.format("7TB/s", 2000, ", fp8: 4PFLOP/s, fp4: 8PFLOP/s", 148)
        assert write("large.yaml", card).relative in ("b200-sxm", "b300-sxm")
        card = "title: AMD Instinct\n" + bare.format("4TB/s", 900, ", fp8: 2PFLOP/s", 228)
        assert write("amd.yaml", card).relative == "mi300x"

    def test_a_relative_gives_what_the_file_leaves_out(self, write: Any) -> None:
        text = "memory: 40GB\nbandwidth: 700GB/s\npeak_flops: {bf16: 120TFLOP/s}\nrelative: l40s\n"
        mine, l40s = write("mine.yaml", text), catalog.gpu("l40s")
        assert replace(mine.efficiency, source="") == replace(l40s.efficiency, source="")
        assert replace(mine.attention, source="") == replace(l40s.attention, source="")
        assert mine.sources["attention"].startswith(
            "Taken from the NVIDIA L40S 48 GB, the relative"
        )
        assert mine.sms == l40s.sms
        assert mine.sources["sms"].startswith("Taken from the NVIDIA L40S 48 GB, the relative")
        given = write(
            "given.yaml",
            text + "efficiency: {compute: 0.9, bandwidth: 0.9, operator_latency: 1us}\n",
        )
        assert given.efficiency.compute == 0.9
        assert unmeasured(given.profile)

    def test_sms_that_a_file_leaves_out_choose_no_relative_and_make_nothing_faster(
        self, write: Any
    ) -> None:
        """An RTX PRO 6000 has 188 SMs, far from the default of 108."""
        whole = catalog.gpu("rtx-pro-6000")
        text = f"memory: 95GiB\nbandwidth: {whole.bandwidth / 1e9}GB/s\npeak_flops: "
        text += f"{{bf16: {whole.flops('bf16') / 1e12}TFLOP/s, fp8: 1PFLOP/s}}\n"
        named = write("named.yaml", text + "relative: rtx-pro-6000\n")
        nearest = write("nearest.yaml", text)
        given = write("given.yaml", text + "relative: rtx-pro-6000\nsms: 188\n")
        assert nearest.relative == "rtx-pro-6000"
        assert [each.sms for each in (named, nearest, given)] == [188] * 3
        assert named.profile == given.profile

    def test_fp16_follows_bf16_where_a_file_gives_only_one_of_them(self, write: Any) -> None:
        base = "extends: rtx-5090\ntitle: Ours\npeak_flops: "
        for one, other in (("bf16", "fp16"), ("fp16", "bf16")):
            mine = write("mine.yaml", f"{base}{{{one}: 300TFLOP/s}}\n")
            assert mine.peak_flops[one] == mine.peak_flops[other] == 300e12
            assert mine.peak_flops["fp8"] == catalog.gpu("rtx-5090").peak_flops["fp8"]
        both = write("both.yaml", f"{base}{{bf16: 300TFLOP/s, fp16: 310TFLOP/s}}\n")
        assert (both.peak_flops["bf16"], both.peak_flops["fp16"]) == (300e12, 310e12)

    def test_files_that_name_each_other_as_relatives_are_refused(
        self, write: Any, tmp_path: Path
    ) -> None:
        card = "memory: 40GB\nbandwidth: 700GB/s\npeak_flops: {bf16: 120TFLOP/s}\n"
        (tmp_path / "two.yaml").write_text(f"{card}relative: ./one.yaml\n", encoding="utf-8")
        circle = r"two.yaml:4:\d+: relative: .*circle \(one.yaml -> two.yaml -> one.yaml\)"
        for first in (f"{card}relative: ./two.yaml\n", "extends: ./two.yaml\ntitle: One\n"):
            with pytest.raises(UsageError, match=circle):
                write("one.yaml", first)

    def test_what_another_card_lends_names_it(self, write: Any) -> None:
        same = write("same.yaml", "extends: l40s\nprice_per_hour: 2\n")
        other = write("other.yaml", "extends: l40s\ntitle: Ours\npeak_flops: {fp8: 1PFLOP/s}\n")
        assert same.sources["sms"] == catalog.gpu("l40s").sources["sms"]
        assert other.sources["sms"] == f"As the NVIDIA L40S 48 GB: {same.sources['sms']}"
        assert "; the rest: As the NVIDIA L40S" in other.sources["peak_flops"]

    @pytest.mark.parametrize("first", ["price_per_hour: 2\n", "bandwidth: 3TB/s\nsms: 130\n"])
    def test_show_of_a_file_is_the_file_whole(self, first: str, write: Any, tmp_path: Path) -> None:
        mine = write("mine.yaml", f"extends: h100-sxm\n{first}peak_flops: {{fp8: 1500TFLOP/s}}\n")
        (tmp_path / "other").mkdir()
        again = catalog.gpu(saved(tmp_path / "other", "mine.yaml", str(tmp_path / "mine.yaml")))
        assert again == mine
        twice = saved(tmp_path, "twice.yaml", str(tmp_path / "other" / "mine.yaml"))
        whole = [yaml.safe_load(each.read_text("utf-8")) for each in (twice, again_path(tmp_path))]
        assert whole[0] == whole[1]


def again_path(folder: Path) -> Path:
    return folder / "other" / "mine.yaml"


class TestEngine:
    def engine(self, folder: Path, text: str) -> Any:
        (folder / "mine.yaml").write_text(text, encoding="utf-8")
        return catalog.engine("./mine.yaml", base=folder)

    def test_one_value_is_enough(self, tmp_path: Path) -> None:
        vllm = catalog.engine("vllm")
        mine = self.engine(tmp_path, "extends: vllm\nfront_end: 26.8ms\n")
        assert (mine.name, mine.title) == ("mine", vllm.title)
        assert mine.front_end == pytest.approx(0.0268)
        assert mine.sources["front_end"] == "given in mine.yaml"
        changed = {"name", "front_end", "sources"}
        for field in set(vllm.__dataclass_fields__) - changed:
            assert getattr(mine, field) == getattr(vllm, field), field

    def test_a_fitted_engine_stays_fitted(self, tmp_path: Path) -> None:
        run = {"run": "run", "iterations": "1a", "requests": "2b"}
        fitted = {**catalog.raw("engines", "vllm"), "fitted_to": [run]}
        (tmp_path / "fitted.yaml").write_text(yaml.safe_dump(fitted), encoding="utf-8")
        mine = self.engine(tmp_path, "extends: fitted.yaml\nfront_end: 1ms\n")
        assert [each.run for each in mine.fitted_to] == ["run"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "extends: vlm\n",
                "mine.yaml:1:10: extends: unknown engine 'vlm' (did you mean 'vllm'",
            ),
            ("extends: vllm\nfront_end: 3GB\n", "mine.yaml:2:12: front_end: "),
            ("extends: vllm\nfront: 3ms\n", "mine.yaml:2:8: front: unknown key"),
            ("extends: vllm\noverlapped:\n", "mine.yaml:2:12: overlapped: expected true or false"),
            ("front_end: 3ms\n", "mine.yaml:1:12: "),
        ],
    )
    def test_mistakes_are_one_clear_sentence(self, text: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=re.escape(message)):
            self.engine(tmp_path, text)

    def test_show_prints_the_whole_engine(self, tmp_path: Path) -> None:
        mine = self.engine(tmp_path, "extends: vllm\nfront_end: 26.8ms\n")
        (tmp_path / "other").mkdir()
        path = saved(tmp_path / "other", "mine.yaml", str(tmp_path / "mine.yaml"))
        text = path.read_text("utf-8")
        assert text.startswith("# engines: ")
        assert "source: given in mine.yaml" in text
        assert catalog.engine(path) == mine
