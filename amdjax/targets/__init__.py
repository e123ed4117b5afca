"""Descriptions of the machines code is generated for.

`get("gfx942")` returns a `GpuTarget`; `names()` lists what is known. `cpu.CpuTarget` describes the
CPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import takewhile
from pkgutil import iter_modules

from amdjax.targets.gpu import Device, GpuCosts, GpuTarget, MatrixInstruction
from amdjax.targets.occupancy import Occupancy, occupancy, resident_workgroups

__all__ = [
    "Device", "GpuCosts", "GpuTarget", "MatrixInstruction", "Occupancy", "get", "names",
    "occupancy", "resident_workgroups",
]  # fmt: skip


def _tables() -> Iterator[GpuTarget]:
    """The targets of all modules here: one a machine, siblings that differ in little share one."""
    modules = [m.name for m in iter_modules(__path__) if m.name.startswith(("gfx", "sm_"))]
    for module in sorted(modules, key=lambda name: (name[:2], len(name), name)):
        yield from import_module(f"{__name__}.{module}").TARGETS


@cache
def _known() -> dict[str, GpuTarget]:
    return {target.name: target for target in _tables()}


def names() -> tuple[str, ...]:
    """The names that `get` accepts."""
    return tuple(_known())


def get(name: str) -> GpuTarget:
    """The target of a name such as `gfx942`.

    Features that a driver appends to the name, as in `gfx90a:sramecc+:xnack-`, are left aside: the
    code generated here runs with either setting.

    Raises:
      ValueError: no such target; the message lists the known ones and the nearest.
      TypeError: `name` is no string.

    >>> get("gfx90a:sramecc+:xnack-").family
    'CDNA2'
    """
    if not isinstance(name, str):
        raise TypeError(f"a GPU target is a name such as 'gfx942', got {name!r}")
    known = _known()
    base = name.partition(":")[0].strip()
    if base in known:
        return known[base]
    raise ValueError(
        f"unknown GPU target {name!r}.{_hint(base, known)} Known targets: {', '.join(known)}."
    )


def _hint(name: str, known: dict[str, GpuTarget]) -> str:
    """A sentence about what an unknown name may mean, if it resembles anything."""
    word = name.lower()
    products = (t for t in known.values() if _is_product(word, t))
    if target := next(products, None):
        return f" {target.device.name} ({target.family}) is {target.name!r}."
    near = _nearest(word, known)
    return f" Did you mean {near!r}?" if near else ""


def _is_product(word: str, target: GpuTarget) -> bool:
    """Whether people call the target that: `MI300X`, `7900 XTX`, `rdna3`."""
    return len(word) >= 4 and word in f"{target.device.name} {target.family}".lower()


def _nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a word.

    The first digits of a gfx name are its generation, hence a long common beginning counts before
    similarity; of those, what comes next below or above in number.
    """
    alike = difflib.get_close_matches(word, known, n=len(list(known)), cutoff=0.5)
    return max(alike, key=lambda name: _likeness(word, name), default=None)


def _likeness(word: str, name: str) -> tuple[int, float, int]:
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, name)))
    ratio = difflib.SequenceMatcher(None, word, name).ratio()
    return common, ratio, -abs(_number(word) - _number(name))


def _number(name: str) -> int:
    digits = name.removeprefix("gfx").removeprefix("sm_")
    try:
        return int(digits, 16)
    except ValueError:
        return 0
