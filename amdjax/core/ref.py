"""Mutable arrays: references to memory that operations read and write in program order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.aval import AbstractValue, ShapedArray, Typed, interned_types, register_aval
from amdjax.core.dtypes import float0
from amdjax.core.effects import Effect, allow_everywhere


class AbstractRef(AbstractValue):
    """The type of references to an array of a type; interned as that is.

    Args:
      inner_aval: the type of the array.
      kind: what `new_ref` was given. Of kinds that begin with "no_grad" there are no tangents:
        values are written as if they did not depend on what is differentiated.
    """

    __slots__ = ("inner_aval", "kind")
    inner_aval: ShapedArray
    kind: str | None

    def __new__(cls, inner_aval: ShapedArray, kind: str | None = None) -> AbstractRef:
        interned = interned_types(inner_aval.shape)
        found = interned.get((inner_aval, kind))
        if found is None:
            found = object.__new__(cls)
            found.inner_aval, found.kind = inner_aval, kind
            found = interned.setdefault((inner_aval, kind), found)
        return found

    def of(self, inner_aval: ShapedArray) -> AbstractRef:
        """The type of references of this kind to arrays of another type."""
        return AbstractRef(inner_aval, self.kind)

    @property
    def has_tangents(self) -> bool:
        """Whether a reference has a tangent, of more than trivial values."""
        if self.kind is not None and self.kind.startswith("no_grad"):
            return False
        return self.inner_aval.to_tangent().dtype != float0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return self.inner_aval.ndim

    @property
    def size(self) -> int:
        return self.inner_aval.size

    @property
    def sharding(self) -> Any:
        return self.inner_aval.sharding

    @property
    def weak_type(self) -> bool:
        return self.inner_aval.weak_type

    def to_tangent(self) -> AbstractRef:
        return self.of(self.inner_aval.to_tangent())

    def str_short(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"

    def __len__(self) -> int:
        return len(self.inner_aval)

    def __reduce__(self) -> Any:
        return AbstractRef, (self.inner_aval, self.kind)

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval}}}"


def is_ref(x: Any) -> bool:
    """Whether a value, traced or not, is a reference."""
    return type(getattr(x, "aval", None)) is AbstractRef


class _References(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return is_ref(x)


class Ref(Typed, metaclass=_References):
    """A reference to an array that operations change in place; made by `new_ref`.

    `ref[index]` reads, `ref[index] = value` and `ref[index] += value` write. Inside transformed
    functions `isinstance` is true of traced references too.

    Args:
      value: the array that it holds at first.
      kind: see `AbstractRef`.
    """

    __slots__ = ("__weakref__", "aval", "value")

    def __init__(self, value: Any, kind: str | None = None):
        self.aval = AbstractRef(value.aval, kind)
        self.value = value

    @property
    def sharding(self) -> Any:
        """Where the array that it holds is."""
        return self.value.sharding

    @property
    def committed(self) -> bool:
        """Whether operations must run where the memory is."""
        return self.value.committed

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element."""
        return self.value.unsafe_buffer_pointer()

    def __len__(self) -> int:
        return len(self.aval)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Ref{repr(self.value).removeprefix('Array')}"


register_aval(Ref, lambda ref: ref.aval)


class RefPart:
    """The base of what speaks of a part of a reference, or sees it otherwise."""

    __slots__ = ()


@allow_everywhere
class RefEffect(Effect):
    """Base of what operations do to references among their operands."""

    __slots__ = ()


class ReadEffect(RefEffect):
    """Reads a reference."""

    __slots__ = ()


class WriteEffect(RefEffect):
    """Replaces what a reference holds."""

    __slots__ = ()


class AccumEffect(RefEffect):
    """Adds to what a reference holds."""

    __slots__ = ()


read_effect, write_effect, accum_effect = ReadEffect(), WriteEffect(), AccumEffect()

#: Names of the primitives that take references. What makes one is run by every transform even if
#: nothing depends on its inputs: what is written into it later may.
TAKE_REFS = frozenset(("get", "swap", "addupdate", "freeze", "free_ref", "custom_lin"))
MAKE_REFS = frozenset(("new_ref", "empty_ref"))

#: Those that are done once for each example of a batch, so that vmap looks at every one.
BATCHED_REFS = MAKE_REFS | {"swap", "addupdate"}

_evaluate: Callable[..., Any] | None = None


def set_evaluation(evaluate: Callable[..., Any]) -> None:
    """Name the function `(primitive, args, params) -> results` for concrete references."""
    global _evaluate
    _evaluate = evaluate


def evaluate_with_refs(primitive: Any, args: Any, params: dict[str, Any]) -> Any:
    """Run an operation some of whose operands are concrete references."""
    assert _evaluate is not None
    return _evaluate(primitive, args, params)


def refuse_refs(primitive: Any, avals: Any) -> None:
    """Raise TypeError unless the operation takes references, if there are any among operands."""
    if AbstractRef in map(type, avals) and primitive.name not in TAKE_REFS:
        position = [type(a) for a in avals].index(AbstractRef)
        raise TypeError(
            f"{primitive.name}: operand {position} is a reference of type {avals[position]}. Read "
            "what it holds first, as in ref[...]."
        )


def identity_of_ref(ref: Any) -> Any:
    """What two values that are the same reference have in common."""
    return getattr(ref, "variable", None) or id(ref)


def refuse_aliases(
    kind: str, names: Sequence[str], args: Sequence[Any], closed_over: Sequence[Any] = ()
) -> None:
    """Raise ValueError if a reference is passed twice, or passed and closed over as well.

    Args:
      kind: the transform or operation that the function is passed to.
      names: what the function calls the leaves of its arguments.
      args: these leaves.
      closed_over: values from outside that the function mentions.
    """
    first = {identity_of_ref(x): "" for x in closed_over if is_ref(x)}
    for i, x in enumerate(args):
        if not is_ref(x):
            continue
        name = names[i] if len(names) == len(args) else f"number {i}"
        before = first.setdefault(identity_of_ref(x), name)
        if before == name:
            continue
        where = f"appeared at both {before} and {name}"
        if not before:
            where = f"was closed over and passed as the argument {name}"
        raise ValueError(
            "only one reference to a mutable array may be passed as an argument to a function, but "
            f"for {kind} one of type {x.aval} {where}."
        )
