"""Follows elements of a program back to memory and writes the tile code that computes them.

A kernel computes values at index expressions. `ElementBuilder.value(var, index)` writes the code
for one such value: it applies the element rule of the equation that made `var`, which asks for
elements of its operands, and so on down to loads from memory. Along the way the index expressions
carry broadcasts, transposes, slices and reshapes, so that none of them moves data.

How an index becomes code depends on the schedule: a loop variable is either a scalar, or is spread
over one axis of the tile (`lanes`). Values that do not depend on a spread variable stay scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple, is_natural, surely_equal
from amdjax.core.jaxpr import Atom, JaxprEqn, Literal, Var
from amdjax.core.lowering import Control, Element, Pointwise
from amdjax.core.source_info import Origin
from amdjax.schedule.arithmetic import Arithmetic, aligned
from amdjax.schedule.index import (
    Dynamic,
    Guard,
    Index,
    LoopVar,
    Quotient,
    Symbol,
    all_of,
    delinear,
    in_bounds,
    linear,
)
from amdjax.schedule.streaming import streams
from amdjax.schedule.values import (
    El,
    Lanes,
    Operand,
    compute_dtype,
    flat_parts,
    part_dtype,
    regroup,
    short_dtype,
)
from amdjax.tile.types import CACHE_LINE

UNROLL_FOLD = 32
DEEP = 25  # nested values from which chains are followed step by step


Reader = Callable[[Any, tuple[Index, ...]], "El | None"]
Place = tuple[tile.Buffer, Index]

#: What writes control flow that an element runs by itself, by the name of its rule; `loops.py`
#: fills it.
CONTROL: dict[str, Callable[[ElementBuilder, JaxprEqn, tuple[Index, ...]], list[El | None]]] = {}


class ElementBuilder:
    """Writes tile code for elements; what `Arithmetic` has are methods, too.

    Args:
      k: where the code goes.
      producers: the equation that computes each variable that is not in memory.
      memory: the buffer of each variable that is.
      special: asked first about every variable; for values a kernel holds in registers.
    """

    def __init__(
        self,
        k: tile.Builder,
        producers: dict[Var, JaxprEqn],
        memory: Callable[[Var], tile.Buffer],
        special: Reader | None = None,
    ):
        self.k, self.arithmetic = k, Arithmetic(k)
        self.producers = producers
        self.memory = memory
        self.special = special
        #: the memory of a result that steps of a loop store element by element, if it is kept
        self.result: Callable[[Var], tile.Buffer | None] = lambda var: None
        self.bound: dict[Var, El | None] = {}  # variables of a loop's body
        self.scalars: dict[Symbol, tile.Value] = {}
        self.alias: dict[Symbol, Index] = {}  # merged loops, substituted in offsets
        #: sizes of results that are written past the caches if they are large
        self.streaming: dict[tile.Buffer, int] = {}
        #: variables that are not read while their places are found, and the places
        self.unread: Collection[Var] = ()
        self.unread_places: list[Place] = []
        self.lanes: list[Lanes] = []
        self.guards: list[Guard] = []
        self.visible = tile.Visible()
        self.depth = 0  # of calls that follow operands

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.arithmetic, name)

    # What is known

    def nested(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` as the body of a block: what it computes is forgotten afterwards."""

        def body(*args: Any) -> Any:
            mark = self.visible.mark()
            try:
                return fn(*args)
            finally:
                self.visible.forget(mark)

        return body

    def _known(self, key: Any, make: Callable[[], Any]) -> Any:
        found = self.visible.get(key)
        if found is None:
            found = make()
            self.visible.add(key, found)
        return found

    # Values of variables

    def value(self, atom: Var | Literal, index: Sequence[Index]) -> El:
        """The element of `atom` at `index`."""
        if isinstance(atom, Literal):
            return self.arithmetic.const(atom.val, atom.aval.dtype)
        index = tuple(
            [
                Index.of(i) if n != 1 else Index(0)
                for i, n in zip(index, atom.aval.shape, strict=True)
            ]
        )
        return self._known((atom, index, tuple(self.guards)), lambda: self._compute(atom, index))

    @contextmanager
    def binding(self, values: dict[Var, El | None]) -> Iterator[None]:
        """Variables with values; no others are seen."""
        enclosing, self.bound = self.bound, values
        try:
            yield
        finally:
            self.bound = enclosing

    def _compute(self, var: Var, index: tuple[Index, ...]) -> El:
        if (bound := self.bound.get(var)) is not None:
            return bound
        if self.special is not None:
            found = self.special(var, index)
            if found is not None:
                return found
        eqn = self.producers.get(var)
        if eqn is None:
            return self.load(var, linear(index, var.aval.shape))
        self.depth += 1
        if self.depth % DEEP == 0:
            self._prepare(eqn, index)
        results = self.results(eqn, index)
        self.depth -= 1
        found = results[list(eqn.outvars).index(var)]
        assert found is not None, "results that steps have stored are read from memory"
        return found

    def results(self, eqn: JaxprEqn, index: tuple[Index, ...]) -> Sequence[El | None]:
        """An element of each result; None for those that steps of a loop store."""
        key = id(eqn), index, tuple(self.guards)
        return self._known(key, lambda: self._apply(eqn, index))

    def _prepare(self, eqn: JaxprEqn, index: tuple[Index, ...]) -> None:
        """Compute what a chain of pointwise equations reads, the deepest first.

        Following operands by recursion alone would exceed Python's stack on long chains.
        """
        chain: list[Any] = []
        waiting, seen = [eqn], {id(eqn)}
        while waiting:
            e = waiting.pop()
            if not isinstance(e.primitive.lowering, Pointwise):
                continue
            for x in e.invars:
                maker = None if isinstance(x, Literal) else self.producers.get(x)
                if maker is None or id(maker) in seen:
                    continue
                seen.add(id(maker))
                at = index if x.aval.shape else ()
                key = (x, at, tuple(self.guards))
                if key in self.visible:
                    continue
                found = self.special(x, at) if self.special is not None else None
                if found is not None:
                    self.visible.add(key, found)
                    continue
                chain.append(x)
                waiting.append(maker)
        for x in reversed(chain):
            self.value(x, index if x.aval.shape else ())

    def _apply(self, eqn: JaxprEqn, index: tuple[Index, ...]) -> Sequence[El | None]:
        rule, k = eqn.primitive.lowering, self.k
        enclosing, k.origin = k.origin, _origin(eqn, k.origin)  # quicker than `made_from`
        result: Any
        if isinstance(rule, Pointwise):
            values = [self.value(x, index if x.aval.shape else ()) for x in eqn.invars]
            if isinstance(rule.op, str):
                if rule.op in tile.COMPARISONS:
                    values = [self._held(x, v) for x, v in zip(eqn.invars, values)]
                result = self.arithmetic.op(rule.op, *values)
            else:
                result = rule.op(self, *values, **eqn.params)
        elif isinstance(rule, Element):
            result = rule.emit(self, index, *map(Operand, eqn.invars), **eqn.params)
        elif isinstance(rule, Control):
            result = CONTROL[rule.name](self, eqn, index)
        else:
            raise AssertionError(f"{eqn.primitive} has no element rule")
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        pairs = zip(results, eqn.outvars, strict=True)
        typed = [r if r is None else self._typed(r, v) for r, v in pairs]
        k.origin = enclosing
        return typed

    def _held(self, atom: Atom, x: El) -> El:
        """An element as memory would hold it, which other kernels compare it with."""
        if x.is_complex or compute_dtype(x.dtype) != "f32" or isinstance(atom, Literal):
            return x
        loaded = not (self.special or atom in self.bound or atom in self.producers)
        return x if loaded else self.arithmetic.rounded(x)

    def _typed(self, x: El, var: Var) -> El:
        """Bring a rule's result to the dtype its type rule promised."""
        dtype = short_dtype(var.aval.dtype)
        return x if x.dtype == dtype else self.arithmetic.convert(x, dtype)

    # What element rules call

    def read(self, operand: Operand, index: Sequence[Index | int]) -> El:
        """The operand's element at an index inside its shape."""
        return self.value(operand.atom, tuple(map(Index.of, index)))

    def read_linear(self, operand: Operand, position: Index) -> El:
        """The operand's element at a row-major position."""
        return self.value(operand.atom, delinear(position, operand.shape))

    def read_if(
        self, guard: Guard | bool, operand: Operand, index: Sequence[Index | int], otherwise: El
    ) -> El:
        """The element where `guard` holds, else `otherwise`; nothing is read where it fails."""
        return self.when(guard, lambda: self.read(operand, index), lambda: otherwise)

    def when(self, guard: Guard | bool, then: Callable[[], El], otherwise: Callable[[], El]) -> El:
        """`then()` where `guard` holds, computed without touching memory elsewhere."""
        if isinstance(guard, Guard):
            guard = guard.simplify()
        if guard is True:
            return then()
        if guard is False:
            return otherwise()
        assert isinstance(guard, Guard)
        self.guards.append(guard)
        try:
            value = then()
        finally:
            self.guards.pop()
        return self.arithmetic.select(El("bool", self.guard_value(guard)), value, otherwise())

    def piecewise(self, i: Index, ranges: Sequence[tuple[int, int, Callable[[], El]]]) -> El:
        """The value of the part `(start, stop, fn)` whose range contains `i`, found by halving."""
        if len(ranges) == 1:
            return ranges[0][2]()
        half = len(ranges) // 2
        start = ranges[half][0]
        first = lambda: self.piecewise(i, ranges[:half])
        return self.when(i.lt(start), first, lambda: self._rest(i, start, ranges[half:]))

    def _rest(
        self, i: Index, start: int, ranges: Sequence[tuple[int, int, Callable[[], El]]]
    ) -> El:
        guard = i.ge(start).simplify()
        if guard is True or guard is False:
            return self.piecewise(i, ranges)
        self.guards.append(guard)
        try:
            return self.piecewise(i, ranges)
        finally:
            self.guards.pop()

    @staticmethod
    def linear(index: Sequence[Index], shape: Sequence[int]) -> Index:
        return linear(tuple(map(Index.of, index)), tuple(shape))

    @staticmethod
    def delinear(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
        return delinear(position, tuple(shape))

    in_bounds, all_of = staticmethod(in_bounds), staticmethod(all_of)

    def guard_value(self, guard: Guard | bool) -> tile.Value:
        """A guard as a boolean tile."""
        if isinstance(guard, bool):
            return self.k.const("bool", guard)
        out = None
        for c in guard.conditions:
            left = self.index_tile(c.index)
            test = aligned(self.k, "ge" if c.kind == "ge" else "eq", left, self.k.const("index", 0))
            out = test if out is None else aligned(self.k, "and", out, test)
        return out if out is not None else self.k.const("bool", True)

    def index_value(self, i: Index | int, dtype: Any) -> El:
        """An index as a value."""
        name = dtype if isinstance(dtype, str) else short_dtype(dtype)
        i = Index.of(i)
        lo, hi = i.range()
        x = self.index_tile(i)
        small = lo is not None and hi is not None and lo >= -(1 << 31) and hi < (1 << 31)
        source = "i32" if small else "i64"
        return self.arithmetic.convert(El(source, self.k.convert(x, source)), name)

    def as_index(self, x: El, lo: int | None = None, hi: int | None = None) -> Index:
        """An integer value as an index, with what is known of its range."""
        return Index.of(
            self._known(("as_index", x.value.number, lo, hi), lambda: Dynamic(x, lo, hi))
        )

    def clamp_index(self, i: Index | El, lo: int, hi: int) -> Index:
        """An index limited to `lo..hi`, both inclusive."""
        if isinstance(i, El):
            i = self.as_index(i)
        low, high = i.range()
        if low is not None and high is not None and is_natural(low - lo) and is_natural(hi - high):
            return i
        x = aligned(self.k, "max", self.index_tile(i), self.k.const("index", lo))
        x = aligned(self.k, "min", x, self.k.const("index", hi))
        return self.as_index(El("index", x), lo, hi)

    # Loops

    def fold(self, extents: Sequence[int], init: Any, fn: Callable[..., Any]) -> Any:
        """Loop over `extents`: `acc = fn(index, acc)`; `acc` is an element or a list of them."""
        many = isinstance(init, (list, tuple))
        total = math.prod(extents)
        if not isinstance(total, Dim) and total <= UNROLL_FOLD:
            acc = init
            for k in np.ndindex(*extents):
                acc = fn(tuple(Index(int(i)) for i in k), acc)
            return acc
        accs = list(init) if many else [init]
        index: list[Index] = []
        result = self._fold_loop(list(extents), index, accs, many, fn)
        return result if many else result[0]

    def _fold_loop(
        self, extents: list[int], index: list[Index], accs: list[El], many: bool, fn: Any
    ) -> list[El]:
        if not extents:
            out = fn(tuple(index), accs if many else accs[0])
            return list(out) if many else [out]
        var = LoopVar("f", extents[0])
        flat = flat_parts(map(self.in_every_lane, accs))

        def body(i: tile.Value, *carried: tile.Value) -> list[tile.Value]:
            self.scalars[var] = i
            inner = regroup(accs, carried)
            out = self._fold_loop(extents[1:], [*index, Index.of(var)], inner, many, fn)
            return flat_parts(map(self.in_every_lane, out))

        return regroup(accs, self.k.for_(0, extents[0], 1, self.nested(body), flat))

    def tile_shape(self) -> tuple[int, ...]:
        """Of a value that depends on all spread variables."""
        return tuple(l.count for l in sorted(self.lanes, key=lambda l: l.axis))

    def in_every_lane(self, x: El) -> El:
        """The element as a whole tile, as what loops carry has to be."""
        shape = self.tile_shape()
        return El(x.dtype, *(self.k.broadcast(p, shape) for p in x.parts)) if shape else x

    # Indices to code

    def _lanes_of(self, symbol: Symbol) -> Lanes | None:
        return next((l for l in self.lanes if l.var is symbol), None)

    def spread(self, lanes: Lanes, x: tile.Value) -> tile.Value:
        """A rank-1 tile laid along an axis of the current tile."""
        return x if len(self.lanes) < 2 else self.k.expand(x, 1 - lanes.axis)

    def index_tile(self, i: Index) -> tile.Value:
        """An index expression as a value: scalar, or a tile along the spread variables in it."""
        return self._known(("index", i), lambda: self._index_tile(i))

    def _index_tile(self, i: Index) -> tile.Value:
        total: tile.Value | None = None
        for s, c in i.terms:
            x = self._symbol_tile(s)
            if not surely_equal(c, 1):
                x = aligned(self.k, "mul", x, self.k.const("index", c))
            total = x if total is None else aligned(self.k, "add", total, x)
        if total is None:
            return self.k.const("index", i.const)
        if surely_equal(i.const, 0):
            return total
        return aligned(self.k, "add", total, self.k.const("index", i.const))

    def _symbol_tile(self, s: Symbol) -> tile.Value:
        lanes = self._lanes_of(s)
        if lanes is not None:
            return aligned(self.k, "add", self.spread(lanes, self.k.iota(lanes.count)), lanes.base)
        if s in self.scalars:
            return self.scalars[s]
        if isinstance(s, Dynamic):
            return self.k.convert(s.value.value, "index")
        assert isinstance(s, Quotient), f"index variable {s} is not bound here"
        return self._quotient(s)

    def _quotient(self, s: Quotient) -> tile.Value:
        x = self.index_tile(s.inner)
        lo, hi = s.inner.range()
        name = "rem" if s.remainder else "div"
        if lo is not None and lo >= 0 and hi is not None and hi < (1 << 31):
            # Vector units multiply and shift 32-bit integers, they do not divide 64-bit ones.
            narrow = aligned(self.k, name, self.k.convert(x, "u32"), self.k.const("u32", s.by))
            return self.k.convert(narrow, "index")
        # A dividend that may be negative is one whose guard fails there: the result is not used.
        return aligned(self.k, name, x, self.k.const("index", s.by))

    # Memory

    def _split_offset(self, offset: Index) -> tuple[tile.Value | None, list[int]]:
        """Scalar base, a stride for each spread variable; (None, _) if an offset is irregular."""
        strides: list[int] = [0] * len(self.lanes)
        scalar = Index(offset.const)
        for s, c in offset.terms:
            lanes = self._lanes_of(s)
            if lanes is not None:
                strides[lanes.axis] = c
            elif (
                isinstance(s, Quotient) and any(s.inner.depends_on(l.var) for l in self.lanes)
            ) or self._is_tile(s):
                return None, strides
            else:
                scalar = scalar + Index.of(s) * c
        base = self.index_tile(scalar)
        for lanes in self.lanes:
            if strides[lanes.axis]:
                step = lanes.base * strides[lanes.axis]
                base = base + step
        return base, strides

    def resolved(self, offset: Index) -> Index:
        """An offset in terms of the loops there are."""
        return offset.substitute(self.alias) if self.alias else offset

    def _is_tile(self, s: Symbol) -> bool:
        if isinstance(s, Dynamic):
            return bool(s.value.value.shape)
        if isinstance(s, Quotient):
            return any(self._is_tile(t) for t, _ in s.inner.terms)
        return False

    def _mask(self, strides: Sequence[int] | None) -> tile.Value | None:
        """What limits an access now: the guards in force and unfinished tiles."""
        masks = [self.guard_value(g) for g in self.guards]
        for lanes in self.lanes:
            if lanes.mask is not None and (strides is None or strides[lanes.axis]):
                masks.append(lanes.mask)
        out = None
        for m in masks:
            out = m if out is None else aligned(self.k, "and", out, m)
        return out

    def load(self, var: Var, offset: Index) -> El:
        """The element of a variable in memory at a row-major position."""
        buffer = self.memory(var)
        dtype = short_dtype(var.aval.dtype)
        if var in self.unread:
            self.unread_places.append((buffer, self.resolved(offset)))
            return self.arithmetic.const(0, dtype)
        if dtype in ("c64", "c128"):
            part = part_dtype(dtype)
            as_parts = tile.Buffer(buffer.name, part, buffer.role, buffer.size)
            row = self._complex_row(offset)
            if row is not None:  # one access of both parts, then the even and the odd lanes
                first, count, mask = row
                both = self.k.load(as_parts, first, (2 * count,), None, mask)
                return El(dtype, *(self.k.shuffle(both, range(j, 2 * count, 2)) for j in (0, 1)))
            return El(dtype, *(self._load(as_parts, offset * 2 + j) for j in (0, 1)))
        with self._guarded_for(offset, var.aval.size):
            x = self._load(buffer, offset)
        return El(dtype, self.k.convert(x, compute_dtype(dtype)))

    @contextmanager
    def _guarded_for(self, offset: Index, size: int) -> Iterator[None]:
        """Within, guards are in force as an access needs them.

        What is always there may be read where it is not asked for, if that is little more.
        """
        (lo, hi), guards = offset.range(), self.guards
        if lo is not None and hi is not None and is_natural(lo) and is_natural(size - 1 - hi):
            self.guards = [g for g in guards if not g.spares_little(offset)]
        try:
            yield
        finally:
            self.guards = guards

    def places_of(self, variables: Collection[Var], fn: Callable[[], Any]) -> list[Place]:
        """Where `fn` would read variables; nothing else comes of it."""
        self.unread, self.unread_places = variables, []
        self.nested(fn)()
        self.unread = ()
        return self.unread_places

    def prefetch(self, place: Place) -> None:
        """Ask for elements at a place that lie side by side in lanes."""
        buffer, offset = place
        base, strides = self._split_offset(offset)
        if base is not None and strides == [1]:
            for at in range(0, self.lanes[0].count, CACHE_LINE // tile.itemsize(buffer.dtype)):
                self.k.prefetch(buffer, base + at)

    def _complex_row(self, offset: Index) -> tuple[tile.Value, int, tile.Value | None] | None:
        """Place, lanes and mask of parts, if complex elements lie side by side in all lanes."""
        offset = self.resolved(offset)
        if len(self.lanes) != 1 or self.lanes[0].count == 1:
            return None
        base, strides = self._split_offset(offset)
        if base is None or strides != [1]:
            return None
        count, mask = self.lanes[0].count, self._mask(strides)
        if mask is not None:
            mask = self.k.broadcast(mask, (count,))
            mask = self.k.shuffle(mask, [i // 2 for i in range(2 * count)])
        return base * 2, count, mask

    def _load(self, buffer: tile.Buffer, offset: Index) -> tile.Value:
        offset = self.resolved(offset)
        base, strides = self._split_offset(offset)
        mask = self._mask(strides if base is not None else None)
        if base is None:
            return self._load_scattered(buffer, self.index_tile(offset), mask)
        shape = self._access_shape(strides, mask)
        if not shape:
            if mask is None:
                return self.k.load(buffer, base)
            return self.k.load_at(buffer, base, mask)
        if mask is not None and mask.shape != shape:
            mask = self.k.broadcast(mask, shape)
        return self.k.load(buffer, base, shape, strides, mask)

    def _load_scattered(
        self, buffer: tile.Buffer, offsets: tile.Value, mask: tile.Value | None
    ) -> tile.Value:
        if mask is not None and mask.shape != offsets.shape:
            shape = np.broadcast_shapes(mask.shape, offsets.shape)
            mask, offsets = self.k.broadcast(mask, shape), self.k.broadcast(offsets, shape)
        return self.k.load_at(buffer, offsets, mask)

    def _access_shape(self, strides: Sequence[int], mask: tile.Value | None) -> tuple[int, ...]:
        """The tile an access covers: one along axes it does not depend on, () if on none."""
        if not any(strides) and (mask is None or not mask.shape):
            return ()
        shape = [1] * len(self.lanes)
        for lanes in self.lanes:
            wide = strides[lanes.axis] or (
                mask is not None and mask.shape and mask.shape[lanes.axis] > 1
            )
            shape[lanes.axis] = lanes.count if wide else 1
        return tuple(shape)

    def put(self, var: Var, index: tuple[Index, ...], x: El) -> None:
        """Store an element of a result that the steps of a loop make."""
        buffer = self.result(var)
        if buffer is not None:
            self.store(buffer, linear(index, var.aval.shape), x)

    def store(self, buffer: tile.Buffer, offset: Index, x: El, guard: Guard | None = None) -> None:
        """Write an element; every spread variable must occur in `offset`."""
        if guard is not None:
            self.guards.append(guard)
        try:
            if x.is_complex:
                self._store_complex(buffer, offset, x)
            else:
                self._store(buffer, offset, self.k.convert(x.value, buffer.dtype))
        finally:
            if guard is not None:
                self.guards.pop()

    def store_steps(
        self, buffer: tile.Buffer, steps: Sequence[tuple[Index, El]], bits: int
    ) -> None:
        """Write what the steps of a loop make of one result, given in their order.

        Steps that lie between lanes are shuffled into vectors of `bits`: a store for each of these,
        not for each element.
        """
        k, n = self.k, len(steps)
        row = self._row_of_steps([offset for offset, _ in steps])
        if row is None or steps[0][1].is_complex:
            for offset, x in steps:
                self.store(buffer, offset, x)
            return
        base, count, mask = row
        values = [k.broadcast(k.convert(x.value, buffer.dtype), (count,)) for _, x in steps]
        width = min(count, bits // (8 * tile.itemsize(buffer.dtype)))
        for first in range(0, n * count, width):
            sources = [divmod(place, n) for place in range(first, first + width)]
            start = first // (n * width) * width  # of the lanes that `n` vectors are made of
            parts = [k.shuffle(x, range(start, start + width)) for x in values]
            made = parts[0]
            for last, part in enumerate(parts[1:], 1):
                lanes = [
                    lane - start + (width if step else 0) if step == last or last == 1 else i
                    for i, (lane, step) in enumerate(sources)
                ]
                made = k.shuffle(made, lanes, part)
            written = None if mask is None else k.shuffle(mask, [lane for lane, _ in sources])
            k.store(buffer, base + first, made, None, written)

    def _row_of_steps(
        self, offsets: Sequence[Index]
    ) -> tuple[tile.Value, int, tile.Value | None] | None:
        """Where lanes begin, how many there are and their mask, if steps are next to each other
        and lanes as far apart as there are steps.
        """
        first, *rest = map(self.resolved, offsets)
        if not rest or len(self.lanes) != 1 or self.lanes[0].count == 1:
            return None
        if any(offset != first + i for i, offset in enumerate(rest, 1)):
            return None
        base, strides = self._split_offset(first)
        if base is None or strides != [len(offsets)]:
            return None
        count, mask = self.lanes[0].count, self._mask(None)
        return base, count, None if mask is None else self.k.broadcast(mask, (count,))

    def _store_complex(self, buffer: tile.Buffer, offset: Index, x: El) -> None:
        as_parts = tile.Buffer(buffer.name, part_dtype(x.dtype), buffer.role, buffer.size)
        row = self._complex_row(offset)
        if row is None:
            for j, part in enumerate(x.parts):
                self._store(as_parts, offset * 2 + j, part)
            return
        first, count, mask = row
        re, im = (self.k.broadcast(part, (count,)) for part in x.parts)
        lanes = [i // 2 + i % 2 * count for i in range(2 * count)]
        self.k.store(as_parts, first, self.k.shuffle(re, lanes, im), None, mask)

    def _store(self, buffer: tile.Buffer, offset: Index, value: tile.Value) -> None:
        offset = self.resolved(offset)
        base, strides = self._split_offset(offset)
        mask = self._mask(None)
        shape = self.tile_shape() if any(strides) or base is None else ()
        if not shape:  # one place for all lanes: the first one's value goes there
            value = self._first_lane(value)
            mask = None if mask is None else self._first_lane(mask)
        value = self.k.broadcast(value, shape)
        if mask is not None and mask.shape != shape:
            mask = self.k.broadcast(mask, shape)
        if base is None or (not shape and mask is not None):
            at = base if base is not None else self.k.broadcast(self.index_tile(offset), shape)
            self.k.store_at(buffer, at, value, mask, unique=True)
        else:
            able = buffer in self.streaming and mask is None and self._is_aligned(offset, buffer)
            streaming = able and streams(self.k, self.streaming[buffer])
            self.k.store(buffer, base, value, strides if shape else None, mask, streaming)

    def _is_aligned(self, offset: Index, buffer: tile.Buffer) -> bool:
        """Whether the tile begins at a cache line and is whole lines of memory."""
        if not self.lanes:
            return False
        inner = max(self.lanes, key=lambda lanes: lanes.axis)
        line = CACHE_LINE // tile.itemsize(buffer.dtype)
        others = [c for s, c in offset.terms if s is not inner.var]
        aligned = all(is_multiple(n, line) for n in (offset.const, inner.count, *others))
        return aligned and surely_equal(offset.coefficient(inner.var), 1)

    def _first_lane(self, value: tile.Value) -> tile.Value:
        while value.shape:
            value = self.k.extract(value, 0)
        return value


def _origin(eqn: JaxprEqn, enclosing: Origin | None) -> Origin:
    """What code for an equation is made from; an unknown line is that around it."""
    if enclosing is None or eqn.source.code is not None:
        return eqn.origin
    return Origin(eqn.primitive.name, enclosing.source)
