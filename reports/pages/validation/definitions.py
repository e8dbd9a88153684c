"""Definitions of the terms on the page of a validation."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.metric import Definition

DEFINITIONS: Mapping[str, Definition] = {
    "error": Definition(
        "Error", "Predicted over observed, minus one: above 0 the prediction is too large."
    ),
    "noise": Definition(
        "Noise",
        "Relative standard deviation of the same metric over repeated observations of the same "
        "traffic: no prediction can do better. Known only where the run was repeated.",
    ),
    "band": Definition(
        "In band",
        "Whether the observed value lies within the error band that the prediction gave around its "
        "own value, before anything was observed.",
    ),
    **{name: OF_RUNS[name] for name in ("ttft", "tpot", "itl", "e2el")},
    "regime": Definition(
        "Regime",
        "A kind of iteration: how many sequences decode, whether prompts are prefilled, or both.",
    ),
    "predicted": Definition(
        "Predicted as composed",
        "The cost model predicts each observed iteration from the sequences, contexts and prompt "
        "tokens that were really in it. So these errors are the cost model's own: batches that the "
        "simulator would have formed differently are not part of them.",
    ),
    "typical": Definition(
        "Typical error", "Median of the errors of single iterations, without their sign."
    ),
    "composition": Definition(
        "Same batches",
        "Share of the iterations that agree from the start in decoding sequences, context, prompts "
        "and prompt tokens. Where all requests come at once it should be all of them; where "
        "arrivals meet iterations of other lengths, the two sequences part sooner or later.",
    ),
    "share": Definition(
        "Share of the error",
        "Every change is tried by simulating the run again with it. The share is by how much the "
        "mean error of all metrics becomes smaller, on top of the changes before it.",
    ),
    "sample": Definition(
        "In sample, held out",
        "Whether the engine's times were fitted to this very run. Only errors on runs that are "
        "held out say how well another run would be predicted.",
    ),
}
"""Every term that the page links to."""
