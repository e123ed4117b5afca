"""Sums of what another kernel has in registers, which that kernel computes.

A region with reductions has its rows there. What else only reads them, to reduce over the rows what
that region reduces along them, as of the gradients of a norm's parameters, is computed by the same
kernel: its programs take several rows one after the other, and leave what these add up to.

A product has a tile. What reduces blocks of its rows, as the moments of batch norm, is computed of
slices of the tile that are such blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from amdjax.core.dims import Dim
from amdjax.core.jaxpr import Literal, Var
from amdjax.core.lowering import Shaped
from amdjax.passes import is_on
from amdjax.schedule.equations import size_of
from amdjax.schedule.fusion import LARGE, Fusion, Region, Root, Single, step_reads, step_writes
from amdjax.schedule.index import Index, linear, placed
from amdjax.schedule.reduction import Reduction

LEAST_ROWS = 64  # of which several are one program's
MOST_SUMS = 4  # they stay in registers beside a row


def attach_sums(fusion: Fusion) -> Fusion:
    """The program with regions of rows that compute sums over the same rows, too."""
    if not is_on("fuse_sums"):
        return fusion
    order = {step: i for i, step in enumerate(fusion.steps)}
    makers = {v: i for step, i in order.items() for v in step_writes(step)}
    for sums in [s for s in fusion.steps if isinstance(s, Region) and _are_of_blocks(s)]:
        at = {makers[v] for v in _reads(sums) if v in makers}
        product = fusion.steps[max(at)] if at else None
        if isinstance(product, Single) and product in order and _has_blocks(product, sums):
            product.sums = sums
            makers.update((v, order[product]) for v in step_writes(sums))
            del order[sums]
    for sums in [s for s in order if isinstance(s, Region) and _are_sums(s)]:
        readers = (i for s, i in order.items() if not _reads(s).isdisjoint(step_writes(sums)))
        end = min(readers, default=len(order))
        begin = max((makers[v] for v in _reads(sums) if v in makers), default=-1)
        for rows in [s for s, i in order.items() if begin <= i < end]:
            if isinstance(rows, Region) and rows is not sums and _serve(rows, sums):
                rows.sums = sums
                makers.update((v, order[rows]) for v in step_writes(sums))
                del order[sums]
                break
    return replace(fusion, steps=list(order))


def _reads(step: Region | Single) -> set[Var]:
    return {v for v in step_reads(step) if not isinstance(v, Literal)}


def _are_of_blocks(region: Region) -> bool:
    """Whether a region reduces an axis before the last one, of several, and stores only that."""
    if region.axes is None or any(isinstance(n, Dim) for n in region.domain):
        return False
    reductions = [r for r in region.roots if r.is_reduction]
    return (
        len(region.domain) > 1
        and region.axes == (len(region.domain) - 2,)
        and size_of(region.domain) >= LARGE
        and all(Reduction(r.eqn).is_simple for r in reductions)
        and all(r.row for r in region.roots if not r.is_reduction)
        and not any(x.aval.dtype.kind == "c" for r in reductions for x in r.eqn.invars)
    )


def _has_blocks(product: Single, sums: Region) -> bool:
    """Whether a product or convolution stores all that is summed, in the order of the sums."""
    rule = product.eqn.primitive.lowering
    if not isinstance(rule, Shaped) or not rule.epilogue or product.sums is not None:
        return False
    made, own, found = set(step_writes(product)), set(step_writes(sums)), False
    for r in sums.roots:
        position = linear(tuple(map(Index.of, r.dims)), r.domain)
        for v, index in r.reads:
            if v in made:
                if v.aval.size != size_of(sums.domain) or linear(index, v.aval.shape) != position:
                    return False
                found = True
            elif isinstance(v, Var) and v not in own and v.aval.size >= LARGE:
                return False
    return found


def _are_sums(region: Region) -> bool:
    """Whether a region is reductions, and what follows of them alone."""
    reductions = [r for r in region.roots if r.is_reduction]
    known = not any(isinstance(n, Dim) for n in region.domain)
    return (
        region.axes is not None
        and known
        and 0 < len(reductions) <= MOST_SUMS
        and all(r.level == 0 and Reduction(r.eqn).is_simple for r in reductions)
        and all(r.row for r in region.roots if not r.is_reduction)
        and not any(x.aval.dtype.kind == "c" for r in reductions for x in r.eqn.invars)
    )


def _serve(rows: Region, sums: Region) -> bool:
    """Whether a region of rows has what sums over these rows are of."""
    if rows.axes is None or rows.sums is not None or sums.sums is not None:
        return False
    if any(isinstance(n, Dim) for n in rows.domain) or rows.domain != sums.domain:
        return False
    if {*rows.axes} != {*sums.row_axes} or size_of(rows.domain) < LARGE:
        return False
    if size_of(rows.row_shape) < LEAST_ROWS or any(r.loop is not None for r in rows.roots):
        return False
    read = {v for r in rows.roots for v, _ in r.reads if size_of(v.aval.shape) >= LARGE}
    made = {v for r in rows.roots for v in r.vars}
    elements = [x for r in sums.roots if r.is_reduction for x in _places(r, sums)]
    shared = any(v in read or v in made for v, axes in elements if axes is None)
    return shared and all(axes is not False for _, axes in elements)


def _places(root: Root, sums: Region) -> Iterator[tuple[Var, tuple[int, ...] | bool | None]]:
    """What a sum reads, and of which axes' place alone: None of all, False of another place."""
    kept, reduced = sums.row_axes, sums.axes or ()
    for v, index in root.reads:
        if isinstance(v, Literal):
            continue
        found: tuple[int, ...] | bool | None = False
        for axes in (None, kept, reduced, ()):
            dims = root.dims if axes is None else [root.dims[i] for i in axes]
            sizes = tuple(d.extent for d in dims)
            same = tuple(n for n in v.aval.shape if n != 1) == sizes
            if same and index == placed(map(Index.of, dims), v.aval.shape):
                found = axes
                break
        yield v, found
