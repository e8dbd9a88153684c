"""Rules that scale fleets, by their published examples, and fleets that are scaled while they
serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import InfersimError
from sim.metrics.record.run_record import warmup_length
from sim.pools import cold_start_of
from sim.scaling import Apa, ByRate, Hpa, Keda, Kpa, Reading, SaturationRule, Stabiliser, Step
from sim.scenario import load_scenario
from sim.scenario.sections.autoscaling import Autoscaling
from sim.setup import prepare


def busy(queue: float, replicas: int) -> list[Reading]:
    """So many replicas with so many requests waiting at each."""
    return [Reading(queue, 0.0, 0.0)] * replicas


class TestHpa:
    """Kubernetes' documentation: 200m against a target of 100m doubles the replicas, 50m halves
    them, and nothing happens within 10 % of the target."""

    @staticmethod
    def rule(window: float = 0.0, high: int = 100) -> Hpa:
        return Hpa("queue", 100.0, Stabiliser(window, 1, high))

    @pytest.mark.parametrize(
        ("metric", "wanted"), [(200, 8), (50, 2), (100, 4), (109, 4), (111, 5), (90, 4), (89, 4)]
    )
    def test_the_ratio(self, metric: float, wanted: int) -> None:
        """Of four replicas; 4 x 0.89 = 3.56 is rounded up."""
        assert self.rule().desired(0.0, 4, busy(metric, 4), 0.0) == wanted

    def test_replicas_that_start_count_as_idle(self) -> None:
        """Two ready at 200 and two on their way: 400 against 4 x 100, so enough were started."""
        assert self.rule().desired(0.0, 4, busy(200, 2), 0.0) == 4

    @pytest.mark.parametrize(
        ("ready", "metric", "wanted"),
        [
            (2, 50, 3),  # on target: (100 + 200) / 400 = 0.75; not 1, of the two ready alone
            (2, 0, 2),
            (3, 84, 4),  # 352 / 400 = 0.88, 3.52 rounded up
            (3, 180, 6),  # idle: 540 / 400 = 1.35, 5.4 rounded up
            (2, 190, 4),  # 380 / 400 is within 10 %
            (2, 120, 4),  # 240 / 400 would want less, although the two want more
            (0, 0, 4),
        ],
    )
    def test_replicas_without_metrics_hold_it_back(
        self, ready: int, metric: float, wanted: int
    ) -> None:
        """On target where the others want less, idle where they want more, never a turn."""
        assert self.rule().desired(0.0, 4, busy(metric, ready), 0.0) == wanted

    def test_eighty_pods_go_by_ten_percent_then_by_four(self) -> None:
        """Kubernetes' example of `behavior.scaleDown`: 10 % or 4 pods a minute, whichever is more;
        7.2 of 72 are rounded up to 8, and below 40 the 4 pods rule."""
        steps = [Step(4, None, 60.0), Step(None, 10.0, 60.0)]
        rule = Hpa("queue", 100.0, Stabiliser(0.0, 10, 100, down=steps))
        seen, current = [], 80
        for minute in range(14):
            current = rule.desired(60.0 * minute, current, busy(1, current), 0.0)
            seen.append(current)
        assert seen == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12, 10]

    def test_one_a_minute(self) -> None:
        rule = Hpa("queue", 100.0, Stabiliser(0.0, 1, 100, up=[Step(1, None, 60.0)]))
        wanted = [rule.desired(at, n, busy(900, n), 0.0) for at, n in ((0, 2), (30, 3), (60, 3))]
        assert wanted == [3, 3, 4]

    def test_up_by_all_or_by_four_in_fifteen_seconds(self) -> None:
        rule = self.rule()
        assert rule.desired(0.0, 1, busy(9000, 1), 0.0) == 5
        assert rule.desired(5.0, 5, busy(9000, 5), 0.0) == 5
        assert rule.desired(15.0, 5, busy(9000, 5), 0.0) == 10
        assert rule.desired(30.0, 10, busy(9000, 10), 0.0) == 20

    def test_down_to_the_most_of_the_last_five_minutes(self) -> None:
        rule = self.rule(window=300.0)
        assert rule.desired(0.0, 4, busy(150, 4), 0.0) == 6
        assert rule.desired(60.0, 6, busy(50, 6), 0.0) == 6
        assert rule.desired(300.0, 6, busy(25, 6), 0.0) == 6
        assert rule.desired(301.0, 6, busy(25, 6), 0.0) == 3
        assert rule.desired(361.0, 3, busy(50, 3), 0.0) == 2

    def test_between_the_fewest_and_the_most(self) -> None:
        assert self.rule(high=6).desired(0.0, 4, busy(900, 4), 0.0) == 6
        assert self.rule().desired(0.0, 4, busy(0, 4), 0.0) == 1


class TestKeda:
    """The sum over replicas, whoever has metrics: 12 waiting and a target of 3 are 4 replicas."""

    @pytest.mark.parametrize(
        ("current", "ready", "queue", "wanted"),
        [(2, 2, 6, 4), (4, 2, 6, 4), (4, 2, 3, 2), (4, 4, 3.2, 4), (4, 4, 3.4, 5), (4, 4, 100, 8)],
    )
    def test_the_sum(self, current: int, ready: int, queue: float, wanted: int) -> None:
        rule = Keda("queue", 3.0, Stabiliser(0.0, 1, 8))
        assert rule.desired(0.0, current, busy(queue, ready), 0.0) == wanted


class TestKpa:
    """Averages of three minutes; of one in a panic."""

    @staticmethod
    def rule(cooldown: float = 0.0) -> Kpa:
        return Kpa("queue", 10.0, 1, 20, cooldown)

    def test_the_average_of_three_minutes(self) -> None:
        """Sums of 40, 40 and 64: 48 on average."""
        rule = self.rule()
        asked = [rule.desired(at, 4, busy(q, 4), 0.0) for at, q in ((0, 10), (60, 10), (120, 16))]
        assert asked == [4, 4, 5]

    def test_a_panic_looks_at_a_minute_and_stops_nothing(self) -> None:
        """90 of 2 replicas are 9 wanted, more than twice as many: 4 at once, twice what is ready.
        Idle from then on, the panic lasts for three minutes, and then one replica is enough."""
        rule = self.rule()
        assert rule.desired(0.0, 2, busy(5, 2), 0.0) == 1
        assert rule.desired(60.0, 2, busy(45, 2), 0.0) == 4
        assert [rule.desired(at, 4, busy(0, 4), 0.0) for at in (130.0, 240.0, 241.0)] == [4, 4, 2]
        assert rule.desired(300.0, 2, busy(0, 2), 0.0) == 1

    def test_a_long_crowd_counts_when_the_last_minute_is_quiet(self) -> None:
        """Knative: the long average may be more than the short one, and then counts in a panic. 100
        of 2 replicas for two minutes are a panic, bounded by 4; of the 4 that are there then 7 are
        wanted on average of three minutes, while nothing came in the last one."""
        rule = self.rule()
        crowd = [rule.desired(60.0 * at, 2, busy(50, 2), 0.0) for at in range(2)]
        assert crowd == [4, 4]
        assert rule.desired(179.0, 4, busy(0, 4), 0.0) == 7  # (100 + 100 + 0) / 3 / 10

    @pytest.mark.parametrize(
        ("replicas", "total", "wanted"),
        [(2, 20, 2), (4, 5, 2), (1, 0, 0), (2, 100, 4), (0, 15, 1), (0, 0, 0)],
    )
    def test_published_examples(self, replicas: int, total: float, wanted: int) -> None:
        """AIBrix' ``kpa_test.go``, at its rates of 2: a target of 10, and how much there is in all.
        Without replicas it is what waits at the gateway, and one is started."""
        rule = Kpa("queue", 10.0, 0, 10, 0.0)
        ready = busy(total / replicas, replicas) if replicas else []
        held = 0 if replicas else int(total)
        assert rule.desired(0.0, replicas, ready, 0.0, held) == wanted

    def test_nothing_is_stopped_within_the_cooldown(self) -> None:
        rule = self.rule(cooldown=300.0)
        assert rule.desired(0.0, 4, busy(10, 4), 0.0) == 4
        assert [rule.desired(at, 4, busy(0, 4), 0.0) for at in (200.0, 300.0, 301.0)] == [4, 4, 2]


class TestApa:
    """AIBrix's average of a minute: ceil(replicas x average / target), within factors of two."""

    @pytest.mark.parametrize(
        ("replicas", "metric", "wanted"),
        [(2, 45, 3), (2, 35, 3), (2, 90, 4), (6, 20, 4), (6, 18, 4), (6, 10, 3), (6, 5, 3),
         (2, 33, 2), (2, 27, 2)],
    )  # fmt: skip
    def test_published_examples(self, replicas: int, metric: float, wanted: int) -> None:
        """AIBrix' ``apa_test.go``, those at its defaults: a target of 30, tolerances of 10 %."""
        rule = Apa("queue", 30.0, 1, 20, 0.0)
        assert rule.desired(0.0, replicas, busy(metric, replicas), 0.0) == wanted

    def test_the_average_of_a_minute(self) -> None:
        rule = Apa("queue", 30.0, 1, 20, 0.0)
        asked = [rule.desired(at, 2, busy(q, 2), 0.0) for at, q in ((0, 30), (30, 60), (60, 60))]
        assert asked == [2, 3, 4]  # 30, 45, 60

    @pytest.mark.parametrize(
        ("ready", "metric", "wanted"),
        [
            (2, 45, 4),  # 4 x 1.5 = 6 are wanted; two idle ones more leave 3, so 4 stay
            (3, 60, 6),  # 8; 3 x 2 = 6 with the one that starts idle
            (2, 15, 3),  # 2; 1 + 2 with two on target
            (3, 20, 3),  # ceil(8 / 3); 2 + 1
        ],
    )
    def test_those_that_start_hold_it_back(self, ready: int, metric: float, wanted: int) -> None:
        """Of four: idle where more is wanted, on target where less is (``autoscaler.go``)."""
        rule = Apa("queue", 30.0, 1, 20, 0.0)
        assert rule.desired(0.0, 4, busy(metric, ready), 0.0) == wanted


def test_by_rate() -> None:
    """45 requests/s need 3 replicas that hold 20 each; 40 need 2."""
    rule = ByRate(20.0, Stabiliser(0.0, 1, 8))
    assert [rule.desired(now, 3, [], rate) for now, rate in ((0.0, 45.0), (1.0, 40.0))] == [3, 2]


class TestSaturation:
    """A replica is saturated from 80 % of its KV memory or 5 waiting requests on."""

    @pytest.mark.parametrize(
        ("kv", "queue", "replicas", "wanted"),
        [
            (0.75, 0, 2, 3),  # 0.05 to spare, less than 0.1
            (0.5, 3, 2, 3),  # two places of the queue to spare, less than three
            (0.9, 0, 2, 3),  # none is left that is not saturated
            (0.5, 0, 2, 2),  # one alone would be at 100 %
            (0.3, 0, 2, 1),  # one alone would be at 60 %
            (0.3, 0, 1, 1),
            (0.9, 0, 4, 4),  # no more than four
        ],
    )
    def test_one_more_or_one_less(
        self, kv: float, queue: float, replicas: int, wanted: int
    ) -> None:
        ready = [Reading(queue, 0.0, kv)] * replicas
        assert SaturationRule(1, 4).desired(0.0, replicas, ready, 0.0) == wanted

    def test_peaks_of_a_minute(self) -> None:
        rule = SaturationRule(1, 4)
        rule.desired(0.0, 2, [Reading(0, 0, 0.6)] * 2, 0.0)
        assert rule.desired(60.0, 2, [Reading(0, 0, 0.1)] * 2, 0.0) == 2
        assert rule.desired(61.0, 2, [Reading(0, 0, 0.1)] * 2, 0.0) == 1


SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": {"min": 1, "max": 4}, "price_per_gpu_hour": 3600},
    "autoscaling": {"metric": "running", "target": 8, "interval": "2s", "cold_start": "3s",
                    "stabilisation": "10s"},
    "workload": {
        "arrivals": {"kind": "diurnal", "rate": 2, "peak_rate": 40, "period": "60s"},
        "prompt_tokens": {"kind": "fixed", "value": 400},
        "output_tokens": {"kind": "uniform", "low": 50, "high": 150},
    },
    "run": {"requests": 1260, "warmup": 0},
}  # fmt: skip


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"policy": "keda", "scrape": "3s", "delay": "1s"},
        {"policy": "kpa", "delay": "5s"},
        {"policy": "apa", "scrape": "3s"},
        {"policy": "saturation"},
        {"policy": "slo", "target": 12},
    ],
    ids=str,
)
def test_a_fleet_follows_its_load(policy: dict[str, Any]) -> None:
    """Leaps change nothing; requests go only where a replica is ready; the ones with the
    highest numbers stop first; what is paid is what was held."""
    changed = {**SCENARIO, "autoscaling": {**SCENARIO["autoscaling"], **policy}}
    one, two = (sim.simulate(changed, leap=leap) for leap in (True, False))
    assert one.record.requests.tobytes() == two.record.requests.tobytes()
    held = one.record.held
    assert held is not None
    assert held.tobytes() == two.record.held.tobytes()  # type: ignore[union-attr]
    rows = one.record.requests
    assert (rows["status"] == 0).all()
    (lasting,) = held[held["replica"] == 0]
    assert (lasting["since"], lasting["until"]) == (0.0, held["until"].max())
    for replica in range(4):
        spans = held[held["replica"] == replica]
        mine = rows[rows["replica"] == replica]
        for row in mine:
            own = spans[(spans["since"] <= row["arrival"]) & (spans["until"] >= row["finish"])]
            assert len(own) == 1, (replica, row)
            queued = row["arrival"] + one.record.front_end
            assert own["since"][0] == 0 or queued >= own["since"][0] + 3
    summary = one.summary
    found = summary["infersim"]["cost"]["usd"]
    first, last = rows["arrival"].min(), rows["arrival"].min() + summary["duration"]
    paid = np.clip(held["until"], first, last) - np.clip(held["since"], first, last)
    assert found == pytest.approx(paid.sum())
    if not policy:
        (scaled,) = summary["infersim"]["scaling"]
        assert scaled["started"] >= 2
        assert scaled["stopped"] >= 1
        assert scaled["replica_hours"] * 3600 == pytest.approx(paid.sum())
        assert found < 3.5 * summary["duration"]


def test_old_metrics_start_replicas_later() -> None:
    """Decisions every 2 s see what was true 10 s before: what they start comes 10 s later."""

    def first_start(**changes: Any) -> float:
        asked = {**SCENARIO["autoscaling"], **changes}
        held = sim.simulate({**SCENARIO, "autoscaling": asked}).record.held
        assert held is not None
        return float(held["since"][held["since"] > 0].min())

    assert first_start(delay="10s") == first_start() + 10
    assert first_start(scrape="16s") == 16 * -(-first_start() // 16)


SPARSE: dict[str, Any] = {
    **SCENARIO,
    "fleet": {**SCENARIO["fleet"], "replicas": {"min": 0, "max": 3}},
    "autoscaling": {"policy": "keda", "metric": "running", "target": 8, "interval": "2s",
                    "cold_start": "3s", "stabilisation": "10s", "polling": "4s", "cooldown": "20s"},
    "workload": {**SCENARIO["workload"], "arrivals": {"kind": "constant", "rate": "1/min"}},
    "run": {"requests": 4, "warmup": 0},
}  # fmt: skip


@pytest.mark.parametrize("leap", [True, False])
def test_a_fleet_goes_to_none_and_comes_back(leap: bool) -> None:
    """A request a minute. Those at 60 s and later wait at the gateway until KEDA looks, every 4 s,
    and for a start of 3 s. They take a second; more than 20 s after KEDA last saw one it stops the
    replica, which is given back with the next decision."""
    record = sim.simulate(SPARSE, leap=leap).record
    rows, held = record.requests, record.held
    assert (rows["status"] == 0).all()
    assert rows["arrival"].tolist() == [0.0, 60.0, 120.0, 180.0]
    # at 60 s it looks, too, but the request is still in the front end, for some milliseconds
    looked = [4.0, 64.0, 124.0, 184.0]
    assert held["since"].tolist() == looked
    assert rows["scheduled"] == pytest.approx(np.array(looked) + 3)
    done = rows["finish"]
    assert np.all(held["until"][:-1] > done[:-1])
    seen = np.floor(done[:-1] / 4) * 4  # the last look that found it
    assert held["until"][:-1] == pytest.approx(seen + 24)
    paid = sim.simulate(SPARSE).summary["infersim"]["scaling"][0]
    assert paid["min"] == 0
    assert paid["mean_replicas"] < 0.6


def test_kpa_goes_to_none_and_comes_back() -> None:
    """Once nothing was there for three minutes, of which the last average is made."""
    asked = {"policy": "kpa", "metric": "running", "target": 8, "interval": "2s",
             "cold_start": "3s", "stabilisation": 0}  # fmt: skip
    rare = {"arrivals": {"kind": "constant", "rate": "12/h"}}
    changed = {**SPARSE, "autoscaling": asked, "workload": {**SPARSE["workload"], **rare},
               "run": {"requests": 2, "warmup": 0}}  # fmt: skip
    record = sim.simulate(changed).record
    first, second = record.held
    assert first["until"] - record.requests["finish"][0] == pytest.approx(181, abs=1.1)
    assert 300 < second["since"] <= 302
    assert record.requests["scheduled"][1] == pytest.approx(second["since"] + 3)


def test_the_warm_up_ends_before_what_waited_at_the_gateway() -> None:
    """At 5 requests/s those of the first seconds wait for a start of 20 s; a pool that has a
    replica from the start makes none wait there."""
    changed = {
        **SPARSE,
        "autoscaling": {**SPARSE["autoscaling"], "cold_start": "20s"},
        "workload": {**SPARSE["workload"], "arrivals": {"kind": "constant", "rate": 5}},
        "run": {"requests": 1000},
    }
    record = sim.simulate(changed).record
    waited = record.ttft > 3
    assert waited.sum() > 50
    assert warmup_length(record.e2el) > 50  # what the search alone would leave out
    assert not (record.warmup & waited).any()
    one = {**changed, "fleet": {**SCENARIO["fleet"], "replicas": {"min": 1, "max": 3}}}
    record = sim.simulate(one).record
    served = np.flatnonzero(record.completed)
    cut = warmup_length(record.e2el[served])
    assert record.warmup.sum() == (served[cut] if cut else 0)


def test_what_is_given_back_after_the_last_token_is_not_counted() -> None:
    """A horizon of ten minutes, long after the last of four requests: the replica that served it is
    given back before that, but after the reported duration."""
    changed = {**SPARSE, "run": {"requests": 4, "warmup": 0, "horizon": "10min"}}
    result = sim.simulate(changed)
    record, summary = result.record, result.summary
    (scaled,) = summary["infersim"]["scaling"]
    assert record.held is not None
    assert (record.held["until"] < record.end).sum() == 4
    assert (scaled["started"], scaled["stopped"]) == (4, 3)
    assert scaled["text"].endswith("4 were started (ready after 3 s) and 3 given back.")
    assert all(at <= summary["duration"] for at, _ in scaled["held"])  # the first comes at 0


def test_what_waits_at_the_gateway_is_unfinished_when_the_run_ends() -> None:
    ends = {**SPARSE, "run": {"requests": 4, "warmup": 0, "horizon": "66s"}}
    rows = sim.simulate(ends).record.requests
    assert rows["arrival"].tolist() == [0.0, 60.0]
    assert np.isnan(rows["scheduled"]).tolist() == [False, True]


def test_a_run_that_ends_before_the_first_replica_starts_has_a_summary() -> None:
    result = sim.simulate({**SPARSE, "run": {"requests": 4, "warmup": 0, "horizon": "1s"}})
    (pool,) = result.summary["infersim"]["scaling"]
    assert (pool["peak_replicas"], pool["started"], result.summary["completed"]) == (0, 0, 0)


def test_replicas_that_never_change_are_those_of_a_number() -> None:
    fixed = {**SCENARIO, "fleet": {**SCENARIO["fleet"], "replicas": 2}, "autoscaling": None}
    held = {**SCENARIO["fleet"], "replicas": {"min": 2, "max": 2}}
    one, two = (sim.simulate(each) for each in (fixed, {**SCENARIO, "fleet": held}))
    assert one.record.requests.tobytes() == two.record.requests.tobytes()
    assert one.summary["infersim"]["cost"]["usd"] == pytest.approx(
        two.summary["infersim"]["cost"]["usd"]
    )


def test_a_cold_start_is_its_parts() -> None:
    """vLLM issue 20264: 59 s for a small model. Llama-3.1-8B has 16.06 GB: 34 s for the engine,
    2.5 s at 6.5 GB/s, 5 s and 17 s; on two GPUs another 60."""
    pool = prepare(load_scenario(SCENARIO)).pools[0]
    assert cold_start_of(pool, Autoscaling()) == pytest.approx(59, rel=0.02)
    pair = prepare(load_scenario(SCENARIO, {"fleet.0.tensor_parallel": 2})).pools[0]
    assert cold_start_of(pair, Autoscaling(boot=40)) == pytest.approx(159, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fleet.0.replicas": 3}, "nothing is scaled"),
        ({"fleet.0.replicas": {"min": 3, "max": 2}}, "min <= start <= max"),
        ({"fleet.0.replicas": {"min": 1}}, "`max` is missing"),
        ({"fleet.0.scales": {"max": 4}}, "did you mean 'replicas'"),
        ({"autoscaling.policy": "slo", "autoscaling.target": None}, "target"),
        ({"autoscaling": {"policy": "slo"}}, "needs the requests/s that a replica holds"),
        ({"autoscaling": {"metric": "kv", "target": 80}}, "target of 80 is never reached"),
        ({"autoscaling": {"metric": "kv"}}, "target of 3 is never reached"),
        ({"fleet.0.replicas.min": 0}, "policy hpa keeps one replica at least; keda and kpa stop"),
        (
            {
                "fleet.0.replicas.min": 0,
                "autoscaling": {"policy": "keda", "metric": "kv", "target": 0.5},
            },
            "what waits for one has none",
        ),
        ({"autoscaling.scale_up": [{"pods": 2, "percent": 50}]}, "one of the two"),
        ({"autoscaling.scale_down": []}, "scale_down"),
        ({"router": "session-affinity"}, "not modelled for replicas that come and go"),
        ({"scheduler.batching": "static"}, "not modelled for static batching"),
    ],
)
def test_what_is_not_modelled_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InfersimError, match=why):
        load_scenario(SCENARIO, changes)


@pytest.mark.parametrize(
    ("asked", "unheeded"),
    [
        ({"policy": "slo", "target": 8, "metric": "running"}, ["metric"]),
        ({"policy": "saturation", "target": 5, "stabilisation": 60}, ["target", "stabilisation"]),
        ({"policy": "kpa", "scale_up": [{"pods": 2}], "metric": "running"}, ["scale_up"]),
        ({"policy": "keda", "metric": "running", "scale_down": [{"pods": 2}]}, []),
    ],
)
def test_keys_that_a_policy_does_not_go_by_are_known(
    asked: dict[str, Any], unheeded: list[str]
) -> None:
    scaled = load_scenario(SCENARIO, {"autoscaling": asked})
    assert scaled.autoscaling is not None
    assert scaled.autoscaling.unheeded == unheeded
    again = load_scenario(scaled.resolved())
    assert again.autoscaling == scaled.autoscaling


def test_a_run_says_what_the_target_means() -> None:
    asked = {"policy": "slo", "target": 8, "metric": "running", "cold_start": "1s"}
    short = {"run.requests": 30, "run.horizon": None, "autoscaling": asked}
    own = sim.simulate(load_scenario(SCENARIO, short)).summary["infersim"]
    text = own["scaling"][0]["text"]
    assert text.startswith("Scaled by slo to 8 requests/s a replica: pool main held ")
    assert text.endswith(" slo does not heed metric.")


def test_replicas_are_resolved_as_they_are_written() -> None:
    scaled = load_scenario(SCENARIO, {"fleet.0.replicas": {"max": 4, "start": 2}})
    assert scaled.resolved()["fleet"][0]["replicas"] == {"min": 1, "max": 4, "start": 2}
    assert scaled.override({"fleet.0.replicas.max": 3}).replicas == 3
    fixed = {"fleet.0.replicas": 3, "autoscaling": None}
    assert scaled.override(fixed).resolved()["fleet"][0]["replicas"] == 3


def test_operators_are_not_modelled_where_no_replica_may_serve() -> None:
    with pytest.raises(InfersimError, match="operators are not modelled"):
        load_scenario(SPARSE, {"steering": {"steps": [{"at": 1, "do": "fail"}]}})


def test_find_wants_a_number() -> None:
    with pytest.raises(InfersimError, match="give a number here"):
        sim.find(SCENARIO)


def test_how_full_the_cache_was_is_a_mean_over_the_time_that_replicas_were_held() -> None:
    """Also within the steps that a run takes over equal iterations."""
    scenario = load_scenario({**SCENARIO, "kv_cache": {"num_gpu_blocks": 400}})
    leaps, steps = (sim.simulate(scenario, leap=leap) for leap in (True, False))
    held = steps.record.parts[0].held
    assert held is not None
    assert held < 0.9 * steps.record.duration * steps.record.pools[0].replicas
    plans = steps.record.plans
    capacity = steps.record.pools[0].kv_tokens
    for column, name in (("held", "mean_used"), ("reserved", "mean_reserved")):
        mean = float((plans[column] * (plans["end"] - plans["start"])).sum()) / held / capacity
        assert steps.summary["infersim"]["kv_cache"][name] == pytest.approx(mean)
    mine, theirs = (each.summary["infersim"]["kv_cache"] for each in (leaps, steps))
    assert mine["mean_used"] == pytest.approx(theirs["mean_used"], rel=1e-9)
    assert mine["mean_used"] < mine["mean_reserved"]
    assert mine["fragmentation"] == pytest.approx(theirs["fragmentation"], abs=0.02)
