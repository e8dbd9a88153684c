"""Compares vLLM, asked now, with this project's scheduler on random settings and requests.

python -m tests.conformance.chance [CASES] [FIRST SEED] [--cached | --windowed | --states]
    [--priority] [--tight] [--async] [--interval] [--drafts] [--watermark]

With ``--cached`` the prefix cache is on, and prompts begin alike or go on from earlier requests;
with ``--windowed`` also, and groups of layers look through windows; with ``--states`` they keep a
state. The others say of all cases
that they preempt by priority, are short of memory, are scheduled asynchronously, keep a
``prefill_schedule_interval``, have drafts, and a ``watermark``; all but the first two and the last
under the policy fcfs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tests.conformance.batches import Asked, BatchStep
from tests.conformance.replay import release_of, replay, sorted_step
from tests.conformance.vllm_alone import STATE, AloneSettings
from tests.conformance.vllm_batches import record


def draw(seed: int) -> tuple[AloneSettings, list[Asked]]:
    """A case; one in three is short of memory from the start."""
    chance = random.Random(seed)
    tight = chance.random() < 0.33
    block_size = chance.choice([16, 32, 64])
    blocks = chance.randint(4, 14) if tight else chance.randint(6, 60)
    longest = min((blocks - 1) * block_size, chance.choice([256, 512, 2048]))
    seats = chance.choice([1, 2, 3, 4, 8, 16])
    policy: Literal["fcfs", "priority"] = chance.choice(["fcfs", "priority"])
    settings = AloneSettings(
        max_num_seqs=seats,
        max_num_batched_tokens=max(seats, chance.choice([8, 16, 33, 64, 128, 512, 2048])),
        max_model_len=longest,
        block_size=block_size,
        num_gpu_blocks=blocks,
        long_prefill_token_threshold=min(longest, chance.choice([0, 0, 4, 10, 16, 40, 100])),
        scheduler_reserve_full_isl=chance.random() < 0.7,
        scheduling_policy=policy,
    )
    late = chance.choice([0, 120])
    requests = []
    for _ in range(chance.randint(2, 14)):
        prompt = chance.randint(1, longest - 1 if chance.random() < 0.4 else min(80, longest - 1))
        output = chance.randint(1, min(longest - prompt, chance.choice([5, 60, 200])))
        requests.append(Asked(prompt, output, chance.randint(0, late), chance.randint(0, 3)))
    return settings, sorted(requests, key=lambda asked: asked.before)


def draw_cached(seed: int) -> tuple[AloneSettings, list[Asked]]:
    """A case with a prefix cache: the settings and arrivals of ``draw``, and some requests that
    begin alike, some that go on where another one ended or began to answer."""
    settings, plain = draw(seed)
    chance = random.Random(f"cached {seed}")
    found: list[Asked] = []
    for asked in plain:
        kind, prefix, more = chance.random(), asked.prefix, chance.choice([0, 0, 1, 16, 30])
        if kind < 0.3 and found:
            number = chance.randrange(len(found))
            before = found[number]
            end = before.prompt + (before.output if chance.random() < 0.7 else 0)
            prefix = (*(text for text in before.prefix if text[1] < end), (~number, end))
            more = chance.randint(1, 40)
        elif kind < 0.8:
            group = chance.randrange(3)
            prefix = ((group, (16, 40, 100)[group]),)
            if chance.random() < 0.5:
                prefix = (*prefix, (10 + group, prefix[0][1] + (30, 64, 200)[group]))
        prompt = prefix[-1][1] + more if prefix else asked.prompt
        fits = prompt + asked.output <= settings.max_model_len
        found.append(asked._replace(prompt=prompt, prefix=prefix) if fits else asked)
    return replace(settings, enable_prefix_caching=True), found


def draw_windowed(seed: int) -> tuple[AloneSettings, list[Asked]]:
    """As ``draw_cached``, for groups of layers of which some look through a window."""
    settings, found = draw_cached(seed)
    chance = random.Random(f"windowed {seed}")
    size, blocks = settings.block_size, settings.num_gpu_blocks
    assert blocks is not None
    window = chance.choice([2, size // 2 + 1, size, size + 1, 3 * size, 100])
    chunked = chance.random() < 0.3
    groups: list[tuple[int | None, bool]] = [(None, False)] * chance.randint(1, 2)
    groups += [(window, chunked)] * chance.randint(1, 3)
    if chance.random() < 0.3:
        groups.append((2 * window + 5, False))
    if chance.random() < 0.5:
        groups.reverse()
    blocks = 1 + (blocks - 1) * chance.randint(2, len(groups))
    longest = min(settings.max_model_len, (blocks - 1) // len(groups) * size)
    kept = [
        asked if asked.prompt + asked.output <= longest else Asked(1, 1, asked.before)
        for asked in found
    ]
    settings = replace(
        settings,
        num_gpu_blocks=blocks,
        max_model_len=longest,
        long_prefill_token_threshold=min(longest, settings.long_prefill_token_threshold),
        scheduling_policy="fcfs",
        kv_groups=tuple(groups),
    )
    return settings, kept


def draw_states(seed: int) -> tuple[AloneSettings, list[Asked]]:
    """A case of ``draw_cached`` for a model with groups of layers that keep a state."""
    settings, found = draw_cached(seed)
    chance = random.Random(f"states {seed}")
    number = chance.randint(1, 3)
    groups: list[tuple[int | Literal["state"] | None, bool]]
    groups = [(STATE, chance.random() < 0.6)] * number + [(None, False)]
    if chance.random() < 0.3:
        groups.reverse()
    assert settings.num_gpu_blocks is not None
    longest = (settings.num_gpu_blocks - 1) * settings.block_size
    blocks = settings.num_gpu_blocks + number * chance.choice([5, 5, 8, 20])
    settings = replace(
        settings,
        num_gpu_blocks=blocks,
        max_num_batched_tokens=max(
            settings.max_num_batched_tokens, chance.choice([1, 20, 40, 64, 100, 300])
        ),
        scheduling_policy="fcfs",
        kv_groups=tuple(groups),
    )
    assert all(asked.prompt + asked.output <= longest for asked in found)
    return settings, found


DRAWS = {"--cached": draw_cached, "--windowed": draw_windowed, "--states": draw_states}
"""How cases are drawn, by the option that asks for it; else by ``draw``."""

Case = tuple[AloneSettings, list[Asked]]


def by_priority(case: Case, chance: random.Random) -> Case:
    """``case`` under the policy priority."""
    return replace(case[0], scheduling_policy="priority"), case[1]


def tight(case: Case, chance: random.Random) -> Case:
    """``case`` with many slots and hardly more memory than its longest request needs."""
    settings, requests = case
    longest = max(asked.prompt + asked.output for asked in requests) + 2
    blocks = -(-longest // settings.block_size) + chance.randint(1, 3)
    room = (blocks - 1) * settings.block_size
    blocks += 4 * sum(kind == STATE for kind, _ in settings.kv_groups)
    settings = replace(
        settings,
        max_num_seqs=16,
        max_num_batched_tokens=max(16, settings.max_num_batched_tokens),
        max_model_len=room,
        num_gpu_blocks=blocks,
        long_prefill_token_threshold=min(room, settings.long_prefill_token_threshold),
    )
    return settings, [asked._replace(before=asked.before // 4) for asked in requests]


def ahead(case: Case, chance: random.Random) -> Case:
    """``case`` scheduled asynchronously."""
    return replace(case[0], async_scheduling=True, scheduling_policy="fcfs"), case[1]


def in_intervals(case: Case, chance: random.Random) -> Case:
    """``case`` with an interval between steps with prompts."""
    interval = chance.randint(2, 6)
    settings = replace(case[0], prefill_schedule_interval=interval, scheduling_policy="fcfs")
    return settings, [asked._replace(before=asked.before // 2) for asked in case[1]]


def drafted(case: Case, chance: random.Random) -> Case:
    """``case`` with drafts, none of whose requests is as long as allowed."""
    settings, requests = case
    drafts = chance.randint(1, 4)
    width = 1 + drafts
    settings = replace(
        settings,
        max_num_batched_tokens=max(settings.max_num_batched_tokens, settings.max_num_seqs * width),
        long_prefill_token_threshold=0,
        scheduling_policy="fcfs",
        drafts=drafts,
    )
    most = settings.max_model_len - 2 * width
    fits = [asked.prompt + asked.output <= most for asked in requests]
    kept = [
        asked
        if fit and all(text >= 0 or fits[~text] for text, _ in asked.prefix)
        # numbers stay, and so do the texts that are called by them
        else Asked(2, 1, asked.before)
        for asked, fit in zip(requests, fits, strict=True)
    ]
    return settings, kept


def with_watermark(case: Case, chance: random.Random) -> Case:
    """``case`` with blocks that admissions leave free."""
    return replace(case[0], watermark=chance.choice([0.01, 0.1, 0.3, 0.6])), case[1]


CHANGES = {
    "--priority": by_priority,
    "--tight": tight,
    "--async": ahead,
    "--interval": in_intervals,
    "--drafts": drafted,
    "--watermark": with_watermark,
}
"""What becomes of cases, in this order, by the option that asks for it."""


def case_of(seed: int, options: Sequence[str]) -> Case:
    """The case with that ``seed``, as the ``options`` ask for."""
    case = next((DRAWS[option] for option in options if option in DRAWS), draw)(seed)
    for option, change in CHANGES.items():
        if option in options:
            case = change(case, random.Random(f"{option} {seed}"))
    return case


def is_possible(requests: Sequence[Asked], steps: Sequence[BatchStep]) -> bool:
    """Whether no prompt has the answer of a request that had not ended when the prompt came, which
    no client can send."""
    ended = {number: at for at, step in enumerate(steps) for number in step.finished}
    return all(
        text >= 0 or end <= requests[~text].prompt or ended[~text] < asked.before
        for asked in requests
        for text, end in asked.prefix
    )


def main(cases: int, first: int, options: Sequence[str] = ()) -> int:
    """How many of the cases differ; says which, and where."""
    differing = impossible = steps = preempted = 0
    for seed in range(first, first + cases):
        settings, requests = case_of(seed, options)
        recording = record(settings, requests)
        theirs = [sorted_step(step) for step in recording.steps]
        try:
            played = replay(settings, requests, release_of(recording))
            ours = [sorted_step(step) for step in played]
        except AssertionError as error:
            ours = []
            print(f"seed {seed}: {error!r}")
        steps += len(theirs)
        preempted += sum(len(step[1]) for step in theirs)
        if theirs != ours and not is_possible(requests, recording.steps):
            impossible += 1
        elif theirs != ours:
            differing += 1
            pairs = enumerate(zip(theirs, ours, strict=False))
            where = next((i for i, (a, b) in pairs if a != b), min(len(theirs), len(ours)))
            print(f"seed {seed}, step {where}: {theirs[where:][:1]}, not {ours[where:][:1]}")
    print(f"{differing} of {cases} cases differ; {steps:,} steps, {preempted:,} preemptions")
    if impossible:
        print(f"{impossible} more have prompts with answers that had not ended")
    return differing


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if not argument.startswith("--")]
    cases, first = numbers + [200, 0][len(numbers) :]
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    sys.exit(main(cases, first, options) > 0)
