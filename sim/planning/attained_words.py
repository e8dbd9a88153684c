"""Words how far loads miss the SLO, and which requests no replica accepts."""

from __future__ import annotations

from sim.planning.probe import Probe
from sim.planning.wording import share


def missed(probe: Probe) -> str:
    """What was asked for and what was reached, of each part of the SLO that a load misses; and the
    requests that are rejected, if any.
    """
    told = [
        f"{share(each.share)} of requests are within the limits, and the SLO asks for "
        f"{each.promise.text}"
        for each in probe.attained
        if not each.kept
    ]
    if probe.rejection is not None:
        cure = f" ({probe.rejection.remedy})" if probe.rejection.remedy else ""
        told.append(f"{probe.rejection.text}, and are rejected{cure}")
    return "; ".join(told) or probe.state


def refused(probe: Probe) -> str:
    """The requests that are rejected whatever the load, the setting that admits them, and how the
    other requests fare.
    """
    found = probe.rejection
    assert found is not None
    worst = min(probe.attained, key=lambda each: each.share - each.promise.share)
    served = worst.share / (1 - worst.rejected) if worst.rejected < 1 else 0.0
    cure = f"; {found.remedy}" if found.remedy else ""
    return (
        f"{found.text}, and are rejected whatever the load{cure}. Of the requests that are "
        f"accepted, {share(served)} are within the limits ({worst.promise.text} are asked for)"
    )
