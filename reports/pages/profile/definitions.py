"""Definitions of every metric on a profile's page."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.metric import Definition

DEFINITIONS: Mapping[str, Definition] = {
    "holdout": Definition(
        "Held-out shapes",
        "Shapes that a fit had not seen when it predicted them. All points of a shape are held out "
        "together, since its neighbours would give the answer away.",
    ),
    "median": Definition(
        "Median error",
        "Half of the points are predicted closer than this: the median of |predicted / measured "
        "- 1|.",
    ),
    "p90": Definition("p90", "Nine of ten points are predicted closer than this."),
    "bias": Definition(
        "Bias",
        "The median of predicted / measured - 1 with its sign: above 0 predictions are too slow. "
        "Errors without bias cancel in the sum over a model's layers, a bias does not.",
    ),
    "fits": Definition(
        "Final fit",
        "The median error of the final fit over all measured points. It has seen them, so it is a "
        "lower bound of the error to expect, not an estimate.",
    ),
    "noise": Definition(
        "Noise",
        "By how much (median) a second timing of the same point differed from the first. No fit "
        "can do better.",
    ),
    "residual": Definition(
        "Residual table",
        "A smooth correction on a coarse grid of shapes, on top of the form. It is used only where "
        "cross-validation over shapes says that it lowers the error.",
    ),
    "regime": Definition("Regime", "A kind of shape, by what limits a kernel there."),
    "range": Definition(
        "Measured ranges",
        "The smallest and largest measured value of each variable. Times outside are predicted, "
        "but marked as not measured and trusted no more than those from a data sheet.",
    ),
    "interval": Definition(
        "Confidence interval",
        "95 %, from the curvature of the error at its minimum. “Given” was not left to the fit; "
        "“not determined” means that every possible value explains the measurements as well.",
    ),
    "ceiling": Definition(
        "Ceiling",
        "What a device can do at most, by its data sheet; of a device without one, the best that "
        "was measured. Parameters that are shares refer to it.",
    ),
    "roofline": Definition(
        "Roofline",
        "Work done per second over work done per byte moved: left of the bend memory limits, right "
        "of it arithmetic. Bytes are what has to move at least once.",
    ),
}
"""Every term that the page links to."""
