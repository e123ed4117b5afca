"""What the kernels of a program do, counted by the emulator, and what that may take on hardware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from amdjax.emulator.debug.counters import operations_table, table

if TYPE_CHECKING:
    from amdjax.core.array import ConcreteArray
    from amdjax.emulator.debug.counters import Counters
    from amdjax.emulator.debug.timing import Estimate, Traced


@dataclass(frozen=True)
class Profile:
    """The counters of every launch of one run and what it is estimated to take; prints as tables.

    Attributes:
      target: name of the GPU that was emulated.
      launches: counters of each launch, in order.
      results: the arrays that the run returned, in the order of the results' leaves.
      traces: of each launch what a workgroup did; None where it has none.
    """

    target: str
    launches: list[Counters] = field(repr=False)
    results: list[ConcreteArray] = field(repr=False)
    traces: list[Traced | None] = field(repr=False)

    @property
    def total(self) -> Counters:
        """All launches together."""
        # late: the emulator loads where it runs
        from amdjax.emulator.debug.counters import total

        return total(self.launches)

    @cached_property
    def timings(self) -> list[Estimate | None]:
        """Of each launch how many cycles it takes, what waves spend them on and where they stand.

        Estimated when first asked for, which takes up to a second a kernel, by a model of the GPU
        (docs/amd.md); None for launches without workgroups.
        """
        # late: the emulator loads where it runs
        from amdjax.emulator.debug.replay import estimate

        known = {id(x): estimate(x) for x in {id(x): x for x in self.traces if x}.values()}
        return [known.get(id(x)) for x in self.traces]

    @property
    def cycles(self) -> float:
        """Clocks that all launches together are estimated to take, one after the other."""
        return sum(x.cycles for x in self.timings if x)

    def __iter__(self) -> Iterator[Counters]:
        return iter(self.launches)

    def __len__(self) -> int:
        return len(self.launches)

    def __str__(self) -> str:
        # late: the emulator loads where it runs
        from amdjax.emulator.debug.timing import timing_table, waits_table

        timings = [x for x in self.timings if x]
        tables = (table(self.launches), operations_table(self.launches), timing_table(timings),
                  waits_table(timings))  # fmt: skip
        return f"on an emulated {self.target}\n" + "\n\n".join(filter(None, tables))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
