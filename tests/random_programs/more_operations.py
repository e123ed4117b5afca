"""More of the table: contractions, factorizations, scans of one's own, references, Jacobians."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .operations import Drawn, _carried, _int, _number, _real, operation
from .program import Program, Type

if TYPE_CHECKING:
    from .draw import Draft


def _draw_contraction(d: Draft) -> Drawn:
    """Two values, some of whose axes of equal length are batched, some contracted."""
    i = d.pick(lambda t: _number(t) and 1 < t.rank < 4 and t.size > 0)
    if i is None:
        return None
    t = d.types[i]
    j = d.pick(
        lambda u: (
            u.dtype == t.dtype and 0 < u.rank < 4 and u.size > 0 and set(u.shape) & set(t.shape)
        )
    )
    if j is None:
        return None
    left, right = "abc"[: t.rank], list("xyz"[: d.types[j].rank])
    shared = []
    for k, n in enumerate(d.types[j].shape):
        same = [c for c, m in zip(left, t.shape) if m == n and c not in right]
        if same and d.rng.random() < 0.7:
            right[k] = d.rng.choice(same)
            shared.append(right[k])
    batch = [c for c in shared if d.rng.random() < 0.4]
    out = [c for c in (*left, *right) if c not in shared] + batch
    d.rng.shuffle(out)
    sizes = dict(zip((*left, *right), (*t.shape, *d.types[j].shape)))
    depth = math.prod(sizes[c] for c in shared if c not in batch)
    formula = f"{left},{''.join(right)}->{''.join(out)}"
    shape = tuple(sizes[c] for c in out)
    return (i, j), {"formula": formula, "depth": depth}, (Type(shape, t.dtype),)


@operation(_draw_contraction, 2)
def einsum(lib: Any, x: Any, y: Any, formula: str, depth: int) -> Any:
    scale = 1 if x.dtype.kind in "iu" else 1 / depth
    return lib.np.einsum(formula, x * lib.constant(scale, x), y)


def _draw_solve(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.dtype == "float32" and t.rank > 1 and t.size > 0 and t.shape[-2] < 9)
    if i is None:
        return None
    t = d.types[i]
    j = d.pick(lambda u: u.dtype == t.dtype and u.shape[:-1] == t.shape[:-1] and u.size > 0)
    kind = d.rng.choice(["solve", "cholesky"])
    out = d.types[j].shape if kind == "solve" else (*t.shape[:-1], t.shape[-2])
    return (i, j), {"kind": kind}, (Type(out, t.dtype),)


@operation(_draw_solve, 0.7)
def factorize(lib: Any, x: Any, y: Any, kind: str) -> Any:
    """With the positive definite matrix of the rows of `x`, kept small and far from singular."""
    n, np_ = x.shape[-2], lib.np
    x = np_.tanh(x) * lib.constant(1 / x.shape[-1], x)
    a = np_.matmul(x, np_.swapaxes(x, -1, -2)) + np_.eye(n, dtype=x.dtype)
    return np_.linalg.cholesky(a) if kind == "cholesky" else np_.linalg.solve(a, y)


def _draw_fft(d: Draft) -> Drawn:
    made = lambda t, axis: Type(t.shape, "complex64")
    return d.along(lambda t: t.dtype in ("float32", "complex64"), made, inverse=[False, True])


@operation(_draw_fft, 0.7)
def fft(lib: Any, x: Any, axis: int, inverse: bool) -> Any:
    name = "ifft" if inverse else "fft"
    return getattr(lib.np.fft, name)(x * lib.constant(1 / math.sqrt(x.shape[axis]), x), axis=axis)


@operation(lambda d: d.along(_int, lambda t, axis: Type(
    tuple(n for k, n in enumerate(t.shape) if k != axis), t.dtype),
    name=["bitwise_and", "bitwise_or", "bitwise_xor"]), 0.5)  # fmt: skip
def reduce_bits(lib: Any, x: Any, axis: int, name: str) -> Any:
    return getattr(lib.np, name).reduce(x, axis=axis)


@operation(lambda d: d.along(_real, lambda t, axis: t, name=["add", "maximum", "product"],
                             reverse=[False, True]), 1.2)  # fmt: skip
def associative_scan(lib: Any, x: Any, axis: int, name: str, reverse: bool) -> Any:
    """Prefixes of sums, maxima, or products with sums: `(a, b) (c, d) = (ac, bc + d)`."""
    if name != "product":
        return lib.associative_scan(getattr(lib.np, name), x, axis, reverse)
    factor = x if x.dtype.kind in "iu" else lib.np.cos(x)
    combine = lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1])
    return lib.associative_scan(combine, (factor, x), axis, reverse)[1]


def _draw_sort_rows(d: Draft) -> Drawn:
    i = d.pick(lambda t: _int(t) and t.rank > 0 and t.size > 0)
    if i is None:
        return None
    t = d.types[i]
    others = [d.pick(lambda u: u.shape == t.shape and u.dtype != "bool")
              for _ in range(d.rng.randint(1, 2))]  # fmt: skip
    axis, operands = d.rng.randrange(t.rank), (i, *others)
    return operands, {"axis": axis}, tuple(d.types[k] for k in operands)


@operation(_draw_sort_rows)
def sort_together(lib: Any, *xs: Any, axis: int) -> Any:
    """All by the first, equal ones in their order."""
    return lib.sort_together(xs, axis)


def _draw_place(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and 0 < t.shape[0] < 200)
    if i is None:
        return None
    t = d.types[i]
    j = d.pick(lambda u: u == Type(t.shape[1:], t.dtype))
    at = d.pick(lambda u: u == Type((), "int32"))
    return (i, j, at), {"add": _number(t) and d.rng.random() < 0.6}, (t, Type(t.shape[1:], t.dtype))


@operation(_draw_place, 1.5)
def through_ref(lib: Any, x: Any, row: Any, at: Any, add: bool) -> Any:
    """Writes a row of a reference to `x` and reads another; what it holds then, and that row."""
    n = x.shape[0]
    return lib.through_ref(x, row, lib.np.mod(at, np.int32(n)), add)


def _draw_set(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and t.shape[0] > 1 and t.size > 0)
    if i is None:
        return None
    t = d.types[i]
    j = d.pick(lambda u: (u.dtype, u.rank) == (t.dtype, t.rank) and u.shape[1:] == t.shape[1:]
               and 0 < u.shape[0] <= t.shape[0])  # fmt: skip
    at = d.pick(lambda u: u == Type((), "int32"))
    return (i, j, at), {}, (t,)


@operation(_draw_set)
def scatter_set(lib: Any, x: Any, rows: Any, at: Any) -> Any:
    """Rows of `x` replaced, at places that differ and, some of them, lie beyond the end."""
    where = lib.np.arange(rows.shape[0], dtype=np.int32) + lib.np.mod(at, np.int32(x.shape[0]))
    return lib.scatter_set(x, where, rows)


def _draw_fill(d: Draft) -> Drawn:
    i = d.pick(lambda t: _number(t) and t.rank > 0 and t.size > 0)
    at = d.pick(lambda t: t.dtype == "int32" and t.rank < 3 and t.size < 200)
    if i is None or at is None:
        return None
    shape = (*d.types[at].shape, *d.types[i].shape[1:])
    return (i, at), {}, (Type(shape, d.types[i].dtype),)


@operation(_draw_fill)
def take_or_fill(lib: Any, x: Any, at: Any) -> Any:
    """Rows of `x`, those beyond its ends being ones."""
    return lib.take_or_fill(x, at)


def _draw_jacobian(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.dtype == "float32" and 0 < t.size <= 9)
    rest = _carried(d, 2)
    if i is None or rest is None:
        return None
    forward = d.rng.random() < 0.5
    # Forward mode batches tangents only: what is written to a reference mixes them with its values.
    banned = ["custom_vjp", "through_ref"] if forward else ["while_loop"]
    body = d.body([i, *rest], smooth=True, banned=banned)
    if body is None:
        return None
    shape = (*body.output_types[0].shape, *d.types[i].shape)
    return (i, *rest), {"body": body, "forward": forward}, (Type(shape, "float32"),)


@operation(_draw_jacobian, 2)
def jacobian(lib: Any, x: Any, *rest: Any, body: Program, forward: bool) -> Any:
    return lib.jacobian(body, forward, x, *rest)


def _draw_hessian(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.dtype == "float32" and 0 < t.size <= 5)
    rest = _carried(d, 2)
    if i is None or rest is None:
        return None
    # Differences of differences of what differentiates are noise.
    banned = ["custom_vjp", "through_ref", "while_loop", "grad", "jvp", "jacobian", "hessian"]
    body = d.body([i, *rest], smooth=True, banned=banned)
    if body is None or body.dtypes() & {"float16", "bfloat16"}:
        return None
    shape = d.types[i].shape * 2
    return (i, *rest), {"body": body}, (Type(shape, "float32"),)


@operation(_draw_hessian, 3)
def hessian(lib: Any, x: Any, *rest: Any, body: Program) -> Any:
    """Forward over reverse."""
    return lib.hessian(body, x, *rest)


def _drawn_rows(d: Draft) -> tuple[int, list[Any], Program | None]:
    """The length of the first axis of two operands, these, and a program of their rows, if any."""
    row = d.pick(lambda t: t.rank > 0 and t.size > 0 and t.shape[0] < 10)
    if row is None:
        return 0, [], None
    n = d.types[row].shape[0]
    rows = [row, d.pick(lambda t: t.rank > 0 and t.shape[0] == n and t.size > 0)]
    return n, rows, d.body([], slices=[(r, 0) for r in rows])


def _draw_collective(d: Draft) -> Drawn:
    n, rows, body = _drawn_rows(d)
    if body is None or not _real(body.output_types[0]):
        return None
    t = body.output_types[0]
    how = d.rng.choice(["psum", "pmax", "pmin", "all_gather", "ppermute"])
    shape = (n, n, *t.shape) if how == "all_gather" else (n, *t.shape)
    return tuple(rows), {"body": body, "how": how}, (Type(shape, t.dtype),)


@operation(_draw_collective, 2)
def collective(lib: Any, *xs: Any, body: Program, how: str) -> Any:
    return lib.collective(body, how, *xs)


def _draw_map(d: Draft) -> Drawn:
    n, rows, body = _drawn_rows(d)
    if body is None:
        return None
    types = tuple(Type((n, *t.shape), t.dtype) for t in body.output_types)
    return tuple(rows), {"body": body, "batch": d.rng.choice([None, 2, 3])}, types


@operation(_draw_map)
def map_rows(lib: Any, *xs: Any, body: Program, batch: int | None) -> Any:
    return lib.map_rows(body, batch, *xs)
