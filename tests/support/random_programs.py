"""Random programs over arrays, which run with amdjax or with NumPy.

A program is a list of steps drawn from a seed; every step makes one more value of those before it.
Shapes are odd on purpose: the edges of tiles, unit axes and empty arrays are where schedules break.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import amdjax.numpy as jnp
from amdjax import lax

SHAPES = [
    (), (1,), (3,), (8,), (130,), (5, 7), (1, 9), (16, 33), (70, 20), (2, 3, 4), (4, 1, 6),
    (2, 65, 3), (3, 2, 2, 5), (0,), (3, 0, 2), (1, 1, 1), (257,), (40, 40),
]  # fmt: skip
MAX_SIZE = 100_000

Step = tuple[str, int, Any]


@dataclass
class Program:
    """Inputs, steps and the values it returns."""

    inputs: list[np.ndarray]
    steps: list[Step]
    outputs: list[int]

    def run(self, xp: Any, xs: Sequence[Any]) -> list[Any]:
        """Its results with `xp` as the array library (`numpy` or `amdjax.numpy`)."""
        values = list(xs)
        for name, k, detail in self.steps:
            values.append(OPERATIONS[name].run(xp, values, values[k], detail))
        return [values[i] for i in self.outputs]

    def __str__(self) -> str:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        return f"inputs {shapes}; steps {self.steps}; outputs {self.outputs}"


@dataclass
class Operation:
    """How a step is drawn (a detail and the result's shape, or None) and what it does."""

    draw: Callable[[random.Random, list[tuple[int, ...]], tuple[int, ...]], Any]
    run: Callable[[Any, list[Any], Any, Any], Any]
    kinds: str = "fci"  # dtypes it works on; their NumPy kinds, bfloat16 counting as f


OPERATIONS: dict[str, Operation] = {}


def operation(name: str, draw: Any, kinds: str = "fci") -> Callable[[Any], Any]:
    def register(run: Any) -> Any:
        OPERATIONS[name] = Operation(draw, run, kinds)
        return run

    return register


def size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def some_axes(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if not shape:
        return None
    return tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))


def without(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def one(*names: str) -> Any:
    return lambda rng, shapes, s: (rng.choice(names), s)


@operation("unary", one("sin", "tanh", "square", "arctan"), "f")
def _(xp, values, x, name):
    return getattr(xp, name)(x)


@operation("sign", one("neg", "abs_", "double"), "fi")
def _(xp, values, x, name):
    return {"neg": lambda: -x, "abs_": lambda: xp.abs(x), "double": lambda: x + x}[name]()


@operation("conjugate", one("conj", "swap"), "c")
def _(xp, values, x, name):
    return xp.conj(x) if name == "conj" else x * x.dtype.type(1j)


def _other(*names: str) -> Any:
    def draw(rng, shapes, s):
        same = [j for j, t in enumerate(shapes) if t == s]
        return (rng.choice(same), rng.choice(names)), s

    return draw


@operation("binary", _other("add", "subtract", "multiply"))
def _(xp, values, x, detail):
    other, name = detail
    return getattr(xp, name)(x, values[other])


@operation("extremum", _other("maximum", "minimum"), "fi")
def _(xp, values, x, detail):
    other, name = detail
    return getattr(xp, name)(x, values[other])


@operation("choose", _other("less", "greater_equal"), "fi")
def _(xp, values, x, detail):
    other, name = detail
    return xp.where(getattr(xp, name)(x, values[other]), x, values[other])


@operation("bits", _other("bitwise_and", "bitwise_or", "bitwise_xor"), "i")
def _(xp, values, x, detail):
    other, name = detail
    return getattr(xp, name)(x, values[other])


def _draw_transpose(rng, shapes, s):
    p = tuple(rng.sample(range(len(s)), len(s)))
    return p, tuple(s[i] for i in p)


@operation("transpose", _draw_transpose)
def _(xp, values, x, permutation):
    return xp.transpose(x, permutation)


def _draw_reshape(rng, shapes, s):
    n = size(s)
    if n == 0:
        return None
    d = rng.choice([d for d in range(1, n + 1) if n % d == 0])
    t = rng.choice([(d, n // d), (n,), (1, d, n // d), (d, 1, n // d)])
    return t, t


@operation("reshape", _draw_reshape)
def _(xp, values, x, shape):
    return xp.reshape(x, shape)


def _draw_broadcast(rng, shapes, s):
    grown = tuple(rng.choice([2, 5]) if n == 1 and rng.random() < 0.7 else n for n in s)
    t = (rng.choice([1, 2, 5, 9]), *grown) if len(s) < 4 else grown
    return t, t


@operation("broadcast", _draw_broadcast)
def _(xp, values, x, shape):
    return xp.broadcast_to(x, shape)


def _draw_reduction(rng, shapes, s):
    axes = some_axes(rng, s)
    return None if axes is None else ((axes, rng.random() < 0.3), None)


@operation("sum", _draw_reduction)
def _(xp, values, x, detail):
    axes, keep = detail
    return xp.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _draw_nonempty_reduction(rng, shapes, s):
    return _draw_reduction(rng, shapes, s) if size(s) else None


@operation("max", _draw_nonempty_reduction, "fi")
def _(xp, values, x, detail):
    axes, keep = detail
    return xp.max(x, axis=axes, keepdims=keep)


@operation("center", _draw_nonempty_reduction, "f")
def _(xp, values, x, detail):
    axes, _ = detail
    return x - xp.mean(x, axis=axes, keepdims=True)


@operation("softmax", _draw_nonempty_reduction, "f")
def _(xp, values, x, detail):
    axes, _ = detail
    e = xp.exp(x - xp.max(x, axis=axes, keepdims=True))
    return e / xp.sum(e, axis=axes, keepdims=True)


def _draw_axis(rng, shapes, s):
    return (rng.randrange(len(s)), s) if s and size(s) else None


@operation("argmax", _draw_axis, "fi")
def _(xp, values, x, axis):
    return xp.argmax(x, axis=axis).astype(x.dtype)


@operation("cumsum", _draw_axis)
def _(xp, values, x, axis):
    return xp.cumsum(x, axis=axis, dtype=x.dtype)


@operation("reverse", _draw_axis)
def _(xp, values, x, axis):
    return xp.flip(x, axis)


@operation("iota", _draw_axis)
def _(xp, values, x, axis):
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return x + xp.arange(x.shape[axis]).astype(x.dtype).reshape(shape)


def _draw_slice(rng, shapes, s):
    if not s:
        return None
    return tuple((rng.randrange(n // 2 + 1), rng.choice([1, 1, 2, 3])) for n in s), None


@operation("slice", _draw_slice)
def _(xp, values, x, detail):
    return x[tuple(slice(start, None, step) for start, step in detail)]


def _draw_pad(rng, shapes, s):
    return (tuple((rng.randrange(3), rng.randrange(3)) for _ in s), None) if s else None


@operation("pad", _draw_pad)
def _(xp, values, x, widths):
    if xp is np:
        return np.pad(x, widths)
    return lax.pad(x, jnp.zeros((), x.dtype), [(a, b, 0) for a, b in widths])


@operation(
    "dilate", lambda rng, shapes, s: _draw_pad(rng, shapes, s) if min(s, default=0) > 1 else None
)
def _(xp, values, x, widths):
    """Padding that also puts zeros between elements, or cuts edges off."""
    config = [(a - 1, b - 1, b) for a, b in widths]
    if xp is not np:
        return lax.pad(x, jnp.zeros((), x.dtype), config)
    for axis, (low, high, inner) in enumerate(config):
        n = x.shape[axis]
        spread = list(x.shape)
        spread[axis] = max(n + (n - 1) * inner, 0)
        wide = np.zeros(spread, x.dtype)
        here = [slice(None)] * x.ndim
        here[axis] = slice(None, None, inner + 1)
        wide[tuple(here)] = x
        total = spread[axis] + low + high
        spread[axis] = max(total, 0)
        out = np.zeros(spread, x.dtype)
        first, last = max(low, 0), max(low, 0)
        length = max(min(wide.shape[axis] + min(low, 0) + min(high, 0), out.shape[axis]), 0)
        to, source = list(here), list(here)
        to[axis] = slice(first, last + length)
        source[axis] = slice(max(-low, 0), max(-low, 0) + length)
        out[tuple(to)] = wide[tuple(source)]
        x = out
    return x


@operation("concatenate", lambda rng, shapes, s: (rng.randrange(len(s)), None) if s else None)
def _(xp, values, x, axis):
    return xp.concatenate([x, x + x, x], axis)


def _draw_take(rng, shapes, s):
    if not s or not size(s):
        return None
    axis = rng.randrange(len(s))
    return (axis, tuple(rng.randrange(s[axis]) for _ in range(rng.randint(1, 6)))), None


@operation("take", _draw_take)
def _(xp, values, x, detail):
    axis, where = detail
    return xp.take(x, xp.array(where, np.int32), axis=axis)


@operation("update", _draw_take)
def _(xp, values, x, detail):
    axis, where = detail
    index = (slice(None),) * axis + (where[0],)
    if xp is not np:
        return x.at[index].set(x.dtype.type(1))
    out = x.copy()
    out[index] = 1
    return out


@operation("dot", lambda rng, shapes, s: (None, None) if len(s) == 2 and size(s) < 4000 else None)
def _(xp, values, x, _):
    return xp.matmul(x, xp.transpose(x)) * x.dtype.type(0.125 if x.dtype.kind != "i" else 1)


@operation("through_bool", lambda rng, shapes, s: (None, s))
def _(xp, values, x, _):
    return xp.logical_not(x != 0).astype(x.dtype)


@dataclass
class _Draft:
    shapes: list[tuple[int, ...]]
    steps: list[Step] = field(default_factory=list)


def draw_program(seed: int | random.Random, dtype: Any, most_steps: int = 10) -> Program:
    """The program of a seed, or of what else makes the choices; its values all have one dtype."""
    if isinstance(seed, int):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
    else:
        rng, numbers = seed, np.random.default_rng(seed.getrandbits(32))
    dtype = np.dtype(dtype)
    kind = "f" if dtype == ml_dtypes.bfloat16 else dtype.kind.replace("u", "i")
    shape = rng.choice(SHAPES)
    inputs = [_array(numbers, shape, dtype) for _ in range(rng.randint(1, 3))]
    usable = [name for name, o in OPERATIONS.items() if kind in o.kinds]
    draft = _Draft([shape] * len(inputs))
    values: list[Any] = [x.astype(_wide(dtype)) for x in inputs]
    for _ in range(rng.randint(2, most_steps)):
        k = rng.randrange(len(values))
        name = rng.choice(usable)
        drawn = OPERATIONS[name].draw(rng, [np.shape(v) for v in values], np.shape(values[k]))
        if drawn is None:
            continue
        with np.errstate(all="ignore"):
            new = np.asarray(OPERATIONS[name].run(np, values, values[k], drawn[0]))
        if size(new.shape) > MAX_SIZE or (new.size and not _tame(new)):
            continue
        values.append(new)
        draft.steps.append((name, k, drawn[0]))
    made = range(len(inputs), len(values)) or range(1)
    outputs = sorted({len(values) - 1, rng.choice(made), rng.choice(made)})
    return Program(inputs, draft.steps, outputs)


def _array(numbers: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        return numbers.integers(0 if dtype.kind == "u" else -20, 20, shape).astype(dtype)
    x = numbers.standard_normal(shape)
    if dtype.kind == "c":
        x = x + 1j * numbers.standard_normal(shape)
    return np.asarray(x).astype(dtype)


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which NumPy computes what results are compared with."""
    if dtype.kind in "iu":
        return dtype  # integers wrap, exactly
    return np.dtype("complex128" if dtype.kind == "c" else "float64")


def _tame(x: np.ndarray) -> bool:
    """Small enough for float16, and for rounding errors to stay in proportion."""
    return x.dtype.kind in "iu" or float(np.abs(x).max()) < 500


def expected(program: Program) -> list[np.ndarray]:
    wide = [x.astype(_wide(x.dtype)) for x in program.inputs]
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in program.run(np, wide)]
