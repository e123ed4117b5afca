"""Programs of LLVM that are oracles for code objects, where they are installed.

`.ci/run` installs Debian's `llvm-19` and `lld-19` where it may. Versions before 18 do not know all
of the targets.
"""

import shutil

import pytest


def find_tool(name: str) -> str | None:
    """Path of a program such as `llvm-mc`, also under a name that ends in its version."""
    found = (shutil.which(x) for x in (*(f"{name}-{v}" for v in range(24, 17, -1)), name))
    return next((path for path in found if path), None)


def tool(name: str) -> str:
    """Path of a program; skips the test where it is absent."""
    return find_tool(name) or pytest.skip(f"{name} is not installed (Debian: llvm-19, lld-19)")
