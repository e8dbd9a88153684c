"""Provides how far published figures lie from their predictions, and what follows for another run.

``spreads.yaml`` has a row for each engine, GPU and model whose published figures were compared, by
kind of figure; ``infersim score TABLES --learn-bands FILE`` writes it. An error is the logarithm of
measured over predicted. What it has in common with others (by engine, by GPU, by family of models,
by the very engine, GPU and model, and by these in one release or of one kind of figure) are parts
of their own, each normal with a size that was learnt. So the rows say what to expect of another
run, and the less exactly the further it is from them: Gaussian process regression with a constant
kernel for each part (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
equations 2.25 and 2.26). Sizes count in units of ``within``, how far figures of one row lie apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml
from sim.catalog.releases import number, spelled

FILE = Path(__file__).with_name("spreads.yaml")

Floats = NDArray[np.float64]

PARTS = (
    "kind of figure",
    "engine",
    "GPU",
    "model family",
    "this deployment",
    "release",
    "this figure",
)
"""The parts of an error that runs have in common: of one kind of figure; of one engine; of one GPU;
of models of one family; of one engine, GPU and model; of these in one release; and of one kind of
figure of these."""

GROUPS = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2el": "tpot", "rate": "rate"}
"""The group of a quantity, in which errors have parts in common: times between tokens and of whole
answers err together."""

MEDIAN = math.pi / 2
"""Variance of the median of normal values over that of their mean."""

SOURCES = 3
"""Places as many as which what is usual counts in what is learnt of a kind of figure, or of a
model."""

TOGETHER = 2
"""The figures that those of one layout count as at most: they err together."""


def manner(kind: str) -> str:
    """The group of a kind of figure and how requests come.

    >>> manner("ttft, closed loop, experts")
    'ttft, closed loop'
    >>> manner("tpot, dense")
    'tpot'
    """
    quantity, *driven, _ = kind.split(", ")
    return ", ".join([GROUPS[quantity], *driven])


class Deployed(NamedTuple):
    """The engine, GPU and model of a run, the ``family`` of the model, with experts or without, and
    the ``release`` of the engine: "" for one that has none, ``UNSTATED`` for one that a source does
    not state."""

    engine: str
    gpu: str
    model: str
    family: str
    release: str = ""

    @property
    def deployment(self) -> tuple[str, str, str]:
        """The engine, GPU and model, whatever the release."""
        return self.engine, self.gpu, self.model


UNSTATED = "not stated"
"""The release of published runs whose source does not state it: no run of infersim has it."""


class ComparedFigures(NamedTuple):
    """Published figures of one ``place`` and ``kind`` (``ttft, closed loop, dense``): how many, of
    how many layouts, the median error (``centre``), and how far they lie apart (``within``)."""

    place: Deployed
    kind: str
    figures: int
    layouts: int
    centre: float
    within: float


class UsualError(NamedTuple):
    """The median error of the group of a kind of figure, and how far figures of one place lie
    apart."""

    centre: float
    within: float


class Multiples(NamedTuple):
    """The number of spreads to either side that hold half and nine tenths of figures."""

    half: float
    ninety: float


NORMAL = Multiples(0.6745, 1.6449)
"""Standard deviations within which half and nine tenths of a normal law lie."""


class ExpectedError(NamedTuple):
    """What is expected of the error of a figure: its ``centre``, the standard deviation of each
    part in common (``PARTS``) that the compared runs leave open, and of what is ``within``; bands
    reach so many ``multiples``."""

    centre: float
    common: Mapping[str, float]
    within: float
    multiples: Multiples

    @property
    def spread(self) -> float:
        """The standard deviation of the error."""
        return math.sqrt(sum(each**2 for each in self.common.values()) + self.within**2)


@dataclass(frozen=True, eq=False)
class Learnt:
    """The content of ``spreads.yaml``: ``kinds``, with one for each of ``GROUPS`` where a kind was
    never compared; the size of each part in ``common``; the ``multiples`` of each group and manner;
    how far errors ``within`` a place are ``shared`` by two of its figures; and the ``rows``."""

    origin: str
    kinds: Mapping[str, UsualError]
    common: Mapping[str, float]
    multiples: Mapping[str, Multiples]
    shared: float
    rows: tuple[ComparedFigures, ...]
    _solved: dict[tuple[str, Deployed | None, Deployed | None, str], _Solved] = field(
        default_factory=dict
    )

    def expected(
        self, place: Deployed, kind: str, *, without: Deployed | None = None, own: bool = False
    ) -> ExpectedError:
        """The expected error of a figure of ``kind`` at ``place``; as if the deployment of
        ``without`` had not been compared, in any release; with ``own``, where the engine was fitted
        to runs of one's own, as if that of this place had been, and been right."""
        group = GROUPS[kind.partition(", ")[0]]
        usual = self.usual(kind)
        key = (group, without, place if own else None, kind if own else "")
        if key not in self._solved:
            self._solved[key] = _solve(self, *key)
        solved = self._solved[key]
        mean, left = solved.at(place, kind, self._sizes)
        apart = usual.within * self._apart(solved.rows, place.model)
        found = (row.within for row in solved.rows if row.place == place and row.kind == kind)
        return ExpectedError(
            usual.centre + usual.within * mean,
            dict(zip(PARTS, (apart * math.sqrt(each) for each in left), strict=True)),
            next(found, apart),
            self.multiples_of(kind),
        )

    def _apart(self, rows: Sequence[ComparedFigures], model: str) -> float:
        """How many times as far as usual figures of the ``model`` lie apart, among ``rows`` of one
        group: the mean of the logarithms over its deployments, held near what is usual."""
        found: dict[tuple[str, str, str], list[float]] = {}
        for row in rows:
            if row.place.model == model:
                apart = math.log(row.within / self.usual(row.kind).within)
                found.setdefault(row.place.deployment, []).append(apart)
        means = [sum(each) / len(each) for each in found.values()]
        return math.exp(sum(means) / (len(means) + SOURCES))

    def usual(self, kind: str) -> UsualError:
        """What is usual of a kind of figure; of its group where it was never compared, and the
        widest of all where none of that was."""
        widest = max(self.kinds.values(), key=lambda each: each.within)
        return self.kinds.get(kind, self.kinds.get(GROUPS[kind.partition(", ")[0]], widest))

    def multiples_of(self, kind: str) -> Multiples:
        """The multiples of a kind of figure."""
        how, widest = manner(kind), max(self.multiples.values(), key=lambda each: each.ninety)
        return self.multiples.get(how, self.multiples.get(how.partition(", ")[0], widest))

    @property
    def _sizes(self) -> Floats:
        return np.array([self.common[part] ** 2 for part in PARTS])

    def releases(self, place: Deployed, group: str) -> list[str]:
        """The releases of which figures of that ``group`` of quantities were compared for the
        deployment of ``place``, oldest first; ``UNSTATED`` comes last."""
        same = {
            row.place.release
            for row in self.rows
            if row.place.deployment == place.deployment
            and GROUPS[row.kind.partition(", ")[0]] == group
        }
        return sorted(same, key=lambda each: (each == UNSTATED, number(each) or (), each))

    def compared(self, **where: str) -> bool:
        """Whether runs with these values of ``Deployed`` were compared."""
        return any(
            all(getattr(row.place, name) == value for name, value in where.items())
            for row in self.rows
        )


class _Solved(NamedTuple):
    """The rows of one group, their marks, the inverse of their covariance, and that times their
    errors."""

    rows: Sequence[ComparedFigures]
    marks: NDArray[np.str_]
    inverse: Floats
    weights: Floats

    def at(self, place: Deployed, kind: str, sizes: Floats) -> tuple[float, Floats]:
        """The mean of a figure's error in units of its ``within``, and the variance of each part
        that is left."""
        if not self.rows:
            return 0.0, sizes
        alike = (self.marks == np.array(marks_of(place, kind))) * sizes
        covariance = alike.sum(axis=1)
        left = sizes - np.einsum("ip,ij,jp->p", alike, self.inverse, alike)
        total = float(sizes.sum() - covariance @ self.inverse @ covariance)
        left = np.maximum(left, 0.0)
        left *= max(total, 0.0) / left.sum() if left.sum() else 0.0
        return float(covariance @ self.weights), left


def _solve(
    learnt: Learnt, group: str, without: Deployed | None, own: Deployed | None, kind: str
) -> _Solved:
    rows = [
        row
        for row in learnt.rows
        if GROUPS[row.kind.partition(", ")[0]] == group
        and all(each is None or row.place.deployment != each.deployment for each in (without, own))
    ]
    if own is not None and kind in learnt.kinds:
        usual = learnt.kinds[kind]
        rows.append(ComparedFigures(own, kind, 1, 1, 0.0, usual.within))
    return solved(rows, learnt.kinds, learnt._sizes)


def solved(
    rows: Sequence[ComparedFigures], kinds: Mapping[str, UsualError], sizes: Floats
) -> _Solved:
    """The ``rows`` of one group, ready to say what to expect of others; ``sizes`` are the variances
    of the parts."""
    if not rows:
        return _Solved(rows, _marks(rows), np.empty((0, 0)), np.empty(0))
    matrix = covariance(rows, sizes) + np.diag(noise(rows, kinds))
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    return _Solved(rows, _marks(rows), inverse, inverse @ scaled_errors(rows, kinds))


def scaled_errors(rows: Sequence[ComparedFigures], kinds: Mapping[str, UsualError]) -> Floats:
    """The error of each row beyond the centre of its kind, in units of what is within."""
    usual = [kinds[row.kind] for row in rows]
    found = [
        (row.centre - each.centre) / each.within for row, each in zip(rows, usual, strict=True)
    ]
    return np.asarray(np.clip(found, -FAR, FAR), dtype=np.float64)


FAR = 4.0
"""Units beyond which an error of a row counts as this: one far off says little of others."""


def noise(rows: Sequence[ComparedFigures], kinds: Mapping[str, UsualError]) -> Floats:
    """The variance of the median of each row, in the same units."""
    return np.array(
        [
            MEDIAN
            * (row.within / kinds[row.kind].within) ** 2
            / min(row.figures, TOGETHER * row.layouts)
            for row in rows
        ]
    )


def covariance(rows: Sequence[ComparedFigures], sizes: Floats) -> Floats:
    """The covariance of rows by what they have in common."""
    numbers: dict[str, int] = {}  # numpy compares these faster than texts
    marks = np.array(
        [
            [numbers.setdefault(mark, len(numbers)) for mark in marks_of(row.place, row.kind)]
            for row in rows
        ]
    )
    return np.asarray((marks[:, None] == marks) @ sizes, dtype=np.float64)


def _marks(rows: Sequence[ComparedFigures]) -> NDArray[np.str_]:
    return np.array([marks_of(row.place, row.kind) for row in rows])


def marks_of(place: Deployed, kind: str) -> list[str]:
    """The marks of figures of a place and kind, one for each of ``PARTS``: two have a part in
    common if its marks are equal."""
    deployment = " ".join(place.deployment)
    release, whole = f"{deployment} {place.release}", f"{deployment} {kind}"
    return [kind, place.engine, place.gpu, place.family, deployment, release, whole]


@cache
def learnt(path: Path = FILE) -> Learnt:
    """The content of ``path``."""
    file = Fields(str(path), read_yaml(path))
    kinds, common, multiples = (file.inner(name) for name in ("kinds", "common", "multiples"))
    return Learnt(
        file.text("origin"),
        {name: UsualError(**_numbers(kinds.inner(name), UsualError._fields)) for name in kinds},
        _numbers(common, PARTS),
        {
            name: Multiples(**_numbers(multiples.inner(name), Multiples._fields))
            for name in multiples
        },
        file.number("shared"),
        tuple(map(_row, file.mappings("compared"))),
    )


def _numbers(entry: Fields, names: Iterable[str]) -> dict[str, float]:
    return {name: entry.number(name) for name in names}


def _row(entry: Fields) -> ComparedFigures:
    kind = entry.text("of")
    engine, gpu, model, release = map(entry.text, ("engine", "gpu", "model", "release"))
    where = place(engine, gpu, model, kind, release)
    counts = entry.count("figures"), entry.count("layouts")
    return ComparedFigures(where, kind, *counts, entry.number("centre"), entry.number("within"))


def place(engine: str, gpu: str, model: str, kind: str, release: str = "") -> Deployed:
    """The place of a run; the last words of a ``kind`` say whether the model has experts.

    >>> place("vllm", "l4", "qwen3-30b-a3b", "tpot, experts", "0.19")
    Deployed(engine='vllm', gpu='l4', model='qwen3-30b-a3b', family='qwen, experts', release='0.19')
    """
    word = re.match(r"[A-Za-z]*", model)
    family = (word[0].lower() if word else "") or model
    kind = kind.rpartition(", ")[2]
    return Deployed(family_of(engine), gpu, model, f"{family}, {kind}", release_of(release))


def release_of(version: str) -> str:
    """The release that the text of a version begins with; ``UNSTATED`` where it names none, or
    another product first, and "" for what is "".

    >>> release_of("0.19.0"), release_of("about 0.5.12 (June)"), release_of("TensorRT 10.2")
    ('0.19', '0.5.12', 'not stated')
    """
    if not version:
        return version
    found = number(version) if re.match(r"[^A-Z]*\d", version) else None
    if found is None:
        return UNSTATED
    while len(found) > 2 and not found[-1]:
        found = found[:-1]
    return ".".join(map(str, found))


def related(engine: str) -> str:
    """The preset under whose name runs of ``engine`` are spoken of, whatever its release.

    >>> related("vllm@0.18"), related("vllm")
    ('vllm', 'vllm')
    """
    return spelled(engine).name


def family_of(engine: str) -> str:
    """The engine of a preset: all of TensorRT-LLM are one, and those that are ``related``."""
    return "tensorrt-llm" if engine.startswith("tensorrt-llm") else related(engine)
