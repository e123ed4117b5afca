"""The backend: what computes concrete values, loaded when one is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from amdjax.core.aval import ShapedArray


class Buffer(Protocol):
    """Memory that holds an array."""

    def as_numpy(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A read-only view without a copy, once the contents are computed."""
        ...


class Backend(Protocol):
    """What computes concrete values; the compiler registers one through `set_backend`."""

    def evaluate(self, primitive: Any, args: Any, params: dict[str, Any]) -> Any:
        """Run a primitive on `ConcreteArray`s; a list if it has multiple results."""
        ...

    def evaluate_placed(self, primitive: Any, args: Any, params: dict[str, Any]) -> Any:
        """As `evaluate`, where some of the arguments are `PlacedArray`s."""
        ...

    def evaluate_at(self, closed: Any, args: Any, sizes: Any, name: str) -> list[Any]:
        """Run a program of symbolic shapes on arrays of given sizes."""
        ...

    def compile(self, closed: Any, donated: Any, refs: Any, placement: Any) -> Any:
        """A program as a function of lists of arrays and references.

        Args:
          closed: the program.
          donated: which of its arguments, but for `refs`, it may overwrite.
          refs: its leading arguments, which are references known now.
          placement: where it runs; None for the host.
        """
        ...

    def compile_sized(self, closed: Any, donated: Any, refs: Any, placement: Any) -> Any:
        """The program, as `compile` makes it, as a function of sizes of its dimension variables."""
        ...

    def shardings_as_traced(self, closed: Any, arguments: Any) -> Any:
        """For each result of a program how it is divided along explicit axes of a mesh, or None."""
        ...

    def put(self, value: np.ndarray) -> Any:
        """A buffer in host memory with the contents of `value`, which stays the caller's."""
        ...

    def borrow(self, value: np.ndarray) -> Any:
        """The memory of `value` itself as a buffer, which is never written."""
        ...

    def array(self, aval: ShapedArray, value: np.ndarray) -> Any:
        """A new array with the contents of `value`, on the default device."""
        ...

    def device_put(self, x: Any, device: Any) -> Any:
        """`x` on a device; on the default one, not committed to it, if `device` is None."""
        ...

    def host_device(self) -> Any:
        """The device whose memory is the host's."""
        ...

    def devices(self) -> list[Any]:
        """All devices, the host's first."""
        ...

    def default_placement(self) -> Any:
        """Where what was not placed goes; None for the host."""
        ...

    def program_placement(self) -> Any:
        """Where a program runs whose arguments were not placed; None for the host."""
        ...

    def placement_of(self, arrays: Iterable[Any], name: str) -> Any:
        """Where an operation of this name on arrays runs, some of them being placed."""
        ...

    def clear(self) -> None:
        """Forget all compiled operations."""
        ...


_loader: Callable[[], Backend] | None = None


_backend: Backend | None = None


_lock = threading.RLock()


def set_backend(loader: Callable[[], Backend]) -> None:
    """Name the function that makes the backend; it is called when one is first needed."""
    global _loader, _backend
    with _lock:
        _loader, _backend = loader, None


_load_finder: Callable[[bool], None] | None = None


def set_finder(load: Callable[[bool], None]) -> None:
    """Name the function that loads what knows measured choices, and if asked what measures."""
    global _load_finder
    _load_finder = load


def load_finder(measures: bool) -> None:
    """Load what knows measured choices, or also what measures; it tells the planner of itself."""
    if _load_finder is not None:
        _load_finder(measures)


def get_backend() -> Backend:
    """The backend, loaded now if it has not been."""
    return _backend if _backend is not None else _load_backend()


def _load_backend() -> Backend:
    global _backend
    with _lock:
        if _backend is None:
            if _loader is None:
                raise RuntimeError("no backend is registered; `import amdjax` registers one")
            _backend = _loader()
        return _backend
