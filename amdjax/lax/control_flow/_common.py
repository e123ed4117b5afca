"""What the control-flow operations share: tracing of their bodies, checks, surgery on programs."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from amdjax.core.array import Array, asarray_concrete
from amdjax.core.aval import ShapedArray, abstract_types, get_aval, is_valid_value
from amdjax.core.config import config
from amdjax.core.effects import Effects, has_side_effects
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    close_jaxpr,
    hoist_consts,
    memoize_on_jaxpr,
)
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.promotion import result_type
from amdjax.core.pytree import (
    PyTreeDef,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_structure,
    tree_unflatten,
)
from amdjax.core.pytree_errors import equality_errors_pytreedef
from amdjax.core.ref import Ref, is_ref, refuse_aliases
from amdjax.lax._rules import repeat_to
from amdjax.lax.casting import convert
from amdjax.lax.selection import select_n
from amdjax.lax.shape import broadcast_in_dim
from amdjax.transforms.flat import (
    FlatFunction,
    argument_names,
    debug_info,
    fun_location,
    fun_name,
    signature,
)
from amdjax.transforms.zero import Zero

T = TypeVar("T")


# Lists


def split_list(values: Sequence[T], *sizes: int) -> list[list[T]]:
    """Consecutive pieces of the given sizes, and the rest."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(list(values[start : start + size]))
        start += size
    return [*pieces, list(values[start:])]


def chosen(values: Iterable[T], mask: Iterable[bool]) -> list[T]:
    """The values where the mask is true."""
    return [v for v, keep in zip(values, mask) if keep]


def either(first: Iterable[bool], second: Iterable[bool]) -> list[bool]:
    """Elementwise `or`."""
    return [a or b for a, b in zip(first, second)]


def nonzero(values: Iterable[Any]) -> list[bool]:
    """Which tangents or cotangents are not symbolic zeros."""
    return [type(v) is not Zero for v in values]


def fixpoint(grow: Callable[[list[bool]], list[bool]], start: Iterable[bool]) -> list[bool]:
    """The smallest mask above `start` that `grow` does not extend."""
    mask = list(start)
    while True:
        larger = either(mask, grow(mask))
        if larger == mask:
            return mask
        mask = larger


# Values


def as_array(x: Any) -> Any:
    """`x` as an array; a traced value stays as it is."""
    traced = isinstance(x, (Array, Ref)) or type(x) in abstract_types
    return x if traced else asarray_concrete(x)


def immutable(tree: Any) -> Any:
    """A pytree without NumPy arrays, which a step that runs as plain Python might change."""
    return tree_map(lambda x: asarray_concrete(x) if isinstance(x, np.ndarray) else x, tree)


def checked_leaves(what: str, argument: str, tree: Any) -> tuple[list[Any], PyTreeDef]:
    """The leaves of an argument, all of which must be arrays.

    Args:
      what: the operation, such as "scan".
      argument: the argument's name, for the error.
      tree: its value.

    Raises:
      TypeError: if a leaf is not an array or a scalar.
    """
    leaves, structure = tree_flatten(tree)
    if not all(is_valid_value(x) or hasattr(x, "__jax_array__") for x in leaves):
        for path, leaf in tree_flatten_with_path(tree)[0]:
            if not is_valid_value(leaf):
                raise TypeError(
                    f"{what}: {argument}{keystr(path)} is {leaf!r} of type "
                    f"{type(leaf).__name__}, which is not a valid JAX type. Values that are not "
                    "arrays reach the function through a closure or functools.partial."
                )
    return [x.__jax_array__() if hasattr(x, "__jax_array__") else x for x in leaves], structure


def refuse_param(what: str, name: str, value: Any, wanted: str) -> NoReturn:
    """Raise for a parameter that no program of ours has, but one made by hand may have."""
    kind = type(value).__name__
    raise TypeError(f"invalid {what} param {name} of type {kind}, {wanted} required: {value!r}")


def promote_weak(x: Any, out: Any) -> Any:
    """An initial value with the dtype that the body gives it, if its own is weak and differs."""
    aval = get_aval(x)
    if not isinstance(aval, ShapedArray) or not aval.weak_type:
        return x
    if not isinstance(out, ShapedArray) or (aval.shape, aval.dtype) == (out.shape, out.dtype):
        return x
    dtype = result_type(x, out)
    return x if dtype == aval.dtype else convert(x, dtype)


def select_rows(which: Any, *cases: Any) -> Any:
    """For each element of a batch the case that `which` says; batches lie along axis 0."""
    shape = get_aval(cases[0]).shape
    which = broadcast_in_dim(which, shape, tuple(range(get_aval(which).ndim)))
    return select_n(which, *(repeat_to(shape, c) for c in cases))


# Tracing


class Body(NamedTuple):
    """A function that a control-flow operation was given.

    Attributes:
      what: the operation, such as "scan".
      fun: the function, which errors speak of.
      call: how the operation calls it, with the arguments that are traced; itself by default.
      carry_name: what it calls its carry.
      carry_depth: how deep in the traced carry the user's carry lies.
      fun_args: the function's arguments, given those that are traced.
      form: tells ways to call it apart that take the same types.
    """

    what: str
    fun: Callable[..., Any]
    call: Callable[..., Any] | None = None
    carry_name: str = "carry"
    carry_depth: int = 0
    fun_args: Callable[[tuple[Any, ...]], Sequence[Any]] = tuple
    form: str = ""

    def __str__(self) -> str:
        location = fun_location(self.fun)
        return fun_name(self.fun) + (f" ({location})" if location else "")

    def carry_path(self, path: Any) -> str:
        """What the user calls the carry or a component of it."""
        component = keystr(path[self.carry_depth :])
        return f"component {self.carry_name}{component}" if component else self.carry_name


class Traced(NamedTuple):
    """A body as a program.

    Attributes:
      jaxpr: takes `consts`, then the arguments.
      consts: what the body mentions from outside.
      out_tree: the structure of its result.
    """

    jaxpr: ClosedJaxpr
    consts: list[Any]
    out_tree: PyTreeDef


_cache: weakref.WeakKeyDictionary[Any, dict[Any, Traced]] = weakref.WeakKeyDictionary()


def trace_body(body: Body, in_tree: PyTreeDef, avals: Sequence[Any], cached: bool = True) -> Traced:
    """Trace a function that a control-flow operation was given.

    Args:
      body: the function.
      in_tree: the structure of `(args, kwargs)`.
      avals: the types of the leaves.
      cached: whether the program depends on nothing but `body.fun` and the types.

    A function that mentions no arrays is traced once for each type of arguments, so that eager
    calls in a Python loop find the compiled program again.
    """
    closure = _closure_key(body.fun) if cached else None
    if closure is None:
        return _trace_body(body, in_tree, avals)
    key = (body.what, body.form, closure, in_tree, tuple(avals), config.trace_key())
    known = _cache.setdefault(body.fun, {})
    if key not in known:
        traced = _trace_body(body, in_tree, avals)
        if traced.consts or has_side_effects(traced.jaxpr.effects):
            return traced
        known[key] = traced
    return known[key]


def _trace_body(body: Body, in_tree: PyTreeDef, avals: Sequence[Any]) -> Traced:
    args, kwargs = tree_unflatten(in_tree, avals)
    flat = FlatFunction(body.call or body.fun, in_tree, f"{body}, passed to {body.what},")
    debug = debug_info(body.what, body.fun, body.fun_args(args), kwargs)
    jaxpr, consts = hoist_consts(trace_to_jaxpr(flat, avals, debug_info=debug))
    return Traced(close_jaxpr(jaxpr.jaxpr), consts, flat.out_tree)


def _closure_key(fun: Any) -> Any:
    """What a function's trace depends on besides its arguments; None if that is not known."""
    if type(fun) is not types.FunctionType or fun.__defaults__ or fun.__kwdefaults__:
        return None
    try:
        values = [cell.cell_contents for cell in fun.__closure__ or ()]
    except ValueError:  # a variable that is not set yet
        return None
    if all(type(v) in _IMMUTABLE for v in values):
        return tuple((type(v), v) for v in values)
    return None


_IMMUTABLE = frozenset((bool, int, float, complex, str, bytes, type(None), type))


def join_consts(
    jaxprs: Sequence[ClosedJaxpr], consts: Sequence[Sequence[Any]]
) -> tuple[list[ClosedJaxpr], list[Any]]:
    """Programs that each take their own constants first, as programs that all take all of them."""
    joined = {id(c): c for group in consts for c in group}
    position = {key: i for i, key in enumerate(joined)}
    out = []
    for closed, group in zip(jaxprs, consts):
        jaxpr = closed.jaxpr
        leading: list[Var] = [Var(get_aval(c)) for c in joined.values()]
        for var, c in zip(jaxpr.invars, group):
            leading[position[id(c)]] = var
        out.append(close_jaxpr(jaxpr.replace(invars=[*leading, *jaxpr.invars[len(group) :]])))
    return out, list(joined.values())


# Checks


def same_type(a: Any, b: Any) -> bool:
    """Whether two types agree up to weakness."""
    if isinstance(a, ShapedArray) and isinstance(b, ShapedArray):
        return (a.shape, a.dtype, a.memory_space) == (b.shape, b.dtype, b.memory_space)
    return bool(a == b)


def type_difference(a: Any, b: Any) -> str:
    """What distinguishes two types, in words."""
    if not (isinstance(a, ShapedArray) and isinstance(b, ShapedArray)):
        return "so the kinds of value do not match"
    words = []
    if a.dtype != b.dtype:
        words.append("the dtypes do not match")
    if a.shape != b.shape:
        words.append("the shapes do not match")
    return "so " + ", and ".join(words)


def type_name(aval: Any) -> str:
    """A type in full, without the mark of weak ones."""
    return str(aval).replace("~", "")


def structure_differences(a: PyTreeDef, b: PyTreeDef) -> list[tuple[Any, str, str, str]]:
    """Where two structures differ: key path, what each is, and an explanation."""
    found = equality_errors_pytreedef(a, b)
    return [(path, _kind(x), _kind(y), f"so {why}") for path, x, y, why in found]


def _kind(text: str) -> str:
    # Leaves are stood for by objects of a private class.
    return "a pytree leaf" if text.endswith("._Leaf'>") else f"a {text}"


def differences_text(lines: Sequence[str]) -> str:
    """What differs, a sentence or a list."""
    if len(lines) == 1:
        return lines[0].replace("the", "The", 1) + "." if lines[0][:3] == "the" else f"{lines[0]}."
    return ";\n".join(f"  * {line}" for line in lines) + "."


def check_carry(
    body: Body, trees: tuple[PyTreeDef, PyTreeDef], avals: tuple[Sequence[Any], Sequence[Any]]
) -> None:
    """Raise a TypeError unless a loop's body returns a carry like the one it takes.

    Args:
      body: the function.
      trees: structure of the carry it takes and of the one it returns.
      avals: types of the leaves of both.
    """
    (tree_in, tree_out), (avals_in, avals_out) = trees, avals
    subject = f"{body.what} body function carry input and carry output must have"
    where = f"\nThe body is {body}."
    if tree_in != tree_out:
        lines = [
            f"the input carry {body.carry_path(path)} is {a} but the corresponding component of "
            f"the carry output is {b}, {why}"
            for path, a, b, why in structure_differences(tree_in, tree_out)
        ] or [f"the input carry is {tree_in} but the carry output is {tree_out}"]
        raise TypeError(
            f"{subject} the same pytree structure, but they differ:\n\n"
            + differences_text(lines)
            + where
        )
    if all(map(same_type, avals_in, avals_out)):
        return
    paths = [path for path, _ in tree_flatten_with_path(tree_unflatten(tree_in, avals_in))[0]]
    lines = [
        f"the input carry {body.carry_path(path)} has type {type_name(a)} but the corresponding "
        f"output carry component has type {type_name(b)}, {type_difference(a, b)}"
        for path, a, b in zip(paths, avals_in, avals_out)
        if not same_type(a, b)
    ]
    raise TypeError(
        f"{subject} equal types, but they differ:\n\n"
        + differences_text(lines)
        + where
        + " Convert the initial value, or what the body returns, so that the carry keeps its type "
        "from step to step."
    )


def check_refs(body: Body, args: Sequence[Any], leaves: Sequence[Any], consts: Any = ()) -> None:
    """Raise a ValueError if a reference reaches a function in two ways."""
    if any(map(is_ref, leaves)):
        refuse_aliases(body.what, argument_names(body.fun, args), leaves, consts)


def argument_name(fun: Callable[..., Any], position: int, otherwise: str) -> str:
    """What a function calls the argument at a position."""
    sig = signature(fun)
    names = list(sig.parameters) if sig is not None else []
    return names[position] if position < len(names) else otherwise


def check_callable(what: str, **functions: Any) -> None:
    """Raise a TypeError that names the argument which is not a function."""
    for name, fun in functions.items():
        if not callable(fun):
            raise TypeError(f"lax.{what}: {name} must be callable, got {fun!r}.")


def leaf_structure(*trees: PyTreeDef) -> PyTreeDef:
    """The structure of `(args, kwargs)` for arguments of these structures."""
    return tree_structure((tuple(tree_unflatten(t, [0] * t.num_leaves) for t in trees), {}))


# Surgery on programs


def with_binders(closed: ClosedJaxpr, order: Sequence[int]) -> ClosedJaxpr:
    """The program with its arguments in another order."""
    jaxpr = closed.jaxpr
    invars = [jaxpr.invars[i] for i in order]
    return ClosedJaxpr(jaxpr.replace(invars=invars, debug_info=None), closed.consts)


def with_outputs(closed: ClosedJaxpr, outputs: Sequence[int]) -> ClosedJaxpr:
    """The program with only the results at these positions, in this order."""
    if list(outputs) == list(range(len(closed.jaxpr.outvars))):
        return closed
    jaxpr = closed.jaxpr
    outvars = [jaxpr.outvars[i] for i in outputs]
    return ClosedJaxpr(jaxpr.replace(outvars=outvars), closed.consts)


def with_unused_binders(closed: ClosedJaxpr, avals: Sequence[Any]) -> ClosedJaxpr:
    """The program with further arguments, which it ignores."""
    jaxpr = closed.jaxpr
    invars = [*jaxpr.invars, *map(Var, avals)]
    return ClosedJaxpr(jaxpr.replace(invars=invars, debug_info=None), closed.consts)


def forwarded(jaxpr: Jaxpr) -> list[int | None]:
    """For each result the argument that it is, None if it is computed."""
    position = {v: i for i, v in enumerate(jaxpr.invars)}
    return [None if type(v) is Literal else position.get(v) for v in jaxpr.outvars]  # type: ignore[arg-type]


@memoize_on_jaxpr
def fixed_carry(
    body: ClosedJaxpr, nconsts: int, movable: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool]]:
    """A loop's body in which what each step passes on unchanged is a constant.

    Args:
      body: takes constants, the carry and other values; returns the carry and other results.
      nconsts: the number of constants.
      movable: which components of the carry may become constants.

    Returns:
      The body with such components as leading constants, and which ones these are.
    """
    sources, count = forwarded(body.jaxpr), len(movable)
    fixed = [s == nconsts + i and m for i, (s, m) in enumerate(zip(sources, movable))]
    if not any(fixed):
        return body, fixed
    moved = [nconsts + i for i in range(count) if fixed[i]]
    order = [*moved, *(i for i in range(len(body.in_avals)) if i not in moved)]
    kept = [i for i in range(len(sources)) if i >= count or not fixed[i]]
    return with_outputs(with_binders(body, order), kept), fixed


def check_effects(what: str, effects: Effects) -> None:
    """Raise an error for effects that cannot happen for each element of a batch."""
    if any(e.ordered for e in effects if hasattr(e, "ordered")):
        raise NotImplementedError(
            f"IO effect not supported in vmap-of-{what}: whether the ordered effects inside "
            "happen differs between the examples of the batch."
        )
