"""Fills a template with the contents of a page: one HTML file that opens offline.

Everything is inside the page: styles, scripts, plotly.js, data. Text passes through jinja2's
autoescape, figures travel as JSON that cannot end its script element, and a
Content-Security-Policy lets only the page's own scripts run and nothing be fetched. The cartesian
bundle of plotly.js (``library/``, MIT licence: a third of the full one, with every kind of trace
that the figures use) is gzipped and written as base64 text, which the page inflates and runs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from reports.frame import theme
from reports.frame.content import MICROSECONDS
from reports.frame.formats import MISSING, NARROW_SPACE
from sim.metrics.terms.metric import Definition

TEMPLATES = Path(__file__).with_name("templates")

LIBRARY = Path(__file__).with_name("library") / "plotly-cartesian.min.js.gz"
"""plotly.js-cartesian-dist-min 4.1.1 of the npm registry, gzipped: SHA-256 of the script
79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a."""

TRACES = ("bar", "box", "heatmap", "scatter")
"""The kinds of traces that the figures use; all are in the bundle, as a test holds."""

SCRIPTS = ("head", "views", "page", "other", "prices")
"""The scripts of ``templates/``: what comes before a page is drawn, how its figures are looked at,
what it does, what only the page of a run has, and the prices of a plan that can be changed."""


class Bundle(NamedTuple):
    """plotly.js: ``packed`` is base64 of gzip of UTF-8; ``digest`` is its CSP source."""

    packed: str
    digest: str


def fill(
    template: str,
    sections: Mapping[str, str],
    definitions: Mapping[str, Definition],
    topics: Mapping[str, Sequence[str]] | None = None,
    **content: Any,
) -> str:
    """A page of ``content`` as ``template`` (which extends ``base.html.j2``) lays it out.

    ``sections`` maps anchors to headings in their order, that of the definitions being left out
    where there are none; ``topics`` names groups of them at the top of the page, also of sections
    that it lacks. ``content`` must have ``provenance`` with the program's ``version``. A page that
    asks its own server has a ``live`` script, the only one that may fetch.
    """
    sections = {
        key: title for key, title in sections.items() if definitions or key != "definitions"
    }
    return (
        _environment()
        .get_template(template)
        .render(
            **_frame(str(content.get("live", ""))),
            sections=sections,
            topics={
                name: [key for key in keys if key in sections]
                for name, keys in (topics or {"": list(sections)}).items()
            },
            definitions=definitions,
            **content,
        )
    )


def fragment(template: str, definitions: Mapping[str, Definition], **content: Any) -> str:
    """A part of a page, which a page that is open puts into itself."""
    return _environment().get_template(template).render(definitions=definitions, **content)


@cache
def _environment() -> Environment:
    """The environment that compiles the templates, each once in a process."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=typeset,
    )
    environment.filters["coded"] = coded
    environment.filters["verbatim"] = escape
    return environment


def typeset(value: object) -> object:
    """A text with percent signs, µs, arrows and stars as pages write them; everything else as it
    is.

    Texts come from the terminal too, which writes ``88%``; what is to be copied is ``verbatim``.

    >>> str(typeset("88% of 3536%, 95 % asked")).replace(NARROW_SPACE, " ")
    '88 % of 3,536 %, 95 % asked'
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if value == NOTHING:
        return MISSING
    value = MICROSECONDS.sub("\u00b5s", value).replace(" -> ", f" {ARROW} ")
    value = STAR.sub("\u2605", value)
    return PERCENT.sub(lambda found: f"{_grouped(found[1])}{NARROW_SPACE}%", value)


NOTHING = "-"
"""The stand-in of terminals for a number that does not exist."""

STAR = re.compile(r"(?<!\S)\*(?!\S)")
"""How terminals mark the best of a column."""

PERCENT = re.compile(r"(?<![\w.,])([+-]?\d[\d,.]*) ?%")
"""A number of percent, whether or not a space is before its sign."""


def _grouped(digits: str) -> str:
    """Whole thousands with a comma."""
    return f"{int(digits):,}" if digits.isdigit() and len(digits) > 3 else digits


def coded(text: object) -> Markup:
    """``text`` with what stands between backticks as code.

    >>> print(coded("see `infersim find` < now"))
    see <code>infersim find</code> &lt; now
    """
    parts = re.split("`([^`\n]+)`", str(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(typeset(part))
        for place, part in enumerate(parts)
    )


def _frame(live: str) -> dict[str, Any]:
    """The common parts of every page, whatever it reports: scripts, styles, colours; and the right
    of a ``live`` script to run and to ask the page's own server."""
    scripts = {name: (TEMPLATES / f"{name}.js").read_text("utf-8") for name in SCRIPTS}
    library = plotly_js()
    digests = [*map(script_digest, scripts.values()), library.digest]
    digests += [script_digest(live)] if live else []
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(digests)}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    return {
        "content_policy": Markup("; ".join(policy)),
        "scripts": {name: Markup(text) for name, text in scripts.items()},
        "library": Markup(library.packed),
        "policies": [*theme.POLICIES, "other"],
        "fonts": {"text": Markup(theme.FONT_STACK), "mono": Markup(theme.MONO_STACK)},
        "colors": {side: Markup(theme.css_variables(side)) for side in ("light", "dark")},
        "dark_twins": theme.dark_twins(),
    }


@cache
def plotly_js() -> Bundle:
    """The library, read once per process."""
    packed = LIBRARY.read_bytes()
    source = gzip.decompress(packed).decode()
    return Bundle(base64.b64encode(packed).decode("ascii"), script_digest(source))


def script_digest(script: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline script to run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


ARROW = "\u2192"


def question(
    name: str, kind: str, asked: Mapping[str, Any] | None, description: str, *, on: str = ""
) -> dict[str, Any]:
    """The entries ``title``, ``lead``, ``asked`` and ``changes`` of a page's header.

    ``asked`` is that of ``sim.metrics.question.question_text`` (None in results of older versions),
    with what was ``changed`` where that is known, ``on`` the GPUs. The scenario's description is
    shown while what it asks is what was run.
    """
    if asked is None:
        return {"title": f"{name}, {kind}", "lead": description, "asked": "", "changes": ""}
    said = [asked["traffic"], asked["lengths"], asked["slo"] and f"SLO: {asked['slo']}"]
    changes = "; ".join(asked.get("changes", ())).replace("->", ARROW)
    place = f" on {on}" if on else ""
    load = f": {asked['traffic']}" if asked["traffic"] else ""
    return {
        "title": f"{name}{load}{place}, {kind}",
        "lead": description if asked.get("still_asks") else "",
        "asked": " \u00b7 ".join(text for text in said if text),
        "changes": f"Changed in the scenario file: {changes}" if changes else "",
    }


def provenance(document: Mapping[str, Any]) -> dict[str, str]:
    """The entries ``version``, ``foot`` and ``command`` of the page of a planning command.

    ``made`` of the document is its date and command; it is absent where a page is made again from
    a result alone.

    >>> provenance({"infersim": "1.0", "made": {"date": "2030-01-02 03:04"}})["foot"]
    'Predicted, not measured. infersim 1.0, 2030-01-02 03:04'
    """
    found = foot(document["infersim"], document)
    return {**found, "foot": f"Predicted, not measured. {found['foot']}"}


def foot(version: str, document: Mapping[str, Any]) -> dict[str, str]:
    """The foot of a page that is about measurements."""
    made = document.get("made", {})
    told = [f"infersim {version}", *([made["date"]] if "date" in made else [])]
    return {"version": version, "foot": ", ".join(told), "command": made.get("command", "")}
