"""The primitives that make, read and write references, and how they work on known ones.

Each has a discharge rule, which works on what a reference holds (`transforms.discharge`), and
derivative and batching rules. A tangent of a reference is a reference in forward mode; where linear
programs are recorded, it is a `TangentCell`.
"""

from __future__ import annotations

from typing import Any

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import asarray_concrete
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.context import Context, context
from amdjax.core.primitive import Primitive
from amdjax.core.ref import (
    AbstractRef,
    Ref,
    accum_effect,
    evaluate_with_refs,
    read_effect,
    refuse_refs,
    set_evaluation,
    write_effect,
)
from amdjax.lax._rules import batch_to, map_examples, zero_tangent
from amdjax.numpy._util import convert
from amdjax.numpy.ref_indices import Index, indexed_type, read_part, write_part, write_tangent
from amdjax.transforms.discharge import Cell, RefCell, is_control, ref_rules, run_on_refs
from amdjax.transforms.linear import TangentCell
from amdjax.transforms.zero import Zero, instantiate_zeros


class RefPrimitive(Primitive):
    """A primitive whose operands or results are references; eagerly it works on them at once."""

    __slots__ = ()

    def bind(self, *args: Any, **params: Any) -> Any:
        """As of any primitive."""
        trace = context.trace
        if trace is Context.base:
            return evaluate_with_refs(self, args, params)
        return trace.process_primitive(self, args, params)


def _discharge_rule(name: str) -> Any:
    def register(rule: Any) -> Any:
        ref_rules[name] = rule
        return rule

    return register


def _check_no_tangent(primitive: Primitive, ref: Any) -> None:
    """Raise unless a value with a tangent may be written into a reference that has none."""
    if not ref.aval.has_tangents:
        return
    what = "an addupdate" if primitive.name == "addupdate" else "a set/swap"
    raise Exception(
        f"performing {what} operation with a differentiated value on a non-differentiated array "
        f"reference of type {ref.aval}. Move the array reference to be an argument of the "
        "differentiated function, or make it inside."
    )


new_ref_p = RefPrimitive("new_ref")
new_ref_p.def_abstract_eval(lambda x, *, kind, **_: AbstractRef(x, kind))
new_ref_p.def_effects(lambda *_, **__: frozenset((write_effect,)))


@_discharge_rule("new_ref")
def _new_ref_discharge(x: Any, *, kind: str | None, **_: Any) -> Cell:
    return Cell(AbstractRef(get_aval(x), kind), x)


@new_ref_p.def_jvp
def _new_ref_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref = new_ref_p.bind(*primals, **params)
    if not ref.aval.has_tangents:
        return ref, Zero(ref.aval.to_tangent())
    return ref, new_ref_p.bind(instantiate_zeros(tangents[0]), **params)


@new_ref_p.def_linearize
def _new_ref_linearize(nonzeros: Any, x: Any, **params: Any) -> Any:
    ref = new_ref_p.bind(x, **params)

    def tangent_fn(_: Any, t: Any) -> Any:
        return TangentCell(t) if ref.aval.has_tangents else Zero(ref.aval.to_tangent())

    return ref, [], tangent_fn


@new_ref_p.def_batch
def _new_ref_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    # What is written later may differ between the examples.
    return new_ref_p.bind(batch_to(args[0], dims[0], axis.size), **params), 0


empty_ref_p = RefPrimitive("empty_ref")
empty_ref_p.def_abstract_eval(lambda *, ty, memory_space: AbstractRef(ty))
empty_ref_p.def_effects(lambda **_: frozenset((write_effect,)))


@_discharge_rule("empty_ref")
def _empty_ref_discharge(*, ty: ShapedArray, memory_space: Any) -> Cell:
    return Cell(AbstractRef(ty), lax.empty(ty.shape, ty.dtype))


@empty_ref_p.def_jvp
def _empty_ref_jvp(primals: Any, tangents: Any, *, ty: ShapedArray, **params: Any) -> Any:
    ref = empty_ref_p.bind(ty=ty, **params)
    if not ref.aval.has_tangents:
        return ref, Zero(ref.aval.to_tangent())
    return ref, empty_ref_p.bind(ty=ty.to_tangent(), **params)


@empty_ref_p.def_linearize
def _empty_ref_linearize(nonzeros: Any, *, ty: ShapedArray, **params: Any) -> Any:
    ref = empty_ref_p.bind(ty=ty, **params)
    zero = Zero(ty.to_tangent())
    cell = TangentCell(zero) if ref.aval.has_tangents else Zero(ref.aval.to_tangent())
    return ref, [], lambda _: cell


@empty_ref_p.def_batch
def _empty_ref_batch(axis: Any, args: Any, dims: Any, *, ty: ShapedArray, **params: Any) -> Any:
    return empty_ref_p.bind(ty=ty.update(shape=(axis.size, *ty.shape)), **params), 0


get_p = RefPrimitive("get")
get_p.def_effects(lambda *_, **__: frozenset((read_effect,)))


@get_p.def_abstract_eval
def _get_type(ref: AbstractRef, *arrays: Any, indices: tuple[Index, ...]) -> ShapedArray:
    return indexed_type(ref.inner_aval, indices, tuple(a.strong() for a in arrays))


@_discharge_rule("get")
def _get_discharge(cell: Cell, *arrays: Any, indices: Any) -> Any:
    return read_part(cell.read(), indices, iter(arrays))


@get_p.def_jvp
def _get_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    arrays = primals[1:]
    out = get_p.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return out, zero_tangent(out)
    return out, get_p.bind(tangents[0], *arrays, **params)


@get_p.def_linearize
def _get_linearize(nonzeros: Any, ref: Any, *arrays: Any, indices: Any) -> Any:
    out = get_p.bind(ref, *arrays, indices=indices)

    def tangent_fn(arrays: Any, t: Any, *_: Any) -> Any:
        if type(t) is Zero or type(t.value) is Zero:
            return zero_tangent(out)
        return read_part(t.value, indices, iter(arrays))

    return out, arrays, tangent_fn


@get_p.def_batch
def _get_batch(axis: Any, args: Any, dims: Any, *, indices: Any) -> Any:
    ref, *arrays = args
    value = get_p.bind(ref, indices=())
    if not indices:
        return value, dims[0]
    read = lambda value, *arrays: [read_part(value, indices, iter(arrays))]
    (out,) = map_examples(read, [value, *arrays], dims, axis.size)
    return out, 0


def _update_type(name: str) -> Any:
    def rule(ref: AbstractRef, value: Any, *arrays: Any, indices: Any) -> ShapedArray:
        part = indexed_type(ref.inner_aval, indices, tuple(a.strong() for a in arrays))
        if part is value:
            return part
        if part.shape != value.shape:
            raise ValueError(
                f"Invalid shape for `{name}`. Ref shape: {ref.shape}. Expected shape: "
                f"{part.shape}. Value shape: {value.shape}."
            )
        if part.dtype != value.dtype:
            raise ValueError(
                f"Invalid dtype for `{name}`. Ref dtype: {ref.dtype}. Value dtype: {value.dtype}."
            )
        return part

    return rule


def _update_batch(primitive: Primitive, add: bool) -> Any:
    """The batching rule of a write: what the reference holds is read and written as a whole."""

    def batch(axis: Any, args: Any, dims: Any, *, indices: Any) -> Any:
        ref, value, *arrays = args
        if dims[0] is None and axis.of_mesh:
            values = [x if d is None else lax.squeeze(x, (d,)) for x, d in zip(args, dims)]
            out = primitive.bind(*values, indices=indices)
            return out, [] if primitive.multiple_results else None
        if dims[0] is None:
            what = "an addupdate" if add else "a set/swap"
            raise ValueError(
                f"performing {what} operation with vmapped value on an unbatched array reference "
                f"of type {ref.aval}. Move the array reference to be an argument of the vmapped "
                "function, or make it inside."
            )
        whole = get_p.bind(ref, indices=())

        def update(whole: Any, value: Any, *arrays: Any) -> list[Any]:
            old = read_part(whole, indices, iter(arrays))
            return [old, write_part(whole, indices, iter(arrays), value, add)]

        old, new = map_examples(update, [whole, value, *arrays], dims, axis.size)
        swap_p.bind(ref, batch_to(new, 0, axis.size, dims[0]), indices=())
        return ([], []) if primitive.multiple_results else (old, 0)

    return batch


swap_p = RefPrimitive("swap")
swap_p.def_abstract_eval(_update_type("swap"))
swap_p.def_effects(lambda *_, **__: frozenset((write_effect,)))
swap_p.def_batch(_update_batch(swap_p, False))


@_discharge_rule("swap")
def _swap_discharge(cell: Cell, value: Any, *arrays: Any, indices: Any) -> Any:
    whole = cell.read()
    cell.write(_in_cell_type(cell, write_part(whole, indices, iter(arrays), value, False)))
    return read_part(whole, indices, iter(arrays))


def _in_cell_type(cell: Cell, value: Any) -> Any:
    """What a reference is to hold, as weakly typed as it was."""
    inner = cell.aval.inner_aval
    return convert(value, inner.dtype, inner.weak_type) if _is_number(inner) else value


def _is_number(aval: ShapedArray) -> bool:
    return not isinstance(aval.dtype, dtypes.ExtendedDType)


@swap_p.def_jvp
def _swap_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref, _, *arrays = primals
    ref_dot, t, *_ = tangents
    if type(ref_dot) is Zero:
        if type(t) is not Zero:
            _check_no_tangent(swap_p, ref)
        out = swap_p.bind(*primals, **params)
        return out, zero_tangent(out)
    out = swap_p.bind(*primals, **params)
    return out, swap_p.bind(ref_dot, instantiate_zeros(t), *arrays, **params)


@swap_p.def_linearize
def _swap_linearize(nonzeros: Any, ref: Any, value: Any, *arrays: Any, indices: Any) -> Any:
    if not nonzeros[0] and nonzeros[1]:
        _check_no_tangent(swap_p, ref)
    out = swap_p.bind(ref, value, *arrays, indices=indices)

    def tangent_fn(arrays: Any, cell: Any, t: Any, *_: Any) -> Any:
        if type(cell) is Zero:
            return zero_tangent(out)
        known = type(cell.value) is Zero
        old = zero_tangent(out) if known else read_part(cell.value, indices, iter(arrays))
        cell.write(indices, arrays, t, False, write_tangent)
        return old

    return out, arrays, tangent_fn


addupdate_p = RefPrimitive("addupdate", multiple_results=True)


@addupdate_p.def_abstract_eval
def _addupdate_type(*avals: Any, **params: Any) -> list[Any]:
    _update_type("addupdate")(*avals, **params)
    return []


addupdate_p.def_effects(lambda *_, **__: frozenset((accum_effect,)))
addupdate_p.def_batch(_update_batch(addupdate_p, True))


@_discharge_rule("addupdate")
def _addupdate_discharge(cell: Cell, value: Any, *arrays: Any, indices: Any) -> list[Any]:
    cell.write(_in_cell_type(cell, write_part(cell.read(), indices, iter(arrays), value, True)))
    return []


@addupdate_p.def_jvp
def _addupdate_jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    ref_dot, t, *_ = tangents
    if type(t) is not Zero:
        if type(ref_dot) is Zero:
            _check_no_tangent(addupdate_p, primals[0])
        else:
            addupdate_p.bind(ref_dot, t, *primals[2:], **params)
    addupdate_p.bind(*primals, **params)
    return [], []


@addupdate_p.def_linearize
def _addupdate_linearize(nonzeros: Any, ref: Any, value: Any, *arrays: Any, indices: Any) -> Any:
    if not nonzeros[0] and nonzeros[1]:
        _check_no_tangent(addupdate_p, ref)
    addupdate_p.bind(ref, value, *arrays, indices=indices)

    def tangent_fn(arrays: Any, cell: Any, t: Any, *_: Any) -> list[Any]:
        if type(t) is not Zero and type(cell) is not Zero:
            cell.write(indices, arrays, t, True, write_tangent)
        return []

    return [], arrays, tangent_fn


freeze_p = RefPrimitive("freeze")
freeze_p.def_abstract_eval(lambda ref: ref.inner_aval)
freeze_p.def_effects(lambda *_: frozenset((read_effect,)))
freeze_p.def_batch(lambda axis, args, dims: (freeze_p.bind(*args), dims[0]))


@_discharge_rule("freeze")
def _freeze_discharge(cell: Cell) -> Any:
    return cell.read()


@freeze_p.def_jvp
def _freeze_jvp(primals: Any, tangents: Any) -> Any:
    out = freeze_p.bind(*primals)
    zero = type(tangents[0]) is Zero
    return out, zero_tangent(out) if zero else freeze_p.bind(*tangents)


@freeze_p.def_linearize
def _freeze_linearize(nonzeros: Any, ref: Any) -> Any:
    out = freeze_p.bind(ref)
    return out, [], lambda _, t: zero_tangent(out) if type(t) is Zero else t.value


free_ref_p = RefPrimitive("free_ref", multiple_results=True)
free_ref_p.def_abstract_eval(lambda ref: [])
free_ref_p.def_effects(lambda *_: frozenset((write_effect,)))
free_ref_p.def_batch(lambda axis, args, dims: (free_ref_p.bind(*args), []))
free_ref_p.def_linearize(lambda nonzeros, ref: (free_ref_p.bind(ref), [], lambda _, t: []))


@_discharge_rule("free_ref")
def _free_ref_discharge(cell: Cell) -> list[Any]:
    cell.free()
    return []


@free_ref_p.def_jvp
def _free_ref_jvp(primals: Any, tangents: Any) -> Any:
    free_ref_p.bind(*primals)
    if type(tangents[0]) is not Zero:
        free_ref_p.bind(*tangents)
    return [], []


# Eager operations


class _Concrete(RefCell):
    """A reference whose contents are known."""

    __slots__ = ()

    def read(self) -> Any:
        if self.ref.value is None:
            raise ValueError(f"a reference of type {self.aval} is used after it was freed")
        return self.ref.value.sharing()

    def write(self, value: Any) -> None:
        self.read()
        self.ref.value = asarray_concrete(value)

    def free(self) -> None:
        self.read()
        self.ref.value = None


def write_known(ref: Ref, value: Any, arrays: Any, indices: Any) -> None:
    """As `swap` of a known reference, without reading what was there."""
    _update_type("swap")(*map(get_aval, (ref, value, *arrays)), indices=indices)
    cell = _Concrete(ref)
    cell.write(_in_cell_type(cell, write_part(cell.read(), indices, iter(arrays), value, False)))


def _evaluate(primitive: Primitive, args: Any, params: dict[str, Any]) -> Any:
    rule = ref_rules.get(primitive.name)
    if rule is not None:
        if primitive.name in ("swap", "addupdate"):
            assert primitive.abstract_eval is not None
            primitive.abstract_eval(*map(get_aval, args), **params)
        out = rule(*(_Concrete(x) if type(x) is Ref else x for x in args), **params)
        if type(out) is Cell:
            return Ref(asarray_concrete(out.value).sharing(), out.aval.kind)
        return out
    if is_control(primitive):
        return run_on_refs(primitive, args, params, False)
    refuse_refs(primitive, list(map(get_aval, args)))
    raise AssertionError(f"{primitive} has no operand that is a reference")


set_evaluation(_evaluate)
