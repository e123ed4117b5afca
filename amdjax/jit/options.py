"""What `jit` was told, checked: functions, shapes, padding, layouts, devices."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amdjax.core.config import State
from amdjax.core.errors import JaxRuntimeError, did_you_mean
from amdjax.core.flags import FLAGS
from amdjax.jit.arguments import Parameters
from amdjax.jit.symbolic import SymbolicShapes
from amdjax.transforms.flat import fun_name

if TYPE_CHECKING:
    from amdjax.jit.buckets import Buckets
    from amdjax.jit.shardings import Shardings
    from amdjax.runtime.devices import Device


def check_function(fun: Any) -> None:
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"staticmethod arguments are not supported, got {fun!r}: put staticmethod around jit"
        )
    if not callable(fun):
        raise TypeError(f"Expected a callable value: jit got {fun!r} of type {type(fun).__name__}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun!r}")


def symbolic_shapes(
    parameters: Parameters, symbolic: Any, constraints: Sequence[str]
) -> SymbolicShapes | None:
    """What `jit` was told of symbolic shapes."""
    if symbolic is None:
        if constraints:
            raise ValueError("jit: constraints are those of symbolic=, which is not given")
        return None
    return SymbolicShapes(parameters, symbolic, constraints)


def padding_of(
    fun: Any, shapes: SymbolicShapes | None, buckets: Any, pad_value: Any, lengths: Any
) -> Buckets | None:
    """What `jit` was told of padding."""
    if buckets is None:
        if lengths is not None:
            raise ValueError("jit: lengths are sizes before padding: give buckets=")
        if pad_value != 0:
            raise ValueError("jit: pad_value fills arguments up to buckets: give buckets=")
        return None
    if shapes is None:
        raise ValueError("jit: buckets speak of the variables of symbolic=, which is not given")
    # late: loads with the first program
    from amdjax.jit.buckets import Buckets

    return Buckets(fun, fun_name(fun), buckets, pad_value, lengths, shapes.variables)


def checked_dynamic(dynamic: Any, symbolic: Any) -> str | None:
    if dynamic not in (None, "auto", "off"):
        raise ValueError(f'jit: dynamic must be "auto", "off" or None, got {dynamic!r}')
    if dynamic == "auto" and symbolic is not None:
        raise ValueError('jit: give either symbolic or dynamic="auto", not both')
    return dynamic


def shardings_of(arguments: Any, results: Any) -> Shardings | None:
    """What `jit` was told of the layout of arguments and results."""
    if arguments is None and results is None:
        return None
    # late: loads with the first program
    from amdjax.jit.shardings import Shardings

    return Shardings(arguments, results)


def chosen_device(device: Any, backend: str | None) -> Device | None:
    """The device that `jit` was given, or the first one of the platform."""
    if device is None and backend is None:
        return None
    # late: loads with the first program
    from amdjax.jit.placement import checked_device
    from amdjax.runtime.devices import devices

    if device is not None and backend is not None:
        raise ValueError("jit: give either device or backend, not both")
    return devices(backend)[0] if device is None else checked_device(device, "jit")


@contextlib.contextmanager
def compiling_with(options: Mapping[str, Any]) -> Iterator[None]:
    """Settings in force while a program compiles."""
    with contextlib.ExitStack() as stack:
        for name, value in options.items():
            try:
                stack.enter_context(State(name)(value))
            except KeyError as e:
                hint = did_you_mean(name, [flag for flag in FLAGS if FLAGS[flag].traced])
                raise JaxRuntimeError(
                    f"INVALID_ARGUMENT: No such compile option: '{name}'. Options are the settings "
                    f"of amdjax.config that tracing and compiling read.{hint}"
                ) from e
            except ValueError as e:
                raise JaxRuntimeError(f"INVALID_ARGUMENT: While setting option {name}: {e}") from e
        yield
