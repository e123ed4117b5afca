"""How the threads of a workgroup hold a matrix product: units, fragments, tiles.

A *unit* multiplies `m` lines of `a` with `n` lines of `b` (rows of the left operand, columns of the
right one) over some depth, once for each wave: a matrix instruction, or multiply-adds of the vector
lanes where there is none. All units read their operands alike: a lane takes *cells* of 16 bytes,
each a few consecutive elements of the depth of one line. Which part of the depth a lane takes does
not matter as long as both operands agree, so no unit needs its operands shuffled. Vector lanes,
which multiply each line of theirs with each, take cells of a few neighbouring lines at one step in
depth: what a lane holds at a time is then as little as can be.

In LDS the cells of a tile lie in planes, one for each step of a cell in depth, line beside line.
Neighbouring lanes then read neighbouring cells, and every distance is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from amdjax.codegen import llvm
from amdjax.codegen.llvm import F32, F64, I1, I32, Function, Type, Value
from amdjax.targets.gpu import GpuTarget, MatrixInstruction
from amdjax.tile import MatrixTiling, itemsize

CELL_BYTES = 16

#: A number made of digits of another: the sum of `x // divisor % modulus * scale`.
Digits = tuple[tuple[int, int, int], ...]

#: `multiply(f, a, b, c)`: words of the lines of `a` and of `b` that a lane holds, and its sums.
Multiply = Callable[[Function, list[list[Value]], list[list[Value]], Value], Value]


def digits_of(digits: Digits, x: int) -> int:
    """The number that `digits` makes of `x`."""
    return sum(x // divisor % modulus * scale for divisor, modulus, scale in digits)


def emit_digits(f: Function, digits: Digits, x: Value) -> Value:
    """The same in code; divisors and moduli are powers of two."""
    total = llvm.const(x.type, 0)
    for divisor, modulus, scale in digits:
        part = f.lshr(x, llvm.const(x.type, divisor.bit_length() - 1)) if divisor > 1 else x
        part = f.and_(part, llvm.const(x.type, modulus - 1))
        total = f.add(total, f.mul(part, llvm.const(x.type, scale)))
    return total


@dataclass(frozen=True)
class Unit:
    """What multiplies.

    Args:
      name: of the instruction, for people.
      operand, accumulator: dtypes.
      m, n: lines of `a` and of `b`.
      step: consecutive elements of depth that a lane holds of a line.
      groups: lanes that share a line and divide its depth.
      line: lines that a lane holds, of `a` and of `b`: the first, from its number in the wave ...
      more: ... and the distances to the others.
      group: which part of the depth a lane takes, of `a` and of `b`.
      row, column: where in the result a lane's sums are ...
      elements: ... and the distances (row, column) of each.
      accumulators: LLVM type of a lane's sums.
      multiply: writes the code.
      flops: multiplications and additions of a compute unit in a clock.
      from_lds: it reads its operands from LDS by itself.
      across: a cell holds neighbouring lines at one step in depth, not steps of one line.
      by_lanes: it is arithmetic of vector lanes.
      doubled: sums take twice the registers, as where multiply-adds of integers have 64 bits.
    """

    name: str
    operand: str
    accumulator: str
    m: int
    n: int
    step: int
    groups: int
    line: tuple[Digits, Digits]
    more: tuple[tuple[int, ...], tuple[int, ...]]
    group: tuple[Digits, Digits]
    row: Digits
    column: Digits
    elements: tuple[tuple[int, int], ...]
    accumulators: Type
    multiply: Multiply
    flops: int
    from_lds: bool = False
    across: bool = False
    by_lanes: bool = False
    doubled: bool = False

    @property
    def cell(self) -> int:
        """Elements in a cell."""
        return CELL_BYTES // itemsize(self.operand)

    @property
    def cell_lines(self) -> int:
        """Lines of which a cell has elements."""
        return self.cell if self.across else 1

    @property
    def cell_depth(self) -> int:
        """Steps in depth of which a cell has elements."""
        return self.cell // self.cell_lines

    @property
    def cells(self) -> int:
        """Cells of a line that a lane reads at a time."""
        return max(1, self.step // self.cell_depth)

    @property
    def depth(self) -> int:
        """Elements of depth that all lanes of a line read at a time."""
        return self.groups * self.cells * self.cell_depth

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Tiling:
    """How a workgroup divides a tile of a product.

    Args:
      unit: what multiplies.
      waves: waves along rows and columns.
      fragments: units along rows and columns of each wave.
      depth: of the operands' tiles in LDS.
      stages: tiles of each operand in LDS.
    """

    unit: Unit
    waves: tuple[int, int]
    fragments: tuple[int, int]
    depth: int
    stages: int = 1

    @property
    def rows(self) -> int:
        return self.waves[0] * self.fragments[0] * self.unit.m

    @property
    def columns(self) -> int:
        return self.waves[1] * self.fragments[1] * self.unit.n

    @property
    def wave_count(self) -> int:
        return self.waves[0] * self.waves[1]

    @property
    def accumulator_registers(self) -> int:
        """Registers in which a lane holds sums."""
        each = len(self.unit.elements) * max(self.unit.accumulators.bits // 32, 1)
        return math.prod(self.fragments) * each * (2 if self.unit.doubled else 1)

    @property
    def fragment_registers(self) -> int:
        """Registers in which a lane holds what it multiplies at a time."""
        more = zip(self.fragments, self.unit.more, strict=True)
        lines = sum(fragments * len(distances) for fragments, distances in more)
        return lines * self.unit.cells * CELL_BYTES // 4

    @property
    def schedule(self) -> MatrixTiling:
        """The tiling as a tile program has it, which knows units by name."""
        unit = self.unit
        return MatrixTiling(
            unit.name, unit.operand, self.waves, self.fragments, self.depth, self.stages
        )

    def __str__(self) -> str:
        return str(self.schedule)


@dataclass(frozen=True)
class Planes:
    """Where the cells of an operand's tile lie in LDS, counted in cells.

    Args:
      lines: of the tile.
      planes: steps in depth.
      together: neighbouring lines that one thread stores at the same time. They are spread apart,
        so that the threads beside it store beside it.
      wide: neighbouring lines in a cell.
    """

    lines: int
    planes: int
    together: int = 1
    wide: int = 1

    @property
    def spread(self) -> int:
        """Cells between lines that one thread stores."""
        padding = 8 // self.together if self.together > 1 else 0
        return self.lines // (self.together * self.wide) + padding

    @property
    def plane(self) -> int:
        """Cells of one plane; a few more than it has lines, so that planes begin in other banks."""
        return self.together * self.spread + (max(1, 8 // self.planes) if self.planes > 1 else 0)

    @property
    def cells(self) -> int:
        return self.plane * self.planes

    @property
    def line_digits(self) -> Digits:
        """A line's place in its plane. Lines that are multiples of `together` apart stay so."""
        if self.together == 1:
            return ((self.wide, 1 << 30, 1),)
        return ((1, self.together, self.spread), (self.together, 1 << 30, 1))

    def place(self, line: int, plane: int) -> int:
        return plane * self.plane + digits_of(self.line_digits, line)


# Units


def units(target: GpuTarget, operand: str, accumulator: str) -> list[Unit]:
    """What can multiply operands of a dtype, largest first; empty if they must be converted.

    Vector lanes multiply f32, f64 and integers of 32 or 64 bits; smaller operands only where the
    target sums several products in one instruction.
    """
    name = MATRIX_NAMES.get(operand, operand)
    found = [matrix_unit(i, target) for i in target.matrix_for(name, accumulator)]
    found = [unit for unit in found if unit.operand == operand]  # the target's flavour of float8
    if found:
        return found
    return [x] if (x := lane_unit(target, operand, accumulator)) is not None else []


#: What the targets' tables call dtypes of 8 bits.
MATRIX_NAMES = {
    "f8_e4m3fn": "fp8", "f8_e4m3fnuz": "fp8", "f8_e5m2": "bf8", "f8_e5m2fnuz": "bf8",
}  # fmt: skip


@cache
def matrix_unit(i: MatrixInstruction, target: GpuTarget) -> Unit:
    """The unit of a matrix instruction."""
    dtypes = {v: k for k, v in MATRIX_NAMES.items() if k.endswith("fnuz") == (target.fp8 == "fnuz")}
    operand = dtypes.get(i.operand, i.operand)
    flops = target.matrix_rate.get(i.operand, target.vector_rate)
    if i.layout == "mma":
        return _mma_unit(i, operand, flops)
    sums = _parsed(i.accumulator_type)
    groups = 1 if i.layout == "wmma_rdna3" else target.wave_size // i.m
    line: Digits = ((1, i.m, 1),)
    group: Digits = () if groups == 1 else ((i.m, groups, 1),)
    places = [i.accumulator_position(0, e) for e in range(i.accumulator_elements)]
    row: Digits = ((i.n, target.wave_size // i.n, i.accumulator_position(i.n, 0)[0]),)
    column: Digits = ((1, i.n, 1),)
    # Where a lane holds neighbouring rows of a column, the transposed product gives it neighbouring
    # columns of a row, which are stored together.
    turned = places[1][0] - places[0][0] == 1

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        x, y = (joined_words(f, lines[0], _parsed(i.operand_type)) for lines in (a, b))
        if turned:
            x, y = y, x
        return _call(f, i.intrinsic, sums, i.call_arguments(x.ref, y.ref, c.ref))

    if turned:
        row, column = column, row
        places = [(y, x) for x, y in places]
    return Unit(
        i.intrinsic.removeprefix("llvm.amdgcn."), operand, i.accumulator, i.m, i.n,
        i.operand_elements, groups, (line, line), ((0,), (0,)), (group, group), row, column,
        tuple(places), sums, multiply, flops,
    )  # fmt: skip


def _mma_unit(i: MatrixInstruction, operand: str, flops: int) -> Unit:
    """NVIDIA's `mma.sync`: four lanes share a line, and hold every eighth row."""
    rows = tuple(range(0, i.m, 8))
    width = max(4 // itemsize(operand), 1)  # elements of a register
    step = i.k // 4
    result = _parsed(i.accumulator_type)
    register = _parsed(i.operand_type)
    pieces = step // width

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        def registers(lines: list[list[Value]]) -> list[Value]:
            size = len(lines[0]) // pieces
            parts = [[x[p * size : (p + 1) * size] for p in range(pieces)] for x in lines]
            return [joined_words(f, x[p], register) for p in range(pieces) for x in parts]

        totals = [f.extract(c, e) for e in range(result.lanes)]
        held = [*registers(a), *registers(b)]
        arguments = ", ".join(map(str, [*held, *totals]))
        one = result.with_lanes(0)
        struct = Type("{" + ", ".join([str(one)] * result.lanes) + "}")
        if i.intrinsic.startswith("llvm."):
            got = _call(f, i.intrinsic, struct, arguments)
        else:
            counts = len(totals), len(registers(a)), len(registers(b))
            got = f.op(f"call {struct} {_mma_text(i.intrinsic, *counts)}({arguments})", struct)
        out = llvm.undef(result)
        for e in range(result.lanes):
            out = f.insert(out, f.op(f"extractvalue {got}, {e}", one), e)
        return out

    elements = tuple((r, c) for r in rows for c in (0, 1))
    line: Digits = ((4, 8, 1),)
    group: Digits = ((1, 4, 1),)
    name = i.intrinsic.removeprefix("llvm.nvvm.").removeprefix("mma.sync.aligned.")
    return Unit(
        name, operand, i.accumulator, i.m, i.n, step, 4, (line, line), (rows, (0,)),
        (group, group), line, ((1, 4, 2),), elements, result, multiply, flops,
    )  # fmt: skip


def _mma_text(instruction: str, sums: int, a: int, b: int) -> str:
    """Assembly for an instruction on doubles that LLVM has no intrinsic for."""
    numbers = iter(range(sums + a + b))

    def group(count: int) -> str:
        return "{" + ", ".join(f"${next(numbers)}" for _ in range(count)) + "}"

    d, x, y = group(sums), group(a), group(b)
    constraints = ",".join(["=d"] * sums + ["d"] * (a + b) + [str(n) for n in range(sums)])
    return f'asm "{instruction} {d}, {x}, {y}, {d};", "{constraints}"'


@cache
def lane_unit(target: GpuTarget, operand: str, accumulator: str) -> Unit | None:
    """Multiply-adds of vector lanes, eight of which lie along a row of the result."""
    sums = {"f32": F32, "f64": F64}.get(accumulator) or Type(accumulator)
    if operand == accumulator and operand in ("f32", "f64", "i32", "i64"):
        rate = target.f64_rate if accumulator == "f64" else target.vector_rate
        pairs = target.is_amdgpu and not sums.is_float
        return _outer_unit(target.wave_size // 8, operand, sums, rate, pairs)
    add = _lane_dot(target, operand, accumulator)
    if add is None:
        return None
    m, n = target.wave_size // 8, 8
    a: Digits = ((8, m, 1),)
    b: Digits = ((1, n, 1),)
    rate = target.vector_rate * {"f16": 2, "i8": 4}.get(operand, 1)
    return Unit(
        f"dot.{operand}", operand, accumulator, m, n, CELL_BYTES // itemsize(operand), 1, (a, b),
        ((0,), (0,)), ((), ()), a, b, ((0, 0),), sums, add, rate,
        by_lanes=True,
    )  # fmt: skip


def _outer_unit(high: int, dtype: str, one: Type, flops: int, doubled: bool) -> Unit:
    """Each lane multiplies a few neighbouring lines of `a` with as many of `b`."""
    each = CELL_BYTES // itemsize(dtype)
    a: Digits = ((8, high, each),)
    b: Digits = ((1, 8, each),)
    sums = one.with_lanes(each * each)

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        xs, ys = ([joined_words(f, line, one) for line in lines] for lines in (a, b))
        for e in range(each * each):
            x, y, total = xs[e // each], ys[e % each], f.extract(c, e)
            total = f.fma(x, y, total) if one.is_float else f.add(f.mul(x, y), total)
            c = f.insert(c, total, e)
        return c

    elements = tuple((i, j) for i in range(each) for j in range(each))
    return Unit(
        f"fma.{dtype}", dtype, dtype, high * each, 8 * each, 1, 1, (a, b), ((0,), (0,)),
        ((), ()), a, b, elements, sums, multiply, flops, across=True, by_lanes=True,
        doubled=doubled,
    )  # fmt: skip


def _lane_dot(target: GpuTarget, operand: str, accumulator: str) -> Multiply | None:
    dot = target.dot_for(operand, accumulator)
    if dot is None or not target.is_amdgpu:
        return None
    argument = (
        Type("half", 2) if operand == "f16" else Type("bfloat", 2) if operand == "bf16" else I32
    )

    def several(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        for x, y in zip(a[0], b[0], strict=True):
            x, y = f.bitcast(x, argument), f.bitcast(y, argument)
            sign = f"{I1} true, "
            pair = f"{sign}{x}, {sign}{y}" if "sudot" in dot.intrinsic else f"{x}, {y}"
            c = _call(f, dot.intrinsic, c.type, f"{pair}, {c}, {I1} false")
        return c

    return several


def _call(f: Function, name: str, result: Type, arguments: str) -> Value:
    """A call whose arguments are text; constants may be among them."""
    kinds = [Type(x.strip().rpartition(" ")[0]) for x in _split(arguments)]
    f.module.declare(name, result, kinds)
    return f.op(f"call {result} @{name}({arguments})", result)


def _split(arguments: str) -> list[str]:
    """Arguments at the commas between them."""
    out, depth = [""], 0
    for ch in arguments:
        depth += ch in "<{("
        depth -= ch in ">})"
        if ch == "," and not depth:
            out.append("")
        else:
            out[-1] += ch
    return out


def joined_words(f: Function, words: list[Value], kind: Type) -> Value:
    """Words of 32 bits as one value."""
    if len(words) == 1:
        return f.bitcast(words[0], kind)
    whole = llvm.undef(Type("i32", len(words)))
    for i, word in enumerate(words):
        whole = f.insert(whole, word, i)
    return f.bitcast(whole, kind)


def _parsed(text: str) -> Type:
    count, _, element = text.strip("<>").rpartition(" x ")
    return Type(element, int(count) if count else 0)


# Small pieces of code


def i32(x: int) -> Value:
    return llvm.const(I32, x)


def log2(x: int) -> int:
    """Of a power of two."""
    assert x & (x - 1) == 0, x
    return x.bit_length() - 1


def lds_address(f: Function, base: Value, offset: Value, more: int) -> Value:
    """`base + offset + more` bytes into LDS."""
    at = f.op(f"getelementptr inbounds i8, {base}, {offset}", base.type)
    return f.op(f"getelementptr inbounds i8, {at}, i32 {more}", base.type) if more else at
