"""The self-test itself: its checks can fail, its table fits, its exit code tells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sim.selftest
from sim.cli import app
from sim.errors import InfersimError
from sim.iteration import Ints, Part
from sim.memory import PagedAllocator
from sim.request import Request
from sim.schedulers import ChunkedPrefill, Limits, Plan
from sim.selftest import Check, header, row
from sim.selftest.check import estimate
from sim.selftest.exact import burst, burst_check, littles_law, roofline_check
from sim.selftest.loop import LineTimer, WatchedReplica, play, scheduler
from sim.selftest.queues import (
    CONSTANT,
    MEMORYLESS,
    SPREAD,
    TOKEN,
    infinite_servers,
    priorities,
    processor_sharing,
    single_server,
)
from sim.workload.traffic import OpenTraffic, TrafficChunk

REQUESTS = 8_000


def failing(checks: list[Check]) -> set[str]:
    """What the names of the failed checks say after the name of the run."""
    return {check.name.partition(": ")[2].partition(",")[0] for check in checks if not check.ok}


def limits(slots: int) -> Limits:
    return Limits(max_num_seqs=slots, max_num_batched_tokens=1 << 20, max_model_len=1 << 20)


# -- a broken simulator is found out -------------------------------------------------------------


class NewestFirst(ChunkedPrefill):
    """Serves the queue from its end."""

    def schedule(self, now: float) -> Plan | None:
        if self.waiting and not self.members():
            self.waiting.appendleft(self.waiting.pop())
        return super().schedule(now)


class Dawdling(ChunkedPrefill):
    """Starts on an idle replica a third of a token after the arrival."""

    def schedule(self, now: float) -> Plan | None:
        return None if now < self.wakeup(now) != math.inf else super().schedule(now)

    def wakeup(self, now: float) -> float:
        idle = self.waiting and not self.members()
        return self.waiting[0].queued + TOKEN / 3 if idle else math.inf


class TwoSeats(ChunkedPrefill):
    """Ignores its limit of one seat."""

    def __init__(self) -> None:
        super().__init__(limits(2), PagedAllocator(1 << 20, 16))


class Superlinear(LineTimer):
    """Decodes of a large batch cost more than in proportion."""

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        return math.inf, TOKEN * sequences**1.5, 0.0


class FreePrefill(LineTimer):
    """Forgets what an iteration with a prefill costs the decodes in it."""

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.0


def test_a_sound_one_passes() -> None:
    assert not failing(single_server("x", 0.8, CONSTANT, 5, requests=REQUESTS))
    assert not failing(infinite_servers("x", 20, SPREAD, 5, requests=REQUESTS))
    assert not failing(processor_sharing("x", 0.5, SPREAD, 5, requests=REQUESTS))


def test_a_price_a_tenth_too_high_is_found() -> None:
    dear = LineTimer(fixed=1.1 * TOKEN)
    found = failing(single_server("x", 0.8, CONSTANT, 5, requests=REQUESTS, timer=dear))
    assert found == {"mean wait", "worst departure", "busy = work brought"}


def test_a_price_a_millionth_too_high_is_found_by_what_is_exact() -> None:
    dear = LineTimer(fixed=(1 + 1e-6) * TOKEN)
    found = failing(single_server("x", 0.8, CONSTANT, 5, requests=REQUESTS, timer=dear))
    assert found == {"worst departure", "busy = work brought"}


def test_the_wrong_order_is_found_though_the_mean_wait_is_right() -> None:
    policy = NewestFirst(limits(1), PagedAllocator(1 << 20, 16))
    found = failing(single_server("x", 0.8, CONSTANT, 5, requests=REQUESTS, policy=policy))
    assert found == {"worst departure"}


def test_an_idle_server_with_somebody_waiting_is_found() -> None:
    policy = Dawdling(limits(1), PagedAllocator(1 << 20, 16))
    found = failing(single_server("x", 0.5, MEMORYLESS, 5, requests=REQUESTS, policy=policy))
    assert found == {"worst departure", "idle only when empty"}


def test_a_second_seat_is_found() -> None:
    found = failing(single_server("x", 0.8, CONSTANT, 5, requests=REQUESTS, policy=TwoSeats()))
    assert {"mean wait", "worst departure", "busy = work brought"} <= found


def test_priorities_that_are_not_heeded_are_found() -> None:
    assert not failing(priorities("x", 0.8, CONSTANT, 5, requests=REQUESTS))
    policy = scheduler(slots=1)
    found = failing(priorities("x", 0.8, CONSTANT, 5, requests=REQUESTS, policy=policy))
    assert found == {"wait of first"}  # that of the second scatters too much


def test_a_limit_on_seats_is_found_where_there_should_be_none() -> None:
    policy = scheduler(slots=22)
    found = failing(infinite_servers("x", 20, SPREAD, 5, requests=REQUESTS, policy=policy))
    assert {"mean number present", "time beyond service"} <= found


def test_a_share_that_shrinks_too_fast_is_found() -> None:
    price = Superlinear(sequence=TOKEN)
    found = failing(processor_sharing("x", 0.5, SPREAD, 5, requests=REQUESTS, timer=price))
    assert found == {"sojourn per token", "mean sojourn", "busy = work brought"}


def test_a_queue_in_place_of_sharing_is_found_though_the_mean_sojourn_is_the_same() -> None:
    policy = scheduler(slots=1)
    found = failing(processor_sharing("x", 0.5, MEMORYLESS, 5, requests=REQUESTS, policy=policy))
    assert found == {"sojourn per token"}


def test_a_free_prefill_is_found() -> None:
    price = FreePrefill(fixed=TOKEN)
    found = failing(single_server("x", 0.5, CONSTANT, 5, requests=REQUESTS, timer=price))
    assert "busy = work brought" in found
    assert "time beyond service" in failing(
        infinite_servers("x", 20, SPREAD, 5, requests=REQUESTS, timer=price)
    )


def test_a_replica_that_miscounts_is_found() -> None:
    class Forgetful(WatchedReplica):
        def submit(self, request: Request) -> None:
            self.outstanding += {1: -1, 2: 1}.get(request.id, 0)
            super().submit(request)

    def little(make_replica: type[WatchedReplica]) -> Check:
        columns = TrafficChunk([0.0, 5 * TOKEN, 10 * TOKEN], [1, 1, 1], [20, 20, 20])
        traffic, price = OpenTraffic(3, iter([columns])), LineTimer(fixed=TOKEN)
        return littles_law("x", play(traffic, scheduler(slots=1), price, make_replica))

    sound, forgetful = little(WatchedReplica), little(Forgetful)
    assert sound.ok
    assert not forgetful.ok
    assert forgetful.simulated < forgetful.theory


def test_a_policy_that_is_not_what_it_says_is_found() -> None:
    lengths = [10, 20, 30], [3, 9, 6]
    for said, done in (("static", "continuous"), ("continuous", "static"), ("request", "static")):
        policy = scheduler(done, slots=3)
        assert not burst_check(said, *lengths, name="", policy=policy).ok
    one_by_one = scheduler("continuous", slots=1)
    assert not burst_check("continuous", *lengths, name="", policy=one_by_one).ok


def test_a_decode_off_the_roofline_is_found() -> None:
    assert not roofline_check(slots=4, prompt=16, output=9, timer=LineTimer(fixed=0.004)).ok


def test_a_scheduler_that_serves_nobody_is_an_error() -> None:
    class Deaf(ChunkedPrefill):
        def schedule(self, now: float) -> Plan | None:
            return None

    with pytest.raises(InfersimError, match="stuck: 2 requests wait"):
        play(burst([1, 1], [1, 1]), Deaf(limits(1), PagedAllocator(8, 16)), LineTimer(fixed=1.0))


# -- the table and the command -------------------------------------------------------------------

GOOD = Check("a queue at 0.5: mean wait, s", 2.0, 2.1, 0.4, 0.1)
BAD = Check("a queue at 0.5: busy, s", 123456.789, 123457.0, 1.2e-4)
NAN = Check("nothing came", 1.0, math.nan, math.inf, math.nan)


def test_ok_is_within_the_tolerance_and_never_with_nan() -> None:
    assert [check.ok for check in (GOOD, BAD, NAN)] == [True, False, False]
    assert Check("", 1.0, 1.5, 0.5).ok
    assert not Check("", 1.0, math.inf, math.nan).ok


def test_the_tolerance_is_four_standard_errors_of_the_batches() -> None:
    check = estimate("x", 0.0, np.array([1.0, 3.0, 1.0, 3.0]))
    assert check.standard_error == pytest.approx((4 / 3) ** 0.5 / 2)
    assert check.tolerance == pytest.approx(4 * (4 / 3) ** 0.5 / 2)
    assert check.simulated == 2.0


def test_rows() -> None:
    assert " ".join(row(GOOD).split()) == "a queue at 0.5: mean wait, s 2 2.1 4.0e-01 +1.0 yes"
    assert row(BAD).split()[-5:] == ["123457", "123457", "1.2e-04", "-", "NO"]
    assert {len(line) for line in [*header().splitlines(), row(GOOD), row(BAD)]} == {88}


def selftest(
    monkeypatch: pytest.MonkeyPatch, checks: list[Check], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(sim.selftest, "checks", lambda: iter(checks))
    done = CliRunner().invoke(app, ["selftest", *arguments])
    return done.exit_code, done.stdout


def test_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = selftest(monkeypatch, [GOOD, GOOD])
    assert (code, out.splitlines()[-1]) == (0, "all 2 checks ok")
    code, out = selftest(monkeypatch, [GOOD, BAD, NAN])
    assert (code, out.splitlines()[-1]) == (1, "2 of 3 checks failed")


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = selftest(monkeypatch, [GOOD, NAN], "--json")
    told: dict[str, Any] = json.loads(out)
    assert (code, told["ok"], len(out.splitlines())) == (1, False, 1)
    assert told["checks"][0] == {
        "check": GOOD.name,
        "theory": 2.0,
        "simulated": 2.1,
        "tolerance": 0.4,
        "standard_error": 0.1,
        "ok": True,
    }
    assert told["checks"][1]["simulated"] is None
    assert selftest(monkeypatch, [GOOD], "--json")[0] == 0


def test_an_error_on_the_way_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> Iterator[Check]:
        yield GOOD
        raise InfersimError("the scheduler is stuck")

    monkeypatch.setattr(sim.selftest, "checks", breaks)
    done = CliRunner().invoke(app, ["selftest"])
    assert done.exit_code == 1
    assert done.stderr == "error: the scheduler is stuck\n"


@pytest.mark.slow
def test_the_real_thing() -> None:
    """All of it, as a user gets it."""
    done = CliRunner().invoke(app, ["selftest"])
    assert done.exit_code == 0, done.stdout
    lines = done.stdout.splitlines()
    assert {len(line) for line in lines[:-1]} == {88}
    for name in ("M/D/1", "M/M/1", "M/G/inf", "M/G/1-PS", "roofline", "static", "continuous"):
        assert any(line.startswith(name) for line in lines), name
