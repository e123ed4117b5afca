"""From a model and flags to a compiled function."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import amdjax
from amdjax.core.config import State
from amdjax.core.dims import ShapeEquations, SymbolicScope, scope_of, symbolic_shape
from amdjax.core.errors import did_you_mean
from amdjax.driver.errors import BadUsage
from amdjax.driver.inputs import Shape, shapes
from amdjax.driver.reading import Subject
from amdjax.runtime.devices import devices

PLACES = ("gpu", "cpu", "target")


def described(dtype: Any) -> str:
    """The name of a dtype."""
    return np.dtype(dtype).name


def struct(shape: Any, dtype: Any) -> Any:
    """The type of an array."""
    return amdjax.ShapeDtypeStruct(shape, dtype)


def types(
    subject: Subject, sizes: Mapping[str, Shape], known: Sequence[str] = ()
) -> dict[str, Any]:
    """Types of the inputs, of which dimensions that are open are symbolic.

    Those of a range alone are of no other size; `b:1..8` names one that several inputs have. What
    else is known of them are constraints.
    """
    constraints = list(known)
    numbers = itertools.count()

    def symbol(size: int | str) -> str:
        name, bounds = named_range(size)
        if not bounds:
            return name
        name = name or f"n{next(numbers)}"
        constraints.extend(f"{name} {bound}" for bound in bounds)
        return name

    texts = {name: ", ".join(map(symbol, shape)) for name, shape in sizes.items()}
    scope = SymbolicScope(list(dict.fromkeys(constraints)))
    by_name = {v.name: v for v in subject.inputs}
    return {
        name: struct(
            symbolic_shape(texts[name], scope=scope) if shape else (),
            by_name[name].dtype or np.dtype(np.float32),
        )
        for name, shape in sizes.items()
    }


def named_range(size: int | str) -> tuple[str, list[str]]:
    """The name of a dimension as flags give it, and its bounds: `b:1..8` is `b`, >= 1 and <= 8."""
    name, _, bounds = str(size).rpartition(":")
    least, dots, most = bounds.partition("..")
    return (name, [f">= {least}", f"<= {most}"]) if dots else (str(size), [])


def open_sizes(
    subject: Subject, sizes: Mapping[str, Shape], given: Mapping[str, Any]
) -> dict[str, int]:
    """The sizes of open dimensions that values of the inputs have."""
    specs = types(subject, sizes)
    scope = scope_of(list(specs.values()))
    if scope is None:
        return {}
    found = ShapeEquations([x.shape for x in specs.values()], scope).solved(
        [np.shape(given[name]) for name in specs]
    )
    if found is None:
        raise BadUsage("--dyn-input-dim: no size of an open dimension fits all inputs")
    return found


def open_constraints(subject: Subject, sizes: Mapping[str, Shape]) -> list[str]:
    """What flags say of the open dimensions of a model, by the names that its program has."""
    # late: only what is saved needs it
    from amdjax.export.saving import symbols_of

    symbols = symbols_of(subject.inputs)
    found: dict[str, None] = {}
    first: dict[str, str] = {}  # variables by the names that flags give
    for value in subject.inputs:
        for axis, size in enumerate(sizes.get(value.name, ())):
            said = value.shape[axis] if value.shape is not None else None
            if isinstance(size, int) or isinstance(said, int):
                continue
            variable = symbols.get(f"{value.name}_{axis}" if said is None else said)
            if variable is None:
                continue
            name, bounds = named_range(size)
            found.update(dict.fromkeys(f"{variable} {bound}" for bound in bounds))
            if name and first.setdefault(name, variable) != variable:
                found[f"{first[name]} == {variable}"] = None
    return list(found)


def traced(subject: Subject, options: argparse.Namespace, model: Any = None) -> Any:
    """The program of a model, traced for the sizes that flags say.

    Args:
      subject: what was read.
      options: the flags.
      model: another model of the same inputs; the one that was read if None.
    """
    # late: loads the compiler
    from amdjax.export.saving import for_all_sizes

    sizes, model = shapes(subject, options), subject.model if model is None else model
    with amdjax.enable_x64(True):
        return for_all_sizes(
            amdjax.jit(model.function).trace, model, weights(model),
            lambda known: types(subject, sizes, known),
        )  # fmt: skip


def weights(model: Any) -> dict[str, Any]:
    """Types of the parameters."""
    return {name: struct(x.shape, x.dtype) for name, x in model.params.items()}


@contextlib.contextmanager
def device_of(options: argparse.Namespace) -> Iterator[Any]:
    """The device that flags name, as the default device, with types of 64 bits.

    Raises:
      BadUsage: there is none.
    """
    names = getattr(options, "disable_passes", None)
    if names:
        check_passes(names, "--disable-passes")
    chosen = [f"--{name}" for name in PLACES if getattr(options, name)]
    if len(chosen) > 1:
        raise BadUsage(f"{' and '.join(chosen)} exclude each other")
    with contextlib.ExitStack() as stack:
        stack.enter_context(amdjax.enable_x64(True))
        if names:
            stack.enter_context(State("disabled_passes")(",".join(names)))
        if getattr(options, "fast_math", False):
            stack.enter_context(State("fast_math")(True))
        if getattr(options, "enable_offload_copy", False):
            stack.enter_context(State("offload_copy")(True))
        if (limit := getattr(options, "memory_limit", None)) is not None:
            stack.enter_context(State("memory_limit")(limit))
        if chosen:
            stack.enter_context(amdjax.default_device(_device(options)))
        yield devices()[0] if not chosen else _device(options)


def check_passes(names: Sequence[str], flag: str) -> None:
    """Raise BadUsage unless these are passes that may be switched."""
    # late: they load with the compiler
    from amdjax.passes import PASSES

    known = {p.name: p for p in PASSES}
    for name in names:
        if name not in known:
            raise BadUsage(f"{flag}: there is no pass {name!r}.{did_you_mean(name, known)}")
        if known[name].is_needed:
            raise BadUsage(f"{flag}: no program can do without the pass {name!r}")


def check_targets(targets: Sequence[str], flag: str) -> None:
    """Raise BadUsage unless all are known."""
    # late: they load with the compiler
    from amdjax.targets import get

    for name in targets:
        if name != "cpu":
            try:
                get(name)
            except ValueError as e:
                raise BadUsage(f"{flag}: {e}") from None


def _device(options: argparse.Namespace) -> Any:
    # late: they load what looks for GPUs
    from amdjax.emulator.device import emulated_device
    from amdjax.emulator.isa import is_emulated
    from amdjax.jit.gpu.executable import device_of as device_with
    from amdjax.targets import get

    if options.cpu or options.target == "cpu":
        return devices("cpu")[0]
    if options.gpu:
        try:
            return devices("gpu")[0]
        except RuntimeError:
            raise BadUsage(
                "--gpu: there is no GPU here; --target gfx942 emulates one, and python -m "
                "amdjax.doctor tells what keeps one from being used"
            ) from None
    try:
        target = get(options.target)
    except ValueError as e:
        raise BadUsage(f"--target: {e}") from None
    try:
        return device_with(target)
    except RuntimeError as e:
        if is_emulated(target.name):
            return emulated_device(target.name)
        raise BadUsage(f"--target: {e}") from None
