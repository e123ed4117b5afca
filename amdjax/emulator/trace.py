"""What the waves of a workgroup did, instruction by instruction, in the order of each wave.

Native code writes words into a buffer: the address of a wave that goes on, of each record that it
runs, and behind a record what its access touched. The lowest bits tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amdjax.emulator import state

#: Words of a buffer; what comes later is lost.
CAPACITY = 1 << 20
_RECORD, _DETAIL, _WAVE = range(3)


#: Behind a record stands what it touched: lines of 64 bytes, or cycles of LDS.
MARKS = {"DETAIL_MARK": _DETAIL, "WAVE_MARK": _WAVE}

SOURCE = """
def push(context, word: i64):
    "Append a word to the trace of a worker, if there is one with room."
    place = number(context, TRACE // 8)
    if below(place, number(context, TRACE_END // 8)):
        store(pointer(place), word, "i64")
        context[TRACE // 8] = place + 8
"""


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
