"""`debug.print`: formatting values when the program runs."""

from __future__ import annotations

import functools
import logging
import string
from typing import Any

from amdjax.transforms.callbacks import debug_callback

_print = print
_logger = logging.getLogger("amdjax.debug")


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> Any:
    """Print values from inside a traced function.

    Args:
      fmt: a format string as for `str.format`, filled in when the program runs. Not an f-string:
        that would be filled in while tracing. Without it, a function is returned that takes the
        format string and the values and prints with these settings.
      *args: pytrees of arrays for its positional fields.
      ordered: whether such prints appear in the order of the program.
      partitioned: accepted for JAX's sake; of no effect on one device.
      skip_format_check: whether fields and arguments may differ until the program runs.
      **kwargs: pytrees of arrays for its named fields.

    Raises:
      ValueError: fields and arguments do not match.

    Example:
      >>> import amdjax
      >>> amdjax.debug.print("x = {x}", x=2.0)
      x = 2.0
    """
    if fmt is None:
        return functools.partial(
            print, ordered=ordered, partitioned=partitioned, skip_format_check=skip_format_check,
            _use_logging=_use_logging,
        )  # fmt: skip
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print: the first argument must be a format string, got {fmt!r}")
    if not skip_format_check:
        _check_fields(fmt, len(args), kwargs)

    def show(*args: Any, **kwargs: Any) -> None:
        text = fmt.format(*args, **kwargs)
        if _use_logging:
            _logger.info(text)
        else:
            _print(text)

    debug_callback(show, *args, ordered=ordered, partitioned=partitioned, **kwargs)


def _check_fields(fmt: str, count: int, kwargs: dict[str, Any]) -> None:
    """Raise now for a format string that would fail, or leave arguments out, later."""
    used: set[Any] = set()
    automatic = 0
    for _, field, _, _ in string.Formatter().parse(fmt):
        if field is None:
            continue
        name = field.split(".")[0].split("[")[0]
        if not name:
            used.add(automatic)
            automatic += 1
        else:
            used.add(int(name) if name.isdigit() else name)
    given = {*range(count), *kwargs}
    if used - given:
        missing = ", ".join(sorted(map(str, used - given)))
        raise ValueError(
            f"debug.print: the format string {fmt!r} has fields without a value: {missing}"
        )
    if given - used:
        extra = ", ".join(sorted(map(str, given - used)))
        raise ValueError(
            f"debug.print: no field of the format string {fmt!r} shows: {extra}. "
            "An f-string shows values of tracing time; write '{}' in a plain string."
        )
