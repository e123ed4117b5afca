"""How many waves a SIMD holds at once, from what one wave or workgroup takes.

Source: LLVM's "User Guide for AMDGPU Backend" and the register allocation of the instruction set
guides; the tests compare with the `Occupancy` that LLVM writes into its assembly.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdjax.core.integers import ceil_div, round_up
from amdjax.targets.gpu import GpuTarget


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Result of `occupancy`.

    Args:
      waves: waves that a SIMD holds.
      workgroups: workgroups that share one LDS.
      limit: what stops it from being more: `waves`, `vgprs`, `sgprs`, `lds` or `workgroups`.
    """

    waves: int
    workgroups: int
    limit: str


def occupancy(
    target: GpuTarget, vgprs: int = 0, agprs: int = 0, sgprs: int = 0, lds: int = 0,
    workgroup: int = 64,
) -> Occupancy:  # fmt: skip
    """Waves a SIMD holds of a kernel.

    Args:
      target: the machine.
      vgprs: vector registers of one wave.
      agprs: matrix registers of one wave.
      sgprs: scalar registers of one wave.
      lds: bytes of LDS of one workgroup.
      workgroup: threads of one workgroup.

    Raises:
      ValueError: one workgroup does not fit.
    """
    _check(target, vgprs, agprs, lds, workgroup)
    group_waves = ceil_div(workgroup, target.wave_size)
    by_registers = {
        "waves": target.max_waves,
        "vgprs": waves_for_vgprs(target, vgprs, agprs),
        "sgprs": waves_for_sgprs(target, sgprs),
    }
    limit = min(by_registers, key=lambda name: by_registers[name])
    slots = by_registers[limit] * target.simds
    groups = {
        limit: max(slots // group_waves, 1),
        "lds": target.lds_per_cu // round_up(max(lds, 1), target.lds_granule),
    }
    if group_waves > 1:
        groups["workgroups"] = target.max_workgroups
    limit = min(groups, key=lambda name: groups[name])
    waves = min(ceil_div(groups[limit] * group_waves, target.simds), target.max_waves)
    return Occupancy(waves, groups[limit], limit)


def resident_workgroups(target: GpuTarget, workgroup: int) -> int:
    """Workgroups that the device holds at once whatever registers and LDS they take.

    Args:
      target: the machine.
      workgroup: threads of one workgroup.
    """
    most = occupancy(target, target.vgprs, target.agprs, target.sgprs, target.lds_bytes, workgroup)
    return most.workgroups * target.lds_units


def waves_for_vgprs(target: GpuTarget, vgprs: int, agprs: int = 0) -> int:
    """Waves a SIMD holds as far as vector registers go."""
    if target.unified_registers and agprs:
        needed = round_up(vgprs, 4) + agprs
    else:
        needed = max(vgprs, agprs)
    allocated = round_up(max(needed, 1), target.vgpr_granule)
    return min(max(target.vgpr_file // allocated, 1), target.max_waves)


def waves_for_sgprs(target: GpuTarget, sgprs: int) -> int:
    """Waves a SIMD holds as far as scalar registers go; RDNA gives every wave all of them."""
    if not target.family.startswith("CDNA"):
        return target.max_waves
    # 800 registers in granules of 16, of which 6 hold VCC and masks.
    waves = next((w for most, w in ((80, 10), (88, 9), (100, 8)) if sgprs <= most), 7)
    return min(waves, target.max_waves)


def _check(target: GpuTarget, vgprs: int, agprs: int, lds: int, workgroup: int) -> None:
    limits = (
        ("vgprs", vgprs, target.vgprs),
        ("agprs", agprs, target.agprs),
        ("lds", lds, target.lds_bytes),
        ("workgroup", workgroup, target.max_workgroup),
    )
    for name, value, most in limits:
        if value > most:
            raise ValueError(f"{name}={value} exceeds what {target.name} has: {most}")
