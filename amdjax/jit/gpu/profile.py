"""What the kernels of a program do, counted by the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from amdjax.emulator.debug.counters import operations_table, table

if TYPE_CHECKING:
    from amdjax.core.array import ConcreteArray
    from amdjax.emulator.debug.counters import Counters


@dataclass(frozen=True)
class Profile:
    """The counters of every launch of one run; prints as a table.

    Attributes:
      target: name of the GPU that was emulated.
      launches: counters of each launch, in order.
      results: the arrays that the run returned, in the order of the results' leaves.
    """

    target: str
    launches: list[Counters] = field(repr=False)
    results: list[ConcreteArray] = field(repr=False)

    @property
    def total(self) -> Counters:
        """All launches together."""
        # late: the emulator loads where it runs
        from amdjax.emulator.debug.counters import total

        return total(self.launches)

    def __iter__(self) -> Iterator[Counters]:
        return iter(self.launches)

    def __len__(self) -> int:
        return len(self.launches)

    def __str__(self) -> str:
        tables = (table(self.launches), operations_table(self.launches))
        return f"on an emulated {self.target}\n" + "\n\n".join(filter(None, tables))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
