"""Whether this process may use AMX, the matrix unit of its CPU.

The state of the unit is large, so Linux has a process ask for it once. The answer holds for all
threads, those that run already and those to come, and for children.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

from amdjax.codegen.host import host

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


@cache
def dtypes() -> tuple[str, ...]:
    """Short names of the dtypes that the unit multiplies; none without a unit or permission."""
    machine = host()
    found: list[str] = []
    if machine.has("amx-tile"):
        found += ["bf16"] if machine.has("amx-bf16") else []
        found += ["i8", "u8"] if machine.has("amx-int8") else []
    return tuple(found) if found and _permitted() else ()


def _permitted() -> bool:
    """Ask the system for the state of the unit."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        request = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    arguments = (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return bool(request(*map(ctypes.c_long, arguments)) == 0)
