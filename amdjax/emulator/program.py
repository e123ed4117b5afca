"""A kernel as records: decoded, lowered, with the handlers' addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from amdjax.emulator import handlers as native, state
from amdjax.emulator.builder import Variant
from amdjax.emulator.code_object import Kernel
from amdjax.emulator.debug.scopes import Inlined
from amdjax.emulator.debug.text import instruction_text
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.isa.access import access_of
from amdjax.emulator.isa.decode import Instruction, decoder
from amdjax.emulator.lower import lower, mode_after
from amdjax.emulator.records import Lowered, Wave
from amdjax.emulator.waits import CALLS, FUNCTION_ENDS, Findings, find_hazards

# Bytes of code that load arguments in the place of firmware that preloads them.
_BEHIND_LOADS = 256


class Program:
    """A kernel ready to run.

    Attributes:
        kernel: what it was made from, with what it calls.
        instructions: decoded, one for each record.
        lowered: what lowering made of them.
        problems: for the index of a record, why it must not be reached.
        wave_cost: about how many instructions a wave runs.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._start(kernel)
        lowered = self._decode()
        if any(inst.name in CALLS for inst in self.instructions):
            self._start(kernel.with_callees())
            lowered = self._decode(with_callees=True)
        self.lowered = lowered
        variants = [x.variant for x in lowered]
        addresses = native.HANDLERS.addresses([*variants, self._unknown().variant])
        # Instructions that a wave runs: those there are, until a launch knows better.
        self.wave_cost = len(lowered)
        self._stop = addresses[self._unknown().variant]
        self._records = np.zeros((len(lowered) + 1, state.RECORD // 8), np.uint64)
        self._records[:-1, state.HANDLER // 8] = [addresses[v] for v in variants]
        branches: list[tuple[int, int]] = []
        slots = self._records[:, state.SLOTS // 8 :]
        index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        for i, x in enumerate(lowered):
            row = slots[i]
            for slot, value in x.slots.items():
                row[slot] = value & 0xFFFFFFFFFFFFFFFF
            if x.target is not None:
                branches.append((i, index.get(x.target, len(lowered) - 1)))
        self._branches = np.array(branches, np.int64).reshape(-1, 2)

    def _start(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions: list[Instruction] = []
        self.problems: dict[int, str] = {}
        self.wave = Wave(
            kernel.isa, kernel.lanes, kernel.entry, kernel.accumulators, kernel.name,
            kernel.float_mode,
        )  # fmt: skip

    def _decode(self, with_callees: bool = False) -> list[Lowered]:
        code, pc = self.kernel.code, 0
        lowered: list[Lowered] = []
        decode = decoder(self.kernel.isa).decode
        furthest = mode = 0
        modes = []  # of floats, behind each record
        wave = self.wave
        while pc < len(code):
            inst = Instruction("unknown", "", {}, pc, 4)
            try:
                inst = decode(code, pc)
                low = lower(wave, inst)
                if inst.name in CALLS and wave.float_mode != self.wave.float_mode:
                    raise EmulatorError("a call where floats are rounded otherwise: no emulation")
                wave = self._in_mode(mode_after(inst, wave.float_mode))
                mode = _index_mode(inst, mode)
                if mode and inst.format.startswith("VOP"):
                    flags = (*low.variant.flags, ("relative", mode))
                    low.variant = replace(low.variant, flags=flags)
            except EmulatorError as error:
                # An error only if it is reached: constants may lie behind the code.
                word = int.from_bytes(code[pc : pc + 4], "little")
                self.problems[len(lowered)] = f"{error} (0x{word:08x})"
                low = self._unknown()
            self.instructions.append(inst)
            lowered.append(low)
            modes.append(wave.float_mode)
            furthest = max(furthest, low.target or 0)
            pc = inst.next_pc
            if with_callees:
                if inst.name in FUNCTION_ENDS:
                    wave = self.wave
            elif inst.name == "s_endpgm" and furthest < pc:
                break
        # Where code runs off its end.
        self.problems[len(lowered)] = "the program counter left the kernel"
        self.instructions.append(Instruction("unknown", "", {}, pc, 4))
        lowered.append(self._unknown())
        self._refuse_jumps_between_modes(lowered, modes)
        return lowered

    def _in_mode(self, mode: int) -> Wave:
        return self.wave if mode == self.wave.float_mode else replace(self.wave, float_mode=mode)

    def _refuse_jumps_between_modes(self, lowered: list[Lowered], modes: list[int]) -> None:
        """Instructions round as their place in the code says, hence so must all ways to them."""
        if len(set(modes)) < 2:
            return
        index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        before = [self.kernel.float_mode, *modes]
        for i, x in enumerate(lowered[:-1]):
            to = None if x.target is None else index.get(x.target)
            if to is not None and modes[i] != before[to]:
                self.problems[i] = "a jump to where floats are rounded otherwise: no emulation"
                lowered[i] = self._unknown()

    def _unknown(self) -> Lowered:
        return Lowered(Variant("unknown", self.wave.isa, self.wave.lanes))

    @cached_property
    def first(self) -> int:
        """Index of the record that waves start at.

        Where arguments are preloaded, code for firmware that does not know of it comes before.
        """
        pc = self.kernel.first + (_BEHIND_LOADS if self.kernel.preload else 0)
        return int(self.code_table[pc // 4])

    @cached_property
    def waits(self) -> Findings:
        """By index of a record: what it uses too early; barriers that leave stores outstanding."""
        return find_hazards(self.wave, self.instructions, self.lowered, self.first)

    def text(self, index: int) -> str:
        """The instruction of a record as text."""
        return instruction_text(self.wave, self.instructions[index], self.lowered[index])

    @cached_property
    def by_operation(self) -> dict[Inlined | None, np.ndarray]:
        """Indices of records by the innermost function that was inlined there, if any was."""
        found: dict[Inlined | None, list[int]] = {}
        for i, inst in enumerate(self.instructions):
            chain = self.kernel.chain_of(inst.pc)
            found.setdefault(chain[0] if chain else None, []).append(i)
        return {operation: np.array(own) for operation, own in found.items()}

    @cached_property
    def exchanges_in_lds(self) -> bool:
        """Whether there is a compare-and-exchange in LDS, hence reads that are part of one."""
        found = (access_of(inst.name) for inst in self.instructions if inst.format == "DS")
        return any(x is not None and x.operation == "cmpxchg" for x in found)

    @cached_property
    def code_table(self) -> np.ndarray:
        """Index of a record for each four bytes of code; within instructions that is the end."""
        table = np.full(len(self.kernel.code) // 4 + 1, len(self.instructions) - 1, np.uint32)
        table[[inst.pc // 4 for inst in self.instructions[:-1]]] = range(len(self.instructions) - 1)
        return table

    def records(self, with_hazards: bool, together: bool = False) -> np.ndarray:
        """A copy of the records with branches into the copy itself; counts are zero.

        Args:
            with_hazards: records that are hazards stop their wave, and barriers show what was
              stored before them only if that was waited for.
            together: workgroups are resident together, and others run while a wave sleeps.
        """
        records = self._records.copy()
        sources, targets = self._branches.T
        places = records.ctypes.data + state.RECORD * targets
        records[sources, state.SLOTS // 8 + state.TARGET] = places
        handlers = records[:, state.HANDLER // 8]
        if together:
            sleeps = (i for i, x in enumerate(self.instructions) if x.name == "s_sleep")
            self._flag(handlers, sleeps, "yields")
        if not with_hazards:
            return records
        if self.kernel.has_several_caches:
            self._flag(handlers, self.waits.unsettled, "unsettled")
        handlers[list(self.waits.hazards)] = self._stop
        return records

    def _flag(self, handlers: np.ndarray, indices: Iterable[int], name: str) -> None:
        """Give some records the handler for what the flag says."""
        for index in indices:
            variant = replace(self.lowered[index].variant, flags=((name, 1),))
            handlers[index] = native.HANDLERS.addresses([variant])[variant]


def _index_mode(inst: Instruction, mode: int) -> int:
    """Which operands of the vector instructions to come have an index added (GCN)."""
    if inst.name == "s_set_gpr_idx_on":
        return inst.fields["src1"] & 15
    return 0 if inst.name == "s_set_gpr_idx_off" else mode


@lru_cache(maxsize=256)
def program_of(kernel: Kernel) -> Program:
    """The kernel's program, made once."""
    return Program(kernel)
