"""Compares SGLang, asked now, with this project's rule on random settings and requests.

python -m tests.conformance.sglang_chance [CASES] [FIRST SEED] [--keep FOLDER]

Prompts begin alike, go on from earlier requests, or are alone; memory is short in most cases. With
``--keep`` each recording that differs is written there.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tests.conformance.batches import Asked
from tests.conformance.replay import sorted_step
from tests.conformance.sglang_batches import record
from tests.conformance.sglang_engine import SglangSettings
from tests.conformance.sglang_replay import replay_sglang


def draw(seed: int) -> tuple[SglangSettings, list[Asked]]:
    """A case with the prefix cache on.

    With overlap answers end by their length, and memory lasts: an answer that ends by a stop token
    is in an iteration more, and who is retracted loses the token on its way, neither of which this
    project knows.
    """
    chance = random.Random(f"sglang {seed}")
    short = chance.random() < 0.4  # too many are admitted, and some are retracted
    page = chance.choice([1, 1, 2, 16, 32])
    fixed = not short and chance.random() < 0.6
    longest = 150 if short else chance.choice([60, 150, 400])
    most = 0 if fixed or short else chance.choice([0, 0, 40, 100, 5000])
    memory = chance.choice([longest + 3 * page + 20, 2 * longest, 4 * longest, 20 * longest])
    if short:
        memory = chance.randint(longest, 2 * longest)
    settings = SglangSettings(
        max_running_requests=16 if short else chance.choice([1, 2, 4, 8, 32]),
        max_total_num_tokens=-(-memory // page) * page + 2 * page,
        chunked_prefill_size=chance.choice([-1, 32, 64, 96, 8192]),
        max_prefill_tokens=chance.choice([64, 16384]),
        page_size=page,
        schedule_conservativeness=0.01 if short else chance.choice([1.0, 0.3, 0.05]),
        enable_mixed_chunk=chance.random() < 0.3,
        disable_radix_cache=False,
        disable_overlap_schedule=short or most > 0 or chance.random() < 0.4,
        ignore_eos=fixed,
        max_new_tokens=most,
        schedule_policy=chance.choice(["fcfs", "lpm"]),
    )
    late = chance.choice([0, 30] if short else [0, 30, 120])
    long = chance.choice([20, 60, longest // 2])
    found: list[Asked] = []
    for _ in range(chance.randint(2, 16)):
        output = chance.choice([1, 2, chance.randint(1, 20), chance.randint(1, long)])
        output = chance.randint(20, 70) if short else min(output, longest // 2)
        fits = 40 if short else longest - output
        prefix: tuple[tuple[int, int], ...] = ()
        prompt, kind = chance.randint(1, fits), chance.random()
        if kind < 0.3 and found:  # it goes on where another one ended, or began to answer
            number = chance.randrange(len(found))
            before = found[number]
            end = before.prompt + (before.output if chance.random() < 0.7 else 0)
            prefix = (*(text for text in before.prefix if text[1] < end), (~number, end))
        elif kind < 0.8:
            group = chance.randrange(3)
            prefix = ((group, (16, 40, 100)[group]),)
            if chance.random() < 0.5:
                prefix = (*prefix, (10 + group, prefix[0][1] + (30, 64, 200)[group]))
        if prefix:
            prompt = prefix[-1][1] + chance.choice([0, 0, 1, page, chance.randint(1, 40)])
        if prompt > fits:
            prefix, prompt = (), chance.randint(1, fits)
        found.append(Asked(prompt, output, chance.randint(0, late), 0, prefix))
    order = sorted(range(len(found)), key=lambda number: found[number].before)
    places = {~number: ~place for place, number in enumerate(order)}
    return settings, [
        found[n]._replace(prefix=tuple((places.get(t, t), end) for t, end in found[n].prefix))
        for n in order
    ]


def main(cases: int, first: int, keep: Path | None = None) -> int:
    """How many of the cases differ; says which, and where."""
    differing = steps = retracted = hits = 0
    for seed in range(first, first + cases):
        settings, requests = draw(seed)
        try:
            recording = record(settings, requests)
        except RuntimeError as error:
            print(f"{seed}: SGLang fails: {str(error).splitlines()[0]}")
            continue
        theirs = [sorted_step(step) for step in recording.steps]
        ours: list[object] = []
        try:
            ours = list(map(sorted_step, replay_sglang(settings, requests)))
        except AssertionError as error:
            print(f"{seed}: {error!r}")
        steps += len(theirs)
        retracted += sum(len(step[1]) for step in theirs)
        computed = sum(n for step in recording.steps for n in step.tokens.values())
        asked = sum(request.prompt + request.output - 1 for request in requests)
        hits += computed < asked
        if theirs != ours:
            differing += 1
            pairs = zip(ours, theirs, strict=False)
            at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
            print(f"{seed}: differs from step {at} on")
            if keep is not None:
                (keep / f"{seed}.json").write_text(recording.dumps(), encoding="utf-8")
    print(f"{differing} of {cases} cases differ; {hits} have hits, {retracted} were retracted")
    print(f"{steps:,} steps")
    return differing


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="?", type=int, default=100)
    parser.add_argument("first", nargs="?", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    raise SystemExit(bool(main(asked.cases, asked.first, asked.keep)))
