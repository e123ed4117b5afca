"""The device that a program is being compiled for, which rules of lowering may ask for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amdjax.core.backend import get_backend


class _Compiling(threading.local):
    device: Any = None


_compiling = _Compiling()


@contextmanager
def compiling_for(device: Any) -> Iterator[None]:
    """What is compiled in the body is for this device; None for the host."""
    before, _compiling.device = _compiling.device, device
    try:
        yield
    finally:
        _compiling.device = before


def compiled_for() -> Any:
    """The device that the program being compiled will run on."""
    return get_backend().host_device() if _compiling.device is None else _compiling.device
