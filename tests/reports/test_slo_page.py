"""What the page of a run says and draws of its SLO."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import sim
from reports.figures import latency_cdf, slo_bars
from reports.frame.formats import NARROW_SPACE
from reports.frame.page import typeset
from reports.frame.run_directory import SavedRun
from reports.pages.run import head, slo
from reports.pages.run.slo import judged, percent
from reports.pages.run.verdict import verdict
from sim.metrics.words.slo_text import headroom_text
from sim.scenario import load_scenario
from sim.terminal.console import as_text
from sim.terminal.findings import run_view
from tests.planning_fixtures import SMALL


def page(slo: dict[str, Any] | None, **changes: object) -> SavedRun:
    scenario = load_scenario({**SMALL, "slo": slo}).override(
        {"run.requests": 600, "run.warmup": 0, **changes}
    )
    result = sim.simulate(scenario)
    return SavedRun(result.summary, result.requests, result.timeseries, scenario.to_yaml())


def answers(run: SavedRun) -> dict[str, Any]:
    found = verdict(run.summary)
    return {"head": found, **{answer.key: answer for answer in found.answers}}


def plain(text: str) -> str:
    return str(typeset(text)).replace(NARROW_SPACE, " ")


def limit_at(run: SavedRun, metric: str, share: float) -> str:
    """The latency that this share of the requests keeps, as a limit."""
    values = run.requests[f"{metric}_s"].to_numpy(float)
    return f"{float(np.nanquantile(values, share))!r}s"


def test_a_card_counts_the_requests_that_were_never_answered() -> None:
    """The latency of those that were is within the limit, the share of all requests is not."""
    limit = slo.SloLimit("ttft", 500.0, 0.16, target=0.95)
    assert limit.missed
    assert not limit._replace(attainment=0.96).missed
    assert not limit._replace(target=None).missed
    run = page({"ttft": "10s", "attainment": 0.95})
    limits = run.summary["infersim"]["verdict"]["limits"]
    limits["ttft"] |= {"attainment": 0.16, "low": 0.1, "high": 0.2, "value_ms": None}
    card = head.cards(run.summary)[0]
    assert any("only 16" in line for line in card.details), card


def test_a_missed_slo_is_not_read_the_other_way_round() -> None:
    free = page(None)
    missed = answers(page({"ttft": limit_at(free, "ttft", 0.5), "tpot": "1s", "attainment": 0.95}))
    assert (
        plain(missed["slo"].short) == "No: only 50 % of requests are within the SLO (95 % wanted)."
    )
    assert (missed["slo"].tone, missed["head"].tone) == ("bad", "bad")
    assert missed["head"].headline.endswith("SLO missed")
    assert missed["headroom"].short == "None: the SLO is missed already."


def test_an_open_slo_is_amber_and_says_what_would_decide() -> None:
    few = answers(page({"ttft": "1s"}, **{"run.requests": 100}))
    assert few["slo"].tone == few["head"].tone == "warn"
    assert few["slo"].short.startswith("Too close to call: 100")
    assert "requests would decide." in few["slo"].detail
    assert few["head"].headline.endswith("SLO too close to call")


def test_tile_and_distribution_show_the_percentile_that_is_promised() -> None:
    free = page(None)
    at_95 = limit_at(free, "ttft", 0.97)  # p95 keeps it, p99 does not
    run = page({"ttft": at_95, "attainment": 0.95})
    tile = next(card for card in head.cards(run.summary) if card.definition == "ttft")
    assert tile.label == "TTFT p95"
    entry = run.summary["infersim"]["verdict"]["limits"]["ttft"]
    assert float(tile.value) == pytest.approx(entry["value_ms"], rel=0.01)
    assert run.summary["p99_ttft_ms"] > entry["limit_ms"] > entry["value_ms"]
    assert tile.tone in ("good", "warn")
    assert not any("missed" in line for line in tile.details)
    drawn = latency_cdf.figure(run.requests, "ttft", limit_s=0.1, target=0.95)
    assert [(shape.name, shape.y0) for shape in drawn.layout.shapes[1:]] == [("95 % wanted", 0.95)]
    assert any("p95" in str(text) for text in drawn.data[-1].text)
    assert latency_cdf.figure(run.requests, "ttft").layout.shapes == ()


def test_a_percentile_of_its_own_is_judged_and_drawn() -> None:
    run = page({"ttft_p50": "1us", "tpot_p95": "1s"})
    found = answers(run)
    assert found["slo"].short.startswith("No: TTFT p50 is ")
    assert "TTFT p50 breaks first." in found["slo"].detail
    rows = {row[0].text for row in slo.limits_table(run.summary, run.requests).rows}
    assert rows == {"TTFT p50", "TPOT p95"}
    each = slo.attained(run.summary)
    assert {limit.target for limit in each} == {0.5, 0.95}
    drawn = slo_bars.attainment(each, 0.5)
    assert [line.x0 for line in drawn.layout.shapes] == [0.5, 0.95]
    assert any(row.endswith("target 95 %") for row in drawn.layout.yaxis.ticktext)
    assert slo.sentence(run.summary, run.requests).startswith(
        f"TTFT p50 breaks first: {percent(0.5)} of requests are within "
    )
    labels = {card.label for card in head.cards(run.summary)}
    assert {"TTFT p50", "TPOT p95"} <= labels


def test_nothing_is_said_of_limits_where_there_are_none() -> None:
    run = page(None)
    details = [line for card in head.cards(run.summary) for line in card.details]
    assert not any("within" in line for line in details)
    with_limits = page({"ttft": "1s"})
    details = [line for card in head.cards(with_limits.summary) for line in card.details]
    assert any("within the SLO" in line for line in details)


def test_rejected_requests_come_first_on_the_page() -> None:
    run = page({"ttft": "1s"}, max_model_len=200)
    found = answers(run)
    assert found["head"].text.startswith(run.summary["infersim"]["rejection"]["text"][:20])
    assert "set max_model_len to" in found["head"].text
    assert "Rejected requests break first." in found["slo"].detail
    assert slo.sentence(run.summary, run.requests).endswith("requests that were rejected.")


def test_what_fits_is_stated_and_a_reserved_cache_does_not_look_empty() -> None:
    """Memory that is set aside for whole answers is full long before it is filled."""
    run = page(
        None,
        **{
            "scheduler.batching": "static",
            "scheduler.max_num_seqs": 64,
            "kv_cache.gpu_memory_utilization": 0.25,
            "workload.arrivals.rate": 40,
        },
    )
    cache, fits = run.summary["infersim"]["kv_cache"], answers(run)["fits"]
    reserved, filled = round(100 * cache["peak_reserved"], 1), round(100 * cache["peak_used"], 1)
    assert reserved > 90
    assert filled < 50
    assert f"At most {reserved} % of it was reserved, and {filled} % filled." in plain(fits.detail)
    assert fits.question == "What fits"
    room = round(cache["max_concurrency"], 1)
    ran = run.summary["infersim"]["batch"]["peak_running"]
    full = f"which reserved {reserved} % of the KV cache"
    short = f"Room for {room} requests of 1,024 tokens; at most {ran} ran at once, {full}."
    assert plain(fits.short) == short
    several = answers(page(None, **{"fleet.0.replicas": 2}))["fits"].short
    assert several.startswith("Each replica has room for ")
    assert several.endswith(" ran at once in one.")


def test_requests_that_do_not_fit_are_stated() -> None:
    some = answers(page(None, max_model_len=250))["fits"]
    assert some.short.startswith("Not all: ")
    assert some.short.endswith(" were rejected.")
    none = answers(page(None, max_model_len=11))["fits"]
    assert none.short == "Nothing: every request was rejected."


def test_a_busy_fleet_does_not_read_as_a_full_one() -> None:
    run = page({"ttft": "1s"}, **{"workload.arrivals.rate": 60})
    own = run.summary["infersim"]
    busy, taken = own["utilisation"]["busy"], own["verdict"]["utilisation"]
    assert busy > 0.9
    assert taken < 0.5
    said = plain(answers(run)["stable"].detail)
    assert said.startswith("On average a replica runs ")
    assert f"{100 * busy:.0f} %" not in said
    terminal = as_text(run_view(run.summary))
    assert "busy, any batch size" in terminal
    assert "time busy" not in terminal


def test_the_cost_has_one_currency_sign() -> None:
    (tile,) = [card for card in head.cards(page(None).summary) if card.definition == "cost"]
    assert [line for line in tile.details if "per 1M" in line]
    assert not any("$" in line and "USD" in line for line in tile.details)


def test_the_headroom_of_the_page_is_that_of_the_terminal() -> None:
    run = page({"ttft": "1s"})
    text = headroom_text(judged(run.summary))
    assert plain(answers(run)["headroom"].short).rstrip(".") in plain(text)


def test_a_run_directory_of_an_older_version_is_judged_as_it_was() -> None:
    run = page({"ttft": "1s", "attainment": 0.9})
    own = dict(run.summary["infersim"])
    kept = ("state", "text", "slo_met", "attainment", "target", "first_limit", "limits")
    kept += ("utilisation", "utilisation_error", "headroom")
    older = {key: own["verdict"][key] for key in kept}
    older["limits"] = {"ttft": {"limit_ms": 1000.0, "attainment": 1.0}}
    own["verdict"] = older
    del own["rejection"], own["ends"]
    found = answers(dataclasses.replace(run, summary={**run.summary, "infersim": own}))
    assert plain(found["slo"].short) == "Yes: 100 % of requests are within the SLO (90 % wanted)."
    assert found["headroom"].short.startswith("About ")
