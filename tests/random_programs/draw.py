"""Drawing a program: steps are tried on sample values, and kept if their results are tame.

Samples are computed exactly and with two perturbations. A step whose result jumps under rounding
(a comparison of equal values, an argmax that ties, an index made from a float) is not kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .operations import OPERATIONS, Drawn, Operation
from .program import Program, Step, Type
from .reference import Reference, Unfit, epsilon, is_inexact

SHAPES = [
    (), (), (1,), (3,), (8,), (5,), (130,), (5, 7), (1, 9), (16, 33), (7, 5), (2, 3, 4), (4, 1, 6),
    (2, 3, 9, 5), (1, 4, 8), (3, 2, 2, 5), (0,), (3, 0, 2), (1, 1, 1), (257,), (33, 40),
]  # fmt: skip
DTYPES = ("float32", "float32", "float32", "int32", "int32", "bool", "float16", "bfloat16",
          "int8", "uint8", "int16", "uint16", "uint32", "complex64")  # fmt: skip
WIDE = (
    *DTYPES,
    "float64",
    "float64",
    "int64",
    "uint64",
    "complex128",
    "complex128",
)  # where there are 64-bit types
SEEDS = (None, 1, 2)  # of the references that samples are computed with
MAX_SIZE = 20_000
LARGEST = 500.0  # of what rounding errors may grow with
LARGEST_HALF = 100.0  # of float16, whose range squares inside of operations must not leave


class Draft:
    """A program being drawn, with the samples of its values."""

    def __init__(
        self,
        rng: random.Random,
        dtypes: Sequence[str],
        depth: int = 0,
        banned: frozenset[str] = frozenset(),
    ):
        self.rng, self.dtypes, self.depth, self.banned = rng, dtypes, depth, banned
        self.types: list[Type] = []
        self.samples: list[tuple[Any, ...]] = []
        self.steps: list[Step] = []
        self.inputs = 0

    def put_input(self, t: Type, samples: Sequence[Any]) -> None:
        self.types.append(t)
        self.samples.append(tuple(samples))
        self.inputs += 1

    # What operations draw with

    def pick(self, suits: Callable[[Type], bool]) -> int | None:
        """A value whose type suits, rather a late one."""
        found = [i for i, t in enumerate(self.types) if suits(t)]
        if not found:
            return None
        return self.rng.choice(found[-6:] if self.rng.random() < 0.5 else found)

    def _options(self, options: dict[str, list[Any]]) -> dict[str, Any]:
        return {k: self.rng.choice(v) for k, v in options.items()}

    def on(self, suits: Any, shape: Any, dtype: str, **options: list[Any]) -> Drawn:
        """An operation on one value, with a result of another dtype."""
        i = self.pick(suits)
        if i is None:
            return None
        return (i,), self._options(options), (Type(shape(self.types[i]), dtype),)

    def pair(self, suits: Any, dtype: str, **options: list[Any]) -> Drawn:
        """An operation on two values of one type."""
        i = self.pick(suits)
        if i is None:
            return None
        j = self.pick(lambda t: t == self.types[i])
        return (i, j), self._options(options), (Type(self.types[i].shape, dtype),)

    def along(self, suits: Any, result: Any, **options: list[Any]) -> Drawn:
        """An operation along an axis that is not empty."""
        i = self.pick(lambda t: suits(t) and t.rank > 0 and t.size > 0)
        if i is None:
            return None
        axis = self.rng.randrange(self.types[i].rank)
        return (i,), {"axis": axis, **self._options(options)}, (result(self.types[i], axis),)

    def body(
        self,
        operands: Sequence[int],
        slices: Sequence[tuple[int, int]] = (),
        wanted: Sequence[Type] | None = None,
        before: Sequence[tuple[Type, Any]] = (),
        more: bool = False,
        smooth: bool = False,
        banned: Sequence[str] = (),
        steps: int = 5,
    ) -> Program | None:
        """A program of `before`, values whole, and slices of values, without what is `banned`.

        It returns what is `wanted` and, with `more`, one further value.
        """
        if self.depth == 2:
            return None
        inner = Draft(self.rng, self.dtypes, self.depth + 1, self.banned.union(banned))
        for t, value in before:
            inner.put_input(t, [value] * len(SEEDS))
        for i in operands:
            inner.put_input(self.types[i], self.samples[i])
        for i, axis in slices:
            t = self.types[i]
            shape = (*t.shape[:axis], *t.shape[axis + 1 :])
            inner.put_input(Type(shape, t.dtype), [np.take(s, 0, axis) for s in self.samples[i]])
        inner.grow(self.rng.randint(1, steps))
        outputs = [inner._latest(lambda t, w=w: t == w) for w in wanted or ()]
        if None in outputs:
            return None
        if smooth:
            outputs = [inner._latest(lambda t: t.dtype == "float32")]
        elif wanted is None or more:
            outputs.append(self.rng.choice(range(max(len(inner.types) - 3, 0), len(inner.types))))
        if wanted is None and not smooth and self.rng.random() < 0.5:
            outputs.append(self.rng.randrange(len(inner.types)))
        return inner.program(outputs)

    def _latest(self, suits: Callable[[Type], bool]) -> int | None:
        found = [i for i, t in enumerate(self.types) if suits(t)]
        return found[-1] if found else None

    # Growing

    def grow(self, steps: int) -> None:
        """Add so many steps, as far as they are found."""
        names = [n for n in OPERATIONS if n not in self.banned]
        weights = [OPERATIONS[n].weight for n in names]
        for _ in range(6 * steps):
            if len(self.steps) >= steps:
                break
            name = self.rng.choices(names, weights)[0]
            drawn = self._draw(OPERATIONS[name])
            if drawn is not None:
                self._try(name, *drawn)

    def _draw(self, op: Operation) -> Drawn:
        drawn = op.draw(self)
        if drawn is None or None in drawn[0]:
            return None
        return drawn

    def _try(self, name: str, operands: Any, params: Any, types: tuple[Type, ...]) -> None:
        if any(t.size > MAX_SIZE for t in types):
            return
        made = []
        for which, seed in enumerate(SEEDS):
            library = Reference(seed)
            library.place = 1000 * (len(self.steps) + 1)
            values = [self.samples[i][which] for i in operands]
            try:
                with np.errstate(all="ignore"):
                    out = OPERATIONS[name].run(library, *values, **params)
                    out = out if isinstance(out, (tuple, list)) else (out,)
                    made.append([library.finish(x, t) for x, t in zip(out, types, strict=True)])
            except Unfit:
                return
        columns = list(zip(*made))
        if all(tame(t, xs) for t, xs in zip(types, columns)):
            self.steps.append(Step(name, tuple(operands), params, types))
            self.types += types
            self.samples += columns

    def program(self, outputs: Sequence[int]) -> Program:
        return Program(tuple(self.types[: self.inputs]), tuple(self.steps), tuple(outputs))


def tame(t: Type, samples: Sequence[np.ndarray]) -> bool:
    """Whether a value is of moderate size and moves no further than rounding lets it."""
    exact = samples[0]
    if not is_inexact(t.dtype):
        return all(np.array_equal(exact, x) for x in samples[1:])
    largest = LARGEST_HALF if t.dtype == "float16" else LARGEST
    if not np.isfinite(exact).all() or np.abs(exact).max(initial=0.0) > largest:
        return False
    scale = 1.0 + np.abs(exact).max(initial=0.0)
    return all(
        np.abs(x - exact).max(initial=0.0) <= 40 * epsilon(t.dtype) * scale for x in samples[1:]
    )


def random_array(numbers: np.random.Generator, t: Type) -> np.ndarray:
    """Values of a type: around one, small integers."""
    kind = np.dtype(t.dtype).kind
    if kind == "b":
        return np.asarray(numbers.random(t.shape) < 0.5)
    if kind in "iu":
        return np.asarray(numbers.integers(0 if kind == "u" else -20, 20, t.shape)).astype(t.dtype)
    x = numbers.standard_normal(t.shape)
    if kind == "c":
        x = x + 1j * numbers.standard_normal(t.shape)
    return np.asarray(x).astype(t.dtype)


def draw(
    seed: int, steps: int = 40, dtypes: Sequence[str] = DTYPES
) -> tuple[Program, list[np.ndarray]]:
    """The program of a seed, with up to so many steps, and inputs for it."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    draft, inputs = Draft(rng, dtypes), []
    shapes = rng.sample(SHAPES, 3)
    for _ in range(rng.randint(3, 6)):
        t = Type(rng.choice(shapes), rng.choice(dtypes))
        inputs.append(random_array(numbers, t))
        draft.put_input(t, [inputs[-1].astype(_wide(t))] * len(SEEDS))
    draft.grow(rng.randint(steps // 2, steps))
    made = range(draft.inputs, len(draft.types)) or range(draft.inputs)
    late = [i for i in made if i >= len(draft.types) - 4]
    outputs = sorted({*late, *(rng.choice(made) for _ in range(3))})
    return draft.program(outputs), inputs


def _wide(t: Type) -> np.dtype:
    from .reference import wide

    return wide(t.dtype)
