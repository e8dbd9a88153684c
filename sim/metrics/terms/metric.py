"""Says what a row of the table of metrics has, and a definition (``terms.definitions``)."""

from __future__ import annotations

from typing import Literal, NamedTuple

Better = Literal["higher", "lower"]
Kind = Literal["count", "number", "share", "usd", "ms", "s"]
"""How a value is written: ``share`` is given as 0..1, times in ``ms`` or ``s``."""


class Metric(NamedTuple):
    """One metric of a summary.

    ``key`` is that of ``summary.json``, with a dot a path below ``infersim``; ``definition`` that
    of ``DEFINITIONS``. ``title`` heads a column that compares runs, ``called`` is the name in a
    sentence. ``table`` is that of a run's page which has the metric, ``detail`` what of it (mean,
    peak). ``compared``: comparisons of runs have it. ``repeated``: it is below ``infersim`` and has
    an interval over repetitions; metrics at the top of the summary all have one. ``optional``: the
    summaries of runs without anything of the kind do not have it.
    """

    key: str
    definition: str
    unit: str = ""
    better: Better | None = None
    kind: Kind = "number"
    title: str = ""
    called: str = ""
    table: str = ""
    detail: str = ""
    compared: bool = False
    repeated: bool = False
    optional: bool = False

    @property
    def head(self) -> str:
        """The title of a column or an axis, with its unit; latencies have theirs in the cells.

        >>> Metric("goodput", "", "requests/s", title="Requests").head
        'Requests/s'
        >>> Metric("wait", "", "ms", title="Longest wait").head
        'Longest wait'
        """
        short = self.short_head
        rate = self.unit.endswith("/s") and not short.endswith("/s")
        return f"{short} ({self.unit})" if rate else short

    @property
    def short_head(self) -> str:
        """The head of a column or an axis that is in another unit, such as changes in percent.

        >>> Metric("goodput", "", "requests/s", title="Goodput").short_head
        'Goodput'
        """
        last = self.title.rpartition(" ")[2].lower()
        return f"{self.title}/s" if f"{last}/s" == self.unit else self.title


class Definition(NamedTuple):
    """One metric: its name on the page and the sentence that says what it is."""

    title: str
    text: str
