"""What machine code knows of operations and functions (`runtime.dispatch_ir`).

The key of an operation is itself, what traces depend on and the types of its operands, and, where
there are parameters, their names and their values. An operation is a primitive, or a method of
arrays: then it is what that primitive does with the operands as they are.
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


def operation_key(operation: Any, avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """The key of an operation."""
    if not params:
        return (operation, config._trace_key, *avals)
    return (operation, config._trace_key, *avals, tuple(params), *params.values())


def note_operator(
    method: Any, primitive: Any, avals: Sequence[Any], params: dict[str, Any]
) -> None:
    """Let an operator on such operands be what a primitive is, if that is known."""
    known = operations.get(operation_key(primitive, avals, params))
    if known is not None and compile_operator is not None:
        compile_operator(method)
        operations[operation_key(method, avals, {})] = known
