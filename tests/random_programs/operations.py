"""The table of operations: how each is drawn for the values at hand, and what it computes.

`draw(d)` takes a `Draft` and returns `(operands, params, types)`, or None where nothing fits.
`run(lib, *operands, **params)` says it in terms of a library (`reference`, `libraries`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .program import Program, Type
from .reference import is_complex, is_float

if TYPE_CHECKING:
    from .draw import Draft

Drawn = tuple[tuple[int, ...], dict[str, Any], tuple[Type, ...]] | None


@dataclass(frozen=True)
class Operation:
    """How a step is drawn, what it computes, how often it is tried."""

    draw: Callable[[Draft], Drawn]
    run: Callable[..., Any]
    weight: float = 1.0


OPERATIONS: dict[str, Operation] = {}


def operation(draw: Callable[[Draft], Drawn], weight: float = 1.0) -> Any:
    def register(run: Callable[..., Any]) -> Any:
        OPERATIONS[run.__name__] = Operation(draw, run, weight)
        return run

    return register


def _float(t: Type) -> bool:
    return is_float(t.dtype)


def _int(t: Type) -> bool:
    return "int" in t.dtype


def _real(t: Type) -> bool:
    return t.dtype != "bool" and not is_complex(t.dtype)


def _ranked(t: Type) -> bool:
    """Whether rounding rarely says which of two values is greater."""
    return _real(t) and t.dtype not in ("float16", "bfloat16")


def _number(t: Type) -> bool:
    return t.dtype != "bool"


# One element from those at the same place


def _elementwise(kind: Callable[[Type], bool], names: str, operands: int = 1) -> Any:
    def draw(d: Draft) -> Drawn:
        i = d.pick(kind)
        if i is None:
            return None
        t = d.types[i]
        others = [d.pick(lambda u: u == t) for _ in range(operands - 1)]
        return (i, *others), {"name": d.rng.choice(names.split())}, (t,)

    return draw


UNARY = "sin cos tanh arctan exp sqrt log rsqrt erf logistic square expm1 log1p floor ceil round"


@operation(_elementwise(_float, UNARY), 3)
def unary(lib: Any, x: Any, name: str) -> Any:
    if name in ("sqrt", "log", "rsqrt"):
        x = lib.np.abs(x) + lib.constant(0.5, x)
    if name in ("exp", "expm1"):
        x = lib.np.minimum(x, lib.constant(3, x))
    if name == "log1p":
        x = lib.np.abs(x)
    own = name in ("rsqrt", "erf", "logistic")
    return getattr(lib, name)(x) if own else getattr(lib.np, name)(x)


@operation(_elementwise(_real, "negative abs sign", 1))
def sign(lib: Any, x: Any, name: str) -> Any:
    return getattr(lib.np, name)(x)


@operation(_elementwise(lambda t: is_complex(t.dtype), "conj exp sin tanh sqrt"))
def complex_unary(lib: Any, x: Any, name: str) -> Any:
    if name in ("exp", "sin", "tanh"):
        x = x / (1 + lib.np.abs(x)).astype(x.dtype)
    if name == "sqrt":  # away from the cut
        x = x * x.conj() + lib.constant(0.5 + 0.5j, x)
    return getattr(lib.np, name)(x)


@operation(lambda d: d.on(lambda t: t.dtype == "complex64", lambda t: t.shape, "float32",
                          name=["real", "imag", "abs"]))  # fmt: skip
def complex_part(lib: Any, x: Any, name: str) -> Any:
    return getattr(lib.np, name)(x)


@operation(lambda d: d.on(_float, lambda t: t.shape, "complex64"), 0.3)
def make_complex(lib: Any, x: Any) -> Any:
    x = lib.convert(x, "float32", "float32") if x.dtype.itemsize != 4 else x
    return x + lib.np.cos(x) * lib.np.asarray(1j, np.complex64)


@operation(_elementwise(_number, "add subtract multiply", 2), 3)
def binary(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, y)


@operation(_elementwise(_float, "divide arctan2 logaddexp hypot power", 2))
def float_binary(lib: Any, x: Any, y: Any, name: str) -> Any:
    if name in ("divide", "hypot", "arctan2", "power"):
        y = lib.np.abs(y) + lib.constant(0.5, y)
    if name == "power":
        return lib.np.power(y, lib.np.tanh(x))
    return getattr(lib.np, name)(x, y)


@operation(_elementwise(_real, "maximum minimum", 2))
def extremum(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, y)


@operation(_elementwise(_int, "bitwise_and bitwise_or bitwise_xor left_shift right_shift", 2))
def bits(lib: Any, x: Any, y: Any, name: str) -> Any:
    if "shift" in name:
        y = lib.np.bitwise_and(y, lib.constant(7, y))
    return getattr(lib.np, name)(x, y)


@operation(_elementwise(_int, "floor_divide remainder fmod", 2))
def int_divide(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, lib.np.bitwise_or(y, lib.constant(1, y)))


@operation(_elementwise(_int, "invert population_count", 1))
def int_unary(lib: Any, x: Any, name: str) -> Any:
    return lib.population_count(x) if name == "population_count" else lib.np.invert(x)


@operation(_elementwise(_real, "clip", 1))
def clip(lib: Any, x: Any, name: str) -> Any:
    low = 1 if x.dtype.kind == "u" else -2
    return lib.np.clip(x, lib.constant(low, x), lib.constant(3, x))


@operation(lambda d: d.pair(_ranked, "bool", name=["less", "greater_equal"]))
def compare(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, y)


# Whether floats are equal is for rounding to say.
@operation(lambda d: d.pair(_int, "bool", name=["equal", "not_equal"]))
def equality(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, y)


@operation(_elementwise(lambda t: t.dtype == "bool", "logical_and logical_or logical_xor", 2))
def logic(lib: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(lib.np, name)(x, y)


def _draw_select(d: Draft) -> Drawn:
    mask = d.pick(lambda t: t.dtype == "bool")
    if mask is None:
        return None
    shape = d.types[mask].shape
    i = d.pick(lambda t: t.shape == shape)
    j = d.pick(lambda t: t == d.types[i])
    return (mask, i, j), {}, (d.types[i],)


@operation(_draw_select, 2)
def select(lib: Any, mask: Any, x: Any, y: Any) -> Any:
    return lib.np.where(mask, x, y)


def _draw_convert(d: Draft) -> Drawn:
    i = d.pick(_number if d.rng.random() < 0.7 else lambda t: True)
    if i is None or is_complex(d.types[i].dtype):
        return None
    old = d.types[i].dtype
    new = d.rng.choice([x for x in d.dtypes if x != "bool" and not is_complex(x)])
    return (i,), {"old": old, "new": new}, (Type(d.types[i].shape, new),)


@operation(_draw_convert, 1.5)
def convert(lib: Any, x: Any, old: str, new: str) -> Any:
    if is_float(old) and not is_float(new):  # in range of all, unsigned bytes included
        x = lib.np.abs(lib.np.tanh(x)) * lib.constant(100, x)
    return lib.convert(x, old, new)


def _draw_mix(d: Draft) -> Drawn:
    """An array and a number of the same dtype."""
    i = d.pick(lambda t: _number(t) and t.rank > 0)
    j = None if i is None else d.pick(lambda t: t == Type((), d.types[i].dtype))
    return None if j is None else ((i, j), {}, (d.types[i],))


@operation(_draw_mix)
def with_scalar(lib: Any, x: Any, y: Any) -> Any:
    return x * y + x


# Shapes


def _draw_transpose(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 1)
    if i is None:
        return None
    t = d.types[i]
    order = tuple(d.rng.sample(range(t.rank), t.rank))
    return (i,), {"order": order}, (Type(tuple(t.shape[k] for k in order), t.dtype),)


@operation(_draw_transpose, 1.5)
def transpose(lib: Any, x: Any, order: tuple[int, ...]) -> Any:
    return lib.np.transpose(x, order)


def _draw_reshape(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.size > 0)
    if i is None:
        return None
    n = d.types[i].size
    k = d.rng.choice([k for k in range(1, n + 1) if n % k == 0])
    shape = d.rng.choice([(k, n // k), (n,), (1, k, n // k), (k, 1, n // k), (n // k, k)])
    return (i,), {"shape": shape}, (Type(shape, d.types[i].dtype),)


@operation(_draw_reshape)
def reshape(lib: Any, x: Any, shape: tuple[int, ...]) -> Any:
    return lib.np.reshape(x, shape)


def _draw_broadcast(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank < 4)
    if i is None:
        return None
    t = d.types[i]
    shape = tuple(d.rng.choice([1, 2, 5]) if n == 1 else n for n in t.shape)
    if d.rng.random() < 0.7:
        shape = (d.rng.choice([1, 2, 3, 9]), *shape)
    return (i,), {"shape": shape}, (Type(shape, t.dtype),)


@operation(_draw_broadcast)
def broadcast(lib: Any, x: Any, shape: tuple[int, ...]) -> Any:
    return lib.np.broadcast_to(x, shape)


def _draw_slices(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0)
    if i is None:
        return None
    t, slices = d.types[i], []
    for n in t.shape:
        step = d.rng.choice([1, 1, 2, 3, -1, -2])
        start = d.rng.randrange(n // 2 + 1)
        slices.append((start, None, step) if step > 0 else (None, start or None, step))
    shape = tuple(len(range(n)[slice(*s)]) for n, s in zip(t.shape, slices))
    return (i,), {"slices": tuple(slices)}, (Type(shape, t.dtype),)


@operation(_draw_slices)
def slices(lib: Any, x: Any, slices: tuple[Any, ...]) -> Any:
    return x[tuple(slice(*s) for s in slices)]


def _draw_pad(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0)
    if i is None:
        return None
    t = d.types[i]
    r = d.rng.randrange
    config = tuple((r(-1, 3), r(-1, 3), r(3) if n > 1 else 0) for n in t.shape)
    shape = tuple(max(n + max(n - 1, 0) * k, 0) + a + b for n, (a, b, k) in zip(t.shape, config))
    return None if min(shape) < 0 else ((i,), {"config": config}, (Type(shape, t.dtype),))


@operation(_draw_pad)
def pad(lib: Any, x: Any, config: Any) -> Any:
    return lib.pad(x, config)


def _draw_join(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0)
    if i is None:
        return None
    t = d.types[i]
    axis = d.rng.randrange(t.rank)
    apart = lambda u: (
        (u.dtype, u.rank) == (t.dtype, t.rank)
        and all(n == m for k, (n, m) in enumerate(zip(u.shape, t.shape)) if k != axis)
    )
    chosen = [i] + [d.pick(apart) for _ in range(d.rng.randint(1, 2))]
    length = sum(d.types[k].shape[axis] for k in chosen)
    shape = (*t.shape[:axis], length, *t.shape[axis + 1 :])
    return tuple(chosen), {"axis": axis}, (Type(shape, t.dtype),)


@operation(_draw_join)
def concatenate(lib: Any, *xs: Any, axis: int) -> Any:
    return lib.np.concatenate(xs, axis)


def _draw_iota(d: Draft) -> Drawn:
    i = d.pick(lambda t: _number(t) and t.rank > 0)
    if i is None:
        return None
    return (i,), {"axis": d.rng.randrange(d.types[i].rank)}, (d.types[i],)


@operation(_draw_iota)
def iota(lib: Any, x: Any, axis: int) -> Any:
    """Adds small numbers that differ along an axis."""
    n = x.shape[axis]
    numbers = (lib.np.arange(n, dtype=np.int32) % 3).astype(x.dtype)
    return x + numbers.reshape([n if k == axis else 1 for k in range(x.ndim)])


# Reductions and what runs along an axis


def _draw_reduction(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and t.size > 0)
    if i is None:
        return None
    t = d.types[i]
    names = ["all", "any"] if t.dtype == "bool" else ["sum", "max", "min"]
    names = ["sum"] if is_complex(t.dtype) else names
    axes = tuple(sorted(d.rng.sample(range(t.rank), d.rng.randint(1, t.rank))))
    keep = d.rng.random() < 0.3
    shape = tuple(1 if k in axes else n for k, n in enumerate(t.shape) if keep or k not in axes)
    params = {"name": d.rng.choice(names), "axes": axes, "keep": keep}
    return (i,), params, (Type(shape, t.dtype),)


@operation(_draw_reduction, 2.5)
def reduce(lib: Any, x: Any, name: str, axes: Any, keep: bool) -> Any:
    more = {"dtype": x.dtype} if name == "sum" else {}
    return getattr(lib.np, name)(x, axis=axes, keepdims=keep, **more)


@operation(lambda d: d.along(_float, lambda t, axis: t))
def softmax(lib: Any, x: Any, axis: int) -> Any:
    e = lib.np.exp(x - lib.np.max(x, axis=axis, keepdims=True))
    return e / lib.np.sum(e, axis=axis, keepdims=True)


def _spreads(t: Type) -> bool:
    """Of one element only rounding is left, which perturbed values do not show."""
    return _float(t) and 1 not in t.shape


@operation(lambda d: d.along(_spreads, lambda t, axis: t))
def normalize(lib: Any, x: Any, axis: int) -> Any:
    y = x - lib.np.mean(x, axis=axis, keepdims=True)
    spread = lib.np.mean(lib.np.square(y), axis=axis, keepdims=True)
    return y * lib.rsqrt(spread + lib.constant(0.5, x))


def _drop(t: Type, axis: int, dtype: str) -> Type:
    return Type(tuple(n for k, n in enumerate(t.shape) if k != axis), dtype)


@operation(lambda d: d.along(_ranked, lambda t, a: _drop(t, a, "int32"), name=["argmax", "argmin"]))
def argument(lib: Any, x: Any, axis: int, name: str) -> Any:
    return getattr(lib.np, name)(x, axis=axis).astype(np.int32)


CUMULATIVE = ["cumsum", "cummax", "cummin", "cumprod"]


@operation(lambda d: d.along(_real, lambda t, a: t, name=CUMULATIVE, reverse=[False, True]), 1.5)
def cumulative(lib: Any, x: Any, axis: int, name: str, reverse: bool) -> Any:
    if name == "cumprod" and x.dtype.kind not in "iu":
        x = lib.np.cos(x)
    return lib.cumulative(x, name, axis, reverse)


@operation(lambda d: d.along(_float, lambda t, a: t, reverse=[False, True]), 0.3)
def cumlogsumexp(lib: Any, x: Any, axis: int, reverse: bool) -> Any:
    return lib.cumulative(x, "cumlogsumexp", axis, reverse)


@operation(lambda d: d.along(_real, lambda t, a: t))
def sort(lib: Any, x: Any, axis: int) -> Any:
    return lib.sort(x, axis)


@operation(lambda d: d.along(_ranked, lambda t, a: Type(t.shape, "int32")), 0.7)
def argsort(lib: Any, x: Any, axis: int) -> Any:
    return lib.np.argsort(x, axis=axis, stable=True).astype(np.int32)


def _draw_top_k(d: Draft) -> Drawn:
    i = d.pick(lambda t: _ranked(t) and t.rank > 0 and t.shape[-1] > 1)
    if i is None:
        return None
    t = d.types[i]
    k = d.rng.randint(1, min(t.shape[-1], 9))
    shape = (*t.shape[:-1], k)
    return (i,), {"k": k}, (Type(shape, t.dtype), Type(shape, "int32"))


@operation(_draw_top_k, 0.7)
def top_k(lib: Any, x: Any, k: int) -> Any:
    return lib.top_k(x, k)


# Windows, products


def _draw_window(d: Draft) -> Drawn:
    i = d.pick(lambda t: _real(t) and 0 < t.rank < 4 and t.size > 0)
    if i is None:
        return None
    t = d.types[i]
    sizes = tuple(d.rng.randint(1, min(n, 3)) for n in t.shape)
    strides = tuple(d.rng.randint(1, 2) for _ in sizes)
    pads = tuple((d.rng.randint(0, k - 1), d.rng.randint(0, k - 1)) for k in sizes)
    shape = tuple((n + sum(p) - k) // s + 1 for n, p, k, s in zip(t.shape, pads, sizes, strides))
    how = d.rng.choice(["add", "max", "min"])
    return (
        (i,),
        {"how": how, "sizes": sizes, "strides": strides, "pads": pads},
        (Type(shape, t.dtype),),
    )


@operation(_draw_window, 1.2)
def window(lib: Any, x: Any, **params: Any) -> Any:
    return lib.window(x, **params)


def _draw_dot(d: Draft) -> Drawn:
    i = d.pick(lambda t: _number(t) and t.rank > 1 and t.shape[-1] > 0)
    if i is None:
        return None
    t = d.types[i]
    j = d.pick(lambda u: u.dtype == t.dtype and u.rank > 1 and u.shape[-1] == t.shape[-1]
               and (u.rank == 2 or u.shape[:-2] == t.shape[:-2]))  # fmt: skip
    u = d.types[j]
    return (i, j), {"depth": t.shape[-1]}, (Type((*t.shape[:-1], u.shape[-2]), t.dtype),)


@operation(_draw_dot, 2)
def dot(lib: Any, x: Any, y: Any, depth: int) -> Any:
    scale = 1 if x.dtype.kind in "iu" else 1 / max(depth, 1)
    return lib.np.matmul(x * lib.constant(scale, x), lib.np.swapaxes(y, -1, -2))


def _draw_conv(d: Draft) -> Drawn:
    i = d.pick(lambda t: _float(t) and t.rank in (3, 4) and t.size > 0 and t.shape[1] <= 16)
    if i is None:
        return None
    t = d.types[i]
    channels, space = t.shape[1], t.shape[2:]
    groups = d.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    sizes = tuple(d.rng.randint(1, min(n, 3)) for n in space)
    weights = (groups * d.rng.randint(1, 3), channels // groups, *sizes)
    need = math.prod(weights)
    j = d.pick(lambda u: u.dtype == t.dtype and u.size >= need)
    if j is None:
        return None
    strides = tuple(d.rng.randint(1, 2) for _ in space)
    dilation = tuple(d.rng.randint(1, 2) for _ in space)
    apart = tuple(d.rng.choice([1, 1, 1, 2]) for _ in space)
    reach = [(k - 1) * q + 1 for k, q in zip(sizes, dilation)]
    space = tuple((n - 1) * q + 1 for n, q in zip(space, apart))
    pads = tuple((d.rng.randint(0, r), d.rng.randint(0, r)) for r in reach)
    out = tuple((n + sum(p) - r) // s + 1 for n, p, r, s in zip(space, pads, reach, strides))
    if min(out) < 1:
        return None
    params = {"weights": weights, "strides": strides, "pads": pads, "dilation": dilation,
              "groups": groups, "apart": apart}  # fmt: skip
    return (i, j), params, (Type((t.shape[0], weights[0], *out), t.dtype),)


@operation(_draw_conv, 2)
def conv(lib: Any, x: Any, y: Any, weights: Any, **params: Any) -> Any:
    w = y.reshape(-1)[: math.prod(weights)].reshape(weights)
    return lib.conv(x, w * lib.constant(0.25, w), **params)


# Gather and scatter; indices reach beyond the ends on purpose


def _draw_take(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and t.size > 0)
    at = d.pick(lambda t: t.dtype == "int32" and t.rank < 3 and t.size < 200)
    if i is None or at is None:
        return None
    t, axis = d.types[i], d.rng.randrange(d.types[i].rank)
    shape = (*t.shape[:axis], *d.types[at].shape, *t.shape[axis + 1 :])
    return (i, at), {"axis": axis, "mode": d.rng.choice(["clip", "wrap"])}, (Type(shape, t.dtype),)


@operation(_draw_take, 1.5)
def take(lib: Any, x: Any, at: Any, axis: int, mode: str) -> Any:
    return lib.take(x, at, axis, mode)


def _draw_take_along(d: Draft) -> Drawn:
    at = d.pick(lambda t: t.dtype == "int32" and t.rank > 0 and t.size > 0)
    if at is None:
        return None
    shape = d.types[at].shape
    axis = d.rng.randrange(len(shape))
    i = d.pick(lambda u: u.rank == len(shape) and u.size > 0 and all(
        n == m for k, (n, m) in enumerate(zip(u.shape, shape)) if k != axis))  # fmt: skip
    return (i, at), {"axis": axis}, (Type(shape, d.types[i].dtype),)


@operation(_draw_take_along)
def take_along(lib: Any, x: Any, at: Any, axis: int) -> Any:
    return lib.np.take_along_axis(x, lib.np.mod(at, np.int32(x.shape[axis])), axis)


def _draw_scatter(d: Draft) -> Drawn:
    i = d.pick(lambda t: _number(t) and t.rank > 0 and t.size > 0)
    at = d.pick(lambda t: t.dtype == "int32" and t.rank == 1)
    if i is None or at is None:
        return None
    t, (n,) = d.types[i], d.types[at].shape
    updates = d.pick(lambda u: u == Type((n, *t.shape[1:]), t.dtype))
    if updates is None:
        updates = d.pick(lambda u: u == Type(t.shape[1:], t.dtype))
    if updates is None:
        return None
    names = ["add"] if is_complex(t.dtype) else ["add", "add", "max", "min"]
    params = {"how": d.rng.choice(names)}
    return (i, at, updates), params, (t,)


@operation(_draw_scatter, 3)
def scatter(lib: Any, x: Any, at: Any, updates: Any, how: str) -> Any:
    updates = lib.np.broadcast_to(updates, (*at.shape, *x.shape[1:]))
    return lib.scatter(x, at, updates, how)


def _draw_dynamic(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and t.size > 0)
    at = d.pick(lambda t: t == Type((), "int32"))
    if i is None or at is None:
        return None
    t = d.types[i]
    axis = d.rng.randrange(t.rank)
    size = d.rng.randint(1, t.shape[axis])
    shape = (*t.shape[:axis], size, *t.shape[axis + 1 :])
    return (i, at), {"axis": axis, "size": size}, (Type(shape, t.dtype),)


@operation(_draw_dynamic)
def dynamic_slice(lib: Any, x: Any, at: Any, axis: int, size: int) -> Any:
    return lib.dynamic_slice(x, at, axis, size)


def _draw_update(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.rank > 0 and t.size > 0)
    at = d.pick(lambda t: t == Type((), "int32"))
    if i is None or at is None:
        return None
    t = d.types[i]
    axis = d.rng.randrange(t.rank)
    update = d.pick(lambda u: (u.dtype, u.rank) == (t.dtype, t.rank) and all(
        m <= n if k == axis else n == m
        for k, (n, m) in enumerate(zip(t.shape, u.shape))))  # fmt: skip
    return (i, update, at), {"axis": axis}, (t,)


@operation(_draw_update, 1.5)
def dynamic_update_slice(lib: Any, x: Any, update: Any, at: Any, axis: int) -> Any:
    return lib.dynamic_update_slice(x, update, at, axis)


# Control flow and transforms: steps with programs inside


def _carried(d: Draft, most: int = 3) -> list[int] | None:
    chosen = [d.pick(lambda t: t.size < 3000) for _ in range(d.rng.randint(1, most))]
    return None if None in chosen else chosen


def _draw_cond(d: Draft) -> Drawn:
    choice = d.pick(lambda t: t.rank == 0 and t.dtype in ("bool", "int32"))
    chosen = _carried(d)
    if choice is None or chosen is None:
        return None
    count = 2 if d.types[choice].dtype == "bool" else 3
    first = d.body(chosen)
    if first is None:
        return None
    programs = [first]
    while len(programs) < count:
        body = d.body(chosen, wanted=first.output_types)
        if body is None:
            return None
        programs.append(body)
    return (choice, *chosen), {"programs": tuple(programs)}, first.output_types


@operation(_draw_cond, 2)
def cond(lib: Any, choice: Any, *xs: Any, programs: tuple[Program, ...]) -> Any:
    return lib.cond(choice, programs, *xs)


COUNTER = Type((), "int32")


def _draw_loop(d: Draft) -> Drawn:
    chosen = _carried(d)
    if chosen is None:
        return None
    types = tuple(d.types[i] for i in chosen)
    body = d.body(chosen, wanted=types, before=[(COUNTER, np.int32(0))])
    if body is None:
        return None
    return tuple(chosen), {"body": body, "limit": d.rng.choice([0, 1, 2, 3, 5])}, types


@operation(_draw_loop, 1.5)
def fori_loop(lib: Any, *carry: Any, body: Program, limit: int) -> Any:
    return lib.fori_loop(body, limit, *carry)


def _draw_while(d: Draft) -> Drawn:
    limit = d.pick(lambda t: t == COUNTER)
    drawn = _draw_loop(d)
    if drawn is None or limit is None:
        return None
    return (limit, *drawn[0]), {"body": drawn[1]["body"]}, drawn[2]


@operation(_draw_while, 1.5)
def while_loop(lib: Any, limit: Any, *carry: Any, body: Program) -> Any:
    return lib.while_loop(body, lib.np.mod(limit, np.int32(5)), *carry)


def _draw_scan(d: Draft) -> Drawn:
    chosen = _carried(d, 2)
    row = d.pick(lambda t: t.rank > 0 and 0 < t.shape[0] < 10)
    if chosen is None or row is None:
        return None
    n = d.types[row].shape[0]
    rows = [row, d.pick(lambda t: t.rank > 0 and t.shape[0] == n)]
    rows = rows[: d.rng.randint(1, 2)]
    carry = tuple(d.types[i] for i in chosen)
    body = d.body(chosen, slices=[(r, 0) for r in rows], wanted=carry, more=True)
    if body is None:
        return None
    ys = tuple(Type((n, *t.shape), t.dtype) for t in body.output_types[len(chosen) :])
    params = {"body": body, "carried": len(chosen), "reverse": d.rng.random() < 0.4,
              "unroll": d.rng.choice([1, 1, 2, 3, True])}  # fmt: skip
    return (*chosen, *rows), params, (*carry, *ys)


@operation(_draw_scan, 2)
def scan(lib: Any, *xs: Any, body: Program, carried: int, reverse: bool, unroll: int | bool) -> Any:
    return lib.scan(body, carried, reverse, unroll, *xs)


def _draw_vmap(d: Draft) -> Drawn:
    first = d.pick(lambda t: t.rank > 0 and 0 < min(t.shape) < 12)
    if first is None:
        return None
    t = d.types[first]
    axis = d.rng.choice([k for k, n in enumerate(t.shape) if 0 < n < 12])
    n = t.shape[axis]
    slices = [(first, axis)]
    for _ in range(d.rng.randint(0, 2)):
        i = d.pick(lambda t: n in t.shape)
        slices.append((i, d.rng.choice([k for k, m in enumerate(d.types[i].shape) if m == n])))
    whole = [i for i in (_carried(d, 2) or []) if d.rng.random() < 0.6]
    body = d.body(whole, slices=slices, steps=6)
    if body is None:
        return None
    out = d.rng.randint(0, 1)
    types = []
    for u in body.output_types:
        k = min(out, u.rank)
        types.append(Type((*u.shape[:k], n, *u.shape[k:]), u.dtype))
    in_axes = (*(None for _ in whole), *(a for _, a in slices))
    operands = (*whole, *(i for i, _ in slices))
    return operands, {"body": body, "in_axes": in_axes, "out": out}, tuple(types)


@operation(_draw_vmap, 3)
def vmap(lib: Any, *xs: Any, body: Program, in_axes: Any, out: int) -> Any:
    return lib.vmap(body, in_axes, out, *xs)


CALLS = {
    "jit", "donate", "checkpoint", "checkpoint_dots", "checkpoint_all", "checkpoint_none",
    "custom_jvp", "custom_vjp", "custom_vmap", "closed_over_by_scan", "closed_over_by_cond",
}  # fmt: skip


def _draw_call(d: Draft) -> Drawn:
    chosen = _carried(d)
    body = None if chosen is None else d.body(chosen)
    if body is None:
        return None
    how = d.rng.choice(sorted(CALLS - d.banned))
    return tuple(chosen), {"body": body, "how": how}, body.output_types


@operation(_draw_call, 1.5)
def call(lib: Any, *xs: Any, body: Program, how: str) -> Any:
    return getattr(lib, how)(body, *xs)


def _draw_jvp(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.dtype == "float32" and t.size > 0)
    rest = _carried(d, 2)
    if i is None or rest is None:
        return None
    tangent = d.pick(lambda t: t == d.types[i])
    body = d.body([i, *rest], smooth=True, banned=["custom_vjp"])  # has reverse mode only
    if body is None:
        return None
    out = body.output_types[0]
    return (i, tangent, *rest), {"body": body}, (out, out)


@operation(_draw_jvp, 1.5)
def jvp(lib: Any, x: Any, tangent: Any, *rest: Any, body: Program) -> Any:
    return lib.jvp(body, x, tangent, *rest)


def _draw_grad(d: Draft) -> Drawn:
    i = d.pick(lambda t: t.dtype == "float32" and 0 < t.size <= 24)
    rest = _carried(d, 2)
    if i is None or rest is None:
        return None
    body = d.body([i, *rest], smooth=True, banned=["while_loop"])  # has forward mode only
    return None if body is None else ((i, *rest), {"body": body}, (d.types[i],))


@operation(_draw_grad, 3)
def grad(lib: Any, x: Any, *rest: Any, body: Program) -> Any:
    return lib.grad(body, x, *rest)
