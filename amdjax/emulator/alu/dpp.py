"""Which lane a DPP operand comes from."""

from __future__ import annotations


def source_lanes(dpp: dict[str, int], lanes: int) -> list[int]:
    """For each lane the lane that its source 0 is read from, or -1 where there is none."""
    if "lanes8" in dpp:
        return [i & ~7 | dpp["lanes8"] >> 3 * (i & 7) & 7 for i in range(lanes)]
    return [_source(dpp["dpp"], lane, lanes) for lane in range(lanes)]


def _source(control: int, lane: int, lanes: int) -> int:
    row, i = lane & ~15, lane & 15
    amount = control & 15
    if control < 0x100:  # quad_perm
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    if 0x101 <= control <= 0x10F:  # row_shl: from a higher lane
        return row + i + amount if i + amount < 16 else -1
    if 0x111 <= control <= 0x11F:  # row_shr
        return row + i - amount if i >= amount else -1
    if 0x121 <= control <= 0x12F:  # row_ror
        return row + (i - amount) % 16
    if 0x150 <= control <= 0x15F:  # row_share, row_newbcast
        return row + amount
    if 0x160 <= control <= 0x16F:  # row_xmask
        return row + (i ^ amount)
    return _whole_wave(control, lane, lanes)


def _whole_wave(control: int, lane: int, lanes: int) -> int:
    """Controls that cross rows (wave_* and row_bcast exist before gfx10 only)."""
    row, i = lane & ~15, lane & 15
    if control == 0x140:  # row_mirror
        return row + 15 - i
    if control == 0x141:  # row_half_mirror
        return lane & ~7 | 7 - (lane & 7)
    if control == 0x142:  # row_bcast15: the last lane of the row before
        return row - 1 if row else -1
    if control == 0x143:  # row_bcast31
        return 31 if lane >= 32 else -1
    if control == 0x130:  # wave_shl
        return lane + 1 if lane + 1 < lanes else -1
    if control == 0x134:  # wave_rol
        return (lane + 1) % lanes
    if control == 0x138:  # wave_shr
        return lane - 1
    if control == 0x13C:  # wave_ror
        return (lane - 1) % lanes
    raise ValueError(f"reserved DPP control 0x{control:x}")
