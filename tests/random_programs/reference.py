"""NumPy as the library that programs run on: wide floats, exact integers, loops over everything.

Floats are float64 here whatever a program says. A *perturbed* reference multiplies every float
result by `1 + e` with `|e|` up to the rounding error of its dtype: how far its results lie from the
exact ones is how far those of a right implementation may. The perturbation depends only on the
place in the program and a seed, so that a perturbed function can be differentiated numerically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .program import Program, Type, run

FLOATS = ("float16", "bfloat16", "float32", "float64")


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    return dtype.startswith("complex")


def is_inexact(dtype: str) -> bool:
    return is_float(dtype) or is_complex(dtype)


def epsilon(dtype: str) -> float:
    """Rounding error of a dtype, relative."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps)


def wide(dtype: str) -> np.dtype:
    """The dtype in which the reference holds values of a dtype."""
    if is_float(dtype):
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if is_complex(dtype) else np.dtype(dtype)


class Unfit(Exception):
    """A step whose result rounding decides; a program has none."""


class Reference:
    """Runs programs with NumPy."""

    np = np

    def __init__(self, seed: int | None = None):
        self.seed = seed
        self.place = 0

    def finish(self, x: Any, t: Type) -> np.ndarray:
        """The result of a step as the type says, perturbed."""
        with np.errstate(all="ignore"):
            x = np.asarray(x).astype(wide(t.dtype))
        if x.shape != t.shape:
            raise AssertionError(f"{x.shape} in place of {t}")
        self.place += 1
        if self.seed is None or not is_inexact(t.dtype):
            return x
        noise = np.random.default_rng((self.seed, self.place)).uniform(-1, 1, x.shape)
        least = 6e-8 if t.dtype == "float16" else 0.0  # what is less than that is zero
        return x * (1 + epsilon(t.dtype) * noise) + least * noise

    def call(self, program: Program, *xs: Any) -> list[Any]:
        return run(program, self, xs)

    # Elements and arrays

    def convert(self, x: np.ndarray, old: str, new: str) -> np.ndarray:
        if is_float(new) and epsilon(new) > (epsilon(old) if is_float(old) else 0.0):
            return x.astype(np.dtype(new)).astype(np.float64)
        if is_float(old) and self.seed is not None:  # what was rounded before may be cut elsewhere
            noise = np.random.default_rng((self.seed, 0, self.place)).uniform(-1, 1, x.shape)
            x = x * (1 + 4 * epsilon(old) * noise)
        return x.astype(wide(new))

    def constant(self, value: float, like: np.ndarray) -> Any:
        return like.dtype.type(value)

    def erf(self, x: np.ndarray) -> np.ndarray:
        from scipy.special import erf

        return erf(x)

    def logistic(self, x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def rsqrt(self, x: np.ndarray) -> np.ndarray:
        return 1 / np.sqrt(x)

    def population_count(self, x: np.ndarray) -> np.ndarray:
        bits = x.astype(f"u{x.dtype.itemsize}")  # NumPy counts the bits of absolute values
        return np.bitwise_count(bits).astype(x.dtype)

    def pad(self, x: np.ndarray, config: Sequence[tuple[int, int, int]]) -> np.ndarray:
        for axis, (low, high, inner) in enumerate(config):
            x = np.moveaxis(x, axis, 0)
            n = x.shape[0]
            spread = np.zeros((max(n + (n - 1) * inner, 0), *x.shape[1:]), x.dtype)
            spread[:: inner + 1] = x
            ends = [np.zeros((max(k, 0), *x.shape[1:]), x.dtype) for k in (low, high)]
            x = np.concatenate([ends[0], spread, ends[1]])
            x = x[max(-low, 0) : x.shape[0] - max(-high, 0)]
            x = np.moveaxis(x, 0, axis)
        return x

    def sort(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.sort(x, axis=axis, kind="stable")

    def top_k(self, x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        sign = np.signbit(x) if is_float(x.dtype.name) else np.zeros(x.shape)  # -0.0 < 0.0 here
        order = np.lexsort((sign, -x.astype(np.float64)), axis=-1)[..., :k]
        return np.take_along_axis(x, order, -1), order

    def cumulative(self, x: np.ndarray, name: str, axis: int, reverse: bool) -> np.ndarray:
        ufunc = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum,
                 "cummin": np.minimum, "cumlogsumexp": np.logaddexp}[name]  # fmt: skip
        flip = (lambda y: np.flip(y, axis)) if reverse else (lambda y: y)
        return flip(ufunc.accumulate(flip(x), axis=axis, dtype=x.dtype))

    def dynamic_slice(self, x: np.ndarray, start: Any, axis: int, size: int) -> np.ndarray:
        at = _clamped(start, x.shape[axis], size)
        return np.take(x, range(at, at + size), axis)

    def dynamic_update_slice(self, x: Any, update: Any, start: Any, axis: int) -> np.ndarray:
        at = _clamped(start, x.shape[axis], update.shape[axis])
        out = x.copy()
        index = [slice(None)] * x.ndim
        index[axis] = slice(at, at + update.shape[axis])
        out[tuple(index)] = update
        return out

    def scatter(self, x: Any, indices: np.ndarray, updates: Any, how: str) -> np.ndarray:
        """Rows of `x` at `indices` (negative ones count from the end), beyond it dropped."""
        n = x.shape[0]
        where = np.where(indices < 0, indices + n, indices)
        ok = (where >= 0) & (where < n)
        out = x.copy()
        ufunc = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
        ufunc[how].at(out, where[ok], updates[ok])
        return out

    def scatter_set(self, x: Any, indices: np.ndarray, rows: Any) -> np.ndarray:
        inside, out = indices < x.shape[0], x.copy()
        out[indices[inside]] = rows[inside]
        return out

    def take_or_fill(self, x: Any, indices: np.ndarray) -> np.ndarray:
        n = x.shape[0]
        where = np.where(indices < 0, indices + n, indices)
        inside = np.reshape((where >= 0) & (where < n), (*indices.shape, *(1,) * (x.ndim - 1)))
        return np.where(inside, x[np.clip(where, 0, n - 1)], x.dtype.type(1))

    def associative_scan(self, combine: Any, xs: Any, axis: int, reverse: bool) -> Any:
        arrays = xs if isinstance(xs, tuple) else (xs,)
        rows = [np.moveaxis(x, axis, 0) for x in arrays]
        places = range(len(rows[0]))
        made: list[Any] = []
        for i in reversed(places) if reverse else places:
            here = tuple(x[i] for x in rows)
            here = here if isinstance(xs, tuple) else here[0]
            made.append(combine(made[-1], here) if made else here)
        made = made[::-1] if reverse else made
        columns = list(zip(*made)) if isinstance(xs, tuple) else [made]
        found = tuple(np.moveaxis(np.stack(c), 0, axis) for c in columns)
        return found if isinstance(xs, tuple) else found[0]

    def sort_together(self, xs: Any, axis: int) -> Any:
        order = np.argsort(xs[0], axis=axis, kind="stable")
        return tuple(np.take_along_axis(x, order, axis) for x in xs)

    def through_ref(self, x: Any, row: Any, at: Any, add: bool) -> Any:
        out = x.copy()
        out[at] = out[at] + row if add else row
        return out, out[x.shape[0] // 2]

    def take(self, x: np.ndarray, indices: np.ndarray, axis: int, mode: str) -> np.ndarray:
        n = x.shape[axis]
        where = np.where(indices < 0, indices + n, indices) if mode == "fill" else indices
        where = where.astype(np.int64)
        if mode == "clip":
            return np.take(x, where, axis, mode="clip")
        if mode == "wrap":
            return np.take(x, where, axis, mode="wrap")
        raise NotImplementedError(mode)

    def window(self, x: Any, how: str, sizes: Any, strides: Any, pads: Any) -> np.ndarray:
        start = {"add": 0, "max": _least(x.dtype), "min": _most(x.dtype)}[how]
        padded = np.pad(x, pads, constant_values=start)
        views = np.lib.stride_tricks.sliding_window_view(padded, sizes)
        views = views[tuple(slice(None, None, s) for s in strides)]
        axes = tuple(range(x.ndim, 2 * x.ndim))
        if how == "add":
            return views.sum(axes, dtype=x.dtype)
        return {"max": np.max, "min": np.min}[how](views, axes)

    def conv(
        self, x: np.ndarray, w: np.ndarray, strides: Any, pads: Any, dilation: Any, groups: int,
        apart: Any,
    ) -> np.ndarray:  # fmt: skip
        """Batch, channels, space, with weights of outputs, inputs of a group, space."""
        x = self.pad(x, [(0, 0, 0), (0, 0, 0), *((*p, n - 1) for p, n in zip(pads, apart))])
        space = w.shape[2:]
        reach = [(k - 1) * d + 1 for k, d in zip(space, dilation)]
        views = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, x.ndim)))
        step = tuple(slice(None, None, s) for s in strides)
        views = views[(slice(None), slice(None), *step, *(slice(None, None, d) for d in dilation))]
        per, outs = w.shape[1], w.shape[0] // groups
        letters = "xyz"[: len(space)]
        out = letters.upper()
        parts = [
            np.einsum(
                f"bc{out}{letters},oc{letters}->bo{out}",
                views[:, g * per : (g + 1) * per],
                w[g * outs : (g + 1) * outs],
            )
            for g in range(groups)
        ]
        return np.concatenate(parts, 1).astype(x.dtype)

    # Control flow and transforms

    def cond(self, choice: Any, programs: Sequence[Program], *xs: Any) -> list[Any]:
        return self.call(programs[int(np.clip(choice, 0, len(programs) - 1))], *xs)

    def while_loop(self, program: Program, limit: Any, *carry: Any) -> list[Any]:
        """The body until its counter reaches the limit; bodies take and return what is carried."""
        for i in range(int(limit)):
            carry = tuple(self.call(program, np.int32(i), *carry))
        return list(carry)

    fori_loop = while_loop

    def scan(
        self, program: Program, carried: int, reverse: bool, unroll: int | bool, *xs: Any
    ) -> list[Any]:
        carry, rows = list(xs[:carried]), xs[carried:]
        n = len(rows[0])
        ys: list[Any] = [None] * n
        for i in reversed(range(n)) if reverse else range(n):
            made = self.call(program, *carry, *(x[i] for x in rows))
            carry, ys[i] = made[:carried], made[carried:]
        return carry + [np.stack(column) for column in zip(*ys)]

    def vmap(self, program: Program, in_axes: Sequence[int | None], out: int, *xs: Any) -> list:
        n = next(x.shape[a] for x, a in zip(xs, in_axes) if a is not None)
        one = lambda i: [x if a is None else np.take(x, i, a) for x, a in zip(xs, in_axes)]
        columns = zip(*(self.call(program, *one(i)) for i in range(n)))
        return [np.stack(c, min(out, c[0].ndim)) for c in columns]

    def jit(self, program: Program, *xs: Any) -> list[Any]:
        return self.call(program, *xs)

    checkpoint = checkpoint_dots = checkpoint_all = checkpoint_none = donate = jit
    custom_jvp = custom_vjp = custom_vmap = closed_over_by_scan = closed_over_by_cond = jit

    def collective(self, program: Program, how: str, *xs: Any) -> np.ndarray:
        rows = self.vmap(program, [0] * len(xs), 0, *xs)[0]
        if how == "ppermute":
            return np.roll(rows, 1, 0)
        if how == "all_gather":
            return np.stack([rows] * len(rows))
        combine = {"psum": np.sum, "pmax": np.max, "pmin": np.min}[how]
        return np.stack([combine(rows, 0).astype(rows.dtype)] * len(rows))

    def map_rows(self, program: Program, batch: int | None, *xs: Any) -> list[Any]:
        return self.vmap(program, [0] * len(xs), 0, *xs)

    def jvp(self, program: Program, x: Any, tangent: Any, *rest: Any) -> list[Any]:
        """The first output of a program and its derivative along the first input."""
        slope = self._slope(program, x, tangent, rest)
        return [self.call(program, x, *rest)[0], slope]

    def grad(self, program: Program, x: Any, *rest: Any) -> list[Any]:
        """The gradient of the sum of the first output by the first input."""
        slopes = [np.sum(s) for s in self._slopes(program, x, rest)]
        return [np.reshape(slopes, x.shape)]

    def hessian(self, program: Program, x: Any, *rest: Any) -> np.ndarray:
        """Second differences of the sum of the first output; two steps must agree."""
        start, units = self.place, np.eye(x.size).reshape(x.size, *x.shape)

        def at(y: Any) -> float:
            self.place = start
            return float(np.sum(np.asarray(self.call(program, y, *rest)[0], np.float64)))

        def second(u: Any, v: Any, h: float) -> float:
            u, v = h * u, h * v
            return (at(x + u + v) - at(x + u - v) - at(x - u + v) + at(x - u - v)) / (4 * h * h)

        pairs = [(u, v) for u in units for v in units]
        coarse, fine = (np.array([second(u, v, h) for u, v in pairs]) for h in (2e-3, 1e-3))
        with np.errstate(all="ignore"):
            if not np.all(np.abs(coarse - fine) <= 1e-3 * (1 + np.abs(fine))):
                raise Unfit("not twice differentiable here")
        found = fine + (fine - coarse) / 3
        if self.seed is not None:
            noise = np.random.default_rng(self.seed).uniform(-1, 1, found.shape)
            found = found + 1e-5 * (1 + np.abs(found)) * noise
        return found.reshape(x.shape * 2)

    def jacobian(self, program: Program, forward: bool, x: Any, *rest: Any) -> np.ndarray:
        """The derivatives of the first output by each element of the first input."""
        slopes = np.stack(self._slopes(program, x, rest), -1)
        return slopes.reshape((*slopes.shape[:-1], *x.shape))

    def _slopes(self, program: Program, x: Any, rest: Any) -> list[np.ndarray]:
        """The slope along each element of the first input."""
        directions = np.eye(x.size).reshape(x.size, *x.shape)
        return [self._slope(program, x, direction, rest) for direction in directions]

    def _slope(self, program: Program, x: Any, direction: Any, rest: Any) -> np.ndarray:
        """A central difference; a kink between its points makes the program unfit."""
        # Differences of differences are noise if steps are equally short.
        step = 3e-4 if program.names() & {"grad", "jvp", "jacobian", "hessian"} else 1e-6
        start = self.place

        def at(h: float) -> np.ndarray:
            self.place = start
            return np.asarray(self.call(program, x + h * direction, *rest)[0], np.float64)

        far, near, here, back = at(step), at(step / 2), at(0.0), at(-step)
        slope = (far - back) / (2 * step)
        sides = (near - here) / (step / 2), (here - back) / step
        with np.errstate(all="ignore"):
            if not np.all(np.abs(sides[0] - sides[1]) <= 1e-3 * (1 + np.abs(slope))):
                raise Unfit("not differentiable here")
        if self.seed is not None:  # its terms may cancel, so that what is left is all rounding
            slope = slope + 1e-6 * np.random.default_rng(self.seed).uniform(-1, 1, slope.shape)
        return slope


def _clamped(start: Any, n: int, size: int) -> int:
    """Where a slice begins: negative places count from the end, and it fits in."""
    return int(np.clip(start + n if start < 0 else start, 0, n - size))


def _least(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _most(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max
