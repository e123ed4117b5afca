"""What a kernel did: instructions, memory traffic, matrix work, occupancy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache

import numpy as np

from amdjax.emulator import state
from amdjax.emulator.alu import matrix
from amdjax.emulator.debug.scopes import Inlined
from amdjax.emulator.isa.access import access_of
from amdjax.emulator.isa.decode import Instruction
from amdjax.targets.occupancy import Occupancy

CLASSES = ("salu", "valu", "matrix", "smem", "vmem", "lds", "branch", "control")


@dataclass
class Counters:
    """Of one launch, or of several after `merge`.

    Memory traffic, which takes time to count, is there only where a launch was asked to
    `profile`; `profiled` says so.

    Attributes:
        kernel: its name; several names after merging different kernels.
        launches: how many launches these are.
        workgroups, waves: of the launch.
        executed: workgroups that ran: fewer of a launch that was sampled, whose counts are scaled.
        by_mnemonic, by_class: instructions of all waves together.
        matrix_flops: of MFMA and WMMA instructions; integer operations count as well.
        vector_flops: of floating-point vector instructions, lanes that are off included.
        bytes_read, bytes_written: of global memory, by active lanes; atomics are both.
        accesses: vector memory instructions that moved something.
        lines_64, lines_128: cache lines of so many bytes that these touched, each access by itself.
        ideal_64, ideal_128: how few lines the same bytes need.
        lds_accesses, lds_bytes: vector accesses of LDS and the bytes they moved.
        bank_cycles, bank_ideal: cycles that LDS takes for them with and without bank conflicts.
        occupancy: waves a SIMD holds, where the target is known.
        by_operation: of a profiled launch the same for what its instructions were made from: the
            user's operations and lines, None for what serves them all, as far as code objects say.

    Example:
        >>> counters = Counters(kernel="add", launches=1, waves=4)
        >>> counters.merge(counters).waves
        8
    """

    kernel: str = ""
    launches: int = 0
    workgroups: int = 0
    waves: int = 0
    executed: int = 0
    by_mnemonic: Counter[str] = field(default_factory=Counter)
    by_class: Counter[str] = field(default_factory=Counter)
    matrix_flops: int = 0
    vector_flops: int = 0
    profiled: bool = False
    bytes_read: int = 0
    bytes_written: int = 0
    accesses: int = 0
    lines_64: int = 0
    lines_128: int = 0
    ideal_64: int = 0
    ideal_128: int = 0
    lds_accesses: int = 0
    lds_bytes: int = 0
    bank_cycles: int = 0
    bank_ideal: int = 0
    occupancy: Occupancy | None = None
    by_operation: dict[Inlined | None, Counters] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """Instructions of all waves together."""
        return self.by_mnemonic.total()

    @property
    def sampled(self) -> bool:
        """Whether a sample of the workgroups ran."""
        return self.executed < self.workgroups

    @property
    def barriers(self) -> int:
        """Barriers that waves came to."""
        return sum(self.by_mnemonic[name] for name in ("s_barrier", "s_barrier_wait"))

    @property
    def bank_conflicts(self) -> int:
        """Cycles lost to bank conflicts."""
        return self.bank_cycles - self.bank_ideal

    @property
    def coalescing(self) -> float:
        """Ideal over touched 64-byte lines: 1 where every line is used whole."""
        return self.ideal_64 / self.lines_64 if self.lines_64 else 1.0

    @property
    def flops(self) -> int:
        """Operations of vector and matrix instructions."""
        return self.vector_flops + self.matrix_flops

    @property
    def matrix_share(self) -> float:
        """Part of all floating-point operations that matrix instructions did."""
        return self.matrix_flops / self.flops if self.flops else 0.0

    def merge(self, other: Counters) -> Counters:
        """The sum of two: both launches together."""
        result = Counters(kernel=_merged_names(self.kernel, other.kernel))
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if item.name == "profiled":
                result.profiled = mine and theirs
            elif item.name == "by_operation":
                result.by_operation = _merged(mine, theirs)
            elif item.name not in ("kernel", "occupancy"):
                setattr(result, item.name, mine + theirs)
        if self.kernel == other.kernel and self.occupancy == other.occupancy:
            result.occupancy = self.occupancy
        return result

    def __str__(self) -> str:
        """A table, one quantity a line."""
        return "\n".join(f"{name:<22}{text}" for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "kernel", self.kernel
        yield "launches", f"{self.launches:,}"
        yield "workgroups", f"{self.workgroups:,}"
        yield "waves", f"{self.waves:,}"
        if self.occupancy is not None:
            yield "occupancy", f"{self.occupancy.waves} waves/SIMD (by {self.occupancy.limit})"
        yield "instructions", f"{self.instructions:,}"
        for name in CLASSES:
            if count := self.by_class[name]:
                yield f"  {name}", f"{count:,} ({count / self.instructions:.1%})"
        yield "barriers", f"{self.barriers:,}"
        yield "vector flops", f"{self.vector_flops:,}"
        yield "matrix flops", f"{self.matrix_flops:,} ({self.matrix_share:.1%} of all)"
        if self.profiled:
            yield from self._traffic()

    def _traffic(self) -> Iterator[tuple[str, str]]:
        yield "global read", f"{self.bytes_read:,} B"
        yield "global written", f"{self.bytes_written:,} B"
        for size, lines, ideal in ((64, self.lines_64, self.ideal_64),
                                   (128, self.lines_128, self.ideal_128)):  # fmt: skip
            used = f" ({ideal / lines:.1%} of what is ideal)" if lines else ""
            yield f"lines of {size} B", f"{lines:,}{used}"
        yield "LDS accesses", f"{self.lds_accesses:,} ({self.lds_bytes:,} B)"
        yield "LDS bank conflicts", f"{self.bank_conflicts:,} of {self.bank_cycles:,} cycles"


def _merged_names(a: str, b: str) -> str:
    names = dict.fromkeys(x for text in (a, b) for x in text.split(", ") if x)
    return ", ".join(names)


def _merged(
    a: dict[Inlined | None, Counters], b: dict[Inlined | None, Counters]
) -> dict[Inlined | None, Counters]:
    """What either has, the sum where both have it."""
    return a | {key: a[key].merge(x) if key in a else x for key, x in b.items()}


def total(counters: Iterable[Counters]) -> Counters:
    """All of them together."""
    result: Counters | None = None
    for each in counters:
        result = each if result is None else result.merge(each)
    return result or Counters(profiled=True)


_Column = tuple[str, Callable[[Counters], str]]
_LAUNCH: tuple[_Column, ...] = (
    ("launches", lambda c: f"{c.launches:,}"), ("waves", lambda c: f"{c.waves:,}"),
    ("occupancy", lambda c: str(c.occupancy.waves) if c.occupancy else "-"),
)  # fmt: skip
_WORK: tuple[_Column, ...] = (
    ("instructions", lambda c: f"{c.instructions:,}"),
    ("read", lambda c: f"{c.bytes_read:,}"), ("written", lambda c: f"{c.bytes_written:,}"),
    ("coalesced", lambda c: f"{c.coalescing:.0%}" if c.accesses else "-"),
    ("LDS", lambda c: f"{c.lds_accesses:,}"), ("conflicts", lambda c: f"{c.bank_conflicts:,}"),
    ("matrix", lambda c: f"{c.matrix_share:.0%}"),
    ("flops", lambda c: f"{c.flops:,}"),
)  # fmt: skip


def table(counters: Sequence[Counters]) -> str:
    """One line for each kernel, launches of one kernel together, and their total.

    Args:
        counters: of launches, as `recording` collects them.
    """
    kernels: dict[str, Counters] = {}
    for each in counters:
        kernels[each.kernel] = kernels[each.kernel].merge(each) if each.kernel in kernels else each
    columns = (*_LAUNCH, *_WORK)
    rows = [["kernel", *(title for title, _ in columns)]]
    rows += [[name, *(show(c) for _, show in columns)] for name, c in kernels.items()]
    if len(kernels) > 1:
        rows.append(["total", *(show(total(kernels.values())) for _, show in columns)])
    return aligned(rows)


def operations_table(counters: Sequence[Counters]) -> str:
    """One line for each operation of the user that launches were made from, the largest first.

    Args:
        counters: of profiled launches.

    Returns:
        Text; empty where code objects do not say what they were made from.
    """
    whole = total(counters)
    found = sorted(whole.by_operation.items(), key=lambda item: -item[1].instructions)
    if not any(operation for operation, _ in found):
        return ""
    rows = [["made from", "share", *(title for title, _ in _WORK)]]
    for operation, c in found:
        name = operation.short if operation else "(the kernels themselves)"
        share = f"{c.instructions / whole.instructions:.0%}"
        rows.append([name, share, *(show(c) for _, show in _WORK)])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells in columns, the first to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    )


# Collecting

_recordings: list[list[Counters]] = []
_samples: list[int] = []


@contextmanager
def recording() -> Iterator[list[Counters]]:
    """Launches made meanwhile, by any thread, are profiled and their counters collected.

    Example:
        >>> with recording() as launches:
        ...     pass
        >>> len(launches)
        0
    """
    launches: list[Counters] = []
    _recordings.append(launches)
    try:
        yield launches
    finally:
        # By identity: lists of equal contents are equal.
        _recordings[:] = [x for x in _recordings if x is not launches]


@contextmanager
def sampling(instructions: int) -> Iterator[None]:
    """Launches made meanwhile that are longer run a sample of their workgroups, and count for all.

    Workgroups are taken from all over the grid. What the others compute is missing: new memory is
    full of ones (bytes of 255), and may be read. Launches whose workgroups count on each other, by
    atomic operations or because they are resident together, run whole.

    Args:
        instructions: of all waves of a launch together, about.

    Example:
        >>> with sampling(1_000_000), recording() as launches:
        ...     pass
    """
    _samples.append(instructions)
    try:
        yield
    finally:
        _samples.pop()


def sample_size() -> int | None:
    """How many instructions of a launch are wanted; None for all."""
    return _samples[-1] if _samples else None


def is_recording() -> bool:
    """Whether launches should be profiled."""
    return bool(_recordings)


def record(counters: Counters) -> None:
    """Enter a launch in the recordings under way."""
    for launches in list(_recordings):
        launches.append(counters)


# Counting


@cache
def class_of(name: str, form: str) -> str:
    """The class of an instruction, one of `CLASSES`."""
    if "mfma" in name or "wmma" in name:
        return "matrix"
    if form == "SOPP":
        return "branch" if "branch" in name else "control"
    if form.startswith("SOP"):
        return "salu"
    if form.startswith("VOP"):
        return "valu"
    return {"SMEM": "smem", "DS": "lds"}.get(form, "vmem")


@cache
def lane_flops(name: str) -> int:
    """Floating-point operations of a vector instruction in one lane."""
    if "::" in name:
        return sum(lane_flops(part.replace("v_dual_", "v_")) for part in name.split(" :: "))
    words = name.split("_")
    if words[0] != "v" or words[-1] not in ("f16", "f32", "f64", "bf16") or "cvt" in words:
        return 0
    body = words[2] if words[1] == "pk" else words[1]
    if words[1].startswith("dot2"):
        return 4
    flops = 2 if body.startswith(("fma", "mac", "mad")) else int(
        body in ("add", "sub", "subrev", "mul", "min", "max", "rcp", "rsq", "sqrt", "exp", "log",
                 "sin", "cos", "div")
    )  # fmt: skip
    return flops * (2 if words[1] == "pk" else 1)


@cache
def matrix_flops(name: str) -> int:
    """Operations of a matrix instruction; 0 if it is none."""
    shape = matrix.shape_of(name)
    return shape.flops if shape is not None else 0


def count_instructions(
    counters: Counters, instructions: list[Instruction], counts: np.ndarray, lanes: int
) -> None:
    """Enter how often each record ran."""
    for index in np.flatnonzero(counts).tolist():
        inst, count = instructions[index], int(counts[index])
        counters.by_mnemonic[inst.name] += count
        counters.by_class[class_of(inst.name, inst.format)] += count
        if inst.format.startswith("VOP"):
            counters.matrix_flops += count * matrix_flops(inst.name)
            counters.vector_flops += count * lanes * lane_flops(inst.name)


def count_traffic(
    counters: Counters, instructions: list[Instruction], statistics: np.ndarray
) -> None:
    """Enter the statistics of memory accesses, one row a record."""
    counters.profiled = True
    for index in np.flatnonzero(statistics[:, state.ACCESSES]).tolist():
        row = statistics[index].tolist()
        what = access_of(instructions[index].name)
        assert what is not None
        nbytes = row[state.ACTIVE] * what.size
        if what.space == "lds":
            counters.lds_accesses += row[state.ACCESSES]
            counters.lds_bytes += nbytes
            counters.bank_cycles += row[state.BANK_CYCLES]
            counters.bank_ideal += row[state.BANK_IDEAL]
            continue
        counters.accesses += row[state.ACCESSES]
        counters.bytes_read += nbytes * (what.kind != "store")
        counters.bytes_written += nbytes * (what.kind != "load")
        counters.lines_64 += row[state.LINES_64]
        counters.lines_128 += row[state.LINES_128]
        counters.ideal_64 += row[state.IDEAL_64]
        counters.ideal_128 += row[state.IDEAL_128]
