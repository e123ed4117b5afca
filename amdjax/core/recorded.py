"""What machine code knows of operations and functions (`runtime.dispatch_ir`).

The key of an operation is itself, what traces depend on, the placement of its operands if they have
one, their types, and, where there are parameters, their names and their values. An operation is a
primitive, or a method of arrays: then it is what that primitive does with the operands as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.config import config

operations: dict[Any, Any] = {}
"""What is known of operations, by their keys; empty unless there is machine code."""

compile_operator: Callable[[Any], None] | None = None
"""Puts machine code before a binary operator of arrays."""

is_wanted: Callable[[], bool] = lambda: False
"""Whether a call is to be recorded, which was compiled before and goes through Python."""

record_call: Callable[..., Any] = lambda *args: None
"""The record of a call of a compiled function; None if it cannot be one."""

called: list[tuple[type, type]] = []
"""The type of compiled functions, and that of their `_programs`, which have `records` of calls."""

on_change: list[Callable[[], None]] = []
"""Called when values of a type are taken apart in another way than before."""


def operation_key(
    operation: Any, avals: Sequence[Any], params: dict[str, Any], place: Any = None
) -> Any:
    """The key of an operation on arrays in the host's memory, or at a placement."""
    where = () if place is None else (place,)
    names = (tuple(params),) if params else ()
    return (operation, config._trace_key, *where, *avals, *names, *params.values())


def note_operator(
    method: Any, primitive: Any, avals: Sequence[Any], params: dict[str, Any], place: Any
) -> None:
    """Let an operator on such operands be what a primitive is, if that is known."""
    known = operations.get(operation_key(primitive, avals, params, place))
    if known is not None and compile_operator is not None:
        compile_operator(method)
        operations[operation_key(method, avals, {}, place)] = known
