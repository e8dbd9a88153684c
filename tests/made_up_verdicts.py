"""Makes up checked claims and a scored table, so that their pages can be shown without a run."""

from __future__ import annotations

from typing import Any

from sim.planning.claims.shown import shown_figure


def claims() -> dict[str, Any]:
    """One claim that holds, and one that does not."""
    return {
        "command": "claims",
        "infersim": "made up",
        "claims": [_claim("faster", "holds", 8.0), _claim("slower", "fails", 30.0)],
        "unexpected": ["slower"],
    }


def _claim(name: str, verdict: str, tpot: float) -> dict[str, Any]:
    return {
        "name": name,
        "claim": f"The second is {name}.",
        "because": "It is made up.",
        "verdict": verdict,
        "expected": "holds",
        "model": "made-up",
        "figures": [
            shown_figure("mean_tpot_ms")._asdict(),
            shown_figure("utilisation.mfu")._asdict(),
        ],
        "variants": [
            {"name": "first", "changes": {}, "figures": _figures(10.0, 0.25)},
            {"name": "second_one", "changes": {"seed": 2}, "figures": _figures(tpot, None)},
        ],
        "checks": [
            {
                "statement": "second_one.mean_tpot_ms < first.mean_tpot_ms",
                "text": f"{tpot:g} < 10",
                "true": tpot < 10,
                "left": tpot,
                "right": 10.0,
            }
        ],
    }


def _figures(tpot: float, mfu: float | None) -> dict[str, float | None]:
    return {"mean_tpot_ms": tpot, "utilisation.mfu": mfu}


def scores() -> dict[str, Any]:
    """Forty measurements of two GPUs, of which every eighth is outside its band, and one row that
    was not predicted."""
    rows = [_row(number) for number in range(40)]
    rows.append({**_row(41), "predicted": None, "band50": None, "band90": None, "reason": "no"})
    return {
        "version": "made up",
        "scored": 40,
        "skipped": 1,
        "rows": rows,
        "advice": [
            _advice("ttft", "good to plan with", 90.0, 12.0, -3.0),
            _advice("tpot", "measure before you rely on it", 70.0, 12.0, 14.0),
        ],
    }


def _advice(quantity: str, use: str, held: float, width: float, above: float) -> dict[str, Any]:
    return {
        "engine": "vllm",
        "gpu": "h100-sxm",
        "kind": "closed loop",
        "quantity": quantity,
        "rows": 20,
        "covered90": held,
        "half_width90": width,
        "above": above,
        "use": use,
    }


def _row(number: int) -> dict[str, Any]:
    predicted = 100.0 + number
    ratio = 3.0 if number % 8 == 7 else 0.9 + 0.005 * number
    return {
        "source": "made_up.csv",
        "line": number + 2,
        "engine": "vllm",
        "version": "0.1",
        "gpu": "L40S" if number % 2 else "H100",
        "model": "made-up/model",
        "metric": "ttft_mean" if number < 20 else "tpot_mean",
        "quantity": "ttft" if number < 20 else "tpot",
        "preset": "vllm",
        "hardware": "l40s" if number % 2 else "h100-sxm",
        "measured": ratio * predicted,
        "predicted": predicted,
        "error": 100 * (1 / ratio - 1),
        "band50": [0.95 * predicted, 1.05 * predicted],
        "band90": [0.8 * predicted, 1.25 * predicted],
        "ways": {},
        "assumed": [],
        "reason": None,
    }
