"""The loops of a region: splits and merges until they are few and long.

Axes that a reshape splits are split, axes that are one to every access are merged. To see the
accesses, the region's element rules are run once on dummies; what splits loops is put into them.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Sequence

from amdjax import tile
from amdjax.core.dims import divisor, is_multiple, size_hint, surely_equal
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.index import (
    Index,
    LoopVar,
    Symbol,
    linear,
    placed,
    quotients,
    symbols_in,
)
from amdjax.schedule.reads import Tracer
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.values import El, compute_dtype


def region_producers(region: Region, fusion: Fusion) -> dict[Var, JaxprEqn]:
    """The equations that make what a region computes of what it reads from memory."""
    own = {v for r in region.roots if not r.is_reduction for v in r.vars}
    made: dict[Var, JaxprEqn] = {}
    wanted = [v for r in region.roots for v in (*r.vars, *r.eqn.invars)]
    while wanted:
        v = wanted.pop()
        if isinstance(v, Literal) or v in made or (v in fusion.roots and v not in own):
            continue
        if (eqn := fusion.producers.get(v)) is not None:
            made[v] = eqn
            wanted += eqn.invars
    return made


class Domain:
    """The loops of a region after splitting and merging.

    Attributes:
      index: for each axis of the region's domain its index in terms of split loop variables.
      vars: the final loop variables, outermost first.
      reduced: those of them that are reduced over.
      alias: merged variables, to be substituted in offsets.
      offsets: every memory access (and store) as an offset in terms of `vars`.
      irregular: indices that are used as values or in guards.
      launch_size, launch_divisor: points of this domain and of those that share its launch, and
        what divides the numbers of each of them.
    """

    def __init__(self, region: Region, fusion: Fusion):
        self.region, self.fusion = region, fusion
        sizes = fusion.launch_sizes(region)
        self.launch_size, self.launch_divisor = sum(sizes), divisor(*sizes)
        reduced_axes = region.axes or ()
        self.atoms: list[tuple[LoopVar, bool]] = []
        self.index: list[Index] = []
        for axis, n in enumerate(region.domain):
            var = LoopVar(f"i{axis}", n)
            self.index.append(Index.of(var))
            if n != 1:
                self.atoms.append((var, axis in reduced_axes))
        self._trace()
        for _ in range(3):
            if not self._split():
                break
        self._merge()

    @property
    def inner(self) -> list[LoopVar]:
        """The loops that are reduced."""
        return [v for v in self.vars if v in self.reduced]

    @property
    def outer(self) -> list[LoopVar]:
        """The loops over rows."""
        return [v for v in self.vars if v not in self.reduced]

    @classmethod
    def of_rows(cls, region: Region, fusion: Fusion) -> Domain:
        """What combining needs to know: nothing is merged, accesses are those of the rows."""
        self = cls.__new__(cls)
        self.region, self.fusion, self.alias = region, fusion, {}
        self.operations, self.widest, self.cost = 8, 64, 8.0
        self.loads, self.stores, self.irregular = [], [], []
        return self

    def segmented(self) -> Domain | None:
        """The same with the innermost loop, a short reduced one, and that over rows as one loop.

        Rows are then segments of a power of two of its steps. None where memory is read otherwise
        than along both.
        """
        if len(self.vars) < 2 or self.vars[-1] not in self.reduced or self.vars[-2] in self.reduced:
            return None
        row, step = self.vars[-2:]
        n = step.extent
        offsets = [o for _, o in self.loads + self.stores]
        read = [o for o in offsets if o.depends_on(step)]
        together = all(o.coefficient(row) == n and o.coefficient(step) == 1 for o in read)
        stuck = {s for o in offsets for q in quotients(o) for s in symbols_in(q.inner)}
        stuck |= {s for i in self.irregular for s in symbols_in(i)}
        if n & (n - 1) or not read or not together or stuck & {row, step}:
            return None
        both = LoopVar(row.name, row.extent * n)
        table: dict[Symbol, Index] = {row: Index.of(both) // n, step: Index.of(both) % n}
        out = copy.copy(self)
        out.vars, out.reduced = [*self.vars[:-2], both], self.reduced - {step}
        out.alias = {v: i.substitute(table) for v, i in self.alias.items()} | table
        out.loads = [(v, o.substitute(table)) for v, o in self.loads]
        out.stores = [(v, o.substitute(table)) for v, o in self.stores]
        return out

    def row_index(self, shape: tuple[int, ...]) -> tuple[Index, ...]:
        """The present row as an index into an array of one element a row."""
        return placed((self.index[i] for i in self.region.row_axes), shape)

    def element_index(self, shape: tuple[int, ...]) -> tuple[Index, ...]:
        """The present element as an index into an array of one element a point of the domain."""
        return placed(self.index, shape)

    def root_index(self, root: Root, var: Var) -> tuple[Index, ...]:
        """The index of a root's result at the current point of the domain."""
        per_row = root.row or root.is_reduction
        return (self.row_index if per_row else self.element_index)(var.aval.shape)

    def written(self, var: LoopVar) -> int:
        """Operations where all steps of a loop are written out, which share what they can."""
        tracer, _ = self._traced([{var: Index(i)} for i in range(var.extent)])
        return sum(1 for _ in tile.nested_ops(tracer.k.block))

    def _trace(self) -> None:
        tracer, stores = self._traced([{}])
        ops = list(tile.nested_ops(tracer.k.block))
        self.operations = len(ops)
        self.widest = max((_bits(op.results[0].dtype) for op in ops if op.results), default=32)
        self.cost = sum(r.cost if r.loop is None else r.loop.cost for r in self.region.roots)
        self.loads, self.stores = tracer.offsets, stores + tracer.stepwise
        self.irregular = tracer.irregular

    def _traced(
        self, steps: Iterable[dict[Symbol, Index]]
    ) -> tuple[Tracer, list[tuple[Var, Index]]]:
        """What the roots do at the points that some loops' values say, and what they store."""
        roots = {v: r for r in self.region.roots for v in r.vars}

        def reduced(var: Var, index: tuple[Index, ...]) -> El | None:
            root = roots.get(var)
            return tracer.dummy(var) if root is not None and root.is_reduction else None

        producers = region_producers(self.region, self.fusion)
        tracer = Tracer(producers, reduced, self.fusion.stored)
        tracer.spread_anywhere(v for v, _ in self.atoms)
        stores: list[tuple[Var, Index]] = []

        def at(index: tuple[Index, ...], step: dict[Symbol, Index]) -> tuple[Index, ...]:
            return tuple(i.substitute(step) for i in index) if step else index

        for step, root in itertools.product(steps, self.region.roots):
            if root.is_reduction:
                rule = Reduction(root.eqn)
                rule.element(tracer, at(self.element_index(rule.shape), step))
            if root.loop is not None:
                tracer.results(root.eqn, at(self.element_index(root.loop.shape), step))
            for v in root.points:
                index = at(self.root_index(root, v), step)
                if not root.is_reduction:
                    tracer.value(v, index)
                if v in self.fusion.stored:
                    stores.append((v, linear(index, v.aval.shape)))
        return tracer, stores

    def _split(self) -> bool:
        """Split loops that some access divides; True if any was."""
        factors: dict[LoopVar, set[int]] = {}
        for i in [o for _, o in self.loads + self.stores] + self.irregular:
            for q in quotients(i):
                inner = q.inner
                plain = len(inner.terms) == 1 and surely_equal(inner.const, 0)
                if plain and surely_equal(inner.terms[0][1], 1):
                    var = inner.terms[0][0]
                    if (
                        isinstance(var, LoopVar)
                        and is_multiple(var.extent, q.by)
                        and 1 < q.by < var.extent
                    ):
                        factors.setdefault(var, set()).add(q.by)
        table: dict[Symbol, Index] = {}
        atoms: list[tuple[LoopVar, bool]] = []
        for var, reduced in self.atoms:
            if var not in factors:
                atoms.append((var, reduced))
                continue
            index, step = Index(0), 1
            split: list[tuple[LoopVar, bool]] = []
            for by in [*sorted(factors[var], key=size_hint), var.extent]:
                if not is_multiple(by, step) or surely_equal(by, step):
                    continue
                factor = LoopVar(f"{var.name}_{step}", by // step)
                index = index + Index.of(factor) * step
                split.insert(0, (factor, reduced))
                step = by
            table[var] = index
            atoms += split
        self.index = [i.substitute(table) for i in self.index]
        self.atoms = atoms
        if table:
            self.loads = [(v, o.substitute(table)) for v, o in self.loads]
            self.stores = [(v, o.substitute(table)) for v, o in self.stores]
            self.irregular = [i.substitute(table) for i in self.irregular]
        return bool(table)

    def _merge(self) -> None:
        """Join neighboring loops that are one to every access."""
        stuck: set[Symbol] = set()
        for i in self.irregular:
            stuck |= symbols_in(i)
        for _, i in self.loads + self.stores:
            for q in quotients(i):
                stuck |= symbols_in(q.inner)
        offsets = [o for _, o in self.loads + self.stores]
        self.alias: dict[Symbol, Index] = {}
        groups: list[tuple[list[LoopVar], bool]] = []
        for var, reduced in self.atoms:
            if (
                groups
                and groups[-1][1] == reduced
                and self._joins(groups[-1][0][-1], var, offsets, stuck)
            ):
                groups[-1][0].append(var)
            else:
                groups.append(([var], reduced))
        self.vars: list[LoopVar] = []
        self.reduced: set[LoopVar] = set()
        for loops, reduced in groups:
            merged = loops[0]
            if len(loops) > 1:
                merged = LoopVar(loops[-1].name, math.prod(x.extent for x in loops))
                self.alias.update({x: Index(0) for x in loops})
                self.alias[loops[-1]] = Index.of(merged)
            self.vars.append(merged)
            if reduced:
                self.reduced.add(merged)
        self.loads = [(v, o.substitute(self.alias)) for v, o in self.loads]
        self.stores = [(v, o.substitute(self.alias)) for v, o in self.stores]

    @staticmethod
    def _joins(
        outer: LoopVar, inner: LoopVar, offsets: Sequence[Index], stuck: set[Symbol]
    ) -> bool:
        if outer in stuck or inner in stuck:
            return False
        return all(
            surely_equal(o.coefficient(outer), o.coefficient(inner) * inner.extent) for o in offsets
        )

    @property
    def size(self) -> int:
        return math.prod(self.region.domain)


def _bits(dtype: str) -> int:
    return 8 if dtype == "index" else 8 * tile.itemsize(compute_dtype(dtype))
