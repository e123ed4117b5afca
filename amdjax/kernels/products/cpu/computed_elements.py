"""Elements of an operand that a product's kernel computes."""

from __future__ import annotations

from collections.abc import Callable

from amdjax import tile
from amdjax.core.jaxpr import Var
from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.program import Program
from amdjax.schedule.computed import ComputedOperand, Term, four_bits
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.index import Index, LoopVar, delinear, linear
from amdjax.schedule.values import El, Lanes, compute_dtype, short_dtype

Value = tile.Value
#: A product, one loop each for rows, columns and depth, and its right operand.
Problem = tuple[Contraction, ComputedOperand]


class ComputedElements(ElementBuilder):
    """Writes elements of a computed operand.

    What follows from four bits alone is looked up by them, where a register holds all 16 values:
    they are computed once, before anything else.

    Args:
      program: the kernel.
      computed: the operand.
    """

    def __init__(self, program: Program, computed: ComputedOperand):
        super().__init__(program.k, dict(computed.producers), program.kernel.input, self._looked_up)
        self.computed = computed
        self._tables: dict[Var, Value] = {}
        self._bits: list[tuple[Value, int]] | None = None  # found while a number is followed
        can_look_up = program.ctx.target.vector_bits >= 512  # by an instruction
        for v, number in computed.lookups.items() if can_look_up else ():
            if compute_dtype(short_dtype(v.aval.dtype)) == "f32":
                self._tables[v] = self._table(v, number)

    def vector(self, term: Term, depth: Index, column: Index, count: int, dtype: str) -> Value:
        """Elements of a term in all lanes."""
        found = self.value(term.atom, self.computed.index(term, depth, column)).value
        return self.k.broadcast(self.k.convert(found, dtype), (count,))

    def prefetch_reads(self, read: Callable[[], object]) -> None:
        """Ask for what is read, of that which lies side by side in lanes."""
        for place in dict.fromkeys(self.places_of(self.computed.reads, read)):
            self.prefetch(place)

    def _table(self, var: Var, number: Var) -> Value:
        """The values of a variable by the bits of the number that it follows from."""
        k, dtype = self.k, short_dtype(number.aval.dtype)
        codes = k.iota(16, "i32")
        if dtype == "i4":
            codes = (codes ^ k.const("i32", 8, (16,))) - 8
        code = El(dtype, k.convert(codes, compute_dtype(dtype)))
        builder = ElementBuilder(
            k, self.producers, self.memory, lambda v, index: code if v is number else None
        )
        builder.lanes = [Lanes(LoopVar("n", 16), 16, 0, k.const("index", 0))]
        found = builder.value(var, tuple(Index(0) for _ in var.aval.shape)).value
        return k.broadcast(found, (16,))

    def _looked_up(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if self._bits is not None:
            return self._followed(var, index)
        if var not in self._tables:
            return None
        number = self.computed.lookups[var]
        place = delinear(linear(index, var.aval.shape), number.aval.shape)
        self._bits = []
        self.nested(self.value)(number, place)
        found, self._bits = self._bits, None
        if len(found) != 1:  # of several parts, of which lanes choose
            return None
        ((byte, shift),) = found
        if not byte.shape:  # the same for all lanes
            return None
        # As signed bytes: those LLVM would shift before it widens them, which takes longer.
        code = self.k.convert(self.k.bitcast(byte, "i8"), "i32")
        if shift:
            code = self.k.op("shr_logical", code, self.k.const("i32", shift, code.shape))
        return El(short_dtype(var.aval.dtype), self.k.lookup(self._tables[var], code))

    def _followed(self, var: Var, index: tuple[Index, ...]) -> El | None:
        """Note where a number of four bits is."""
        found = four_bits(var, self.producers)
        if found is None:
            return None
        source, shift = found
        bits, self._bits = self._bits, None
        x = (
            self.load(var, linear(index, var.aval.shape))
            if source is var
            else self.value(source, index)
        )
        self._bits = bits
        assert bits is not None
        bits.append((x.value, shift))
        return x
