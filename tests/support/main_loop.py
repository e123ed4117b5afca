"""The loop of a product in machine code: what stands between its loads and the wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from amdjax.emulator import CodeObject
from amdjax.emulator.debug.counters import class_of
from amdjax.emulator.isa.decode import Instruction, decoder
from amdjax.emulator.waits import counts_waited_for

_BY_LANES = ("v_dot", "v_fma", "v_pk_fma", "v_dual_fma")


@dataclass(frozen=True)
class MainLoop:
    """The shortest loop of a kernel that loads from memory and multiplies.

    Attributes:
      instructions: in order.
      isa: the emulator's name of the instruction set.
    """

    instructions: tuple[Instruction, ...]
    isa: str

    @property
    def loads(self) -> int:
        return sum(map(_loads, self.instructions))

    @property
    def products(self) -> int:
        return sum(map(_multiplies, self.instructions))

    @property
    def products_before_wait(self) -> int:
        """Instructions that multiply between a load and the first wait for it; the fewest."""
        outstanding: list[int] = []  # of each load, what was multiplied before it
        done, found = 0, []
        for inst in self.instructions * 2:  # loads may be waited for in the next turn
            if _loads(inst):
                outstanding.append(done)
            done += _multiplies(inst)
            waits = counts_waited_for(self.isa, inst)
            left = waits.get("vm", waits.get("load", len(outstanding)))
            if (arrived := len(outstanding) - left) > 0:
                found += [done - x for x in outstanding[:arrived]]
                del outstanding[:arrived]
        return min(found)


def main_loop(code: bytes, name: str = "kernel") -> MainLoop:
    """The main loop of a kernel in a code object."""
    kernel = CodeObject(code).kernels[name]
    decode, pc = decoder(kernel.isa).decode, 0
    index: dict[int, int] = {}
    instructions: list[Instruction] = []
    loops = []
    while pc < len(kernel.code):
        inst = decode(kernel.code, pc)
        index[pc] = len(instructions)
        instructions.append(inst)
        pc = inst.next_pc
        if "branch" in inst.name:
            start = index.get(pc + 4 * _signed(inst.fields["simm16"]))
            if start is not None:
                loops.append(MainLoop(tuple(instructions[start:]), kernel.isa))
        if inst.name == "s_endpgm":
            break
    return min(
        (x for x in loops if x.loads and x.products), key=lambda loop: len(loop.instructions)
    )


def _signed(simm: int) -> int:
    return (simm & 0xFFFF ^ 0x8000) - 0x8000


def _loads(inst: Instruction) -> bool:
    return inst.name.startswith(("global_load", "buffer_load"))


def _multiplies(inst: Instruction) -> bool:
    if class_of(inst.name, inst.format) == "matrix":
        return True
    return any(x.name.startswith(_BY_LANES) for x in (inst, *inst.parts))
