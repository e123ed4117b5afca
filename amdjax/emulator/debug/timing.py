"""Launches whose time is to be estimated, what the estimate says, and both as tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from amdjax.emulator.debug.counters import aligned
from amdjax.emulator.debug.scopes import Chain
from amdjax.emulator.program import Program
from amdjax.emulator.trace import Trace
from amdjax.targets import GpuTarget

#: What waves spend their time on.
CAUSES = ("issue", "dependency", "matrix", "LDS", "memory", "constants", "barrier")
#: What may be busy.
UNITS = ("valu", "matrix", "LDS", "memory")


@dataclass(frozen=True)
class Traced:
    """A launch of which workgroups were traced.

    Attributes:
        program: the kernel.
        target: the GPU.
        traces: of workgroups from all over the grid, in its order.
        workgroups: of the launch.
        resident: workgroups that share LDS at most.
        nbytes: of the arrays that these touch, whole.
        instructions: of a workgroup on the average; traces of long ones have their beginnings.
    """

    program: Program
    target: GpuTarget
    traces: tuple[Trace, ...]
    workgroups: int
    resident: int
    nbytes: int
    instructions: float


@dataclass(frozen=True)
class Wait:
    """An instruction at which waves stand.

    Attributes:
        instruction: as text.
        pc: bytes from the kernel's entry.
        source: the line of the tile program that it was made from, as far as that is known.
        chain: the user's operation likewise, the innermost first.
        cause: one of `CAUSES`.
        behind: the instruction whose result came last, as text; empty at barriers.
        count: how often waves came to it.
        clocks: that a wave stood there each time, on the average.
        share: of all that waves spend.
    """

    instruction: str
    pc: int
    source: str
    chain: Chain
    cause: str
    behind: str
    count: int
    clocks: float
    share: float


@dataclass(frozen=True)
class Estimate:
    """What a launch is estimated to take.

    Attributes:
        kernel: its name.
        cycles: clocks from the first workgroup's start to the last one's end.
        microseconds: the same at the peak clock of the device that the target stands for.
        split: what waves spend their time on, shares by `CAUSES`.
        busy: shares of the time for which `UNITS` work, while the launch is on all of the device.
        waits: where waves stand, the longest together first.
    """

    kernel: str
    cycles: float
    microseconds: float
    split: dict[str, float]
    busy: dict[str, float]
    waits: tuple[Wait, ...] = field(repr=False)


def touched_lines(program: Program, trace: Trace) -> set[int]:
    """Lines of 64 bytes of global memory that the traced workgroup touched."""
    return {
        line
        for records, details in zip(trace.records, trace.details)
        for record, touched in zip(records, details)
        if touched and program.instructions[record].format != "DS"
        for line in touched
    }


# Tables


def timing_table(estimates: Sequence[Estimate]) -> str:
    """One line for each kernel: what its launches take together, and what that is spent on.

    Args:
        estimates: of launches.
    """
    kernels: dict[str, list[Estimate]] = {}
    for each in estimates:
        kernels.setdefault(each.kernel, []).append(each)
    rows = [["kernel", "launches", "cycles", "us", *CAUSES, *(f"{x} busy" for x in UNITS)]]
    for name, own in kernels.items():
        cycles = sum(x.cycles for x in own)
        mean = lambda part: sum(part(x) * x.cycles for x in own) / max(cycles, 1)
        shares = [mean(lambda x: x.split[c]) for c in CAUSES]
        shares += [mean(lambda x: x.busy[u]) for u in UNITS]
        took = f"{sum(x.microseconds for x in own):,.1f}"
        rows.append([name, str(len(own)), f"{cycles:,.0f}", took, *(f"{x:.0%}" for x in shares)])
    return aligned(rows)


def waits_table(estimates: Sequence[Estimate], most: int = 10) -> str:
    """Where waves stand longest, one line each.

    Args:
        estimates: of launches.
        most: lines.
    """
    found: dict[tuple[str, int], tuple[Wait, float]] = {}
    for each in estimates:
        for wait in each.waits:
            key = each.kernel, wait.pc
            found[key] = wait, found.get(key, (wait, 0.0))[1] + wait.share * each.cycles
    whole = sum(x.cycles for x in estimates)
    longest = sorted(found.items(), key=lambda item: -item[1][1])[:most]
    if not longest:
        return ""
    rows = [["waves stand at", "of all", "clocks each", "for", "behind"]]
    for (kernel, pc), (wait, clocks) in longest:
        source = wait.chain[0].short if wait.chain else wait.source
        place = f"{kernel}+0x{pc:x} {wait.instruction}" + (f" ({source})" if source else "")
        share = f"{clocks / whole:.0%}"
        rows.append([place, share, f"{wait.clocks:,.0f}", wait.cause, wait.behind])
    return aligned(rows)


# Collecting

_tracings: list[tuple[list[Traced | None], dict[Hashable, Traced | None]]] = []


@contextmanager
def tracing() -> Iterator[list[Traced | None]]:
    """Launches made meanwhile that are profiled are traced as well, and collected in their order.

    Launches of one kernel over one grid are taken to be alike: the first one stands for all. None
    stands for launches without workgroups.

    Example:
        >>> with tracing() as launches:
        ...     pass
        >>> launches
        []
    """
    own: tuple[list[Traced | None], dict[Hashable, Traced | None]] = ([], {})
    _tracings.append(own)
    try:
        yield own[0]
    finally:
        _tracings[:] = [x for x in _tracings if x is not own]


def wants(alike: Hashable) -> bool:
    """Whether a launch should be traced: none that is alike was."""
    return any(alike not in known for _, known in _tracings)


def record(alike: Hashable, launch: Traced | None) -> None:
    """Enter a launch where traces are collected; None stands for what is known of its like."""
    for launches, known in list(_tracings):
        launches.append(known.setdefault(alike, launch))
