"""What the waves of a workgroup did, instruction by instruction, in the order of each wave.

Native code writes words into a buffer: the address of a wave that goes on, of each record that it
runs, and behind a record what its access touched. The lowest bits tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amdjax.codegen.llvm import I8, I64, PTR, Function, Value, const
from amdjax.emulator import state

#: Words of a buffer; what comes later is lost.
CAPACITY = 1 << 20
_RECORD, _DETAIL, _WAVE = range(3)


def push(f: Function, context: Value, word: Value) -> None:
    """Write code that appends a word to the trace of a worker, if there is one with room."""
    at = lambda offset: f.gep(context, offset, I8)
    place = f.load(I64, at(state.TRACE), 8)

    def append() -> list[Value]:
        f.store(word, f.op(f"inttoptr {place} to ptr", PTR), 8)
        f.store(f.add(place, const(I64, 8)), at(state.TRACE), 8)
        return []

    f.if_(f.icmp("ult", place, f.load(I64, at(state.TRACE_END), 8)), append)


def push_wave(f: Function, context: Value, wave: Value) -> None:
    """Write code that says which wave goes on."""
    push(f, context, f.add(_number(f, wave), const(I64, _WAVE)))


def push_record(f: Function, context: Value, record: Value) -> None:
    """Write code that appends a record."""
    push(f, context, _number(f, record))


def push_detail(f: Function, context: Value, value: Value) -> None:
    """Write code that appends what the last record touched: lines of 64 bytes, or cycles of LDS."""
    push(f, context, f.or_(f.shl(value, const(I64, 3)), const(I64, _DETAIL)))


def _number(f: Function, pointer: Value) -> Value:
    return f.op(f"ptrtoint {pointer} to i64", I64)


@dataclass(frozen=True)
class Trace:
    """A workgroup of a launch.

    Attributes:
        records: for each wave the indices of the records that it ran.
        details: for each of these what its access touched: lines of 64 bytes, or cycles of LDS.
        whole: whether the buffer had room for all; else all waves do what the longest one did.
    """

    records: tuple[tuple[int, ...], ...]
    details: tuple[tuple[tuple[int, ...], ...], ...]
    whole: bool


def parse(words: np.ndarray, first_record: int, count: int) -> Trace:
    """The trace that a worker wrote.

    Args:
        words: of 64 bits.
        first_record: address of the records.
        count: waves of the workgroup.
    """
    kinds = words & 7
    # What follows the mark of a wave is its own until the next one.
    marks = np.flatnonzero(kinds == _WAVE)
    waves = np.unique(words[marks])
    records: list[list[int]] = [[] for _ in waves]
    details: list[list[tuple[int, ...]]] = [[] for _ in waves]
    for mark, end in zip(marks.tolist(), [*marks[1:].tolist(), len(words)]):
        wave = int(np.searchsorted(waves, words[mark]))
        own, kind = words[mark + 1 : end], kinds[mark + 1 : end]
        starts = np.flatnonzero(kind == _RECORD)
        records[wave] += ((own[starts] - np.uint64(first_record)) // state.RECORD).tolist()
        details[wave] += _behind(own >> np.uint64(3), starts)
    whole = len(words) < CAPACITY
    kept = list(range(len(waves)))
    if not whole:
        kept = [max(kept, key=lambda i: len(records[i]))] * count
    of = lambda parts: tuple(tuple(parts[i]) for i in kept)
    return Trace(of(records), of(details), whole)


def _behind(values: np.ndarray, starts: np.ndarray) -> Sequence[tuple[int, ...]]:
    """The values between each start and the next one."""
    ends, found = [*starts[1:].tolist(), len(values)], values.tolist()
    return [tuple(found[a + 1 : b]) for a, b in zip(starts.tolist(), ends)]
