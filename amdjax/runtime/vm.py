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

from amdjax.codegen.llvm import I32, Value, const
from amdjax.codegen.restricted import Source
from amdjax.runtime import native
from amdjax.runtime.cache import compile_cached, key_for
from amdjax.runtime.interrupts import POLL_CONSTANTS, POLL_DECLARED
from amdjax.runtime.threads import pool_text

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
    (library,) = native.build([(interpreter(), ["amdjax_run"])], opt=OPT)
    # The lock is the program's to release, and exceptions are left to it.
    run = ctypes.PYFUNCTYPE(ctypes.c_int64)(library["amdjax_run"])
    run.library = library  # type: ignore[attr-defined]  # two threads may make one each
    return run


def carried_code() -> dict[bytes, bytes]:
    """Machine code of the interpreter and of the thread pool, by their keys in the cache."""
    sources = (interpreter(), OPT), (pool_text(), 2)
    return {key_for(x, opt): compile_cached([x], opt=opt)[0] for x, opt in sources}


def header(most_operands: int, slots: int) -> list[int]:
    """What precedes the instructions of a program: sizes of what the interpreter needs."""
    return [most_operands, slots]


def operands_of_calls(counts: Sequence[int]) -> int:
    """For how many operands `CALLS` takes room, of kernels with so many each."""
    return BATCH_WORDS * (len(counts) + 1) + sum(1 + n for n in counts)


def operands_of_launch(count: int) -> int:
    """For how many operands `LAUNCH` takes room."""
    return count + max(count, EXTRA_WORDS)


_INTERPRETER = '''
def amdjax_run(words) -> i64:
    program = words[0]
    code = program + HEADER_WORDS
    # The slots change as the program runs; two calls in two threads have slots of their own.
    slots = stack(number(program, 1))
    move(slots, words + 1, 8 * number(program, 1))
    watch = stack(WATCH_WORDS)
    fill(watch, 8 * WATCH_WORDS, 0)
    left: i64 = ROUNDS_A_LOOK
    # Kernel arguments are gathered here, then passed by address; the watch lies before them.
    block = stack(number(program, 0) + 1)
    block[0] = watch
    gathered = block + 1
    pc: i64 = 0  # counts words
    watch[THREAD] = PyEval_SaveThread()
    while True:
        opcode = word(0)
        if opcode == CALL:
            gather(pc + 5, word(4), gathered)
            if run(pointer(word(1)), word(2), word(3)):
                break
            pc = pc + 5 + OPERAND_WORDS * word(4)
        elif opcode == CALLS:
            kernels = word(3)
            at: i64 = pc + 4
            place: i64 = BATCH_WORDS * (kernels + 1)  # behind the table
            first: i64 = 0
            for i in range(kernels):
                count = number(code, at + 2)
                gathered[place] = watch
                gather(at + 3, count, gathered + (place + 1))
                row = gathered + BATCH_WORDS * i
                row[0] = number(code, at)
                row[1] = gathered + (place + 1)
                row[2] = first
                first = first + number(code, at + 1)
                place = place + count + 1
                at = at + 3 + OPERAND_WORDS * count
            gathered[BATCH_WORDS * kernels + 2] = first
            if run(batch, word(1), word(2)):
                break
            pc = at
        elif opcode == JUMP:
            if poll_sometimes():
                break
            pc = word(1)
        elif opcode == UNLESS:
            pc = word(5) if load(pointer(operand(pc + 1)), "i8") == 0 else pc + 6
        elif opcode == SET:
            slots[word(1)] = word(2)
            pc = pc + 3
        elif opcode == ADD:
            slots[word(1)] = number(slots, word(1)) + word(2)
            pc = pc + 3
        elif opcode == REPEAT:
            if poll_sometimes():
                break
            pc = word(3) if number(slots, word(1)) < word(2) else pc + 4
        elif opcode == SWAP:
            x = slots[word(1)]
            slots[word(1)] = slots[word(2)]
            slots[word(2)] = x
            pc = pc + 3
        elif opcode == ADDRESS:
            slots[word(1)] = operand(pc + 2)
            pc = pc + 6
        elif opcode == COPY:
            move(pointer(operand(pc + 1)), pointer(operand(pc + 5)), word(9))
            pc = pc + 10
        elif opcode == SWITCH:
            chosen = smax(signed(load(pointer(operand(pc + 1)), "i32")), 0)
            pc = word(6 + smin(chosen, word(5) - 1))
        elif opcode == HOST:
            gather(pc + 3, word(2), gathered)
            if python(watch, pointer(word(1)), gathered):
                break
            pc = pc + 3 + OPERAND_WORDS * word(2)
        elif opcode == USE:
            if refused(ask("i32", pointer(word(1)), word(3))):
                break
            pc = pc + 4
        elif opcode == LAUNCH:
            fn = pointer(word(1))
            kernel = pointer(word(3))
            grid = resized(word(4), "i32")
            workgroup = resized(word(5), "i32")
            lds = resized(word(6), "i32")
            stream = pointer(word(7))
            n = word(9)
            gather(pc + 10, n, gathered)
            behind = gathered + n
            status: i32
            if word(8) < 0:
                for j in range(n):
                    behind[j] = gathered + j
                status = ask(
                    "i32", fn, kernel, grid, ONE, ONE, workgroup, ONE, ONE, lds, stream, behind
                )
            else:
                length = behind + (EXTRA_WORDS - 1)
                length[0] = 8 * n
                behind[0] = 1
                behind[1] = gathered
                behind[2] = 2
                behind[3] = length
                behind[4] = word(8)
                status = ask(
                    "i32", fn, kernel, grid, ONE, ONE, workgroup, ONE, ONE, lds, stream, None,
                    behind
                )
            if refused(status):
                break
            pc = pc + 10 + OPERAND_WORDS * n
        elif opcode == MOVE:
            to = pointer(operand(pc + 6))
            source = pointer(operand(pc + 6 + OPERAND_WORDS))
            mover = pointer(word(1))
            beside = pointer(word(4))
            answer: i32
            if word(3) < 0:
                answer = ask("i32", mover, to, source, word(5), beside)
            else:
                kind = resized(word(3), "i32")
                answer = ask("i32", mover, to, source, word(5), kind, beside)
            if refused(answer):
                break
            pc = pc + 6 + 2 * OPERAND_WORDS
        else:
            PyEval_RestoreThread(watch[THREAD])
            return 0
    PyEval_RestoreThread(watch[THREAD])
    return 1

@inline
def word(i):
    return number(code, pc + i)

@inline
def operand(at):
    "The address that the operand at a word stands for."
    start = number(slots, number(code, at)) + number(code, at + 1)
    return start + number(slots, number(code, at + 2)) * number(code, at + 3)

@inline
def gather(at, n, to):
    "Write addresses of operands one behind the other."
    for k in range(n):
        to[k] = operand(at + OPERAND_WORDS * k)

@inline
def run(fn, grid, parallel):
    "All programs of a function of what is gathered; whether the program has to end."
    stop: i64
    if parallel:
        amdjax_watched_for(fn, gathered, grid, watch)
        stop = amdjax_poll(watch, 0)
    else:
        amdjax_alone_for(fn, gathered, grid)
        stop = number(watch, STOP)
    return stop

@inline
def poll_sometimes():
    "A look for signals at every so many jumps."
    ended: i64 = 0
    left = left - 1
    if left <= 0:
        left = ROUNDS_A_LOOK
        ended = amdjax_poll(watch, 0)
    return ended

@inline
def refused(status):
    "Whether a driver refuses, of which the judge is told."
    raised: i64 = 0
    if status != 0:
        raised = python(watch, pointer(word(2)), pointer(resized(status, "i64")))
    return raised

def python(watch, fn, number) -> i64:
    "Call a function of Python with a number, which is a pointer here; 1 if it raised."
    PyEval_RestoreThread(watch[THREAD])
    argument = PyLong_FromVoidPtr(number)
    result = PyObject_CallFunctionObjArgs(fn, argument, None)
    Py_DecRef(argument)
    Py_DecRef(result)  # of null it does nothing
    watch[THREAD] = PyEval_SaveThread()
    return 0 if result else 1

def batch(table, begin: i64, end: i64, worker: i64):
    """A part of the programs of several kernels, which a table lists one behind the other.

    A row is a kernel, its arguments and its first program; the last row is the end.
    """
    row: ptr = table
    while number(row, BATCH_WORDS + 2) <= begin:
        row = row + BATCH_WORDS
    at: i64 = begin
    while at < end:
        first = number(row, 2)
        stop = smin(end, number(row, BATCH_WORDS + 2))
        fn = row[0]
        fn(row[1], at - first, stop - first, worker)
        at = stop
        row = row + BATCH_WORDS
'''

_DECLARED = {
    "amdjax_watched_for": "void (ptr, ptr, i64, ptr)",
    "amdjax_alone_for": "void (ptr, ptr, i64)",
    "amdjax_poll": "i64 (ptr, i64)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    **POLL_DECLARED,
}


def interpreter() -> Source:
    """The interpreter."""
    names = (
        "HALT CALL JUMP UNLESS SET ADD REPEAT SWAP ADDRESS COPY SWITCH HOST CALLS USE LAUNCH MOVE "
        "OPERAND_WORDS EXTRA_WORDS BATCH_WORDS HEADER_WORDS ROUNDS_A_LOOK"
    )
    known = {name: globals()[name] for name in names.split()}
    constants: dict[str, Value | int] = {**known, **POLL_CONSTANTS, "ONE": const(I32, 1)}
    return Source(_INTERPRETER, constants, _DECLARED, (), "nounwind")
