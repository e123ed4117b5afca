"""Why a function is traced again: `explain_cache_misses`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from amdjax.core import source_info
from amdjax.core.aval import ShapedArray
from amdjax.core.config import TraceKey
from amdjax.transforms.flat import fun_location, fun_name

_logger = logging.getLogger("amdjax.jit")
_seen: dict[str, str] = {}  # where functions were defined that had no trace yet

_WEAK = "https://docs.jax.dev/en/latest/type_promotion.html#weak-types"


def explain(fun: Any, known: Iterable[Any], key: tuple[Any, ...], names: Sequence[str]) -> None:
    """Log what is new in a call that has to be traced.

    Args:
      fun: the function.
      known: the keys of its traces: structure, static arguments, `TraceKey`, types.
      key: that of the call.
      names: what the function calls the leaves of its arguments.
    """
    code = getattr(fun, "__code__", None)
    if code is None or source_info.is_internal(code):
        return
    before = list(known)
    reasons = min((_differences(old, key, names) for old in before), key=len) if before else []
    if not before:
        reasons = [_first_time(fun)]
    place = source_info.current()
    text = "\n".join(f"  {line}" for reason in reasons for line in reason.splitlines())
    _logger.warning("TRACING CACHE MISS at %s because:\n%s", place, text)


def _first_time(fun: Any) -> str:
    where = fun_location(fun)
    text = f"never seen function: {fun_name(fun)} id={id(fun)} defined at {where}"
    if where in _seen:
        text += (
            "\nbut seen another function defined on the same line; jit keeps programs by the "
            "function object, so define it, or jit it, once outside of the loop"
        )
    _seen[where] = fun_name(fun)
    return text


def _differences(old: tuple[Any, ...], new: tuple[Any, ...], names: Sequence[str]) -> list[str]:
    (old_tree, old_static, old_context, *old_types) = old
    (tree, static, context, *types) = new
    found = []
    if tree != old_tree:
        found.append(f"different input pytree:\n  now: {tree}\n  before: {old_tree}")
    elif types != old_types:
        found.append(_types(old_types, types, names))
    if static != old_static:
        found.append(f"different static arguments: now {static} and before {old_static}")
    if context is not old_context:
        found.append(_context(old_context, context))
    return found


def _types(old: Sequence[Any], new: Sequence[Any], names: Sequence[str]) -> str:
    lines = ["different input types:"]
    for i, (before, now) in enumerate(zip(old, new)):
        if before == now:
            continue
        name = names[i] if i < len(names) else f"argument {i}"
        weak = isinstance(now, ShapedArray) and before.str_short() == now.str_short()
        show = _with_weak_type if weak else (lambda a: a.str_short())
        lines.append(f"  * at {name}, now {show(now)} and before {show(before)}")
        if weak:
            lines.append(f"    what weak types are: {_WEAK}")
    return "\n".join(lines)


def _with_weak_type(aval: Any) -> str:
    return f"{aval.str_short()}{{weak_type={aval.weak_type}}}"


def _context(old: TraceKey, new: TraceKey) -> str:
    lines = ["different tracing context:"]
    for what, before, now in old.differences(new):
        lines.append(f"  * {what}: now {now} and before {before}")
    return "\n".join(lines)
