"""A profile is written as YAML and read back the same; what is wrong in one is named."""

import numpy as np
import pytest
import yaml

from sim import catalog
from sim.catalog.fields import Fields
from sim.catalog.profile_file import from_document, to_document, to_yaml
from sim.cost import CostModel, Deployment
from sim.cost.kernels.form import inside
from sim.errors import UsageError
from sim.iteration import Batch
from sim.specs.profile import COLLECTIVES, KernelFit, Profile, Residual, Score

FIT = KernelFit(
    parameters={"latency": 3.25e-6, "share": 0.8125},
    ranges={"m": (1.0, 16384.0), "k": (512.0, 8192.0)},
    holdout=Score(0.0391, 0.117, -0.0021, 512),
    intervals={"latency": (3.2e-6, 3.3e-6)},
    regimes={"rows 1 to 16": Score(0.05, 0.125, 0.01, 64)},
    residual=Residual({"m": (0.0, 4.0, 14.0), "k": (9.0, 13.0)}, (0.1, 0, -0.1, 0.02, 0, 0)),
    kernel="torch.nn.functional.linear",
)
PROFILE = Profile(
    source="Measured on this machine.",
    date="2026-11-21",
    facts={"device": "NVIDIA H200", "driver": "570.1"},
    kernels={
        "gemm": {"bf16": FIT},
        "launch": {"bf16": KernelFit({"seconds": 4e-6}, {}, FIT.holdout)},
    },
)  # fmt: skip


def document(**changes):
    """The profile as written, with changes to its one GEMM fit."""
    plain = yaml.safe_load(to_yaml(to_document(PROFILE)))
    plain["kernels"]["gemm"]["bf16"] |= changes
    return plain


def test_what_is_written_is_read_back():
    assert from_document(Fields("p.yaml", document())) == PROFILE


def test_a_fit_takes_a_line_for_each_mapping_of_numbers():
    text = to_yaml(to_document(PROFILE))
    assert "parameters: {latency: 3.25e-06, share: 0.8125}" in text
    assert "holdout: {median: 0.0391, p90: 0.117, bias: -0.0021, points: 512}" in text


def test_digits_that_no_measurement_has_are_dropped_and_counts_stay_exact():
    fit = KernelFit({"share": 0.123456789}, {"bytes": (1.0, 8589934592.0)}, FIT.holdout)
    plain = to_document(Profile("s", "d", {}, {"stream": {"bf16": fit}}))["kernels"]
    assert plain["stream"]["bf16"]["parameters"] == {"share": 0.12346}
    assert plain["stream"]["bf16"]["ranges"] == {"bytes": [1.0, 8589934592.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parametres": {}}, "gemm.bf16.parametres: unknown key (did you mean 'parameters'?)"),
        ({"parameters": {"share": "most"}}, "parameters.share: expected a plain number"),
        ({"parameters": {"share": float("nan")}}, "parameters.share: expected a plain number"),
        ({"ranges": {"m": [5, 1]}}, "ranges.m: expected two numbers, the smaller first"),
        ({"ranges": {"m": 5}}, "ranges.m: expected a list of numbers"),
        ({"holdout": {"median": 0.1}}, "holdout.p90: is missing"),
        ({"residual": {"axes": {"m": [0, 1]}, "values": [0.1]}}, "residual.values: expected 2"),
        ({"residual": {"axes": {"m": [1, 1]}, "values": [0, 0]}}, "m: expected ascending numbers"),
        ({"residual": {"axes": {"m": [0]}, "values": [True]}}, "values: expected a list of number"),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(UsageError) as caught:
        from_document(Fields("p.yaml", document(**changes)))
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.yaml: ")


class TestRelatives:
    """A chip of the same design lends its fitted forms, and none of its certainty."""

    def test_the_same_chip_lends_its_profile(self) -> None:
        own, lent = catalog.gpu("h100-sxm"), catalog.gpu("gh200")
        assert own.profile is not None
        assert lent.profile is not None
        assert lent.profile.source.startswith("Taken from the NVIDIA H100 SXM")
        fit = lent.profile.find("gemm", "fp8")
        theirs = own.profile.find("gemm", "fp8")
        assert fit is not None
        assert theirs is not None
        assert fit.parameters == theirs.parameters
        assert not inside(fit, {name: np.array(64.0) for name in ("m", "n", "k")})

    def test_collectives_stay_with_the_links(self) -> None:
        lent = catalog.gpu("h100-pcie")
        assert lent.profile is not None
        assert not set(COLLECTIVES) & set(lent.profile.kernels)
        assert lent.profile.find("gemm", "bf16") is not None

    def test_faster_memory_is_faster(self) -> None:
        """Decode reads the same bytes; a GH200 has 4.0 TB/s or more where an H100 has 3.35."""

        def decode(gpu: str) -> float:
            engine = catalog.engine("ideal")
            parts = catalog.model("llama-3.1-8b"), catalog.gpu(gpu), engine
            cost = CostModel(Deployment(*parts))
            return sum(float(o.seconds) for o in cost.pass_operators(Batch(32, 32 * 8000)))

        ratio = catalog.gpu("gh200").bandwidth / catalog.gpu("h100-sxm").bandwidth
        assert 1.05 < decode("h100-sxm") / decode("gh200") < ratio

    def test_what_is_lent_names_the_part_that_was_measured(self) -> None:
        for name, of_it in (("gh200", "h100-sxm"), ("mi325x", "mi300x"), ("h100-sxm", "")):
            profile = catalog.gpu(name).profile
            assert profile is not None
            assert profile.relative == of_it
