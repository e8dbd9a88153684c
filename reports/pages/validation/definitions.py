"""Definitions of the terms on the page of a validation."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.metric import Definition

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
        "A kind of iteration: decodes of a certain batch size, prompts, or both.",
    ),
    "predicted": Definition(
        "Predicted as composed",
        "The cost model predicts each observed iteration from the sequences, contexts and prompt "
        "tokens that were actually in it. These errors are therefore the cost model's alone, and "
        "do not depend on whether the simulator would have formed the same batches.",
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
        "Every change is tried by simulating the run again with it. The share says by how much it "
        "reduces the mean error of all metrics, on top of the changes before it.",
    ),
    "sample": Definition(
        "In sample, held out",
        "Whether the engine's times were fitted to this run. Only errors on held-out runs show "
        "how well another run would be predicted.",
    ),
}
"""Every term that the page links to."""
