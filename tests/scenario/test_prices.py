"""What a GPU hour costs: whose price it is, of when, and in which range others lie."""

from __future__ import annotations

import json
import re
from calendar import month_name
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from reports.pages.run.slo import percent
from reports.pages.run.verdict import verdict
from sim import catalog, simulate
from sim.cli import app
from sim.errors import UsageError
from sim.planning.points.figures import FIGURES
from sim.scenario import load_scenario
from sim.scenario.prices import price_of
from sim.terminal.findings import run_view
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, show_cost
from tests.planning_fixtures import small

GPUS = catalog.names("gpus")
MINE = "memory: 22GiB\nbandwidth: 600GB/s\npeak_flops: {bf16: 120TFLOP/s}\n"


def gpu_file(folder: Path, text: str) -> Any:
    (folder / "mine.yaml").write_text(MINE + text, encoding="utf-8")
    return catalog.gpu("./mine.yaml", base=folder)


class TestCatalogue:
    @pytest.mark.parametrize("name", GPUS)
    def test_the_data_say_what_the_source_says_and_no_more(self, name: str) -> None:
        price = catalog.gpu(name).price
        source = catalog.gpu(name).sources["price_per_hour"]
        if price is None:
            assert source.startswith("No list price")
            return
        assert price.provider is not None
        assert price.date is not None
        assert price.provider in source
        assert f"as of {_long(price.date)}" in source
        stated = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", source)}
        assert {end for end in (price.low, price.high) if end is not None} <= stated

    def test_a_range_is_that_of_the_source(self) -> None:
        h100, b200 = catalog.gpu("h100-sxm").price, catalog.gpu("b200-sxm").price
        assert h100 is not None
        assert b200 is not None
        assert (h100.usd, h100.low, h100.high, h100.date) == (3.99, 2.5, 12, "2026-11")
        assert (b200.low, b200.high) == (None, None)  # its source names no other price


def _long(date: str) -> str:
    """``2026-11`` as the sources write it."""
    year, _, month = date.partition("-")
    return f"{month_name[int(month)]} {year}" if month else year


class TestOwnFile:
    def test_a_plain_number_is_a_price_of_nobody(self, tmp_path: Path) -> None:
        gpu = gpu_file(tmp_path, "price_per_hour: 0.86\n")
        assert (gpu.price_per_hour, gpu.price.provider, gpu.price.low) == (0.86, None, None)

    def test_a_mapping_says_whose_it_is(self, tmp_path: Path) -> None:
        text = "price_per_hour: {usd: 2, provider: Acme, date: 2026-11-05, low: 1.5}\n"
        price = gpu_file(tmp_path, text).price
        assert (price.usd, price.provider, price.date) == (2, "Acme", "2026-11-05")
        assert (price.low, price.high) == (1.5, None)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("{provider: Acme}", "mine.yaml:4:17: price_per_hour.usd: is missing"),
            ("{usd: 2, low: 3}", "price_per_hour.low: got 3.0, expected 0 to usd, which is 2"),
            (
                "{usd: 2, high: 1}",
                "price_per_hour.high: got 1.0, expected usd, which is 2, or more",
            ),
            ("{usd: 2, date: yesterday}", "price_per_hour.date: expected a day, month or year"),
            ("{usd: 2, vendor: Acme}", "price_per_hour.vendor: unknown key"),
            ("-1", "price_per_hour: got -1.0, expected 0 or more"),
        ],
    )
    def test_a_bad_price_is_one_clear_error(self, value: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=re.escape(message)):
            gpu_file(tmp_path, f"price_per_hour: {value}\n")


class TestOfARun:
    def test_whose_price_it_is_stands_in_the_summary(self) -> None:
        cost = simulate(small()).summary["infersim"]["cost"]
        assert (cost["usd_per_gpu_hour"], cost["provider"]) == (3.99, "RunPod Secure Cloud")
        assert (cost["origin"], cost["date"], cost["low"], cost["high"]) == (
            *("list", "2026-11"),
            *(2.5, 12),
        )
        given = simulate(small(fleet__0__price_per_gpu_hour=2.0)).summary["infersim"]["cost"]
        assert (given["usd_per_gpu_hour"], given["origin"], given["provider"]) == (
            2.0,
            "given",
            None,
        )
        assert (given["low"], given["high"]) == (None, None)

    def test_none_is_shown_where_none_is_wanted(self) -> None:
        asked = small(fleet__0__price_per_gpu_hour=None)
        assert price_of(asked.only_pool, catalog.gpu("h100-sxm")) is None
        assert "USD" not in shown(simulate(asked).summary)

    def test_the_terminal_names_both_costs_and_the_offer(self) -> None:
        summary = simulate(small()).summary
        cost, text = summary["infersim"]["cost"], shown(summary)
        each = cost["usd_per_million_output_tokens"], cost["usd_per_million_tokens"]
        assert (
            f"Cost: {show_cost(each[0])} {PER_OUTPUT_TOKENS}, {show_cost(each[1])} {PER_TOKENS}"
            in text
        )
        offer = "list price, RunPod Secure Cloud, Nov 2026; others 2.50 to 12"
        assert f"At 3.99 USD per GPU hour: {offer}" in text
        assert max(map(len, text.splitlines())) <= 88

    def test_a_summary_of_before_is_still_shown(self) -> None:
        summary = simulate(small()).summary
        for key in ("text", "origin", "provider", "date", "low", "high"):
            del summary["infersim"]["cost"][key]
        assert "At 3.99 USD per GPU hour\n" in re.sub(" +\n", "\n", shown(summary))

    def test_the_page_gives_the_cost_of_what_was_in_time(self) -> None:
        summary = simulate(small(slo__ttft="24ms", run__requests=200)).summary
        good, rate = summary["request_goodput"], summary["request_throughput"]
        assert 0 < good < rate
        (cost,) = (each for each in verdict(summary).answers if each.key == "cost")
        each = 1000 * summary["infersim"]["cost"]["usd"] / (summary["completed"] * good / rate)
        assert f"${each:.3g} per 1,000 of these" in cost.detail
        assert "list price, RunPod Secure Cloud, Nov 2026; others 2.50 to 12" in cost.detail
        assert f"Only {percent(good / rate)} of the completed requests are within" in cost.detail
        (cost,) = (
            each
            for each in verdict({**summary, "request_goodput": rate}).answers
            if each.key == "cost"
        )
        assert "All completed requests are within the SLO: $" in cost.detail
        met = simulate(small(slo__ttft="10s")).summary
        (cost,) = (each for each in verdict(met).answers if each.key == "cost")
        assert "per 1,000 of these" not in cost.detail

    def test_without_limits_nothing_costs_so_much_within_them(self) -> None:
        from reports.pages.run.tables import costs

        titles = [row[0].text for row in costs(simulate(small(slo={})).summary).rows]
        assert not any("within the SLO" in title for title in titles)
        summary = simulate(small()).summary
        rows = {row[0].text: row[1].value for row in costs(summary).rows}
        assert any("within the SLO" in title for title in rows)
        (each,) = (rows[title] for title in rows if title.endswith("per 1,000 requests"))
        usd = summary["infersim"]["cost"]["usd"]
        assert each == pytest.approx(1000 * usd / summary["completed"])

    def test_comparisons_use_the_same_name(self) -> None:
        titles = {figure.key: figure.title for figure in FIGURES}
        assert titles["cost.usd_per_million_output_tokens"] == PER_OUTPUT_TOKENS


def shown(summary: dict[str, Any]) -> str:
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(run_view(summary))
    return captured.get()


def test_a_price_saved_as_yaml_is_the_same_price(tmp_path: Path) -> None:
    entry = catalog.raw("gpus", "h100-sxm")
    (tmp_path / "copy.yaml").write_text(yaml.safe_dump(entry), encoding="utf-8")
    assert catalog.gpu("./copy.yaml", base=tmp_path).price == catalog.gpu("h100-sxm").price


class TestGiven:
    def command(self, folder: Path, *arguments: str, name: str = "run") -> Any:
        path = folder / "small.yaml"
        path.write_text(small().to_yaml(), encoding="utf-8")
        out = str(folder / f"out{len(list(folder.iterdir()))}")
        wanted = [name, str(path), "-o", out, "--json", "--no-report", *arguments]
        return CliRunner().invoke(app, wanted)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("p.yaml", "h100-sxm: 2.40\nl40s: 0.5\n"),
            ("p.csv", "gpu,usd\nl40s,0.5\nh100-sxm,2.40\n"),
            ("q.csv", "usd, gpu, note\n$2.40,h100-sxm,ours\n"),
        ],
    )
    def test_a_file_of_prices(self, name: str, text: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = self.command(tmp_path, "--prices", str(tmp_path / name))
        cost = json.loads(done.stdout)["infersim"]["cost"]
        assert (cost["usd_per_gpu_hour"], cost["origin"], cost["text"]) == (
            *(2.4, "given"),
            "your price",
        )
        both = self.command(tmp_path, "--prices", str(tmp_path / name), "--price", "h100-sxm=3")
        assert json.loads(both.stdout)["infersim"]["cost"]["usd_per_gpu_hour"] == 3

    def test_a_price_goes_before_that_of_the_scenario(self, tmp_path: Path) -> None:
        own = ("--set", "fleet.0.price_per_gpu_hour=9")
        given = self.command(tmp_path, *own, "--price", "h100-sxm=2")
        assert json.loads(given.stdout)["infersim"]["cost"]["usd_per_gpu_hour"] == 2
        (tmp_path / "p.yaml").write_text("l40s: 1\n", encoding="utf-8")
        other = self.command(tmp_path, *own, "--prices", str(tmp_path / "p.yaml"))
        assert json.loads(other.stdout)["infersim"]["cost"]["usd_per_gpu_hour"] == 9

    def test_a_gpu_file_is_named_like_its_results(self, tmp_path: Path) -> None:
        (tmp_path / "ours.yaml").write_text("extends: h100-sxm\n", encoding="utf-8")
        gpu = ("--set", "fleet.0.gpu=./ours.yaml")
        for name in ("ours", "./ours.yaml"):
            done = self.command(tmp_path, *gpu, "--price", f"{name}=1.25")
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["infersim"]["cost"]["usd_per_gpu_hour"] == 1.25

    def test_prices_follow_the_gpus_of_a_sweep(self, tmp_path: Path) -> None:
        swept = ("--sweep", "fleet.gpu=h100-sxm,l40s", "--price", "l40s=0.5", "--jobs", "1")
        done = self.command(tmp_path, *swept, name="sweep")
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)["results"]
        costs = [row["summary"]["infersim"]["cost"] for row in rows]
        assert [(c["usd_per_gpu_hour"], c["origin"]) for c in costs] == [
            (3.99, "list"),
            (0.5, "given"),
        ]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("h100=2", "--price 'h100=2': unknown GPU 'h100' (did you mean 'h100-sxm'?)"),
            ("h100-sxm", "--price 'h100-sxm': expected GPU=USD, such as h100-sxm=2.40"),
            ("h100-sxm=cheap", "expected US dollars for a GPU hour, such as 2.40, got 'cheap'"),
            ("h100-sxm=-1", "expected US dollars for a GPU hour"),
            ("h100-sxm=nan", "expected US dollars for a GPU hour"),
            ("l40s=1", "--price l40s: not looked at here, where the GPUs are h100-sxm"),
        ],
    )
    def test_a_bad_price_is_one_clear_error(self, given: str, message: str, tmp_path: Path) -> None:
        done = self.command(tmp_path, "--price", given)
        assert done.exit_code == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("p.yaml", "l40s: 1\nh100: 2\n", "p.yaml:2:7: unknown GPU 'h100' (did you mean"),
            ("p.yaml", "h100-sxm: free\n", "p.yaml:1:11: expected US dollars"),
            ("p.csv", "gpu,usd\n\nh100,2\n", "p.csv:3: unknown GPU 'h100'"),
            ("p.csv", "gpu,price\nh100-sxm,2\n", "p.csv:1: expected the columns gpu and usd"),
            ("p.csv", "gpu,usd\nl40s,1\nl40s,2\n", "p.csv:3: l40s is given twice"),
            ("p.csv", "", "p.csv:1: expected the columns gpu and usd"),
        ],
    )
    def test_a_bad_file_is_one_clear_error(
        self, name: str, text: str, message: str, tmp_path: Path
    ) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = self.command(tmp_path, "--prices", str(tmp_path / name))
        assert done.exit_code == 2
        assert message in done.stderr
        missing = self.command(tmp_path, "--prices", str(tmp_path / "none.csv"))
        assert missing.exit_code == 2
        assert "cannot be read" in missing.stderr

    def test_a_scenario_may_have_prices_by_gpu(self) -> None:
        asked = small(fleet__0__price_per_gpu_hour={"l40s": 0.5, "h100-sxm": 2})
        assert load_scenario(asked.resolved()) == asked
        price = price_of(asked.only_pool, catalog.gpu("h100-sxm"))
        assert price is not None
        assert (price.usd, price.origin) == (2, "given")
        with pytest.raises(UsageError, match=re.escape("(did you mean 'l40s'?)")):
            small(fleet__0__price_per_gpu_hour={"l40sx": 0.5})
