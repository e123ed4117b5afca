"""The vocabulary in which a primitive says how it is computed.

A rule describes the computation, not its schedule: which kernels there are, what is fused, tiled,
vectorized or run in parallel is decided by the compiler. Rules are plain data, so the floors above
can be read and tested without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Lowering:
    """Base of all lowering rules, each equal to itself alone."""


@dataclass(frozen=True, eq=False)
class Element(Lowering):
    """One output element told in terms of input elements.

    `emit(b, index, *operands, **params)` returns the value at `index`, a tuple of index
    expressions, one for each output axis. Operands are handles that `b.read` turns into values;
    `operand.shape` and `operand.dtype` are known. Such operations fuse with their neighbors.

    Args:
      emit: the function.
      cost: of an element, without its operands, or a function of the parameters; an addition is 1.
      reads_many: one element of the result needs many of an operand.
      keeps_order: the result has the first operand's elements alone, in their order if it has as
        many.
    """

    emit: Callable[..., Any]
    cost: float | Callable[[Mapping[str, Any]], float] = 0.5
    reads_many: bool = False
    keeps_order: bool = False


@dataclass(frozen=True, eq=False)
class Pointwise(Lowering):
    """An output element depends on the operands' elements at the same index.

    Args:
      op: name of a tile op, or `op(b, *values, **params) -> value`.
      cost: of an element, without its operands; None means the tile op's, or 1, an addition's.
      copies: the result is the operand, perhaps in another dtype.
    """

    op: str | Callable[..., Any]
    cost: float | None = None
    copies: bool = False


@dataclass(frozen=True, eq=False)
class Reduce(Lowering):
    """Combine elements over the axes in `params["axes"]`.

    Args:
      combine: name of an associative, commutative tile op (`add`, `mul`, `min`, `max`, `and`,
        `or`, `xor`), or for reductions over several values at once a function
        `combine(b, left, right) -> values` of two lists.
      identity: `identity(dtype) -> number`, or for several values a list of such functions.
      prepare: optional `prepare(b, index, *values, **params) -> values`, applied to an element
        and its index before combining (argmax pairs an element with its position).
      finish: optional `finish(b, values, **params) -> value`, applied to the combined values.
      append: optional, as `combine` where the elements of `right` come after those of `left` along
        the axes; `combine` then takes them in any order.
    """

    combine: str | Callable[..., Any]
    identity: Any
    prepare: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    append: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False)
class Decompose(Lowering):
    """The operation as a traceable function `fn(*operands, **params)` of other primitives."""

    fn: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Relabel(Lowering):
    """The result is stored as the operand is; only its type says otherwise."""


@dataclass(frozen=True, eq=False)
class Shaped(Lowering):
    """A kernel family, looked up by `name` among those that `kernels` registers.

    Args:
      name: of the family.
      op: by which the family combines elements, where it leaves that open; a tile op mostly.
      epilogue: it stores its result tile by tile, and can compute further before it does.
      in_place: the result is the first operand, some of its elements changed.
      flops: `flops(eqn) -> number`, multiplications and additions for an element of the result.
      composed: the operation as a traceable function of other primitives, for machines on which
        the family has no plan; None if it always has one.
    """

    name: str
    op: str = ""
    epilogue: bool = False
    in_place: bool = False
    flops: Callable[[Any], float] = field(default=lambda eqn: 1.0, compare=False)
    composed: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False)
class Control(Lowering):
    """Sub-programs that the compiler lays out natively: `jit`, `cond`, `while`, `scan`, `call`.

    For `call`, `jaxpr_param` names the parameter holding the program to inline.
    """

    name: str
    jaxpr_param: str = "jaxpr"


@dataclass(frozen=True, eq=False)
class Host(Lowering):
    """Calls Python during the run.

    `fn(*arrays, **params)` receives read-only NumPy views and returns a list of NumPy arrays with
    the shapes and dtypes of the abstract outputs.
    """

    fn: Callable[..., Any]
