"""The decoder against llvm-objdump, over all kernels of these tests."""

import re
import subprocess

import pytest

from amdjax.emulator import operands
from amdjax.emulator.isa.decode import Instruction, decoder
from amdjax.emulator.lower import lower
from amdjax.emulator.program import program_of
from amdjax.emulator.records import Wave
from tests.emulator import test_kernels as kernels, test_matrix
from tests.support.emulated_math import REFERENCES, kernel_text as math_kernel
from tests.support.emulation import ASSEMBLED, LANES, compiled, elementwise
from tests.support.llvm_tools import tool

pytestmark = pytest.mark.parametrize("gfx", ASSEMBLED)


def corpus() -> list[str]:
    texts = [kernels.SAXPY, kernels.REDUCE, kernels.LOOP, kernels.ATOMICS]
    texts += [elementwise(x, kernels.UINT, "i32") + kernels.DECLARE
              for x, _ in kernels.INTEGER.values()]  # fmt: skip
    texts += [elementwise(x, "i64 i64", "i64") for x, _ in kernels.WIDE.values()]
    texts += [elementwise(x, "i32 i32", "i32") + kernels.DECLARE_SHUFFLES
              for x, _ in kernels.SHUFFLES.values()]  # fmt: skip
    texts += [elementwise(f"  %r = fdiv {t} %x0, %x1", f"{t} {t}", t)
              for t in ("half", "float", "double")]  # fmt: skip
    return texts + [math_kernel(name, 4) for name in REFERENCES]


def matrix_products(gfx: str) -> list[str]:
    return [test_matrix.kernel_text(x, LANES[gfx]) for g, x in test_matrix.INSTRUCTIONS
            if g == gfx and x.blocks == 1]  # fmt: skip


def disassembled(paths) -> list[dict[int, tuple[str, str]]]:
    """For each file the mnemonics and operands by offset from the kernel's entry."""
    text = subprocess.run(
        [tool("llvm-objdump"), "-d", *paths], capture_output=True, text=True, check=True
    ).stdout
    files: list[dict[int, tuple[str, str]]] = []
    for line in text.splitlines():
        if "file format" in line:
            files.append({})
        match = re.match(r"\s+(\S+)(.*?)// ([0-9A-F]+):", line)
        if match:
            second = re.search(r":: (v_dual_\w+)", match[2])
            name = match[1] + (f" :: {second[1]}" if second else "")
            name = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)\b", "", name)
            files[-1][int(match[3], 16)] = name, match[2]
    return [{at - min(found): line for at, line in found.items()} for found in files]


# Two names for one encoding.
SAME = {"v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write"}


def canonical(name: str) -> str:
    """Where the tables and LLVM name the same encoding differently."""
    name = SAME.get(name, name)
    name = re.sub(r"^v_mad_(mix\w*)", r"v_fma_\1", name)
    name = name.replace("v_add_co_ci", "v_addc_co").replace("_f32_bf16_1k", "_f32_bf16")
    return name


def registers_in(operands: str) -> set[str]:
    """Vector, scalar and accumulator registers of an operand list, one by one."""
    found = set()
    for kind, first, last in re.findall(r"\b([vsa])(?:(?=\d)|\[)(\d+)(?::(\d+)\])?", operands):
        found |= {f"{kind}{i}" for i in range(int(first), int(last or first) + 1)}
    return found


def registers_of(wave: Wave, inst: Instruction) -> set[str]:
    """The same as the emulator sees it; VCC, EXEC and the like are left out."""
    reads, writes = operands.registers(wave, lower(wave, inst))
    both = reads | writes
    names = {operands.register_name(wave, i) for i in range(both.bit_length()) if both >> i & 1}
    return {
        name for name in names if name[1:].isdigit() and (name[0] != "s" or int(name[1:]) < 106)
    }


def test_decoder_agrees_with_objdump(gfx, tmp_path):
    checked = 0
    codes = [compiled(text, gfx) for text in corpus() + matrix_products(gfx)]
    paths = [tmp_path / f"{i}.so" for i in range(len(codes))]
    for code, path in zip(codes, paths):
        path.write_bytes(code._data)
    for code, want in zip(codes, disassembled(paths), strict=True):
        (kernel,) = code.kernels.values()
        wave = program_of(kernel).wave
        decode, pc = decoder(code.isa).decode, 0
        while pc < len(kernel.code) and pc in want:
            inst = decode(kernel.code, pc)
            name, written = want[pc]
            assert canonical(inst.name) == canonical(name), f"{name} at {pc}"
            if inst.format != "SOPP":
                assert registers_of(wave, inst) == registers_in(written), f"{name} {written}"
            pc, checked = inst.next_pc, checked + 1
            if inst.name == "s_endpgm":
                break
    assert checked > 1500
