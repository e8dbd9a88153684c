"""The head of a page (what the scenario asks, as it was run) and its foot (where it is from)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
