"""Kernels of different code as one, which is told for each list of arguments whose code it runs.

Starting a kernel takes longer than small ones run. Where all programs of several are on the machine
at once anyway, one that has the registers of the largest hides as much latency as each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import Dim
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.schedule.gpu.persistent import MOST_ELEMENTS, MOST_STAGES, multiplies
from amdjax.schedule.gpu.row_plan import EACH
from amdjax.targets import GpuTarget
from amdjax.tile import Buffer, Builder, Value

WORD = 8  # bytes of an argument


def threads_of(kernel: tile.Kernel, target: GpuTarget) -> int:
    """Threads of a program."""
    return kernel.schedule.workgroup or target.wave_size


@dataclass(frozen=True)
class Candidate:
    """Launches of one kernel.

    Args:
      kernel: the kernel.
      programs: of it.
      lists: of arguments.
      in_place: whether it may write over what it reads. Threads for which its tiles have no element
        repeat what others do, which may come too late then.
    """

    kernel: tile.Kernel
    programs: int
    lists: int
    in_place: bool


def groups_to_join(candidates: Sequence[Candidate], target: GpuTarget) -> list[list[int]]:
    """Which of several independent launches are better one, by their numbers; others are alone.

    The first of a group says how many threads a program has.
    """
    numbers = range(len(candidates))
    if not (target.joins_kernels and target.costs.launch) or len(candidates) == 1:
        return [[i] for i in numbers]
    apart = [i for i in numbers if not _is_joinable(candidates[i])]
    threads = {i: _threads(candidates[i], target) for i in numbers if i not in apart}
    left, groups = sorted(threads, key=threads.__getitem__, reverse=True), [[i] for i in apart]
    while left:
        group = [left.pop(0)]
        for i in [*left]:
            if _fits([candidates[j] for j in (*group, i)], target):
                group.append(i)
                left.remove(i)
        groups.append(group)
    return groups


def _threads(x: Candidate, target: GpuTarget) -> int:
    return x.programs * threads_of(x.kernel, target)


def _fits(group: Sequence[Candidate], target: GpuTarget) -> bool:
    """Whether the last of a group may be one launch with the others."""
    kernels, last = [x.kernel for x in group], group[-1]
    workgroup = threads_of(kernels[0], target)
    words = sum(x.lists for x in group) * (2 + len(_params(kernels)))
    return (
        len(group) <= MOST_STAGES
        and sum(x.programs for x in group) * workgroup <= target.resident_threads
        and words * WORD <= target.kernarg_bytes
        and sum(b.size * tile.itemsize(b.dtype) for b in _scratch(kernels)) <= scratch_limit(target)
        and _serves(workgroup, last, target)
    )


def _is_joinable(x: Candidate) -> bool:
    """Whether its code may be part of another kernel, for another number of threads."""
    known = not x.kernel.sizes and not isinstance(x.programs, Dim)
    return known and not x.kernel.cooperative and not multiplies(x.kernel)


def _serves(workgroup: int, x: Candidate, target: GpuTarget) -> bool:
    """Whether so many threads serve a kernel that was planned for others."""
    threads = threads_of(x.kernel, target)
    if workgroup == threads:
        return True
    if workgroup > threads:
        few = workgroup <= MOST_ELEMENTS * threads or x.programs <= target.compute_units
        return few and not x.in_place
    values = (v for op in tile.nested_ops(x.kernel.body) for v in op.results)
    return max((math.prod(v.shape) for v in values), default=1) <= EACH * workgroup


def _scratch(kernels: Sequence[tile.Kernel]) -> list[Buffer]:
    """Scratch that serves each of the kernels: their buffers of a dtype in turn."""
    found: dict[str, Buffer] = {}
    for kernel in kernels:
        for name, b in zip(_names(kernel.scratch), kernel.scratch, strict=True):
            size = max(b.size, found[name].size if name in found else 0)
            found[name] = replace(b, name=name, size=size)
    return list(found.values())


def _params(kernels: Sequence[tile.Kernel]) -> dict[str, Buffer]:
    """Parameters that serve each of the kernels: their parameters of a role in turn."""
    found: dict[str, Buffer] = {}
    for kernel in kernels:
        for name, p in zip(_names(kernel.params), kernel.params, strict=True):
            found.setdefault(name, p)
    return found


def _names(buffers: Sequence[Buffer]) -> list[str]:
    """What buffers are called in a joint kernel: by their kind, and which of that kind they are."""
    counts: dict[str, int] = {}
    names = []
    for b in buffers:
        kind = b.dtype if b.role == "scratch" else b.role
        names.append(f"{kind}.{counts.setdefault(kind, 0)}")
        counts[kind] += 1
    return names


def join(kernels: Sequence[tile.Kernel], workgroup: int) -> tuple[tile.Kernel, list[list[int]]]:
    """One kernel of several, and where the parameters of each are among its own.

    Its first parameter is the number of the kernel whose code runs. What a kernel has no parameter
    for is not read.

    Args:
      kernels: the kernels.
      workgroup: threads of a program.
    """
    k = Builder("_".join(dict.fromkeys(kernel.name for kernel in kernels)))
    schedules = [kernel.schedule for kernel in kernels]
    bits = max(s.index_bits for s in schedules)
    k.schedule = tile.Schedule(workgroup, schedules[0].vector, bits)
    which = k.size(k.param("which", "index", "size"))
    params = {name: k.param(name, p.dtype, p.role) for name, p in _params(kernels).items()}
    scratch = {b.name: k.scratch(b.name, b.dtype, b.size) for b in _scratch(kernels)}
    program, once = k.program_id(), k.const("bool", True)

    def write(number: int) -> None:
        kernel = kernels[number]
        own = {
            b.name: shared[name]
            for group, shared in ((kernel.params, params), (kernel.scratch, scratch))
            for b, name in zip(group, _names(group), strict=True)
        }
        body = lambda: tile.inline(k, kernel, program, own, {}, once)
        if kernel.schedule.vector == k.schedule.vector:
            body()
        else:
            k.shift((), (), kernel.schedule.vector, body)

    _switch(k, which, len(kernels), write)
    found = [b.name for b in k.params]
    places = [[found.index(name) for name in _names(kernel.params)] for kernel in kernels]
    return replace(k.finish(0), align=min(kernel.align for kernel in kernels)), places


def _switch(k: Builder, which: Value, cases: int, write: Callable[[int], None]) -> None:
    """Write the cases of a number, each where it is that one."""

    def one(i: int) -> None:
        if i == cases - 1:
            write(i)
        else:
            k.if_(k.eq(which, i), lambda: write(i), lambda: one(i + 1))

    one(0)
