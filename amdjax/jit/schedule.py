"""Gives a region its loops and tiles: from what is computed to a tile program.

The domain of a region is first brought to few long loops: axes that a reshape splits are split,
axes that every access walks as one are merged. One loop is then spread over vector lanes. Without
reductions the programs of the grid are blocks of the domain. With reductions a program is a row
(the reduced axes run in lanes) or a bundle of rows (neighbouring rows run in lanes), and it makes
one pass over its rows for each level of reductions that wait for each other. Few rows with much to
reduce are cut into pieces, and a second kernel combines the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax.core.jaxpr import Var
from amdjax.codegen import tile
from amdjax.jit.element import El, ElementBuilder, Lanes, compute_dtype, part_dtype, short_dtype
from amdjax.jit.fusion import Fusion, Region, Root
from amdjax.jit.index import Index, LoopVar, Quotient, Symbol, linear
from amdjax.jit.reduction import Reduction
from amdjax.targets.cpu import CpuTarget

CHUNK = 4096  # elements a program of an elementwise kernel handles
STASH_LIMIT = 8192  # elements of a row kept in scratch between passes
SPLIT_WORK = 1 << 15  # elements below which a reduction is not cut into pieces


@dataclass(eq=False)
class Temp:
    """Workspace between the kernels of one step."""

    dtype: str
    size: int


@dataclass
class Call:
    """One kernel launch: what it reads and writes, and how long it may take.

    Attributes:
      args: a variable, a workspace or a number for each parameter of the kernel.
      grid: number of programs.
      nanoseconds: estimate for one thread.
      in_place: pairs of positions in `args` (read, written) that may share memory.
    """

    kernel: tile.Kernel
    args: list[Any]
    grid: int
    nanoseconds: float
    in_place: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Copy:
    """`result` starts as a copy of `source`, or takes over its memory if nobody needs it."""

    source: Any
    result: Var


def lower_region(region: Region, fusion: Fusion, target: CpuTarget) -> list[Call]:
    """The kernels of a region, usually one."""
    if 0 in region.domain:
        return _empty_region(region, fusion, target)
    domain = Domain(region, fusion)
    if region.axes is None:
        return [_MapKernel(region, fusion, target, domain).build()]
    return _RowKernel(region, fusion, target, domain).build()


def _empty_region(region: Region, fusion: Fusion, target: CpuTarget) -> list[Call]:
    """Nothing to walk: element values have no elements, reductions are their identities."""
    stored: list[Any] = [v for r in region.roots for v in r.vars if v in fusion.stored]
    calls = [Call(tile.Builder("empty").finish(0), stored, 0, 0.0)]  # gives them their places
    rows = int(np.prod(region.row_shape, dtype=np.int64)) if region.axes is not None else 0
    if rows:
        reductions = {r: Reduction(r.eqn) for r in region.roots if r.is_reduction}
        partials: dict[Root, list[Temp]] = {r: [] for r in reductions}
        calls.append(_CombineKernel(region, fusion, target, reductions, partials, 0, rows).build())
    return calls


# -- the domain ------------------------------------------------------------------------------


class _Tracer(ElementBuilder):
    """Records the offsets of all memory accesses, and indices used in other ways."""

    def __init__(self, region: Region, fusion: Fusion):
        self.region_roots = {v: r for r in region.roots for v in r.vars}
        super().__init__(
            tile.Builder("trace"), _region_producers(region, fusion), _any_buffer, self._root
        )
        self.offsets: list[tuple[Var, Index]] = []
        self.irregular: list[Index] = []
        self._any = self.k.program_id()

    def _root(self, var: Var, index: tuple[Index, ...]) -> El | None:
        root = self.region_roots.get(var)
        return self._dummy(var) if root is not None and root.is_reduction else None

    def _dummy(self, var: Var) -> El:
        dtype = short_dtype(var.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        buffer = tile.Buffer("x", compute_dtype(part_dtype(dtype)), "in")
        return El(dtype, *(self.k.load(buffer, 0) for _ in range(parts)))

    def load(self, var: Var, offset: Index) -> El:
        self.offsets.append((var, offset))
        return self._dummy(var)

    def index_tile(self, i: Index) -> tile.Value:
        self.irregular.append(i)
        return self._any


def _any_buffer(var: Var) -> tile.Buffer:
    return tile.Buffer("x", "f32", "in")


def _region_producers(region: Region, fusion: Fusion) -> dict[Var, Any]:
    own = {v for r in region.roots if not r.is_reduction for v in r.vars}
    return {v: e for v, e in fusion.producers.items() if v not in fusion.roots or v in own}


class Domain:
    """The loops of a region after splitting and merging.

    Attributes:
      index: for each axis of the region's domain its index in terms of split loop variables.
      vars: the final loop variables, outermost first.
      reduced: those of them that are reduced over.
      alias: merged variables, to be substituted in offsets.
      offsets: every memory access (and store) as an offset in terms of `vars`.
      irregular: indices that are used as values or in guards.
    """

    def __init__(self, region: Region, fusion: Fusion):
        self.region, self.fusion = region, fusion
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
            self._trace()
        self._merge()

    @classmethod
    def of_rows(cls, region: Region, fusion: Fusion) -> Domain:
        """What combining needs to know: nothing is merged, accesses are those of the rows."""
        self = cls.__new__(cls)
        self.region, self.fusion, self.alias = region, fusion, {}
        self.operations, self.widest, self.cost = 8, 64, 8.0
        self.loads, self.stores, self.irregular = [], [], []
        return self

    def row_index(self) -> tuple[Index, ...]:
        return tuple(self.index[i] for i in self.region.row_axes)

    def root_index(self, root: Root) -> tuple[Index, ...]:
        """The index of a root's result at the current point of the domain."""
        return self.row_index() if root.row or root.is_reduction else tuple(self.index)

    def _trace(self) -> None:
        tracer = _Tracer(self.region, self.fusion)
        loops = {v for v, _ in self.atoms}
        for var in loops:
            tracer.scalars[var] = tracer._any
        stores: list[tuple[Var, Index]] = []
        for root in self.region.roots:
            if root.is_reduction:
                Reduction(root.eqn).element(tracer, tuple(self.index))
            for v in root.vars:
                index = self.root_index(root)
                if not root.is_reduction:
                    tracer.value(v, index)
                if v in self.fusion.stored:
                    stores.append((v, linear(index, v.aval.shape)))
        self.operations = len(tracer.k._block.ops)
        self.widest = max(
            (_bits(op.results[0].dtype) for op in tracer.k._block.ops if op.results), default=32
        )
        self.cost = sum(root.cost for root in self.region.roots)
        self.loads, self.stores, self.irregular = tracer.offsets, stores, tracer.irregular

    def _split(self) -> bool:
        """Split loops that some access divides; True if any was."""
        factors: dict[LoopVar, set[int]] = {}
        for i in [o for _, o in self.loads + self.stores] + self.irregular:
            for q in _quotients(i):
                inner = q.inner
                if len(inner.terms) == 1 and inner.const == 0 and inner.terms[0][1] == 1:
                    var = inner.terms[0][0]
                    if (
                        isinstance(var, LoopVar)
                        and var.extent % q.by == 0
                        and 1 < q.by < var.extent
                    ):
                        factors.setdefault(var, set()).add(q.by)
        table: dict[Symbol, Index] = {}
        atoms: list[tuple[LoopVar, bool]] = []
        for var, reduced in self.atoms:
            if var not in factors:
                atoms.append((var, reduced))
                continue
            index, inner = Index(0), 1
            pieces: list[tuple[LoopVar, bool]] = []
            for by in [*sorted(factors[var]), var.extent]:
                if by % inner or by == inner:
                    continue
                piece = LoopVar(f"{var.name}_{inner}", by // inner)
                index = index + Index.of(piece) * inner
                pieces.insert(0, (piece, reduced))
                inner = by
            table[var] = index
            atoms += pieces
        self.index = [i.substitute(table) for i in self.index]
        self.atoms = atoms
        return bool(table)

    def _merge(self) -> None:
        """Join neighbouring loops that every access walks as one."""
        stuck: set[Symbol] = set()
        for i in self.irregular:
            stuck |= _symbols(i)
        for _, i in self.loads + self.stores:
            for q in _quotients(i):
                stuck |= _symbols(q.inner)
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
        for members, reduced in groups:
            merged = members[0]
            if len(members) > 1:
                merged = LoopVar(
                    members[-1].name, int(np.prod([m.extent for m in members], dtype=np.int64))
                )
                self.alias.update({m: Index(0) for m in members})
                self.alias[members[-1]] = Index.of(merged)
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
        return all(o.coefficient(outer) == o.coefficient(inner) * inner.extent for o in offsets)

    @property
    def size(self) -> int:
        return int(np.prod(self.region.domain, dtype=np.int64))


def _quotients(i: Index) -> list[Quotient]:
    found = []
    for s, _ in i.terms:
        if isinstance(s, Quotient):
            found += [s, *_quotients(s.inner)]
    return found


def _symbols(i: Index) -> set[Symbol]:
    out: set[Symbol] = set()
    for s, _ in i.terms:
        out.add(s)
        if isinstance(s, Quotient):
            out |= _symbols(s.inner)
    return out


def _bits(dtype: str) -> int:
    if dtype in ("index", "bool"):
        return 8
    return int("".join(ch for ch in compute_dtype(dtype) if ch.isdigit())[:2])


# -- kernels ---------------------------------------------------------------------------------


class _KernelWriter:
    """What map and row kernels share: parameters, builders, lane loops."""

    def __init__(self, region: Region, fusion: Fusion, target: CpuTarget, domain: Domain):
        self.region, self.fusion, self.target, self.domain = region, fusion, target, domain
        self.begin()

    def begin(self) -> None:
        self.k = tile.Builder("kernel")
        self.args: list[Any] = []
        self.buffers: dict[Any, tile.Buffer] = {}
        self.b = ElementBuilder(
            self.k, _region_producers(self.region, self.fusion), self.memory, self.special
        )
        self.b.alias = self.domain.alias

    def param(self, owner: Any, dtype: str, role: str) -> tile.Buffer:
        found = self.buffers.get(owner)
        if found is None:
            name = f"{'x' if role == 'in' else 'y' if role == 'out' else 'n'}{len(self.args)}"
            found = self.buffers[owner] = self.k.param(name, dtype, role)
            self.args.append(owner)
        return found

    def memory(self, var: Var) -> tile.Buffer:
        return self.param(var, short_dtype(var.aval.dtype), "in")

    def output(self, var: Var) -> tile.Buffer:
        return self.param(var, short_dtype(var.aval.dtype), "out")

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        return None

    def lane_count(self, extent: int) -> int:
        """Elements in a tile: four registers of the widest dtype, fewer where much is alive."""
        registers = 4 if self.domain.operations < 60 else 2 if self.domain.operations < 200 else 1
        full = max(4, registers * self.target.vector_bits // max(self.domain.widest, 8))
        full = min(full, 128)
        return min(full, 1 << max(extent - 1, 0).bit_length())

    def with_lanes(self, lanes: Sequence[Lanes], fn: Callable[[], Any]) -> Any:
        self.b.lanes += lanes
        try:
            return fn()
        finally:
            del self.b.lanes[-len(lanes) :]

    def mask(self, base: tile.Value, count: int, stop: tile.Value) -> tile.Value:
        """Which of the lanes from `base` lie before `stop`."""
        remaining = self.k.convert(self.k.op("sub", stop, base), "i32")
        return self.k.op("lt", self.k.iota(count, "i32"), remaining)

    def lane_loop(
        self,
        var: LoopVar,
        count: int,
        start: tile.Value | int,
        stop: tile.Value | int,
        carried: Sequence[tile.Value],
        body: Callable[..., Sequence[tile.Value]],
    ) -> Sequence[tile.Value]:
        """Walk `range(start, stop)` in tiles of `count`; the last, unfinished one is masked.

        `body(lanes, *carried)` returns the next carried values.
        """
        k = self.k

        def run(
            base: tile.Value, mask: tile.Value | None, values: Sequence[tile.Value]
        ) -> Sequence[tile.Value]:
            lanes = Lanes(var, count, 0, base, mask)
            return self.with_lanes([lanes], lambda: body(lanes, *values))

        if isinstance(start, int) and isinstance(stop, int):
            whole = start + (stop - start) // count * count
            if whole > start:
                carried = self._whole_tiles(start, whole, count, carried, run)
            if whole < stop:
                last = k.const("index", whole)
                carried = self.b.nested(run)(
                    last, self.mask(last, count, k.const("index", stop)), carried
                )
            return carried
        low, high = k.index(start), k.index(stop)
        span = k.op("sub", high, low)
        whole = k.op("sub", high, k.op("rem", span, k.const("index", count)))
        carried = self._whole_tiles(low, whole, count, carried, run)
        if isinstance(stop, int) and var.extent % count == 0:
            return carried

        def tail() -> Sequence[tile.Value]:
            return self.b.nested(run)(whole, self.mask(whole, count, high), carried)

        return k.if_(k.op("lt", whole, high), tail, lambda: carried)

    def _whole_tiles(self, start: Any, stop: Any, count: int, carried: Any, run: Any) -> Any:
        body = self.b.nested(lambda base, *values: run(base, None, values))
        return self.k.for_(start, stop, count, body, carried)

    def bind_outer(self, variables: Sequence[LoopVar], position: tile.Value) -> None:
        """Give scalar values to variables from their row-major position."""
        k = self.k
        for var in reversed(variables[1:]):
            n = k.const("index", var.extent)
            self.b.scalars[var] = k.op("rem", position, n)
            position = k.op("div", position, n)
        if variables:
            self.b.scalars[variables[0]] = position

    def finish(self, grid: int, elements: int, **options: Any) -> Call:
        per_element = 0.02 * self.domain.cost + 0.06 * len(self.args)
        kernel = self.k.finish(**options) if options else self.k.finish(grid)
        return Call(kernel, self.args, grid, elements * per_element, self.in_place_pairs())

    def in_place_pairs(self) -> list[tuple[int, int]]:
        """Inputs whose every element is read only by the program point that writes its place."""
        pairs = []
        by_var: dict[Var, list[Index]] = {}
        for v, o in self.domain.loads:
            by_var.setdefault(v, []).append(o)
        if self.region.axes is not None or self.domain.irregular:
            return []
        for out, offset in self.domain.stores:
            for v, offsets in by_var.items():
                same = (
                    v.aval.dtype.itemsize == out.aval.dtype.itemsize
                    and v.aval.shape == out.aval.shape
                )
                if same and all(o == offset for o in offsets) and v in self.buffers:
                    pairs.append((self.args.index(v), self.args.index(out)))
        return pairs


class _MapKernel(_KernelWriter):
    """A region without reductions."""

    def build(self) -> Call:
        domain = self.domain
        if not domain.vars:
            self.store_roots()
            return self.finish(1, 1)
        lane_var = self._lane_var()
        across = self._across(lane_var)
        if across is not None:
            return self._build_transposing(lane_var, across)
        if self._is_flat():
            return self._build_flat(lane_var)
        return self._build_blocks(lane_var)

    def store_roots(self) -> None:
        for root in self.region.roots:
            index = self.domain.root_index(root)
            for v in root.vars:
                if v in self.fusion.stored:
                    self.b.store(
                        self.output(v), linear(index, v.aval.shape), self.b.value(v, index)
                    )

    def _lane_var(self) -> LoopVar:
        """The loop whose neighbours lie side by side in most accesses."""

        def score(var: LoopVar) -> float:
            total = 0.0
            for _, o in self.domain.stores:
                total += 4.0 if o.coefficient(var) == 1 else 0.0
            for _, o in self.domain.loads:
                total += 2.0 if o.coefficient(var) == 1 else 1.0 if not o.depends_on(var) else 0.0
            return total if var.extent >= 8 else total * var.extent / 16

        return max(reversed(self.domain.vars), key=score)

    def _across(self, lane_var: LoopVar) -> LoopVar | None:
        """A loop along which some access is contiguous while it strides along the lanes."""
        if self.domain.widest > 64 or lane_var.extent < 8 or self.domain.operations > 100:
            return None
        for _, o in self.domain.loads:
            if o.coefficient(lane_var) in (0, 1) or any(
                isinstance(s, Quotient) for s, _ in o.terms
            ):
                continue
            for var in self.domain.vars:
                if var is not lane_var and var.extent >= 8 and o.coefficient(var) == 1:
                    return var
        return None

    def _is_flat(self) -> bool:
        """Whether one code serves every length: a single loop, nothing depends on its extent."""
        offsets = [o for _, o in self.domain.loads + self.domain.stores]
        plain = all(o.const == 0 and all(c == 1 for _, c in o.terms) for o in offsets)
        return len(self.domain.vars) == 1 and not self.domain.irregular and plain

    def _build_flat(self, var: LoopVar) -> Call:
        k, n = self.k, var.extent
        count = self.lane_count(1 << 20)
        size = self.param(n, "index", "size")
        start = k.program_id() * CHUNK
        stop = k.op("min", start + CHUNK, k.size(size))

        def body(lanes: Lanes) -> Sequence[tile.Value]:
            self.store_roots()
            return ()

        self.lane_loop(var, count, start, stop, (), body)
        return self.finish(-(-n // CHUNK), n)

    def _build_blocks(self, lane_var: LoopVar) -> Call:
        k, n = self.k, lane_var.extent
        count = self.lane_count(n)
        outer = [v for v in self.domain.vars if v is not lane_var]
        chunk = min(n, -(-CHUNK // count) * count)
        chunks = -(-n // chunk)
        pid = k.program_id()
        start: tile.Value | int = 0
        stop: tile.Value | int = n
        if chunks > 1:
            start = k.op("mul", k.op("rem", pid, k.const("index", chunks)), k.const("index", chunk))
            stop = k.op("min", start + chunk, k.const("index", n))
            pid = k.op("div", pid, k.const("index", chunks))
        self.bind_outer(outer, pid)

        def body(lanes: Lanes) -> Sequence[tile.Value]:
            self.store_roots()
            return ()

        self.lane_loop(lane_var, count, start, stop, (), body)
        rows = int(np.prod([v.extent for v in outer], dtype=np.int64))
        return self.finish(rows * chunks, rows * n)

    def _build_transposing(self, lane_var: LoopVar, across: LoopVar) -> Call:
        """Square tiles: what lies the other way is transposed in registers."""
        k = self.k
        side = 16 if self.domain.widest <= 32 and self.target.vector_bits >= 512 else 8
        block = 4 * side
        outer = [v for v in self.domain.vars if v is not lane_var and v is not across]
        counts = [-(-v.extent // block) for v in (across, lane_var)]
        pid = k.program_id()
        places = []
        for n_blocks in reversed(counts):
            places.insert(0, k.op("rem", pid, k.const("index", n_blocks)) * block)
            pid = k.op("div", pid, k.const("index", n_blocks))
        self.bind_outer(outer, pid)
        stops = [
            k.op("min", p + block, k.const("index", v.extent))
            for p, v in zip(places, (across, lane_var), strict=True)
        ]

        def tile_at(i: tile.Value, j: tile.Value) -> None:
            whole = k.op("and", k.op("le", i + side, stops[0]), k.op("le", j + side, stops[1]))

            def full() -> None:
                self._square(across, lane_var, side, i, j, None, None)

            def part() -> None:
                masks = self.mask(i, side, stops[0]), self.mask(j, side, stops[1])
                self._square(across, lane_var, side, i, j, *masks)

            if across.extent % side == 0 and lane_var.extent % side == 0:
                full()
            else:
                k.if_(whole, self.b.nested(full), self.b.nested(part))

        rows = self.b.nested(
            lambda i: (
                k.for_(places[1], stops[1], side, self.b.nested(lambda j: tile_at(i, j))) and None
            )
        )
        k.for_(places[0], stops[0], side, rows)
        batches = int(np.prod([v.extent for v in outer], dtype=np.int64))
        return self.finish(batches * counts[0] * counts[1], self.domain.size)

    def _square(
        self,
        across: LoopVar,
        lane_var: LoopVar,
        side: int,
        i: tile.Value,
        j: tile.Value,
        row_mask: tile.Value | None,
        column_mask: tile.Value | None,
    ) -> None:
        k = self.k
        lanes = [
            Lanes(across, side, 0, i, None if row_mask is None else k.expand(row_mask, 1)),
            Lanes(lane_var, side, 1, j, None if column_mask is None else k.expand(column_mask, 0)),
        ]
        self.with_lanes(lanes, self.store_roots)


class _RowKernel(_KernelWriter):
    """A region with reductions."""

    def build(self) -> list[Call]:
        domain = self.domain
        self.reductions = {r: Reduction(r.eqn) for r in self.region.roots if r.is_reduction}
        self.inner = [v for v in domain.vars if v in domain.reduced]
        self.outer = [v for v in domain.vars if v not in domain.reduced]
        self.levels = max(r.level for r in self.region.roots)
        self._choose_lanes()
        pieces = self._pieces()
        if pieces > 1:
            return self._build_pieces(pieces)
        self.begin()
        self._programs(self._passes)
        return [self.finish(self.grid, domain.size * (1 + self.levels))]

    # -- shape of the schedule -----------------------------------------------------------------

    def _choose_lanes(self) -> None:
        """Lanes over the reduced axes (a row a program) or over neighbouring rows."""
        vars_, reduced = self.domain.vars, self.domain.reduced
        last = vars_[-1] if vars_ else None
        rows = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        if not self.inner and not self.outer:
            self.lane_var, self.lanes_reduce = None, False
        elif not self.outer:
            self.lane_var, self.lanes_reduce = self.inner[-1], True
        elif not self.inner:
            self.lane_var, self.lanes_reduce = self.outer[-1], False
        elif last in reduced:
            short = last.extent < 16 and rows >= 64 and self.outer[-1].extent >= 8
            self.lane_var, self.lanes_reduce = (self.outer[-1], False) if short else (last, True)
        else:
            narrow = last.extent < 4 and self.inner[-1].extent >= 16
            self.lane_var, self.lanes_reduce = (self.inner[-1], True) if narrow else (last, False)
        self.count = self.lane_count(self.lane_var.extent) if self.lane_var is not None else 0

    @property
    def grid(self) -> int:
        n = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        if self.lane_var is not None and not self.lanes_reduce:
            n = n // self.lane_var.extent * -(-self.lane_var.extent // self.count)
        return n

    def _pieces(self) -> int:
        """Into how many pieces the outermost reduced loop is cut."""
        if self.levels > 0 or not self.inner or self.domain.size < SPLIT_WORK:
            return 1
        wanted = 4 * self.target.threads
        if self.grid >= wanted:
            return 1
        extent = self.inner[0].extent
        unit = self.count if self.inner[0] is self.lane_var else 1
        most = max(1, extent // (unit * (8 if unit > 1 else 1)))
        return max(1, min(-(-wanted // self.grid), most, self.domain.size // (SPLIT_WORK // 4)))

    # -- programs ---------------------------------------------------------------------------------

    def _programs(self, body: Callable[[], None], pieces: int = 1) -> None:
        """Bind the variables of the grid and write the body for one program."""
        k = self.k
        pid = k.program_id()
        if pieces > 1:
            self.piece = k.op("rem", pid, k.const("index", pieces))
            pid = k.op("div", pid, k.const("index", pieces))
        outer = self.outer
        if self.lane_var is None or self.lanes_reduce:
            self.bind_outer(outer, pid)
            body()
            return
        outer = [v for v in outer if v is not self.lane_var]
        n, blocks = self.lane_var.extent, -(-self.lane_var.extent // self.count)
        base = k.op("rem", pid, k.const("index", blocks)) * self.count
        self.bind_outer(outer, k.op("div", pid, k.const("index", blocks)))

        def with_mask(mask: tile.Value | None) -> None:
            self.with_lanes([Lanes(self.lane_var, self.count, 0, base, mask)], body)

        if n % self.count == 0:
            with_mask(None)
            return
        k.if_(
            k.op("le", base + self.count, k.const("index", n)),
            self.b.nested(lambda: with_mask(None)),
            self.b.nested(lambda: with_mask(self.mask(base, self.count, k.const("index", n)))),
        )

    def _passes(self) -> None:
        self.rows: dict[Var, El] = {}
        self.stashed: dict[Var, tuple[tile.Buffer, int]] = {}
        for level in range(self.levels + 1):
            self.level = level
            self._pass(level)
            self._row_roots(level)

    def _pass(self, level: int) -> None:
        reductions = [r for r in self.region.roots if r.is_reduction and r.level == level]
        elements = [
            r for r in self.region.roots if not r.is_reduction and not r.row and r.level == level
        ]
        elements = [
            r for r in elements if any(v in self.fusion.stored for v in r.vars) or self._stashes(r)
        ]
        if not reductions and not elements:
            return
        totals = self._reduce_loop(reductions, elements)
        for r, accs in zip(reductions, totals, strict=True):
            rule = self.reductions[r]
            if self.lanes_reduce:
                accs = rule.horizontal(self.b, accs)
            for v, x in zip(r.vars, rule.finish(self.b, accs), strict=True):
                self.rows[v] = x
                if v in self.fusion.stored:
                    self._store_row(v, x)

    def _row_roots(self, level: int) -> None:
        index = self.domain.row_index()
        for r in self.region.roots:
            if r.row and r.level == level:
                for v in r.vars:
                    x = self.rows[v] = self.b.value(v, index)
                    if v in self.fusion.stored:
                        self._store_row(v, x)

    def _store_row(self, var: Var, x: El) -> None:
        self.b.store(self.output(var), linear(self.domain.row_index(), var.aval.shape), x)

    def _stashes(self, root: Root) -> bool:
        """Whether an expensive value that later passes read is kept in scratch."""
        if not self.lanes_reduce or root.cost <= 8 or root.level == self.levels:
            return False
        per_row = int(np.prod([v.extent for v in self.inner], dtype=np.int64))
        if per_row > STASH_LIMIT or any(x.aval.dtype.kind == "c" for x in root.vars):
            return False
        own = set(root.vars)
        return any(v in own for r in self.region.roots if r.level > root.level for v, _ in r.reads)

    def _stash_position(self) -> Index:
        position = Index(0)
        for v in self.inner:
            position = position * v.extent + Index.of(v)
        return position

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        rows = getattr(self, "rows", {})
        if var in rows:
            return rows[var]
        if var in self.stashed and self.stashed[var][1] < self.level:
            buffer = self.stashed[var][0]
            value = self.b._load(buffer, self._stash_position())
            return El(short_dtype(var.aval.dtype), value)
        root = next((r for r in self.region.roots if var in r.vars), None)
        if (
            root is not None
            and not root.row
            and var in self.fusion.stored
            and root.level < self.level
        ):
            return self.b.load(var, linear(index, var.aval.shape))
        return None

    rows: dict[Var, El] = {}
    stashed: dict[Var, tuple[tile.Buffer, int]] = {}
    level = 0

    def _reduce_loop(
        self,
        reductions: Sequence[Root],
        elements: Sequence[Root],
        bounds: tuple[Any, Any] | None = None,
    ) -> list[list[El]]:
        """One pass over the reduced axes; `bounds` limits the outermost loop."""
        k, b = self.k, self.b
        rules = [self.reductions[r] for r in reductions]
        shape = (self.count,) if self.lane_var is not None else ()
        starts = [rule.identity(b) for rule in rules]
        flat = [k.broadcast(p, shape) for els in starts for e in els for p in e.parts]
        index = tuple(self.domain.index)

        def innermost(mask: tile.Value | None, carried: Sequence[tile.Value]) -> list[tile.Value]:
            for r in elements:
                self._element_root(r, index)
            it = iter(carried)
            out: list[tile.Value] = []
            for rule, start in zip(rules, starts, strict=True):
                accs = [El(e.dtype, *(next(it) for _ in e.parts)) for e in start]
                xs = rule.element(b, index)
                if mask is not None:
                    keep = El("bool", mask)
                    xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
                merged = rule.merge(b, accs, xs)
                out += [k.broadcast(p, shape) for e in merged for p in e.parts]
            return out

        def loops(
            remaining: list[LoopVar], carried: Sequence[tile.Value], first: bool
        ) -> Sequence[tile.Value]:
            if not remaining:
                return innermost(None, carried)
            var, rest = remaining[0], remaining[1:]
            low, high = bounds if first and bounds else (0, var.extent)
            if var is self.lane_var:
                return self.lane_loop(
                    var, self.count, low, high, carried, lambda l, *c: innermost(l.mask, c)
                )

            def body(i: tile.Value, *values: tile.Value) -> Sequence[tile.Value]:
                b.scalars[var] = i
                return loops(rest, values, False)

            return k.for_(low, high, 1, b.nested(body), carried)

        order = [v for v in self.inner if v is not self.lane_var]
        if self.lanes_reduce:
            order.append(self.lane_var)
        result = iter(loops(order, flat, True))
        return [[El(e.dtype, *(next(result) for _ in e.parts)) for e in start] for start in starts]

    def _element_root(self, root: Root, index: tuple[Index, ...]) -> None:
        for v in root.vars:
            x = self.b.value(v, index)
            if v in self.fusion.stored:
                self.b.store(self.output(v), linear(index, v.aval.shape), x)
            elif self._stashes(root):
                self._stash(v, x, root.level)

    def _stash(self, var: Var, x: El, level: int) -> None:
        if var not in self.stashed:
            per_row = int(np.prod([v.extent for v in self.inner], dtype=np.int64))
            dtype = x.value.dtype
            buffer = self.k.scratch(f"s{len(self.stashed)}", dtype, per_row + self.count)
            self.stashed[var] = (buffer, level)
        self.b._store(self.stashed[var][0], self._stash_position(), x.value)

    # -- reductions in pieces -------------------------------------------------------------------------

    def _build_pieces(self, pieces: int) -> list[Call]:
        """Partial results for each piece, then a kernel that combines them."""
        domain = self.domain
        first = self.inner[-1] if len(self.inner) == 1 else self.inner[0]
        unit = self.count if first is self.lane_var else 1
        length = -(-first.extent // (pieces * unit)) * unit
        pieces = -(-first.extent // length)
        rows = int(np.prod([v.extent for v in self.outer], dtype=np.int64))
        self.begin()
        partials: dict[Root, list[Temp]] = {}

        def body() -> None:
            k = self.k
            low = k.op("mul", self.piece, k.const("index", length))
            high = k.op("min", low + length, k.const("index", first.extent))
            roots = [r for r in self.region.roots if r.is_reduction]
            elements = [r for r in self.region.roots if not r.is_reduction and not r.row]
            elements = [r for r in elements if any(v in self.fusion.stored for v in r.vars)]
            totals = self._reduce_loop(roots, elements, (low, high))
            for r, accs in zip(roots, totals, strict=True):
                if self.lanes_reduce:
                    accs = self.reductions[r].horizontal(self.b, accs)
                parts = [p for a in accs for p in a.parts]
                if r not in partials:
                    partials[r] = [Temp(p.dtype, pieces * rows) for p in parts]
                for temp, part in zip(partials[r], parts, strict=True):
                    buffer = self.param(temp, temp.dtype, "out")
                    self._store_partial(buffer, part, rows)

        self._programs(body, pieces)
        first_call = self.finish(self.grid * pieces, domain.size)
        return [first_call, self._combine(partials, pieces, rows)]

    def _store_partial(self, buffer: tile.Buffer, part: tile.Value, rows: int) -> None:
        row = Index(0)
        for v in self.outer:
            row = row * v.extent + Index.of(v)
        b = self.b
        piece = LoopVar("piece", 1 << 30)
        b.scalars[piece] = self.piece
        b._store(buffer, Index.of(piece) * rows + row, part)

    def _combine(self, partials: dict[Root, list[Temp]], pieces: int, rows: int) -> Call:
        return _CombineKernel(
            self.region, self.fusion, self.target, self.reductions, partials, pieces, rows
        ).build()


class _CombineKernel(_KernelWriter):
    """Combines partial results of a reduction and computes what follows from them per row."""

    def __init__(
        self,
        region: Region,
        fusion: Fusion,
        target: CpuTarget,
        reductions: dict[Root, Reduction],
        partials: dict[Root, list[Temp]],
        pieces: int,
        rows: int,
    ):
        self.partials, self.pieces, self.total_rows = partials, pieces, rows
        self.reductions = reductions
        super().__init__(region, fusion, target, Domain.of_rows(region, fusion))

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        root = next((r for r in self.partials if var in r.vars), None)
        if root is None:
            return None
        rule, temps = self.reductions[root], self.partials[root]
        position = linear(index, self.region.row_shape)

        def step(k: tuple[Index, ...], accs: list[El]) -> list[El]:
            it = iter(temps)
            xs = []
            for a in accs:
                buffers = [self.param(t, t.dtype, "in") for t in (next(it) for _ in a.parts)]
                xs.append(
                    El(
                        a.dtype,
                        *(self.b._load(u, k[0] * self.total_rows + position) for u in buffers),
                    )
                )
            return rule.merge(self.b, accs, xs)

        results = rule.finish(self.b, self.b.fold([self.pieces], rule.identity(self.b), step))
        return results[root.vars.index(var)]

    def build(self) -> Call:
        k, n = self.k, self.total_rows
        row = LoopVar("row", n)
        index = self.b.delinear(Index.of(row), self.region.row_shape)

        def body(lanes: Lanes | None = None) -> Sequence[tile.Value]:
            for root in self.region.roots:
                if not (root.is_reduction or root.row):
                    continue
                for v in root.vars:
                    if v in self.fusion.stored:
                        self.b.store(
                            self.output(v), linear(index, v.aval.shape), self.b.value(v, index)
                        )
            return ()

        if n == 1:
            body()
            return self.finish(1, self.pieces)
        count = self.lane_count(n)
        start = k.program_id() * count
        stop = k.op("min", start + count, k.const("index", n))
        self.lane_loop(row, count, start, stop, (), body)
        return self.finish(-(-n // count), n * self.pieces)
