"""Matrix products: of tiles, of vectors of words, of what lies in memory."""

from __future__ import annotations

from amdjax.tile.attributes import TOLD, Attribute, DotTiling, Flag, Memory, Sides, Tiling
from amdjax.tile.ir import Block, Op, Operand, Trait, expect, expect_scalars
from amdjax.tile.types import BOOL, FLOATS, INDEX, TileType, itemsize


class Dot(Op, name="dot", traits=Trait.PURE):
    """`acc + a @ b` for tiles (M, K), (K, N), (M, N).

    With a `tiling` GPUs multiply by the matrix unit, each row of the result in one wave; operands
    are then of the dtype that its instruction takes, xf32 of float32.
    """

    __slots__ = ()
    a, b, acc = Operand(0), Operand(1), Operand(2)
    tiling = DotTiling()

    def result_types(self) -> tuple[TileType, ...]:
        return (self.acc.type,)

    def check(self) -> None:
        shapes = self.a.shape, self.b.shape, self.acc.shape
        expect(all(len(s) == 2 for s in shapes), "dot takes tiles of rank 2")
        (m, k), (depth, n), result = shapes
        expect(k == depth and result == (m, n), "shapes of dot do not fit: {}", shapes)
        if self.tiling is not None:
            operand = "f32" if self.tiling.operand == "xf32" else self.tiling.operand
            expect(
                (operand, self.tiling.waves[1]) == (self.a.dtype, 1),
                "{} is for operands of another kind",
                self.tiling,
            )


#: What `DotWords` multiplies, and in what it sums.
WORD_TYPES = {("u8", "i8"): ("i32", "u32"), ("i16", "i16"): ("i32",), ("bf16", "bf16"): ("f32",)}


class DotWords(Op, name="dot_words", traits=Trait.PURE):
    """`acc` plus the dot products of what 32-bit lanes hold: four bytes, or two of 16 bits.

    `types` are those of the elements of `a` and `b`. A CPU's instruction for bfloat16 takes
    subnormal numbers as zero and adds the upper halves' product first; each sum is rounded.
    """

    __slots__ = ()
    a, b, acc = Operand(0), Operand(1), Operand(2)
    types = Attribute[tuple[str, str]]()

    def result_types(self) -> tuple[TileType, ...]:
        return (self.acc.type,)

    def check(self) -> None:
        same = self.a.shape == self.b.shape == self.acc.shape
        words = all(v.dtype in ("i32", "u32") for v in (self.a, self.b))
        expect(same and words, "dot_words takes words of one shape")
        sums = WORD_TYPES.get(self.types, ())
        expect(self.acc.dtype in sums, "no sums of {} in {}", self.types, self.acc.dtype)


class Contract(Op, name="contract", traits=Trait.READS):
    """`Σ a[i, k] b[k, j]` for `k` in `range(start, stop)`: a loop over tiles in memory.

    Operands are start and stop of the depth, then for each side an offset of all elements and the
    last line that exists, then the limits that are told. Bodies give places of lines of `a` and
    `b`, then of their steps in depth: of a number the offset, and by how much it moves each limited
    coordinate. The result can be used by `Collect` only.

    With `prefetch` the operation is in a loop over tiles, and brings the first tiles in depth of
    the next one while it multiplies the last of its own. Its last operands are the number of the
    round, the offsets of both sides' elements in the next one, and zero where there is none.
    """

    __slots__ = ()
    start, stop = Operand(0), Operand(1)
    sides = Sides()
    tiling = Tiling()
    ragged = Flag()
    prefetch = Flag()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        expect_scalars(self, self.operands)
        told = sum(side.limits.count(TOLD) for side in self.sides)
        fits = len(self.operands) == 6 + told + 4 * self.prefetch and len(self.blocks) == 4
        expect(fits, "contract takes two sides")
        expect(len(self.result.shape) == 2, "contract makes a tile of rank 2")
        for side, *blocks in zip(self.sides, self.blocks[:2], self.blocks[2:], strict=True):
            for block in blocks:
                self._check_places(block, 1 + len(side.limits))

    @staticmethod
    def _check_places(block: Block, count: int) -> None:
        numbers = [v.type for v in (*block.args, *block.yields)]
        expect(numbers == [INDEX] * (1 + count), "places of contract are {} numbers", count)


class Collect(Op, name="collect"):
    """The next rows of the result of `Contract`, which leave the matrix unit here.

    Of all columns, or of some from `column` on; the next rows are those of the same columns. They
    may be rounded to a narrower dtype.
    """

    __slots__ = ()
    accumulators = Operand(0)
    column = Attribute[int](0)

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        whole, part = self.accumulators.type, self.result.type
        fits = len(part.shape) == 2 and self.column + part.shape[1] <= whole.shape[1]
        even = fits and whole.shape[0] % part.shape[0] == 0
        rounded = part.dtype in FLOATS and itemsize(part.dtype) <= itemsize(whole.dtype)
        same = part.dtype == whole.dtype or (rounded and whole.dtype in FLOATS)
        expect(even and same, "{} is no slice of {}", part, whole)


class ScratchProduct(Op, name="scratch_product", traits=Trait.READS):
    """`Σ a[i, k] b[j, offset + k]` for `k` in `range(depth)`, of lines that lie in scratch.

    Lines of `a` and `b` are `pitches` elements apart, steps in depth side by side. `lanes` are
    those of a wave along rows, columns and depth. Results are tiles of equal shapes, side by side.
    """

    __slots__ = ()
    offset = Operand(0)
    a = Memory()
    b = Memory()
    pitches = Attribute[tuple[int, int]]()
    depth = Attribute[int]()
    lanes = Attribute[tuple[int, int, int]]()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        expect_scalars(self, self.operands)
        first = self.results[0].type
        expect(len(first.shape) == 2, "scratch_product makes tiles of rank 2")
        expect(all(x.type == first for x in self.results), "scratch_product makes equal tiles")
        same = self.a.dtype == self.b.dtype == first.dtype
        scratch = self.a.role == self.b.role == "scratch"
        expect(same and scratch, "scratch_product takes scratch of the dtype of its result")


class ResidentProduct(Op, name="resident_product", traits=Trait.READS):
    """`Σ a[i, k] b[j, k]` for `k` in `range(depth)`, by the matrix unit.

    Operands are where the first line of `a` begins, and the number of the last one from there.
    Lines of `b` lie in scratch, with zeros behind `depth`. Lines of both are `pitches` elements
    apart, steps in depth side by side. Each wave has all of the result, and a part of the depth.
    Results are tiles of equal shapes, side by side.
    """

    __slots__ = ()
    start, last = Operand(0), Operand(1)
    a = Memory()
    b = Memory()
    pitches = Attribute[tuple[int, int]]()
    depth = Attribute[int]()
    tiling = Tiling()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        expect(len(self.operands) == 2, "resident_product takes 2 operands")
        expect_scalars(self, self.operands)
        first = self.results[0].type
        expect(len(first.shape) == 2, "resident_product makes tiles of rank 2")
        expect(all(x.type == first for x in self.results), "resident_product makes equal tiles")
        same = self.a.dtype == self.b.dtype == self.tiling.operand
        expect(same and self.b.role == "scratch", "resident_product takes a matrix in scratch")


class AmxProduct(Op, name="amx_product", traits=Trait.READS | Trait.WRITES):
    """`c += a @ b` on the matrix unit of a CPU, in memory; from zero if `fresh`.

    `types` are those of the elements of `a` and `b`, which buffers hold as bits. Rows of `a` are 64
    bytes a step and `line` elements apart; a step of `b` is 16 rows of 32-bit words, each of which
    holds neighbors in depth of one column; sums lie row by row. `tile` is the shape of the result,
    of blocks of 16 by 16.
    """

    __slots__ = ()
    a_offset, b_offset, c_offset = Operand(0), Operand(1), Operand(2)
    steps, fresh = Operand(3), Operand(4)
    types = Attribute[tuple[str, str]]()
    a = Memory()
    b = Memory()
    c = Memory()
    line = Attribute[int]()
    tile = Attribute[tuple[int, int]]()

    def check(self) -> None:
        expect(len(self.operands) == 5, "amx_product takes 5 operands")
        expect_scalars(self, self.operands[:4])
        expect(all(n in (16, 32) for n in self.tile), "the unit makes no tile of {}", self.tile)
        expect(self.fresh.type == BOOL, "whether amx_product starts anew is a scalar")
        expect(self.c.role in ("out", "inout", "scratch"), "{} cannot be written", self.c.name)
