"""What lowering hands to the planner: kernel launches, workspaces, copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from amdjax import tile
from amdjax.core.jaxpr import Var


@dataclass(eq=False)
class Temp:
    """Workspace of the kernels of one step.

    Attributes:
      zero: it is the program's own, zero before the step, and the step leaves it zero.
    """

    dtype: str
    size: int
    zero: bool = False


@dataclass
class Call:
    """One kernel launch: what it reads and writes, and how long it may take.

    Attributes:
      args: a variable, a workspace or a number for each parameter of the kernel; those of its
        symbolic dimensions are added.
      grid: number of programs.
      nanoseconds: estimate for one thread.
      in_place: pairs of positions in `args` (read, written) that may share memory.
      whole_lds: on a GPU its scratch may fill the LDS, of which reductions need a little.
    """

    kernel: tile.Kernel
    args: list[Any]
    grid: int
    nanoseconds: float
    in_place: list[tuple[int, int]] = field(default_factory=list)
    whole_lds: bool = False

    def __post_init__(self) -> None:
        missing = len(self.kernel.params) - len(self.args)
        if missing and missing == len(self.kernel.sizes):
            self.args = [*self.args, *self.kernel.sizes]

    def owning(self, own: Callable[[Any], bool], parts: object) -> Call:
        """The same, where programs touch of some arguments only what no other of the loop has.

        Args:
          own: which arguments these are.
          parts: says which elements those are; only what equals it agrees on them.
        """
        pairs = zip(self.kernel.params, self.args, strict=True)
        names = frozenset(p.name for p, x in pairs if own(x))
        return replace(self, kernel=replace(self.kernel, own=names, parts=parts))


@dataclass
class Copy:
    """`result` starts as a copy of `source`, or takes over its memory if that is free."""

    source: Any
    result: Var
