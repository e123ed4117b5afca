"""Matrix instructions: MFMA of CDNA and WMMA of RDNA3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.runtime.emulator.builder import Lanes
from amdjax.runtime.emulator.decode import Instruction

SHAPES: dict[str, Any] = {}


def lower(wave: Any, inst: Instruction, operand: Callable[..., tuple[str, int]]) -> Any:
    raise NotImplementedError


def emit(h: Lanes) -> None:
    raise NotImplementedError
