"""The machine that runs a compiled program: a few instructions over an array of slots.

A program is a list of 64-bit words, headed by two sizes. Its instructions launch kernels, copy,
count and branch; its data are addresses in *slots* (the arena, the arguments, the results, and
pointers that loops exchange). Running one takes a single native call, loops and branches included,
and compiling one takes no LLVM at all: the interpreter below is compiled once for a machine.

An operand is four words `(slot, offset, counter, stride)` and stands for the address
`slots[slot] + offset + slots[counter] * stride`. Slot `ZERO` holds 0, so plain numbers and plain
addresses are operands too.

| instruction | words after the opcode | does |
|---|---|---|
| `HALT` | – | ends the program |
| `CALL` | fn, grid, parallel, n, n operands | runs a kernel on one thread, or on the pool |
| `JUMP` | target | |
| `UNLESS` | operand, target | jumps if the byte at the address is 0 |
| `SET` | slot, number | |
| `ADD` | slot, number | |
| `REPEAT` | slot, number, target | jumps if the slot holds less than the number |
| `SWAP` | slot, slot | exchanges two slots |
| `ADDRESS` | slot, operand | puts an address into a slot |
| `COPY` | operand, operand, bytes | copies from the second to the first |
| `SWITCH` | operand, n, n targets | jumps by the 32-bit integer at the address, clamped |
| `HOST` | fn, n, n operands | calls Python; ends the program if it returns nonzero |
"""

from __future__ import annotations

import ctypes
from functools import cache

from amdjax.codegen import llvm
from amdjax.codegen.llvm import I32, I64, PTR, VOID, Function, Module, Value
from amdjax.runtime import native
from amdjax.runtime.threads import DECLARATIONS

HALT, CALL, JUMP, UNLESS, SET, ADD, REPEAT, SWAP, ADDRESS, COPY, SWITCH, HOST = range(12)
ARENA, ZERO = 0, 1
OPERAND_WORDS = 4
HEADER_WORDS = 2


@cache
def run_program() -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    """`run(call: bytes) -> status`; releases the interpreter lock.

    `call` holds the address of the program and the initial slots, which are copied. Bytes need
    neither conversion nor declared argument types, which would take longer than a small kernel.
    """
    text = interpreter_ir()
    (library,) = native.build([(text, ["amdjax_run"])], opt=3)
    run = ctypes.CFUNCTYPE(ctypes.c_int64)(library["amdjax_run"])
    run.library = library  # type: ignore[attr-defined]  # two threads may make one each
    return run


def header(most_operands: int, slots: int) -> list[int]:
    """What precedes the instructions of a program: sizes of what the interpreter needs."""
    return [most_operands, slots]


def interpreter_ir() -> str:
    """The interpreter as LLVM IR."""
    module = Module()
    module.declarations.update(DECLARATIONS)
    f = module.function("amdjax_run", [("words", PTR)], I64, attributes="nounwind")
    _Interpreter(f).write()
    return str(module)


class _Interpreter:
    """Writes the interpreter loop; `pc` counts words."""

    def __init__(self, f: Function):
        self.f = f
        (words,) = f.args
        program = f.load(PTR, words, 8)
        most = f.load(I64, program, 8)
        count = f.load(I64, f.gep(program, 1, I64), 8)
        self.code = f.gep(program, HEADER_WORDS, I64)
        # The slots change as the program runs; two calls in two threads have slots of their own.
        self.slots = f.op(f"alloca i64, {count}, align 16", PTR)
        size = f.mul(count, llvm.const(I64, 8))
        self._move(self.slots, f.gep(words, 1, I64), size)
        # Kernel arguments are gathered here, then passed by address.
        self.gathered = f.op(f"alloca i64, {most}, align 16", PTR)

    def write(self) -> None:
        f = self.f
        start = f.block
        f.br("next")
        f.start_block("next")
        self.pc = f.op("phi i64 ", I64)
        header = f._lines
        edges: list[tuple[Value, str]] = [(llvm.const(I64, 0), start)]
        opcode = self.word(0)
        names = [
            "halt",
            "call",
            "jump",
            "unless",
            "set",
            "add",
            "repeat",
            "swap",
            "address",
            "copy",
            "switch",
            "host",
        ]
        cases = " ".join(f"i64 {i}, label %{n}" for i, n in enumerate(names))
        f.emit(f"switch {opcode}, label %halt [ {cases} ]")
        for name in names:
            f.start_block(name)
            following = getattr(self, name)()
            if following is not None:
                edges.append((following, f.block))
                f.br("next")
        header[0] += ", ".join(f"[{v.ref}, %{b}]" for v, b in edges)

    def word(self, offset: int, base: Value | None = None) -> Value:
        f = self.f
        at = f.add(base or self.pc, llvm.const(I64, offset))
        return f.load(I64, f.gep(self.code, at, I64), 8)

    def slot(self, index: Value) -> Value:
        return self.f.gep(self.slots, index, I64)

    def operand(self, offset: int, base: Value | None = None) -> Value:
        """The address an operand stands for."""
        f = self.f
        slot, shift, counter, stride = (self.word(offset + i, base) for i in range(4))
        start = f.load(I64, self.slot(slot), 8)
        steps = f.load(I64, self.slot(counter), 8)
        return f.add(f.add(start, shift), f.mul(steps, stride))

    def pointer(self, address: Value) -> Value:
        return self.f.op(f"inttoptr {address} to ptr", PTR)

    def after(self, words: int | Value) -> Value:
        by = llvm.const(I64, words) if isinstance(words, int) else words
        return self.f.add(self.pc, by)

    def gather_operands(self, first: int, count: Value) -> None:
        f = self.f
        base = f.add(self.pc, llvm.const(I64, first))

        def one(i: Value, _: list[Value]) -> list[Value]:
            at = f.add(base, f.mul(i, llvm.const(I64, OPERAND_WORDS)))
            f.store(self.operand(0, at), f.gep(self.gathered, i, I64), 8)
            return []

        f.loop(llvm.const(I64, 0), count, 1, [], one)

    def halt(self) -> None:
        self.f.ret(llvm.const(I64, 0))

    def call(self) -> Value:
        f = self.f
        fn, grid, parallel, count = (self.word(i) for i in (1, 2, 3, 4))
        self.gather_operands(5, count)
        target = self.pointer(fn)

        def threaded() -> list[Value]:
            f.call("amdjax_parallel_for", VOID, target, self.gathered, grid, declare=False)
            return []

        def alone() -> list[Value]:
            zero = llvm.const(I64, 0)
            f.call_pointer(target, VOID, self.gathered, zero, grid, zero)
            return []

        f.if_(f.icmp("ne", parallel, llvm.const(I64, 0)), threaded, alone)
        return self.after(f.add(f.mul(count, llvm.const(I64, OPERAND_WORDS)), llvm.const(I64, 5)))

    def jump(self) -> Value:
        return self.word(1)

    def unless(self) -> Value:
        f = self.f
        flag = f.load(llvm.I8, self.pointer(self.operand(1)), 1)
        return f.select(f.icmp("eq", flag, llvm.const(llvm.I8, 0)), self.word(5), self.after(6))

    def set(self) -> Value:
        self.f.store(self.word(2), self.slot(self.word(1)), 8)
        return self.after(3)

    def add(self) -> Value:
        f = self.f
        place = self.slot(self.word(1))
        f.store(f.add(f.load(I64, place, 8), self.word(2)), place, 8)
        return self.after(3)

    def repeat(self) -> Value:
        f = self.f
        count = f.load(I64, self.slot(self.word(1)), 8)
        return f.select(f.icmp("slt", count, self.word(2)), self.word(3), self.after(4))

    def swap(self) -> Value:
        f = self.f
        a, b = self.slot(self.word(1)), self.slot(self.word(2))
        x, y = f.load(I64, a, 8), f.load(I64, b, 8)
        f.store(y, a, 8)
        f.store(x, b, 8)
        return self.after(3)

    def address(self) -> Value:
        self.f.store(self.operand(2), self.slot(self.word(1)), 8)
        return self.after(6)

    def copy(self) -> Value:
        self._move(self.pointer(self.operand(1)), self.pointer(self.operand(5)), self.word(9))
        return self.after(10)

    def _move(self, to: Value, source: Value, size: Value) -> None:
        self.f.module.declare("llvm.memmove.p0.p0.i64", VOID, [PTR, PTR, I64, llvm.I1])
        self.f.emit(f"call void @llvm.memmove.p0.p0.i64({to}, {source}, {size}, i1 false)")

    def switch(self) -> Value:
        f = self.f
        index = f.cast("sext", f.load(I32, self.pointer(self.operand(1)), 4), "i64")
        count = self.word(5)
        last = f.sub(count, llvm.const(I64, 1))
        index = f.intrinsic("smax", I64, index, llvm.const(I64, 0))
        index = f.intrinsic("smin", I64, index, last)
        return self.word(6, f.add(self.pc, index))

    def host(self) -> Value:
        f = self.f
        fn, count = self.word(1), self.word(2)
        self.gather_operands(3, count)
        status = f.call_pointer(self.pointer(fn), I64, self.gathered)
        failed = f.icmp("ne", status, llvm.const(I64, 0))
        f.cond_br(failed, "failed", "passed")
        f.start_block("failed")
        f.ret(status)
        f.start_block("passed")
        return self.after(f.add(f.mul(count, llvm.const(I64, OPERAND_WORDS)), llvm.const(I64, 3)))
