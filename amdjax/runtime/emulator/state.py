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
SGPRS, VGPRS = 256, 1024

VCC, M0_GFX9, NULL, M0_GFX11, EXEC = 106, 124, 124, 125, 126

# A record, in bytes.
HANDLER, COUNT, SLOTS, RECORD = 0, 8, 16, 128
# Meaning of slots. The second half of a dual instruction has its own operands from SECOND on.
DST, SDST, SRC0, TARGET, OFFSET, SECOND = 0, 1, 2, 5, 6, 7

# The context of a launch: allocations as sorted (start, end), and the range last hit.
RANGES, RANGE_COUNT, LAST_LOW, LAST_HIGH, CHECK_ALIGNMENT = 0, 8, 16, 24, 32

# High halves of flat addresses that mean LDS and private memory; no process has such addresses.
SHARED_APERTURE, PRIVATE_APERTURE = 0x00010000, 0x00020000


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
