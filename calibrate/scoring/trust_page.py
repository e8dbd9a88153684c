"""Writes the page "How far to trust this": whether bands held, where they did not, and a sentence a
reader can act on for each engine, GPU and kind of measurement. Markdown, regenerated whole."""

from __future__ import annotations

from calibrate.scoring.report import TITLES, Part, as_inferred, median_p90, table
from calibrate.scoring.uses import LOW
from sim.catalog.spreads import PARTS, learnt
from sim.catalog.whole_runs import whole_run_errors

LEANS = 10.0
"""Distance in % of the median measurement from its prediction that a reader is warned of."""

FLOORS = (
    "`85 %` and `90 %`: half the width of one band for all these rows that holds so many of them, "
    "by their own errors. `± 90`: that of the bands that are stated, which know nothing of the "
    "source that they are judged on. Where the stated ones are no wider than that of `90 %`, only "
    "smaller errors can make them narrower."
)


KEPT_BACK = (
    "The only check against figures kept back from all fits, 5,486 of them on 28 "
    "November 2026, found 69 % in the 90 % bands of that day, which were learnt otherwise."
)


INFERRED = (
    "Predictions count what publishers state, and what engines and clients document. Some "
    "conditions were read off the measured results instead (`calibrate/scoring/facts.yaml`, "
    "`basis: outcome`): no error or band counts those. Median and 90th percentile of the absolute "
    "error, in percent, of all rows of kinds that such a fact changes."
)


LEFT_OUT = (
    "Everything that bands are made of is learnt without what is left out, one after the other, "
    "and what was left out is judged by it. `tpot` counts whole answers, too."
)


def trust_page(trust: Part) -> str:
    """The page of the evidence's part on trust."""
    parts = [
        "# How far to trust this",
        f"Made by `make validation` with infersim {trust['version']} on {trust['date']}, from "
        f"{trust['figures']:,} published figures. A 90 % band is meant to "
        "hold nine of ten measurements, a 50 % band five of ten. Each measurement is judged by "
        "bands that were learnt without its source (engine, GPU and model), so that what is said "
        "here is what to expect of a source that was not measured. Widths are half of the "
        "median 90 % band, in percent of the prediction. `runs/trust.html` draws them all.",
        "## Do the bands hold?",
        _bands(trust),
        KEPT_BACK,
        "## What if a GPU, an engine or a family of models is new?",
        LEFT_OUT,
        _left_out(trust),
        "## What do facts that were read off the results change?",
        INFERRED,
        _inferred(trust),
        "## How narrow could they be?",
        FLOORS,
        _floors(trust),
        _every_group(trust),
        "## Do differences hold?",
        "What two runs on the same kernels and engine share cancels in part in their ratio, as "
        "`compare` counts it. Pairs of measurements of one source under other conditions; "
        "`± 90 alone`: the width if nothing were shared.",
        _ratios(trust),
        "## By engine, GPU and kind of measurement",
        _sentences(trust),
        "## Groups of ten and more whose 90 % band was too narrow",
        _too_narrow(trust),
        "## Farthest outside their bands",
        _outside(trust),
        "## What the bands are made of",
        f"{learnt().origin[:1].upper()}{learnt().origin[1:]}. The rows are those of "
        "`sim/catalog/spreads.yaml`. Errors have in common, as a multiple of how far figures of "
        "one deployment lie apart:",
        _parts(),
    ]
    return "\n\n".join(parts) + "\n"


def _title(quantity: str) -> str:
    return TITLES.get(quantity, quantity)


def _bands(trust: Part) -> str:
    rows = [
        (
            _title(each["of"]),
            f"{each['rows']:,}",
            f"{each['covered50']:.0f}",
            f"{each['covered90']:.0f}",
            f"{each['half_width90']:.0f}",
        )
        for each in trust["bands"]
    ]
    head = ("of", "rows", "in 50 %", "in 90 %", "± 90")
    return table(head, rows, words=1)


def _inferred(trust: Part) -> str:
    rows = [
        (
            group["kind"],
            TITLES[quantity],
            f"{found['count']:,}",
            f"{found['inferred']['count']:,}",
            median_p90(found),
            as_inferred(found),
        )
        for group in trust["kinds"]
        for quantity, found in group["errors"].items()
        if found["inferred"] is not None
    ]
    return table(("kind", "of", "rows", "changed", "as stated", "as inferred"), rows, words=2)


def _floors(trust: Part) -> str:
    rows = [
        (
            TITLES[each["quantity"]],
            each["of"],
            f"{each['rows']:,}",
            *(f"{each[key]:.0f}" for key in ("holds85", "holds90", "bands")),
        )
        for each in trust["floors"]
    ]
    head = ("of", "clients", "rows", "85 %", "90 %", "± 90")
    return table(head, rows, words=len(head))


def _every_group(trust: Part) -> str:
    found = trust["every_group"]
    if found is None:
        return "No group has ten rows."
    if found["times"] == 1.0:
        return (
            f"Of every group of ten rows and more at least {LOW:.0f} % lie in their bands. A group "
            "is a figure of one model on one GPU under one release of an engine, in one "
            "publication."
        )
    widths = ", ".join(f"{TITLES[name]} {width:.0f} %" for name, width in found["widths"].items())
    return (
        f"To hold {LOW:.0f} % of every group of ten rows and more, all bands would have to reach "
        f"{found['times']:.1f} times as far (half-widths: {widths}): what is said of a source that "
        "was not measured cannot be narrower because others turned out well."
    )


def _ratios(trust: Part) -> str:
    keys = ("covered50", "covered90", "half_width90", "unshared90")
    rows = [
        (TITLES[each["quantity"]], f"{each['pairs']:,}", *(f"{each[key]:.0f}" for key in keys))
        for each in trust["ratios"]
    ]
    head = ("of", "pairs", "in 50 %", "in 90 %", "± 90", "± 90 alone")
    return table(head, rows, words=len(head))


def _sentences(trust: Part) -> str:
    told: dict[str, list[str]] = {}
    for each in trust["advice"]:
        name = f"{each['engine']}, {each['gpu']}, {each['kind']}{_in_sample(each)}"
        told.setdefault(name, []).append(_sentence(each))
    return "\n".join(f"- **{name}**: {'; '.join(parts)}." for name, parts in told.items())


def _in_sample(of: Part) -> str:
    """What is said of predictions whose measurements the catalogue was adjusted to."""
    known = whole_run_errors(of["engine"])
    inside = any(e.in_sample and e.kind == of["kind"] and of["gpu"] in e.gpus for e in known)
    return " (in sample)" * inside


def _sentence(of: Part) -> str:
    """Advice on the predictions of one quantity."""
    width = f"± {of['half_width90']:.0f} %" if of["half_width90"] < 1000 else "no usable band"
    held = f"{width}, {of['covered90']:.0f} % of {of['rows']:,} held{_lean(of['above'])}"
    return f"{TITLES[of['quantity']]} {of['use']} ({held})"


def _lean(above: float) -> str:
    """To which side measurements lie, where they do."""
    if abs(above) < LEANS:
        return ""
    side = "above" if above > 0 else "below"
    return f"; median {abs(above):.0f} % {side} the prediction"


def _too_narrow(trust: Part) -> str:
    narrow = trust["too_narrow"]
    lines = [
        f"- {each['source']}: {each['covered90']:.0f} % of {each['rows']:,} in the band "
        f"(± {each['half_width90']:.0f} %)"
        for each in narrow
    ]
    share = f"{len(narrow)} of {trust['large_sources']}"
    first = f"{share} hold less than {LOW:.0f} % of their measurements."
    return "\n".join([first, "", *lines]) if lines else first


def _outside(trust: Part) -> str:
    rows = []
    for each in trust["outside"]:
        low, high = (end / each["predicted"] for end in each["band90"])
        ratio = f"{each['measured'] / each['predicted']:.2g}"
        place = (each["row"], each["engine"], each["model"], each["metric"])
        rows.append((*place, ratio, f"{low:.2g} to {high:.2g}"))
    head = ("row", "engine", "model", "metric", "measured / predicted", "90 % band / predicted")
    return table(head, rows, words=len(head))


def _parts() -> str:
    common = learnt().common
    return table(
        ("in common by", "size"), [(part, f"{common[part]:.2f}") for part in PARTS], words=1
    )


def _left_out(trust: Part) -> str:
    rows = [
        (
            each["left_out"],
            TITLES.get(each["quantity"], each["quantity"]),
            f"{each['figures']:,}",
            f"{each['covered50']:.0f}",
            f"{each['covered90']:.0f}",
            f"{each['half_width90']:.0f}",
        )
        for each in trust["left_out"]
    ]
    head = ("left out", "of", "figures", "in 50 %", "in 90 %", "± 90")
    return table(head, rows, words=2)
