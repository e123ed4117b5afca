"""Workspace that several steps would fill alike, such as a packed operand, is filled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from amdjax import tile
from amdjax.core.dims import choosing
from amdjax.core.jaxpr import Var
from amdjax.jit.hoisting import workspace
from amdjax.jit.instructions import Storage, View
from amdjax.schedule.calls import Call, Copy, Temp


class FilledWorkspace:
    """What the steps of one body have filled so far.

    Args:
      storages: of the program, to which `arena` adds.
      arena: gives memory of a number of bytes.
    """

    def __init__(self, storages: Sequence[Storage], arena: Callable[[int], View]) -> None:
        self.storages, self.arena = storages, arena
        self._known: dict[Any, tuple[View, int]] = {}

    def has(self, call: Call | Copy, calls: Sequence[Call | Copy], temps: dict[Temp, View]) -> bool:
        """Whether a launch among those of a step is none, as its workspace is there already.

        Args:
          call: the launch.
          calls: those of the step.
          temps: where workspace of the step lies; it is told of what the launch fills.
        """
        filled = _filled(call, calls)
        if filled is None or filled in temps or isinstance(call, Copy):
            return False
        args = tuple(x for x in call.args if x is not filled)
        key = str(replace(call.kernel, name="", grid=0)), call.grid, args
        nbytes = filled.size * tile.itemsize(filled.dtype)
        found, count = self._known.get(key, (None, 0))
        sizes = (s.nbytes for s in islice(self.storages, count, None))
        with choosing():  # it is kept only where little else asked for memory meanwhile
            kept = found is not None and _is_within(sizes, nbytes)
        if found is not None and kept:
            temps[filled] = found
            return True
        temps[filled] = self.arena(nbytes)
        self._known[key] = temps[filled], len(self.storages)
        return False


def _is_within(sizes: Iterable[Any], limit: Any) -> bool:
    """Whether sizes sum up to no more than a limit; what is symbolic is compared once."""
    total: Any = 0
    for n in sizes:
        total += n
        if isinstance(total, int) and isinstance(limit, int) and total > limit:
            return False
    return bool(total <= limit)


def _filled(call: Call | Copy, calls: Sequence[Call | Copy]) -> Temp | None:
    """The workspace that a launch, and no other of its step, makes of variables alone."""
    if isinstance(call, Copy) or call.in_place or not call.grid:
        return None
    written = [workspace(c) for c in calls if not isinstance(c, Copy)]
    own = workspace(call)
    others = [x for x in call.args if isinstance(x, Temp) and x not in own]
    results = zip(call.kernel.params, call.args, strict=True)
    if len(own) != 1 or others or any(p.role != "in" and isinstance(x, Var) for p, x in results):
        return None
    (temp,) = own
    return temp if not temp.zero and sum(temp in w for w in written) == 1 else None
