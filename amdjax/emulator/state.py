"""Where things lie in the memory that handlers work on.

A wave's state is one block: a header, 128 scalar registers by their operand numbers (so that VCC,
M0 and EXEC are where machine code says), then the vector registers. An instruction is a record:
its handler, how often it ran, and operand slots of 64 bits.
"""

from __future__ import annotations

import enum

# Header of a wave's state, in bytes.
PC, STATUS, SCC, FAULT_LANE, MODE, FAULT_ADDRESS = 0, 8, 12, 16, 20, 24
LDS, LDS_SIZE, SCRATCH_SIZE, CONTEXT, SCRATCH = 32, 40, 44, 48, 56
# Shadow of LDS, a byte each: written, and behind it who wrote and who read since the last barrier
# (LDS_STRIDE apart). Zero where not wanted. WAVE is the wave's number in the workgroup, from 1.
LDS_WRITTEN, LDS_RACES, LDS_STRIDE, WAVE, OTHER_WAVE = 64, 72, 80, 88, 92
# Where the state ends, and the records of the kernel's code: one word for each four bytes.
END, CODE, CODE_START, CODE_SIZE = 96, 104, 112, 120
# What the wave's stores leave in the shadow of global memory; whether reads need not be of what was
# written; whether reads of LDS may be of what atomics of other waves wrote.
TAG, READS_ANY, READS_ATOMICS = 128, 132, 136
# Whether the barrier at which the wave waits leaves its stores to global memory outstanding.
UNSETTLED = 140
# What is never read is written here.
SINK = 240
SGPRS, VGPRS = 256, 1024

VCC, EXEC = 106, 126

# A record, in bytes.
HANDLER, COUNT, SLOTS, RECORD = 0, 8, 16, 128
# Meaning of slots. The second half of a dual instruction has its own operands from SECOND on.
DST, SDST, SRC0, TARGET, OFFSET, SECOND = 0, 1, 2, 5, 6, 7

# The context of a worker: allocations as sorted (start, end, shadow), and the range last hit, whose
# shadow is given by its distance (0: none). STATISTICS has a row for each record, or is null; LDS
# has so many BANKS.
RANGES, RANGE_COUNT, LAST_LOW, LAST_HIGH, LAST_SHADOW, CHECK_ALIGNMENT = 0, 8, 16, 24, 32, 40
STATISTICS, RECORDS, BANKS = 48, 56, 64
# What waves stored since their last barrier: see `write_log`.
LOG, LOG_COUNT = 72, 80
# Where the next word of a trace goes, and the end of its room; 0 where none is wanted.
TRACE, TRACE_END = 88, 96
RANGE_WORDS = 3
# A row of statistics, in words.
ACCESSES, ACTIVE, LINES_64, LINES_128, IDEAL_64, IDEAL_128, BANK_CYCLES, BANK_IDEAL = range(8)
STATISTICS_WORDS = 8

# High halves of flat addresses that mean LDS and private memory; no process has such addresses.
SHARED_APERTURE, PRIVATE_APERTURE = 0x00010000, 0x00020000
# Bits 32 to 47 of the address in a buffer resource that mean private memory.
SCRATCH_RESOURCE = 0x8000


class Status(enum.IntEnum):
    """Why a wave stopped."""

    RUNNING = 0
    ENDED = 1
    BARRIER = 2
    OUT_OF_BOUNDS = 3
    MISALIGNED = 4
    LDS_OUT_OF_BOUNDS = 5
    SCRATCH_OUT_OF_BOUNDS = 6
    TRAP = 7
    UNKNOWN = 8
    UNINITIALIZED = 9
    LDS_UNINITIALIZED = 10
    LDS_RACE = 11
    DIVERGENT_BARRIER = 12
    JUMP = 13
    RACE = 14
    ENDLESS = 15
    #: It sleeps until other workgroups, which are resident too, had their turn.
    ASLEEP = 16
