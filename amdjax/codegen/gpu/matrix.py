"""Code that multiplies matrices: what each atom of `targets.mma` is in LLVM."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen import llvm
from amdjax.codegen.llvm import I1, I32, Function, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES
from amdjax.targets.gpu import DotInstruction, MatrixInstruction
from amdjax.targets.mma import Digits, MmaAtom

#: `multiply(f, a, b, c)`: words of the lines of `a` and of `b` that a lane holds, and its
#: accumulators.
Multiply = Callable[[Function, list[list[Value]], list[list[Value]], Value], Value]


def emit_digits(f: Function, digits: Digits, x: Value) -> Value:
    """The number that digits make of `x`, in code; divisors and moduli are powers of two."""
    total = llvm.const(x.type, 0)
    for divisor, modulus, scale in digits:
        part = f.lshr(x, llvm.const(x.type, divisor.bit_length() - 1)) if divisor > 1 else x
        part = f.and_(part, llvm.const(x.type, modulus - 1))
        total = f.add(total, f.mul(part, llvm.const(x.type, scale)))
    return total


def accumulator_type(atom: MmaAtom) -> Type:
    """LLVM's type of a lane's accumulators."""
    count = len(atom.elements)
    return Type(ELEMENT_TYPES[atom.accumulator], count if count > 1 else 0)


def multiplier(atom: MmaAtom) -> Multiply:
    """What writes the products of an atom whose operands are in registers."""
    if isinstance(atom.instruction, DotInstruction):
        return _dots(atom.instruction, atom.operand)
    if isinstance(atom.instruction, MatrixInstruction):
        return (_warp_product if atom.kind == "mma" else _wave_product)(atom.instruction, atom)
    assert atom.kind == "fma", atom
    return _outer_product(atom)


def _wave_product(i: MatrixInstruction, atom: MmaAtom) -> Multiply:
    """A matrix instruction of AMD."""
    sums = accumulator_type(atom)

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        x, y = (joined_words(f, lines[0], _parsed(i.operand_type)) for lines in (a, b))
        if atom.transposed:
            x, y = y, x
        return _call(f, i.intrinsic, sums, i.call_arguments(x.ref, y.ref, c.ref))

    return multiply


def _warp_product(i: MatrixInstruction, atom: MmaAtom) -> Multiply:
    """NVIDIA's `mma.sync`."""
    width = max(4 // atom.operand_bytes, 1)  # elements of a register
    result, register = accumulator_type(atom), _parsed(i.operand_type)
    count = atom.step // width

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        def registers(lines: list[list[Value]]) -> list[Value]:
            size = len(lines[0]) // count
            parts = [[x[p * size : (p + 1) * size] for p in range(count)] for x in lines]
            return [joined_words(f, x[p], register) for p in range(count) for x in parts]

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

    return multiply


def _mma_text(instruction: str, sums: int, a: int, b: int) -> str:
    """Assembly for an instruction on doubles that LLVM has no intrinsic for."""
    numbers = iter(range(sums + a + b))

    def group(count: int) -> str:
        return "{" + ", ".join(f"${next(numbers)}" for _ in range(count)) + "}"

    d, x, y = group(sums), group(a), group(b)
    constraints = ",".join(["=d"] * sums + ["d"] * (a + b) + [str(n) for n in range(sums)])
    return f'asm "{instruction} {d}, {x}, {y}, {d};", "{constraints}"'


def _outer_product(atom: MmaAtom) -> Multiply:
    """Each lane multiplies its lines of `a` with its lines of `b`."""
    one, each = Type(ELEMENT_TYPES[atom.operand]), atom.cell

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        xs, ys = ([joined_words(f, line, one) for line in lines] for lines in (a, b))
        for e in range(each * each):
            x, y, total = xs[e // each], ys[e % each], f.extract(c, e)
            total = f.fma(x, y, total) if one.is_float else f.add(f.mul(x, y), total)
            c = f.insert(c, total, e)
        return c

    return multiply


def _dots(i: DotInstruction, operand: str) -> Multiply:
    """Dot products within each lane."""
    argument = {"f16": Type("half", 2), "bf16": Type("bfloat", 2)}.get(operand, I32)

    def multiply(f: Function, a: list[list[Value]], b: list[list[Value]], c: Value) -> Value:
        for x, y in zip(a[0], b[0], strict=True):
            x, y = f.bitcast(x, argument), f.bitcast(y, argument)
            sign = f"{I1} true, "
            pair = f"{sign}{x}, {sign}{y}" if "sudot" in i.intrinsic else f"{x}, {y}"
            c = _call(f, i.intrinsic, c.type, f"{pair}, {c}, {I1} false")
        return c

    return multiply


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
