"""Launches that are independent of each other, as few instructions.

On a CPU all of them are one parallel region of the pool. On a GPU kernels of the same code become
one launch, whose programs find their kernel's arguments in a table; for products that is code
which is told sizes. Small kernels of different code become one, too, and the table tells which of
them a program is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.jit.instructions import Launch, Storage, View, Word
from amdjax.runtime import vm
from amdjax.schedule.gpu.joined import WORD, Candidate, groups_to_join, join, threads_of
from amdjax.schedule.horizontal import are_few
from amdjax.targets import GpuTarget
from amdjax.tile.generalize import generalize, structure, with_strides_told


def number(n: Any) -> View:
    """A number, or a size, as an operand."""
    return View(Storage(0, vm.ZERO), n)


def together_on_cpu(launches: Sequence[Launch]) -> list[Word]:
    """The kernels of a `CALLS`."""
    words: list[Word] = []
    for launch in launches:
        words += [launch.kernel, launch.grid, len(launch.views), *launch.views]
    return words


def together_on_gpu(
    launches: Sequence[Launch], target: GpuTarget, by_line: bool
) -> Iterator[Launch]:
    """The launches as fewer: those of the same code, few products of several sizes, small ones.

    Args:
      launches: independent of each other.
      target: says how many arguments a launch may have.
      by_line: whether code from different lines of the user is different.
    """
    alike: dict[Any, list[Launch]] = {}
    for launch in launches:
        alike.setdefault(_code(launch.kernel, by_line), []).append(launch)
    few = len(alike) > 1 and are_few(sum(x.grid for x in launches), target)
    batches = _of_sizes(alike) if few else list(alike.values())
    for batch in _of_codes(batches, target):
        words = 1 + len(batch[0].views)
        most = max(target.kernarg_bytes // (WORD * words), 1)
        # Launches of one size, which share their code.
        rows = ceil_div(len(batch), ceil_div(len(batch), most))
        for first in range(0, len(batch), rows):
            yield _joined(batch[first : first + rows], rows)


def _code(kernel: tile.Kernel, by_line: bool) -> Any:
    """What tells a kernel from others but for its grid."""
    text, lines = tile.listing(replace(kernel, grid=0))
    origins = tile.origins(kernel, lines).values() if by_line else ()
    return text, tuple(origins)


def _of_sizes(alike: dict[Any, list[Launch]]) -> list[list[Launch]]:
    """Launches by their code; those of products that differ in sizes alone have one."""
    groups: dict[Any, list[list[Launch]]] = {}
    for (_, origins), batch in alike.items():
        kernel = batch[0].kernel
        told = with_strides_told(kernel) if _multiplies(kernel) else None
        key = None if told is None else structure(told)
        groups.setdefault(id(batch) if key is None else (key, frozenset(origins)), []).append(batch)
    return [
        batches[0] if len(batches) == 1 else _told_sizes(batches) for batches in groups.values()
    ]


def _of_codes(batches: Sequence[Sequence[Launch]], target: GpuTarget) -> Iterator[Sequence[Launch]]:
    """Launches of one code each, of which small ones get one together."""
    candidates = [
        Candidate(x[0].kernel, sum(y.grid for y in x), len(x), any(map(_is_in_place, x)))
        for x in batches
    ]
    for group in groups_to_join(candidates, target):
        kernels = [candidates[i].kernel for i in group]
        if len(group) == 1:
            yield batches[group[0]]
            continue
        kernel, places = join(kernels, threads_of(kernels[0], target))
        yield [
            replace(x, kernel=kernel, views=_placed(x.views, len(kernel.params), which, places))
            for (which, places), i in zip(enumerate(places), group, strict=True)
            for x in batches[i]
        ]


def _placed(
    views: Sequence[View], count: int, which: int, places: Sequence[int]
) -> tuple[View, ...]:
    """The arguments of one of several joint kernels: which it is, and its own in their places."""
    placed = [number(which), *(number(0) for _ in range(count - 1))]
    for place, view in zip(places, views, strict=True):
        placed[place] = view
    return tuple(placed)


def _is_in_place(launch: Launch) -> bool:
    """Whether a kernel may write over what it reads."""
    pairs = list(zip(launch.kernel.params, launch.views, strict=True))
    read = {id(view.storage) for p, view in pairs if p.role == "in"}
    return any(p.role in ("out", "inout") and id(view.storage) in read for p, view in pairs)


def _multiplies(kernel: tile.Kernel) -> bool:
    return any(isinstance(op, tile.ops.Contract) for op in tile.nested_ops(kernel.body))


def _told_sizes(batches: Sequence[Sequence[Launch]]) -> list[Launch]:
    """Launches of one kernel, each with its sizes behind its operands."""
    kernels = [with_strides_told(batch[0].kernel) for batch in batches]
    kernel, numbers = generalize(kernels, aligned=True)
    return [
        replace(x, kernel=kernel, views=(*x.views, *map(number, own)))
        for batch, own in zip(batches, numbers, strict=True)
        for x in batch
    ]


def _joined(batch: Sequence[Launch], rows: int) -> Launch:
    """One launch: the first program of each, and its arguments; the last again without programs."""
    if rows == 1:
        return batch[0]
    views: list[View] = []
    programs = 0
    for x in batch:
        views += [number(programs), *x.views]
        programs += x.grid
    views += [number(programs), *batch[-1].views] * (rows - len(batch))
    kernel = replace(batch[0].kernel, batch=rows, grid=programs)
    return Launch(kernel, programs, tuple(views), sum(x.nanoseconds for x in batch))
