"""Loops and branches. Loops of the user's program ask now and then whether to end.

They may run for hours, and Ctrl-C is to end them (`runtime/interrupts.py`). A loop is cut into
stretches of many rounds, so that the rounds themselves are not burdened. What a loop leaves that
ends early is of no meaning, and the kernel's caller knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from amdjax import tile
from amdjax.codegen import emitter
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.llvm import I1, I64, PTR, Function, Value, const, integer
from amdjax.tile import ops
from amdjax.tile.kernel import is_micro_kernel

LOWERINGS = Lowerings()
LOWERINGS.of(ops.If)(emitter.lower_if)

#: What a round makes of its index and of carried values.
Body = Callable[[Value, list[Value]], Sequence[Value]]

STRETCH = 4096  # rounds between two questions
OUTER_STRETCH = 16  # of what has loops inside: programs of a kernel, rounds of outer loops


@LOWERINGS.of(ops.For)
def lower_for(c: CpuEmitter, op: ops.For) -> list[Rep]:
    start, stop, step = (integer(c.scalar(v)) for v in op.operands[:3])
    if start is not None and stop is not None and step is not None and 0 < stop - start <= step:
        return emitter.lower_for(c, op, _one_round)
    if is_micro_kernel(op):
        c.point(op)
    loop = partial(_long_loop, c.f, _stretch(op)) if op.users else c.f.rotated_loop
    return emitter.lower_for(c, op, loop)


@LOWERINGS.of(ops.While)
def lower_while(c: CpuEmitter, op: ops.While) -> list[Rep]:
    loop = partial(_long_while_loop, c.f, _stretch(op)) if op.users else None
    return emitter.lower_while(c, op, loop)


def program_loop(f: Function, kernel: tile.Kernel, program: Callable[[Value], None]) -> None:
    """Write the loop over the programs of the grid that the arguments of `f` name."""

    def round(number: Value, _: list[Value]) -> list[Value]:
        program(number)
        return []

    _, begin, end, _ = f.args
    if any(_users_loops(kernel.body)):
        _long_loop(f, OUTER_STRETCH, begin, end, const(I64, 1), [], round)
    else:
        f.rotated_loop(begin, end, 1, [], round)


def _users_loops(block: tile.Block) -> Iterator[ops.For | ops.While]:
    """The loops of the user's program in a block."""
    for op in tile.nested_ops(block):
        if isinstance(op, (ops.For, ops.While)) and op.users:
            yield op


def _one_round(
    start: Value, stop: Value, step: Value, carried: list[Value], body: Body
) -> list[Value]:
    return list(body(start, carried))


def _stretch(op: ops.For | ops.While) -> int:
    """Rounds of a loop between two questions."""
    inner = any(any(_users_loops(block)) for block in op.blocks)
    return OUTER_STRETCH if inner else STRETCH


def _ended(f: Function) -> Value:
    """Whether the call is to end; its watch is in the word before the arguments."""
    args, *_, worker = f.args
    watch = f.load(PTR, f.gep(args, -1, I64), 8)
    stop = f.call("amdjax_poll", I64, watch, worker)
    return f.icmp("ne", stop, const(I64, 0))


def _long_loop(
    f: Function, stretch: int, start: Value, stop: Value, step: Value, carried: Sequence[Value],
    body: Callable[[Value, list[Value]], Sequence[Value]],
) -> list[Value]:  # fmt: skip
    """As `Function.loop`."""
    length = f.mul(step, const(I64, stretch))

    def one(state: list[Value]) -> list[Value]:
        first, *flat = state
        end = f.intrinsic("smin", I64, f.add(first, length), stop)
        flat = f.rotated_loop(first, end, step, flat, body)
        more = f.icmp("slt", end, stop)
        (following,) = f.if_(more, lambda: [f.select(_ended(f), stop, end)], lambda: [stop])
        return [following, *flat]

    return f.while_loop([start, *carried], lambda s: f.icmp("slt", s[0], stop), one)[1:]


def _long_while_loop(
    f: Function, stretch: int, carried: Sequence[Value], test: Callable[[list[Value]], Value],
    body: Callable[[list[Value]], Sequence[Value]],
) -> list[Value]:  # fmt: skip
    """As `Function.while_loop`."""
    no, last = const(I1, 0), const(I64, stretch)

    def round(state: list[Value]) -> list[Value]:
        count, _, *flat = state
        flat = list(body(flat))
        return [f.add(count, const(I64, 1)), test(flat), *flat]

    def on(state: list[Value]) -> Value:
        return f.op(f"and {state[1]}, {f.icmp('slt', state[0], last).ref}", I1)

    def one(state: list[Value]) -> list[Value]:
        _, runs, *flat = f.while_loop([const(I64, 0), *state], on, round)
        return [*f.if_(runs, lambda: [f.select(_ended(f), no, runs)], lambda: [no]), *flat]

    return f.while_loop([test(list(carried)), *carried], lambda s: s[0], one)[1:]
