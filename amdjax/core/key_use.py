"""What watches that keys are used once. Who makes keys registers it; the compiler asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[..., Any]

_watch_program: Callable[..., Run] | None = None
_watch_operation: Callable[[Any, Run], Run] | None = None


def set_watch(program: Callable[..., Run], operation: Callable[[Any, Run], Run]) -> None:
    """Name functions that make a way to run a program, or an equation, one that watches keys."""
    global _watch_program, _watch_operation
    _watch_program, _watch_operation = program, operation


def watched_program(closed: Any, run: Run, leading: Sequence[Any] = ()) -> Run:
    """How to run a compiled program, whose leading arguments are known, under `debug_key_reuse`."""
    return run if _watch_program is None else _watch_program(closed, run, leading)


def watched_operation(eqn: Any, run: Run) -> Run:
    """How to run an eager operation under `debug_key_reuse`."""
    return run if _watch_operation is None else _watch_operation(eqn, run)
