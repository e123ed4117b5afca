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
| `CALLS` | programs, parallel, m, m of (fn, grid, n, operands) | runs independent kernels |
| `JUMP` | target | |
| `UNLESS` | operand, target | jumps if the byte at the address is 0 |
| `SET` | slot, number | |
| `ADD` | slot, number | |
| `REPEAT` | slot, number, target | jumps if the slot holds less than the number |
| `SWAP` | slot, slot | exchanges two slots |
| `ADDRESS` | slot, operand | puts an address into a slot |
| `COPY` | operand, operand, bytes | copies from the second to the first |
| `SWITCH` | operand, n, n targets | jumps by the 32-bit integer at the address, clamped |
| `HOST` | function, n, n operands | calls Python with where n addresses are |
| `ASIDE` | operand, operand, bytes, ticket | on GPUs: copies beside what follows |
| `AWAIT` | ticket | on GPUs: what follows waits for such a copy |

`ASIDE` and `AWAIT` are of plans only. A program for a GPU asks a driver for what it wants, by the
addresses of its functions. Where one answers with another status than 0, a function of Python is
called with that, the *judge*, and raises.

| instruction | words after the opcode | does |
|---|---|---|
| `USE` | function, judge, device | chooses the thread's device |
| `LAUNCH` | function, judge, kernel, grid, workgroup, LDS, stream, end, n, n operands | launches |
| `MOVE` | function, judge, kind, stream, bytes, operand, operand | copies from the second |

Drivers of CUDA and HIP take the same arguments. `end` is what ends a list of `extra` arguments; if
negative the kernel takes places of parameters, as those do whose workgroups wait for each other;
either list is behind the operands (`operands_of_launch`). A negative `kind` is none.

A program ends early, its results undefined, when Python raises: in a function called by `HOST`, or
in a handler of a signal that came meanwhile (`interrupts.py`). Jumps back and parallel kernels look
for signals. The exception is that of the native call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from amdjax.codegen import llvm
from amdjax.codegen.llvm import I32, I64, PTR, VOID, Function, Module, Value
from amdjax.runtime import native
from amdjax.runtime.cache import compile_cached, key_for
from amdjax.runtime.interrupts import STOP, THREAD, WATCH_WORDS
from amdjax.runtime.threads import DECLARATIONS, pool_text

HALT, CALL, JUMP, UNLESS, SET, ADD, REPEAT, SWAP, ADDRESS, COPY, SWITCH, HOST, CALLS = range(13)
ASIDE, AWAIT = 13, 14  # not of the machine
USE, LAUNCH, MOVE = 15, 16, 17
ARENA, ZERO = 0, 1
OPT = 3  # LLVM's level for the interpreter
OPERAND_WORDS = 4
EXTRA_WORDS = 6  # of a launch: where its arguments are, how long they are, and that length
BATCH_WORDS = 3  # of a kernel among several: its function, its arguments, its first program
HEADER_WORDS = 2
ROUNDS_A_LOOK = 16  # jumps between two looks at the clock, which takes as long as one


@cache
def run_program() -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    """`run(call: bytes)`; releases the interpreter lock, and raises what Python raises meanwhile.

    `call` holds the address of the program and the initial slots, which are copied. Bytes need
    neither conversion nor declared argument types, which would take longer than a small kernel.
    """
    text = interpreter_ir()
    (library,) = native.build([(text, ["amdjax_run"])], opt=OPT)
    # The lock is the program's to release, and exceptions are left to it.
    run = ctypes.PYFUNCTYPE(ctypes.c_int64)(library["amdjax_run"])
    run.library = library  # type: ignore[attr-defined]  # two threads may make one each
    return run


def carried_code() -> dict[bytes, bytes]:
    """Machine code of the interpreter and of the thread pool, by their keys in the cache."""
    texts = (interpreter_ir(), OPT), (pool_text(), 2)
    return {key_for(text, opt): compile_cached([text], opt=opt)[0] for text, opt in texts}


def header(most_operands: int, slots: int) -> list[int]:
    """What precedes the instructions of a program: sizes of what the interpreter needs."""
    return [most_operands, slots]


def operands_of_calls(counts: Sequence[int]) -> int:
    """For how many operands `CALLS` takes room, of kernels with so many each."""
    return BATCH_WORDS * (len(counts) + 1) + sum(1 + n for n in counts)


def operands_of_launch(count: int) -> int:
    """For how many operands `LAUNCH` takes room."""
    return count + max(count, EXTRA_WORDS)


def interpreter_ir() -> str:
    """The interpreter as LLVM IR."""
    module = Module()
    module.declarations.update(DECLARATIONS | _PYTHON)
    f = module.function("amdjax_run", [("words", PTR)], I64, attributes="nounwind")
    _Interpreter(f).write()
    _write_batch(module)
    return str(module)


BATCH = Value(PTR, "@amdjax_batch")


def _write_batch(module: Module) -> None:
    """A part of the programs of several kernels, which a table lists one behind the other.

    A row is a kernel, its arguments and its first program; the last row is the end.
    """
    arguments = [("table", PTR), ("begin", I64), ("end", I64), ("worker", I64)]
    f = module.function(BATCH.ref[1:], arguments, linkage="internal", attributes="nounwind")
    table, begin, end, worker = f.args

    def word(row: Value, column: int) -> Value:
        at = f.add(f.mul(row, llvm.const(I64, BATCH_WORDS)), llvm.const(I64, column))
        return f.load(I64, f.gep(table, at, I64), 8)

    def after(row: Value) -> Value:
        return f.add(row, llvm.const(I64, 1))

    def part(at: Value, row: Value) -> list[Value]:
        first, following = word(row, 2), word(after(row), 2)
        stop = f.intrinsic("smin", I64, end, following)
        fn, operands = (f.op(f"inttoptr {word(row, i)} to ptr", PTR) for i in range(2))
        f.call_pointer(fn, VOID, operands, f.sub(at, first), f.sub(stop, first), worker)
        return [stop, after(row)]

    (row,) = f.while_loop(
        [llvm.const(I64, 0)],
        lambda c: f.icmp("sle", word(after(c[0]), 2), begin),
        lambda c: [after(c[0])],
    )
    f.while_loop([begin, row], lambda c: f.icmp("slt", c[0], end), lambda c: part(*c))
    f.ret()


_PYTHON = {
    "PyEval_SaveThread": "declare ptr @PyEval_SaveThread()",
    "PyEval_RestoreThread": "declare void @PyEval_RestoreThread(ptr)",
    "PyObject_CallFunctionObjArgs": "declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)",
    "PyLong_FromVoidPtr": "declare ptr @PyLong_FromVoidPtr(ptr)",
    "Py_DecRef": "declare void @Py_DecRef(ptr)",
}


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
        self.watch = f.op(f"alloca [{WATCH_WORDS} x i64], align 16", PTR)
        for i in range(WATCH_WORDS):
            f.store(llvm.const(I64, 0), self.watch_word(i), 8)
        self.left = f.op("alloca i64, align 8", PTR)
        f.store(llvm.const(I64, ROUNDS_A_LOOK), self.left, 8)
        # Kernel arguments are gathered here, then passed by address; the watch lies before them.
        block = f.op(f"alloca i64, {f.add(most, llvm.const(I64, 1))}, align 16", PTR)
        f.store(self.watch, block, 8)
        self.gathered = f.gep(block, 1, I64)
        self.release()

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
            "calls",
        ]
        opcodes = dict(enumerate(names)) | {USE: "use", LAUNCH: "launch", MOVE: "move"}
        cases = " ".join(f"i64 {i}, label %{n}" for i, n in opcodes.items())
        f.emit(f"switch {opcode}, label %halt [ {cases} ]")
        for name in opcodes.values():
            f.start_block(name)
            following = getattr(self, name)()
            if following is not None:
                edges.append((following, f.block))
                f.br("next")
        header[0] += ", ".join(f"[{v.ref}, %{b}]" for v, b in edges)
        f.start_block("failed")
        self.end(1)

    def watch_word(self, i: int) -> Value:
        return self.f.gep(self.watch, i, I64)

    def release(self) -> None:
        """Give up the interpreter lock."""
        thread = self.f.call("PyEval_SaveThread", PTR, declare=False)
        self.f.store(thread, self.watch_word(THREAD), 8)

    def acquire(self) -> None:
        """Take the interpreter lock again."""
        thread = self.f.load(PTR, self.watch_word(THREAD), 8)
        self.f.call("PyEval_RestoreThread", VOID, thread, declare=False)

    def end(self, status: int) -> None:
        self.acquire()
        self.f.ret(llvm.const(I64, status))

    def unless_stopped(self, stop: Value) -> None:
        """Go on, or end the program."""
        f = self.f
        on = f.new_label("on")
        f.cond_br(f.icmp("ne", stop, llvm.const(I64, 0)), "failed", on)
        f.start_block(on)

    def poll(self) -> Value:
        return self.f.call("amdjax_poll", I64, self.watch, llvm.const(I64, 0), declare=False)

    def poll_sometimes(self) -> None:
        """A look for signals at every so many jumps."""
        f = self.f
        left = f.sub(f.load(I64, self.left, 8), llvm.const(I64, 1))
        f.store(left, self.left, 8)

        def look() -> list[Value]:
            f.store(llvm.const(I64, ROUNDS_A_LOOK), self.left, 8)
            return [self.poll()]

        due = f.icmp("sle", left, llvm.const(I64, 0))
        (stop,) = f.if_(due, look, lambda: [llvm.const(I64, 0)])
        self.unless_stopped(stop)

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

    def gather_operands(
        self, first: int, count: Value, base: Value | None = None, to: Value | None = None
    ) -> None:
        """Write addresses of operands, `first` words behind `base`, one behind the other."""
        f = self.f
        start = f.add(base or self.pc, llvm.const(I64, first))

        def one(i: Value, _: list[Value]) -> list[Value]:
            at = f.add(start, f.mul(i, llvm.const(I64, OPERAND_WORDS)))
            f.store(self.operand(0, at), f.gep(to or self.gathered, i, I64), 8)
            return []

        f.loop(llvm.const(I64, 0), count, 1, [], one)

    def halt(self) -> None:
        self.end(0)

    def call(self) -> Value:
        f = self.f
        fn, grid, parallel, count = (self.word(i) for i in (1, 2, 3, 4))
        self.gather_operands(5, count)
        self.run_programs(self.pointer(fn), grid, parallel)
        return self.after(f.add(f.mul(count, llvm.const(I64, OPERAND_WORDS)), llvm.const(I64, 5)))

    def run_programs(self, target: Value, grid: Value, parallel: Value) -> None:
        """All programs of a function of what is gathered; the end of the program if it has to."""
        f = self.f

        def threaded() -> list[Value]:
            operands = (target, self.gathered, grid, self.watch)
            f.call("amdjax_watched_for", VOID, *operands, declare=False)
            return [self.poll()]

        def alone() -> list[Value]:
            f.call("amdjax_alone_for", VOID, target, self.gathered, grid, declare=False)
            return [f.load(I64, self.watch_word(STOP), 8)]

        (stop,) = f.if_(f.icmp("ne", parallel, llvm.const(I64, 0)), threaded, alone)
        self.unless_stopped(stop)

    def calls(self) -> Value:
        f = self.f
        programs, parallel, kernels = (self.word(i) for i in (1, 2, 3))
        row_words = llvm.const(I64, BATCH_WORDS)
        behind_table = f.mul(f.add(kernels, llvm.const(I64, 1)), row_words)

        def put(row: Value, column: int, x: Value) -> None:
            at = f.add(f.mul(row, row_words), llvm.const(I64, column))
            f.store(x, f.gep(self.gathered, at, I64), 8)

        def kernel(i: Value, carried: list[Value]) -> list[Value]:
            at, place, first = carried
            fn, grid, count = (self.word(j, at) for j in range(3))
            f.store(self.watch, f.gep(self.gathered, place, I64), 8)
            operands = f.gep(self.gathered, f.add(place, llvm.const(I64, 1)), I64)
            self.gather_operands(3, count, at, operands)
            address = f.op(f"ptrtoint {operands} to i64", I64)
            for column, x in enumerate((fn, address, first)):
                put(i, column, x)
            words = f.mul(count, llvm.const(I64, OPERAND_WORDS))
            following = f.add(f.add(at, words), llvm.const(I64, 3))
            place = f.add(f.add(place, count), llvm.const(I64, 1))
            return [following, place, f.add(first, grid)]

        carried = [self.after(4), behind_table, llvm.const(I64, 0)]
        following, _, end = f.loop(llvm.const(I64, 0), kernels, 1, carried, kernel)
        put(kernels, 2, end)
        self.run_programs(BATCH, programs, parallel)
        return following

    def jump(self) -> Value:
        self.poll_sometimes()
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
        self.poll_sometimes()
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
        self.unless_stopped(self.python(fn, self.gathered))
        return self.after(f.add(f.mul(count, llvm.const(I64, OPERAND_WORDS)), llvm.const(I64, 3)))

    def python(self, fn: Value, number: Value) -> Value:
        """Call a function of Python with a number, which is a pointer here; 1 if it raised."""
        f = self.f
        self.acquire()
        argument = f.call("PyLong_FromVoidPtr", PTR, number, declare=False)
        arguments = f"{self.pointer(fn)}, {argument}, ptr null"
        result = f.op(f"call ptr (ptr, ...) @PyObject_CallFunctionObjArgs({arguments})", PTR)
        f.call("Py_DecRef", VOID, argument, declare=False)
        f.call("Py_DecRef", VOID, result, declare=False)  # of null it does nothing
        self.release()
        return f.cast("zext", f.op(f"icmp eq {result}, null", llvm.I1), "i64")

    # Drivers of GPUs

    def driver(self, *arguments: Value) -> None:
        """Call a driver's function, of which the judge is told what goes wrong."""
        f = self.f
        status = f.call_pointer(self.pointer(self.word(1)), I32, *arguments)

        def judge() -> list[Value]:
            number = self.pointer(f.cast("zext", status, "i64"))
            return [self.python(self.word(2), number)]

        failed = f.icmp("ne", status, llvm.const(I32, 0))
        (stop,) = f.if_(failed, judge, lambda: [llvm.const(I64, 0)])
        self.unless_stopped(stop)

    def use(self) -> Value:
        self.driver(self.word(3))
        return self.after(4)

    def launch(self) -> Value:
        f = self.f
        kernel, stream = self.pointer(self.word(3)), self.pointer(self.word(7))
        grid, workgroup, lds = (f.cast("trunc", self.word(i), "i32") for i in (4, 5, 6))
        end, count = self.word(8), self.word(9)
        self.gather_operands(10, count)
        one, null = llvm.const(I32, 1), Value(PTR, "null")
        common = kernel, grid, one, one, workgroup, one, one, lds, stream

        behind = f.gep(self.gathered, count, I64)

        def packed() -> list[Value]:
            length = f.gep(behind, EXTRA_WORDS - 1, I64)
            f.store(f.mul(count, llvm.const(I64, 8)), length, 8)
            words = llvm.const(I64, 1), self.gathered, llvm.const(I64, 2), length, end
            for i, w in enumerate(words):
                f.store(w, f.gep(behind, i, I64), 8)
            self.driver(*common, null, behind)
            return []

        def apart() -> list[Value]:
            def place(i: Value, _: list[Value]) -> list[Value]:
                f.store(f.gep(self.gathered, i, I64), f.gep(behind, i, I64), 8)
                return []

            f.loop(llvm.const(I64, 0), count, 1, [], place)
            self.driver(*common, behind)
            return []

        f.if_(f.icmp("slt", end, llvm.const(I64, 0)), apart, packed)
        return self.after(f.add(f.mul(count, llvm.const(I64, OPERAND_WORDS)), llvm.const(I64, 10)))

    def move(self) -> Value:
        f = self.f
        kind, stream, nbytes = self.word(3), self.pointer(self.word(4)), self.word(5)
        to, source = (self.pointer(self.operand(6 + OPERAND_WORDS * i)) for i in range(2))

        def plain() -> list[Value]:
            self.driver(to, source, nbytes, stream)
            return []

        def of_kind() -> list[Value]:
            self.driver(to, source, nbytes, f.cast("trunc", kind, "i32"), stream)
            return []

        f.if_(f.icmp("slt", kind, llvm.const(I64, 0)), plain, of_kind)
        return self.after(6 + 2 * OPERAND_WORDS)
