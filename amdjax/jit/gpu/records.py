"""What a person asks of the kernels of a program compiled for a GPU: code, launches, registers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amdjax import tile
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.jit.instructions import Plan
from amdjax.runtime import vm

if TYPE_CHECKING:
    from amdjax.codegen.gpu.kernel import GpuKernel

#: Texts that only programs for GPUs have; `amdgcn` and `ptx` name the assembly of one kind.
DEVICE_STAGES = ("llvm", "asm", "amdgcn", "ptx", "resources")


@dataclass(frozen=True)
class KernelArgument:
    """An entry of a kernel's argument segment.

    Attributes:
      name: of the parameter in the tile program.
      role: `in`, `out` and `inout` are addresses, `size` is a 64-bit integer.
      offset: bytes from the segment's start.
      size: bytes.
    """

    name: str
    role: str
    offset: int
    size: int = 8


@dataclass(frozen=True)
class KernelRecord:
    """A kernel of a program compiled for a GPU.

    Attributes:
      name: of the function in `code`.
      target: name of the target.
      code: a linked code object, or PTX text.
      format: `elf` or `ptx`.
      grid: workgroups of a launch.
      workgroup: threads of a workgroup.
      arguments: layout of the kernarg segment.
      vgprs: vector registers of a thread; 0 where the driver decides (PTX).
      sgprs: scalar registers of a wave.
      agprs: matrix registers of a thread.
      lds_bytes: LDS of a workgroup.
      scratch_bytes: memory of a thread, where registers do not suffice.
      occupancy: waves that a SIMD holds at once.
      launches: how often the program's text launches it with this grid; loops count once.
      vgpr_spills: vector registers kept in scratch memory or matrix registers for want of room.
      sgpr_spills: scalar registers kept in lanes of vector registers for want of room.
    """

    name: str
    target: str
    code: bytes = field(repr=False)
    format: str
    grid: int
    workgroup: int
    arguments: tuple[KernelArgument, ...]
    vgprs: int
    sgprs: int
    agprs: int
    lds_bytes: int
    scratch_bytes: int
    occupancy: int
    launches: int = 1
    vgpr_spills: int = 0
    sgpr_spills: int = 0

    @property
    def kernarg_bytes(self) -> int:
        """Bytes of the argument segment."""
        return sum(a.size for a in self.arguments)


def kernel_records(plan: Plan, kernels: Mapping[int, GpuKernel]) -> list[KernelRecord]:
    """The kernels that a plan launches, in the order in which it first does."""
    counts: dict[Any, int] = {}
    found: dict[Any, GpuKernel] = {}
    for kernel, grid in launches(plan):
        made = kernels[id(kernel)]
        key = made.name, made.code, made.kernarg, grid
        found.setdefault(key, made)
        counts[key] = counts.get(key, 0) + 1
    return [_record(made, key[-1], counts[key]) for key, made in found.items()]


def launches(plan: Plan) -> list[tuple[tile.Kernel, int]]:
    """The tile programs that a plan launches, and their grids."""
    calls = [i.words for i in plan.instructions if i.opcode == vm.CALL]
    return [(words[0], words[1]) for words in calls]


def _record(kernel: GpuKernel, grid: int, launches: int) -> KernelRecord:
    arguments = [KernelArgument(name, role, 8 * i) for i, (name, role) in enumerate(kernel.kernarg)]
    return KernelRecord(
        kernel.name, kernel.target.name, kernel.code, kernel.format, grid, kernel.workgroup,
        tuple(arguments), kernel.vgprs, kernel.sgprs, kernel.agprs, kernel.lds_bytes,
        kernel.scratch_bytes, kernel.occupancy, launches, kernel.vgpr_spills, kernel.sgpr_spills,
    )  # fmt: skip


def warn_of_scratch(records: Sequence[KernelRecord]) -> None:
    """Warn of kernels that have too few vector registers.

    Scalar registers that moved to lanes of vector registers cost little; they are on record only.
    """
    for r in records:
        if r.scratch_bytes or r.vgpr_spills:
            warnings.warn(
                f"kernel {r.name} for {r.target} uses {r.scratch_bytes} bytes of scratch memory a "
                f"thread beside {r.vgprs} vector registers, {r.vgpr_spills} more of which were "
                "spilled; it will be slow",
                stacklevel=4,
            )


def device_text(stage: str, plan: Plan, kernels: Mapping[int, GpuKernel]) -> str:
    """A stage of `DEVICE_STAGES` as text.

    Raises:
      ValueError: the target has no such assembly.
    """
    distinct = {made.tile: (k, made) for k, made in _compiled(plan, kernels)}.values()
    if stage == "resources":
        return _table(kernel_records(plan, kernels))
    if stage == "llvm":
        return "\n".join(made.llvm for _, made in distinct)
    own = {"elf": "amdgcn", "ptx": "ptx"}
    for _, k in distinct:
        if stage not in ("asm", own[k.format]):
            raise ValueError(f"{k.target.name} has no {stage}; its assembly is {own[k.format]}")
    return "\n".join(_assembly(program, made) for program, made in distinct)


def _compiled(
    plan: Plan, kernels: Mapping[int, GpuKernel]
) -> Iterator[tuple[tile.Kernel, GpuKernel]]:
    return ((k, kernels[id(k)]) for k in plan.kernels())


def _assembly(program: tile.Kernel, kernel: GpuKernel) -> str:
    if kernel.format == "ptx":
        return kernel.code.decode()
    # late: loads when a text is asked for
    from amdjax.codegen.debug_info import with_source

    origins = tile.origins(program, tile.listing(program)[1])
    return with_source(assembly(kernel.llvm, kernel.target), kernel.tile, origins)


_COLUMNS = (
    "launches", "grid", "workgroup", "vgprs", "sgprs", "agprs", "lds_bytes", "scratch_bytes",
    "occupancy", "vgpr_spills", "sgpr_spills",
)  # fmt: skip


def _table(records: Sequence[KernelRecord]) -> str:
    """What each kernel takes of the machine, a line each."""
    rows: list[tuple[str, ...]] = [("kernel", *_COLUMNS, "code_bytes")]
    for r in records:
        numbers = [str(getattr(r, c)) for c in _COLUMNS]
        rows.append((r.name, *numbers, str(len(r.code))))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        padded = (c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *padded]))
    return "\n".join(lines)
