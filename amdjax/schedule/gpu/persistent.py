"""Loops as one launch: programs stay resident, and wait for each other instead of being launched.

A *stage* is a kernel of the loop's body. In each round every program does its share of a stage's
programs, and a grid barrier stands before a stage that touches what earlier ones have written, of
this round or of the one before; that of the first stage stands behind the last one. Where programs
of both have the same part of what they touch (`partition.py`), only threads of a program wait for
each other. What advances with the rounds, slices of what a loop reads and writes and the halves
that carried values alternate between, begins elsewhere in each of them (`ops.Shift`).

A loop that is not counted has a flag, which its last stage writes and all programs read behind a
grid barrier. What it carries goes back to the first halves behind an odd number of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from amdjax import tile
from amdjax.core.dims import Dim, cheapest, choosing, estimated, max_dim, min_dim
from amdjax.core.source_info import Origin
from amdjax.schedule.gpu.calls import NARROW_INDEX
from amdjax.schedule.row_plan import counted
from amdjax.targets import GpuTarget, occupancy
from amdjax.targets.mma import CELL_BYTES
from amdjax.tile import Buffer, Builder, Value, ops

MOST_STAGES = 16  # of a round: the code of all is one kernel
MOST_ARRIVALS = 1 << 31  # at all grid barriers of a launch, which are counted in 32 bits
AT_ONCE = 1 << 14  # rounds of a launch that a flag ends: then others have their turn
MOST_ELEMENTS = 4  # of a thread, for each that it has in a launch of its own: they take registers
REGISTERS = 128  # of a thread, as a guess
TEMPORARIES = 8 << 10  # bytes of LDS through which elements change threads, as a guess


@dataclass(frozen=True)
class Shift:
    """By how many bytes an argument of a stage is away from where it is at the first round.

    Args:
      stride: from a round to the next.
      half: in every second round, besides.
      phase: 1 if the first round is one of those.
    """

    stride: int = 0
    half: int = 0
    phase: int = 0


STILL = Shift()

Wait = Literal["grid", "program", None]


@dataclass(frozen=True)
class Stage:
    """A kernel of a loop's body.

    Args:
      kernel: the program.
      grid: how many programs of it there are.
      shifts: of each parameter that is no symbolic dimension.
      copies: by the number of a parameter, those of further places that get what is stored there.
      wait: for all programs, or for the other threads of its own, before it; None if it touches
        nothing that stages since the last such barrier have written, nor writes what they touched.
    """

    kernel: tile.Kernel
    grid: int
    shifts: tuple[Shift, ...]
    copies: tuple[tuple[int, Shift], ...] = ()
    wait: Wait = None

    @property
    def multiplies(self) -> bool:
        """Whether it has a product, whose threads are part of its plan."""
        return multiplies(self.kernel)


@dataclass(frozen=True)
class PersistentPlan:
    """A loop as one launch.

    Args:
      rounds: of the loop; at most, where a flag ends it.
      stages: of a round.
      programs: that stay resident; fewer run where a device turns out to hold fewer.
      workgroup: threads of each.
      align: bytes of which all addresses are multiples.
      ends: of a loop that a flag ends, what is done behind an odd number of rounds.
    """

    rounds: int
    stages: tuple[Stage, ...]
    programs: int
    workgroup: int
    align: int
    ends: tuple[Stage, ...] | None = None

    @property
    def barriers(self) -> int:
        """Grid barriers in a round."""
        return sum(stage.wait == "grid" for stage in self.stages) + (self.ends is not None)

    @property
    def index_bits(self) -> int:
        """Of an index: 32 if all stages have those, and nothing is further away than they reach."""
        every = (*self.stages, *(self.ends or ()))
        bits = {stage.kernel.schedule.index_bits for stage in every}
        shifts = [m for s in every for m in (*s.shifts, *(m for _, m in s.copies))]
        far = any(abs(m.stride) * self.rounds + m.half > NARROW_INDEX for m in shifts)
        return 64 if far or bits != {32} else 32

    def emit(self, origin: Origin | None = None) -> tile.Kernel:
        """The kernel.

        Its parameters are the number of programs, those of all stages, each followed by its copies,
        the counter of the barriers, the flag if there is one, and symbolic dimensions.

        Args:
          origin: of the loop, which what no stage has written is made from.
        """
        return _Emitter(self, origin).kernel()

    def __str__(self) -> str:
        names = ", ".join(s.kernel.name for s in self.stages)
        programs = counted(self.programs, "program")
        rounds = f"{self.rounds} rounds" if self.ends is None else "rounds of a while"
        return (
            f"{rounds} as one launch of {programs} of {self.workgroup} threads, "
            f"{counted(self.barriers, 'grid barrier')} a round: {names}"
        )


@dataclass(frozen=True)
class LaunchedRounds:
    """A loop whose rounds are launches.

    Args:
      rounds: of the loop; None if they are not counted.
      reason: why they are not one.
    """

    rounds: int | None
    reason: str

    def __str__(self) -> str:
        rounds = "rounds of a while" if self.rounds is None else f"{self.rounds} rounds"
        return f"{rounds} as launches: {self.reason}"


def plan_persistent(
    target: GpuTarget, rounds: int | None, stages: Sequence[Stage], align: int,
    ends: Sequence[Stage] = (),
) -> PersistentPlan | LaunchedRounds:  # fmt: skip
    """The plan of a loop as one launch, or why launches of its own serve a stage better.

    Args:
      target: the GPU.
      rounds: of the loop; None if they are not counted.
      stages: of a round.
      align: bytes of which all addresses are multiples.
      ends: what is done behind an odd number of rounds that are not counted.
    """

    def launched(reason: str) -> LaunchedRounds:
        return LaunchedRounds(rounds, reason)

    if not 0 < len(stages) <= MOST_STAGES:
        return launched(f"{counted(len(stages), 'kernel')} a round")
    if rounds is None and stages[0].wait is not None:
        return launched("nothing but the flag changes")
    workgroup = _workgroup(target, stages)
    if workgroup is None:
        return launched("no number of threads serves all kernels")
    if len(stages) > 1 and _lds(target, stages, workgroup) > target.lds_bytes:
        return launched("kernels take more LDS together than there is")
    resident = _resident(target, stages, workgroup)
    with choosing():
        if any(s.multiplies and s.grid > resident for s in stages):
            return launched(f"a product has more programs than the {resident} that are resident")
    programs = min_dim(resident, max_dim(*(s.grid for s in stages)))
    counted_to = AT_ONCE if rounds is None else rounds
    behind = tuple(ends) if rounds is None else None
    plan = PersistentPlan(counted_to, tuple(stages), programs, workgroup, align, behind)
    most = resident if isinstance(programs, Dim) else programs
    if plan.barriers and counted_to > (MOST_ARRIVALS - 1) // (most * plan.barriers):
        return launched("arrivals at barriers are more than 32 bits count")
    # Where a flag ends the loop, the host reads it after each round otherwise.
    waited = target.costs.copy_latency if rounds is None else 0
    clocks, launches = _clocks(plan, target), len(stages) * target.costs.launch + waited
    if cheapest([launches, clocks]) == 0:
        return launched(f"barriers and turns take {clocks} clocks a round, launches {launches}")
    return plan


def _clocks(plan: PersistentPlan, target: GpuTarget) -> int:
    """What a round costs besides the work of its programs, were all resident."""
    costs, programs = target.costs, plan.programs
    turns: int = sum(estimated("ceil_div", s.grid, programs) - 1 for s in plan.stages)
    return plan.barriers * costs.grid_barrier(programs) + turns * costs.program


def _workgroup(target: GpuTarget, stages: Sequence[Stage]) -> int | None:
    """Threads that serve all stages; None if there are none."""
    threads = [s.kernel.schedule.workgroup or target.wave_size for s in stages]
    fixed = {n for s, n in zip(stages, threads, strict=True) if s.multiplies}
    if len(fixed) > 1:
        return None
    chosen = fixed.pop() if fixed else max(threads)
    return chosen if max(threads) <= MOST_ELEMENTS * chosen else None


def _resident(target: GpuTarget, stages: Sequence[Stage], workgroup: int) -> int:
    """About how many programs the device holds at once; it knows better when it runs them."""
    lds = _lds(target, stages, workgroup)
    registers = min(target.vgprs, REGISTERS)
    found = occupancy(target, registers, lds=min(lds, target.lds_bytes), workgroup=workgroup)
    return found.workgroups * target.lds_units


def multiplies(kernel: tile.Kernel) -> bool:
    """Whether a kernel has a product, whose threads are part of its plan."""
    found = tile.nested_ops(kernel.body)
    tiled = any(isinstance(op, ops.Dot) and op.tiling is not None for op in found)
    return tiled or bool(_products(kernel))


def _products(kernel: tile.Kernel) -> list[tile.Op]:
    """What multiplies by a plan for a number of threads, and through LDS."""
    kinds = ops.Contract, ops.ScratchProduct, ops.ResidentProduct
    return [op for op in tile.nested_ops(kernel.body) if isinstance(op, kinds)]


def _product_bytes(product: tile.Op, waves: int) -> int:
    """Bytes of LDS that a product takes besides scratch, about."""
    rows, columns = product.results[0].shape
    columns *= len(product.results)
    if isinstance(product, ops.Contract):
        size = max(tile.itemsize(side.buffer.dtype) for side in product.sides)
        return (rows + columns) * product.tiling.depth * product.tiling.stages * size
    deep = product.lanes[2] if isinstance(product, ops.ScratchProduct) else 1
    cells = rows * (columns * tile.itemsize(product.results[0].dtype) + CELL_BYTES)
    return waves * deep * cells


def _lds(target: GpuTarget, stages: Sequence[Stage], workgroup: int) -> int:
    """Bytes of LDS that a program takes for all stages, about."""
    scratch = sum(b.size * tile.itemsize(b.dtype) for s in stages for b in s.kernel.scratch)
    products = [op for s in stages for op in _products(s.kernel)]
    waves = workgroup // target.wave_size
    most = max((_product_bytes(op, waves) for op in products), default=0)
    return scratch + most + TEMPORARIES


class _Emitter:
    def __init__(self, plan: PersistentPlan, origin: Origin | None):
        self.plan = plan
        self.k = k = Builder("persistent_" + "_".join(s.kernel.name for s in plan.stages)[:64])
        k.origin = origin
        k.schedule = tile.Schedule(plan.workgroup, 1, plan.index_bits)
        programs = k.param("programs", "index", "size")
        every = (*plan.stages, *(plan.ends or ()))
        buffers = [self._declared(i, stage) for i, stage in enumerate(every)]
        self.buffers, self.behind = buffers[: len(plan.stages)], buffers[len(plan.stages) :]
        self.counter = k.param("barriers", "u32", "inout")
        self.flag = None if plan.ends is None else k.param("again", "bool", "inout")
        self.programs = k.size(programs)
        self.me = k.program_id()

    def _declared(
        self, number: int, stage: Stage
    ) -> tuple[dict[str, Buffer], dict[str, list[Buffer]]]:
        """The memory of a stage by its names there, and its copies."""
        k, own = self.k, {}
        copies: dict[str, list[Buffer]] = {}
        for i, p in enumerate(stage.kernel.given):
            own[p.name] = k.param(f"s{number}.{p.name}", p.dtype, p.role)
            for j in range(sum(at == i for at, _ in stage.copies)):
                name = f"s{number}.{p.name}.{j}"
                copies.setdefault(p.name, []).append(k.param(name, p.dtype, "out"))
        for b in stage.kernel.scratch:
            own[b.name] = k.scratch(f"s{number}.{b.name}", b.dtype, b.size)
        return own, copies

    def kernel(self) -> tile.Kernel:
        plan, k = self.plan, self.k
        if self.flag is None:
            k.for_(0, plan.rounds, 1, self._round)
        else:
            self._while(self.flag)
        return replace(k.finish(plan.programs), align=plan.align)

    def _while(self, flag: Buffer) -> None:
        """The rounds until a flag is false behind one."""
        k, plan = self.k, self.plan
        more = lambda t, again: again & (t < plan.rounds)

        def one(t: Value, again: Value) -> list[Value]:
            self._round(t)
            return [t + 1, k.load(flag, 0)]

        zero = k.const("index", 0)
        t, _ = k.while_(more, one, [zero, k.const("bool", True)])

        def reset() -> None:
            k.atomic("min", self.counter, zero, k.const("u32", 0))

        # All have arrived. Those that have not seen it yet take zero for more than they wait for.
        k.if_(k.eq(self.me, 0), reset)

        def ends() -> None:
            for stage, buffers in zip(plan.ends or (), self.behind, strict=True):
                self._stage(stage, *buffers, t)

        k.if_(k.eq(t & 1, 1), ends)

    def _round(self, t: Value) -> None:
        plan, number = self.plan, t * self.plan.barriers
        # LLVM 22 drops waits for stores at the head of a loop: the first stage's stands at the end.
        waits = [stage.wait for stage in (*plan.stages[1:], plan.stages[0])]
        if plan.ends is not None:
            waits[-1] = "grid"  # before the flag is read; the first stage needs none then
        for stage, buffers, wait in zip(plan.stages, self.buffers, waits, strict=True):
            self._stage(stage, *buffers, t)
            if wait == "grid":
                self._wait(number)
                number = number + 1
            elif wait == "program":
                self.k.program_barrier()

    def _wait(self, number: Value) -> None:
        plan = self.plan
        times = plan.rounds * plan.barriers
        self.k.grid_barrier(self.counter, 0, number, self.programs, times)

    def _stage(
        self, stage: Stage, own: dict[str, Buffer], copies: dict[str, list[Buffer]], t: Value
    ) -> None:
        """The programs of a stage that are this program's share."""
        k, params = self.k, stage.kernel.given
        places = [(own[p.name], m) for p, m in zip(params, stage.shifts, strict=True)]
        for i, p in enumerate(params):
            shifts = [m for at, m in stage.copies if at == i]
            places += zip(copies.get(p.name, ()), shifts, strict=True)
        moving = [(b, self._bytes(m, t)) for b, m in places if m != STILL]

        # A program that has several numbers of a stage cannot keep what is of one.
        first = k.eq(t, 0) | (self.programs < stage.grid)

        def one(program: Value) -> None:
            write = lambda: tile.inline(k, stage.kernel, program, own, copies, first)
            buffers, offsets = [b for b, _ in moving], [x for _, x in moving]
            k.shift(buffers, offsets, stage.kernel.schedule.vector, write)

        k.for_(self.me, stage.grid, self.programs, one)

    def _bytes(self, shift: Shift, t: Value) -> Value:
        """How far an argument has moved in a round."""
        moved = t * shift.stride
        if shift.half:
            moved = moved + ((t + shift.phase) & 1) * shift.half
        return moved
