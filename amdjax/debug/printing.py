"""`debug.print`: formatting values when the program runs."""

from __future__ import annotations

import functools
import logging
import re
import string
from typing import Any

import numpy as np

from amdjax.transforms.callbacks import debug_callback, refuse_in_first_call

_print = print
_logger = logging.getLogger("amdjax.debug")


def print(
    fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, _use_logging: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
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

    Returns:
      None; without `fmt`, the function that prints.

    Raises:
      TypeError: `fmt` is no text.
      KeyError: a named field has no value; IndexError: a positional one has none.
      ValueError: a value has no field.

        >>> amdjax.debug.print("x = {x}", x=2.0)
        x = 2.0
    """
    if fmt is None:
        refuse_in_first_call("debug_print", args, kwargs)
        # All keyword arguments of the second call are for fields, whatever they are called.
        show_format = functools.partial(
            _print_values, ordered, partitioned, skip_format_check, _use_logging
        )
        return lambda fmt, *args, **kwargs: show_format(fmt, args, kwargs)
    _print_values(ordered, partitioned, skip_format_check, _use_logging, fmt, args, kwargs)
    return None


def _print_values(
    ordered: bool, partitioned: bool, skip_format_check: bool, use_logging: bool, fmt: Any,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> None:  # fmt: skip
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print: the first argument must be a format string, got {fmt!r}")
    if not skip_format_check:
        _check_fields(fmt, *args, **kwargs)
    options = np.get_printoptions()  # those of the line that prints, whenever it does

    def show(*args: Any, **kwargs: Any) -> None:
        with np.printoptions(**options):
            text = fmt.format(*args, **kwargs)
        if use_logging:
            _logger.info(text)
        else:
            _print(text)

    # Settings of `debug_callback` may be names of fields here.
    debug_callback(lambda args, kwargs: show(*args, **kwargs), args, kwargs, ordered=ordered,
                   partitioned=partitioned)  # fmt: skip


class _Checked(string.Formatter):
    """Looks up what fields show, and refuses arguments that no field shows, without formatting."""

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        known = key < len(args) if isinstance(key, int) else key in kwargs
        if not known:
            error = IndexError if isinstance(key, int) else KeyError
            raise error(f"debug.print: the format string has the field {key!r} without a value")
        return super().get_value(key, args, kwargs)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first = re.split(r"[.\[]", field_name, maxsplit=1)[0]
        key = int(first) if first.isdigit() else first
        return self.get_value(key, args, kwargs), key

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [arg for i, arg in enumerate(args) if i not in used_args]
        extra = [name for name in kwargs if name not in used_args]
        for kind, names in (("positional", unused), ("keyword", extra)):
            if names:
                raise ValueError(
                    f"Unused {kind} arguments to `jax.debug.print`: {names}. You may be passing an "
                    "f-string, which shows values of tracing time: write fields as '{}' in a plain "
                    "string."
                )


_check_fields = _Checked().format
