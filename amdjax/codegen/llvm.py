"""A small writer of LLVM IR text.

One instruction is one formatted line, so building a kernel costs microseconds, not the
milliseconds an object model would. `Function` methods name LLVM's instructions; where an
instruction has an integer and a float form the operand's type picks it. Values may be scalars
or vectors of any length: LLVM splits a long vector over as many registers as it needs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


@dataclass(frozen=True, slots=True)
class Type:
    """An LLVM first-class type: a scalar (`lanes == 0`) or a vector of `lanes` elements."""

    elem: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.elem}>" if self.lanes else self.elem

    @property
    def is_float(self) -> bool:
        return self.elem in FLOAT_BITS

    @property
    def is_ptr(self) -> bool:
        return self.elem.startswith("ptr")

    @property
    def bits(self) -> int:
        """Bits of one element."""
        if self.is_ptr:
            return 64
        return FLOAT_BITS.get(self.elem) or int(self.elem[1:])

    @property
    def suffix(self) -> str:
        """The mangling that overloaded intrinsics append, for example `v16f32`."""
        elem = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(
            self.elem, self.elem
        )
        if self.is_ptr:
            space = self.elem.partition("(")[2].rstrip(")") or "0"
            elem = f"p{space}"
        return f"v{self.lanes}{elem}" if self.lanes else elem

    def with_elem(self, elem: str) -> Type:
        return Type(elem, self.lanes)

    def with_lanes(self, lanes: int) -> Type:
        return Type(self.elem, lanes)


VOID = Type("void")
I1, I8, I16, I32, I64 = (Type(f"i{n}") for n in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = (Type(n) for n in FLOAT_BITS)
PTR = Type("ptr")


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or constant: its type and how the text refers to it."""

    type: Type
    ref: str

    def __str__(self) -> str:
        lanes, elem = self.type.lanes, self.type.elem
        return f"<{lanes} x {elem}> {self.ref}" if lanes else f"{elem} {self.ref}"


def _float_literal(elem: str, x: float) -> str:
    if elem == "double":
        return "0x" + struct.pack(">d", x).hex().upper()
    if elem == "float":
        try:
            single = struct.unpack(">f", struct.pack(">f", x))[0]
        except OverflowError:
            single = math.copysign(math.inf, x)
        return "0x" + struct.pack(">d", single).hex().upper()
    if elem == "half":
        return "0xH" + np.float16(x).tobytes()[::-1].hex().upper()
    return "0xR" + ml_dtypes.bfloat16(x).tobytes()[::-1].hex().upper()


def const(type: Type, x: float | int | bool) -> Value:
    """A constant of `type`; a vector type gets `x` in every lane."""
    if type.elem == "i64" and not type.lanes and isinstance(x, int) and abs(x) < 1 << 63:
        return Value(type, str(int(x)))  # as most are
    if type.is_float:
        literal = _float_literal(type.elem, float(x))
    elif type.elem == "i1":
        literal = "true" if x else "false"
    elif type.is_ptr:
        literal = "null"
    else:
        bits = type.bits
        x = int(x) & ((1 << bits) - 1)
        literal = str(x - (1 << bits) if x >> (bits - 1) else x)
    return Value(type, f"splat ({type.elem} {literal})" if type.lanes else literal)


def is_number(x: Value) -> bool:
    """Whether a float is a constant, in every lane of a vector, and not NaN."""
    literal = x.ref.removeprefix(f"splat ({x.type.elem} ").removesuffix(")")
    if not literal.startswith("0x"):
        return x.ref == "zeroinitializer"
    scalar = Type(x.type.elem)
    bits, infinity = (
        int(text[2:].lstrip("HR"), 16) for text in (literal, const(scalar, math.inf).ref)
    )
    sign = 1 << (infinity.bit_length())
    return bits % sign <= infinity


def integer(x: Value) -> int | None:
    """The number that a scalar integer is, None if it is no constant."""
    ref = x.ref
    return int(ref) if ref[0] != "%" and ref.lstrip("-").isdigit() else None


def vector(elem: str, xs: Sequence[float | int]) -> Value:
    """A constant vector with the given elements."""
    scalar = Type(elem)
    return Value(Type(elem, len(xs)), "<" + ", ".join(str(const(scalar, x)) for x in xs) + ">")


def undef(type: Type) -> Value:
    return Value(type, "poison")


def zero(type: Type) -> Value:
    return Value(type, "zeroinitializer") if type.lanes else const(type, 0)


@dataclass
class Module:
    """Functions, declarations, globals and attribute groups of one LLVM module.

    `native` names intrinsics that the target runs as an instruction and that other targets would
    turn into a library call or a loop over lanes; `ldexp` on AVX-512 and AMD GPUs, which math
    functions then use, `masked.load` and `masked.store`, without which bytes and shorts go lane by
    lane and a store takes dozens of cycles on Zen 3 and earlier. `subnormal` says that results
    which are take no longer than others.
    `bf16` says that the target's conversion from float keeps subnormal numbers.

    `estimates` has the names of instructions for functions of one float, `exp2`, `log2`, `rcp` and
    `rsqrt`: right to about an ulp, but that subnormal arguments and results may count as zero, and
    logarithms next to 1 may have an absolute error of 2**-22. `median` is there besides, that of
    three floats, one of which may be NaN, where `exp2` is right to an ulp.
    """

    triple: str = ""
    data_layout: str = ""
    native: frozenset[str] = frozenset()
    estimates: Mapping[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    footer: list[str] = field(default_factory=list)

    @property
    def lanes_apart(self) -> bool:
        """Whether lanes of a vector are registers of their own, as on GPUs."""
        return self.triple.startswith(("amdgcn", "nvptx"))

    def declare(self, name: str, result: Type, args: Sequence[Type], attributes: str = "") -> None:
        if name not in self.declarations:
            types = ", ".join(map(str, args))
            self.declarations[name] = f"declare {result} @{name}({types}) {attributes}".rstrip()

    def add_global(self, name: str, definition: str) -> Value:
        """Add `@name = definition` once; returns its address."""
        self.globals.setdefault(name, f"@{name} = {definition}")
        return Value(PTR, f"@{name}")

    def add_metadata(self, text: str) -> str:
        """Add a metadata node, returns its reference such as `!3`."""
        self.metadata.append(text)
        return f"!{len(self.metadata) - 1}"

    def function(
        self, name: str, args: Sequence[tuple[str, Type]], result: Type = VOID, *,
        attributes: str = "", arg_attributes: Sequence[str] = (), linkage: str = "",
        convention: str = "",
    ) -> Function:  # fmt: skip
        """Begin a function definition; its `entry` block is open for writing."""
        f = Function(self, name, args, result, attributes, arg_attributes, linkage, convention)
        self.functions.append(f)
        return f

    def __str__(self) -> str:
        head = [f'target triple = "{self.triple}"'] if self.triple else []
        if self.data_layout:
            head.append(f'target datalayout = "{self.data_layout}"')
        bodies = [str(f) for f in self.functions]
        defined = {f.name for f in self.functions}
        declarations = [d for name, d in self.declarations.items() if name not in defined]
        nodes = [f"!{i} = {text}" for i, text in enumerate(self.metadata)]
        parts = [*head, *self.globals.values(), *bodies, *declarations, *nodes, *self.footer]
        return "\n".join(parts) + "\n"


@dataclass
class Loop:
    """What the body of `Function.loop` sees: the index and the carried values."""

    index: Value
    carried: list[Value]
    results: list[Value]


def _both(op_int: str, op_float: str) -> Callable[[Function, Value, Value], Value]:
    def method(self: Function, a: Value, b: Value) -> Value:
        return self.op(f"{op_float if a.type.is_float else op_int} {a}, {b.ref}", a.type)

    return method


def _binary(op: str) -> Callable[[Function, Value, Value], Value]:
    def method(self: Function, a: Value, b: Value) -> Value:
        return self.op(f"{op} {a}, {b.ref}", a.type)

    return method


class Function:
    """A function being written. Instructions go to the end of the current block."""

    def __init__(
        self, module: Module, name: str, args: Sequence[tuple[str, Type]], result: Type,
        attributes: str, arg_attributes: Sequence[str], linkage: str, convention: str,
    ):  # fmt: skip
        self.module, self.name, self.result = module, name, result
        self.attributes, self.linkage, self.convention = attributes, linkage, convention
        self.args = [Value(t, f"%{n}") for n, t in args]
        self.arg_attributes = list(arg_attributes) or [""] * len(self.args)
        self._counter = 0
        self._blocks: list[tuple[str, list[str]]] = []
        self._allocas: list[str] = []
        self._splats: dict[str, Value] = {}
        self.block = ""
        #: Goes behind every instruction; `, !dbg !3` says what it was made from.
        self.suffix = ""
        self.start_block("entry")

    # Blocks and control flow

    def new_label(self, hint: str = "b") -> str:
        self._counter += 1
        return f"{hint}.{self._counter}"

    def start_block(self, label: str) -> None:
        self._lines: list[str] = []
        self._blocks.append((label, self._lines))
        self.block = label

    def emit(self, line: str) -> None:
        self._lines.append(line + self.suffix)

    @contextmanager
    def inserting_into(self, lines: list[str]) -> Iterator[None]:
        """Instructions go to `lines`, which end up in a block that has been left open."""
        here, suffix = self._lines, self.suffix
        self._lines = lines
        yield
        self._lines, self.suffix = here, suffix

    @property
    def lines(self) -> list[str]:
        """The instructions of the current block."""
        return self._lines

    def op(self, text: str, type: Type) -> Value:
        """Emit `%n = text` and return the value."""
        self._counter += 1
        ref = f"%v{self._counter}"
        self._lines.append(f"{ref} = {text}{self.suffix}")
        return Value(type, ref)

    def br(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def cond_br(
        self, cond: Value, then: str, other: str, weights: tuple[int, int] | None = None
    ) -> None:
        prof = ""
        if weights:
            node = self.module.add_metadata(
                f'!{{!"branch_weights", i32 {weights[0]}, i32 {weights[1]}}}'
            )
            prof = f", !prof {node}"
        self.emit(f"br {cond}, label %{then}, label %{other}{prof}")

    def ret(self, value: Value | None = None) -> None:
        self.emit(f"ret {value}" if value else "ret void")

    def phi(self, type: Type, incoming: Sequence[tuple[Value, str]]) -> Value:
        edges = ", ".join(f"[{v.ref}, %{label}]" for v, label in incoming)
        return self.op(f"phi {type} {edges}", type)

    def _open_phi(self, type: Type) -> Value:
        """A phi whose edges are appended to its line later."""
        self._counter += 1
        ref = f"%v{self._counter}"
        self._lines.append(f"{ref} = phi {type} ")
        return Value(type, ref)

    def loop(
        self, start: Value, stop: Value, step: Value | int, carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]], *, metadata: str = "",
    ) -> list[Value]:  # fmt: skip
        """`for index in range(start, stop, step)` with loop-carried values.

        `body(index, carried)` writes one iteration and returns the next carried values. Returns
        the carried values after the loop. The step is positive; signed comparison.
        """
        if isinstance(step, int):
            step = const(start.type, step)
        pre, header, inside, after = (
            self.block,
            *(self.new_label(x) for x in ("loop", "body", "done")),
        )
        self.br(header)
        self.start_block(header)
        index = self._open_phi(start.type)
        phis = [self._open_phi(c.type) for c in carried]
        header_lines = self._lines
        more = self.icmp("slt", index, stop)
        self.cond_br(more, inside, after)
        self.start_block(inside)
        results = list(body(index, phis))
        following = self.add(index, step)
        latch = self.block
        self.emit(f"br label %{header}{metadata}")
        for i, (first, last) in enumerate(
            zip([start, *carried], [following, *results], strict=True)
        ):
            header_lines[i] += f"[{first.ref}, %{pre}], [{last.ref}, %{latch}]"
        self.start_block(after)
        return phis

    def rotated_loop(
        self, start: Value, stop: Value, step: Value | int, carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:  # fmt: skip
        """As `loop`; whether there is another round is asked behind each, as LLVM would have it."""
        if isinstance(step, int):
            step = const(start.type, step)
        begins, ends = integer(start), integer(stop)
        runs = begins is not None and ends is not None and begins < ends
        pre, inside, after = self.block, self.new_label("body"), self.new_label("done")
        if runs:
            self.br(inside)
        else:
            self.cond_br(self.icmp("slt", start, stop), inside, after)
        self.start_block(inside)
        index = self._open_phi(start.type)
        phis = [self._open_phi(c.type) for c in carried]
        lines = self._lines
        results = list(body(index, phis))
        following = self.add(index, step)
        latch = self.block
        self.cond_br(self.icmp("slt", following, stop), inside, after)
        edges = zip([start, *carried], [following, *results], strict=True)
        for i, (first, last) in enumerate(edges):
            lines[i] += f"[{first.ref}, %{pre}], [{last.ref}, %{latch}]"
        self.start_block(after)
        if runs:
            return results
        return [
            self.phi(first.type, [(first, pre), (last, latch)])
            for first, last in zip(carried, results, strict=True)
        ]

    def while_loop(
        self,
        carried: Sequence[Value],
        cond: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """`while cond(carried): carried = body(carried)`; returns the final carried values."""
        pre, header, inside, after = (
            self.block,
            *(self.new_label(x) for x in ("while", "do", "done")),
        )
        self.br(header)
        self.start_block(header)
        phis = [self._open_phi(c.type) for c in carried]
        header_lines = self._lines
        self.cond_br(cond(phis), inside, after)
        self.start_block(inside)
        results = list(body(phis))
        latch = self.block
        self.br(header)
        for i, (first, last) in enumerate(zip(carried, results, strict=True)):
            header_lines[i] += f"[{first.ref}, %{pre}], [{last.ref}, %{latch}]"
        self.start_block(after)
        return phis

    def if_(
        self,
        cond: Value,
        then: Callable[[], Sequence[Value]],
        other: Callable[[], Sequence[Value]] = lambda: (),
        *,
        weights: tuple[int, int] | None = None,
    ) -> list[Value]:
        """Branch on a scalar; both arms return the same number of values, joined by phis."""
        yes, no, after = (self.new_label(x) for x in ("then", "else", "join"))
        self.cond_br(cond, yes, no, weights)
        self.start_block(yes)
        a, a_end = list(then()), self.block
        self.br(after)
        self.start_block(no)
        b, b_end = list(other()), self.block
        self.br(after)
        self.start_block(after)
        return [self.phi(x.type, [(x, a_end), (y, b_end)]) for x, y in zip(a, b, strict=True)]

    # Arithmetic

    add = _both("add", "fadd")
    sub = _both("sub", "fsub")
    mul = _both("mul", "fmul")
    sdiv, udiv, fdiv = _binary("sdiv"), _binary("udiv"), _binary("fdiv")
    srem, urem = _binary("srem"), _binary("urem")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")

    def neg(self, x: Value) -> Value:
        if x.type.is_float:
            return self.op(f"fneg {x}", x.type)
        return self.sub(zero(x.type), x)

    def freeze(self, x: Value) -> Value:
        """`x`, or some one value if it is poison."""
        return self.op(f"freeze {x}", x.type)

    def not_(self, x: Value) -> Value:
        return self.xor(x, const(x.type, -1) if x.type.elem != "i1" else const(x.type, True))

    def icmp(self, predicate: str, a: Value, b: Value) -> Value:
        return self.op(f"icmp {predicate} {a}, {b.ref}", a.type.with_elem("i1"))

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        return self.op(f"fcmp {predicate} {a}, {b.ref}", a.type.with_elem("i1"))

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        return self.op(f"select {cond}, {a}, {b}", a.type)

    def intrinsic(
        self, name: str, result: Type, *args: Value, overload: Sequence[Type] | None = None
    ) -> Value:
        """Call `llvm.name.<overload suffixes>`; the overload defaults to the result type."""
        suffixes = [result] if overload is None else overload
        full = ".".join([f"llvm.{name}", *(t.suffix for t in suffixes)])
        return self.call(full, result, *args)

    def call(self, name: str, result: Type, *args: Value, declare: bool = True) -> Value:
        if declare:
            self.module.declare(name, result, [a.type for a in args])
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result is VOID or result.elem == "void":
            self.emit(text)
            return undef(VOID)
        return self.op(text, result)

    def call_pointer(self, target: Value, result: Type, *args: Value) -> Value:
        text = f"call {result} {target.ref}({', '.join(map(str, args))})"
        if result.elem == "void":
            self.emit(text)
            return undef(VOID)
        return self.op(text, result)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c` with one rounding."""
        return self.intrinsic("fma", a.type, a, b, c)

    def unary_intrinsic(self, name: str, x: Value) -> Value:
        """An overloaded intrinsic of one operand, such as `ctpop`."""
        return self.intrinsic(name, x.type, x)

    # Conversions

    def cast(self, op: str, x: Value, elem: str) -> Value:
        """`op` is an LLVM conversion such as `sext`, `fptrunc` or `sitofp`."""
        to = x.type.with_elem(elem)
        return self.op(f"{op} {x} to {to}", to)

    def bitcast(self, x: Value, to: Type) -> Value:
        return x if x.type == to else self.op(f"bitcast {x} to {to}", to)

    def int_resize(self, x: Value, elem: str, signed: bool) -> Value:
        """Widen (sign- or zero-extending) or truncate an integer."""
        to = int(elem[1:])
        if x.type.bits == to:
            return x
        return self.cast("trunc" if to < x.type.bits else "sext" if signed else "zext", x, elem)

    # Vectors

    def splat(self, x: Value, lanes: int) -> Value:
        """The scalar `x` in every lane."""
        if (
            x.ref.lstrip("-").replace(".", "").isalnum()
            and not x.ref.startswith("%")
            and not x.type.is_ptr
        ):
            out = Value(x.type.with_lanes(lanes), f"splat ({x})")
        else:
            to = x.type.with_lanes(lanes)
            first = self.op(f"insertelement {to} poison, {x}, i64 0", to)
            zeros = f"<{lanes} x i32> zeroinitializer"
            out = self.op(f"shufflevector {to} {first.ref}, {to} poison, {zeros}", to)
        self._splats[out.ref] = x
        return out

    def splatted(self, x: Value) -> Value | None:
        """The scalar that `splat` made a vector of."""
        return self._splats.get(x.ref)

    def extract(self, x: Value, lane: int | Value) -> Value:
        lane_text = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self.op(f"extractelement {x}, {lane_text}", x.type.with_lanes(0))

    def insert(self, x: Value, scalar: Value, lane: int | Value) -> Value:
        lane_text = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self.op(f"insertelement {x}, {scalar}, {lane_text}", x.type)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Pick lanes out of `a` followed by `b`; lane -1 is poison."""
        b = b or undef(a.type)
        mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in lanes)
        return self.op(
            f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{mask}>", a.type.with_lanes(len(lanes))
        )

    def iota(self, elem: str, lanes: int) -> Value:
        return vector(elem, range(lanes))

    def reduce(self, name: str, x: Value, start: Value | None = None, flags: str = "") -> Value:
        """`llvm.vector.reduce.name`; ordered float sums and products take `start`."""
        scalar = x.type.with_lanes(0)
        full = f"llvm.vector.reduce.{name}.{x.type.suffix}"
        args = [x] if start is None else [start, x]
        self.module.declare(full, scalar, [a.type for a in args])
        return self.op(f"call {flags} {scalar} @{full}({', '.join(map(str, args))})", scalar)

    # Memory

    def alloca(self, type: Type, count: int = 1) -> Value:
        """Stack storage; placed in the entry block so that loops do not grow the stack."""
        self._counter += 1
        ref = f"%a{self._counter}"
        self._allocas.append(f"{ref} = alloca {type}, i64 {count}, align 64")
        return Value(PTR, ref)

    def gep(self, base: Value, offset: Value | int, elem: Type) -> Value:
        """Address of element `offset`, in units of `elem`, from `base`; of many if a vector."""
        text = f"i64 {offset}" if isinstance(offset, int) else str(offset)
        lanes = 0 if isinstance(offset, int) else offset.type.lanes
        return self.op(
            f"getelementptr {elem}, {base}, {text}", Type(base.type.elem, lanes or base.type.lanes)
        )

    def load(self, type: Type, pointer: Value, align: int = 0, flags: str = "") -> Value:
        suffix = f", align {align}" if align else ""
        return self.op(f"load {type}, {pointer}{suffix}{flags}", type)

    def store(self, value: Value, pointer: Value, align: int = 0, flags: str = "") -> None:
        suffix = f", align {align}" if align else ""
        self.emit(f"store {value}, {pointer}{suffix}{flags}")

    def masked_load(
        self, type: Type, pointer: Value, mask: Value, other: Value, align: int = 1
    ) -> Value:
        return self._masked("load", type, pointer, mask, other, align)

    def _masked(
        self, kind: str, type: Type, at: Value, mask: Value, other: Value, align: int
    ) -> Value:
        name = f"llvm.masked.{kind}.{type.suffix}.{at.type.suffix}"
        self.module.declare(name, type, [at.type, mask.type, type])
        call = f"call {type} @{name}({at.type} align {align} {at.ref}, {mask}, {other})"
        return self.op(call, type)

    def masked_store(
        self, value: Value, pointer: Value, mask: Value, align: int, kind: str = "store"
    ) -> None:
        name = f"llvm.masked.{kind}.{value.type.suffix}.{pointer.type.suffix}"
        self.module.declare(name, VOID, [value.type, pointer.type, mask.type])
        self.emit(f"call void @{name}({value}, {pointer.type} align {align} {pointer.ref}, {mask})")

    def gather(
        self, type: Type, pointers: Value, mask: Value, other: Value, align: int = 1
    ) -> Value:
        """Load each lane from its own address where `mask` is set, else `other`."""
        return self._masked("gather", type, pointers, mask, other, align)

    def scatter(self, value: Value, pointers: Value, mask: Value, align: int = 1) -> None:
        self.masked_store(value, pointers, mask, align, "scatter")

    def __str__(self) -> str:
        args = ", ".join(
            f"{a.type} {attrs} {a.ref}".replace("  ", " ")
            for a, attrs in zip(self.args, self.arg_attributes, strict=True)
        )
        head = " ".join(x for x in ("define", self.linkage, self.convention, str(self.result)) if x)
        out = [f"{head} @{self.name}({args}) {self.attributes} {{"]
        for i, (label, lines) in enumerate(self._blocks):
            out.append(f"{label}:")
            out += ["  " + line for line in ([*self._allocas, *lines] if i == 0 else lines)]
        return "\n".join([*out, "}"])
