"""The decoder against llvm-objdump, over all kernels of these tests."""

import re
import subprocess

import pytest
import test_kernels as kernels
import test_math
from emulation import ASSEMBLED, elementwise, link, relocatable, tool

from amdjax.runtime.emulator import CodeObject
from amdjax.runtime.emulator.decode import decoder

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
    return texts + [test_math.kernel_text(name, 4) for name in test_math.REFERENCES]


def disassembled(path, symbol_size: int) -> dict[int, str]:
    """Mnemonic by offset from the kernel's entry."""
    text = subprocess.run(
        [tool("llvm-objdump"), "-d", path], capture_output=True, text=True, check=True
    ).stdout
    found: dict[int, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s+(\S+)(.*?)// ([0-9A-F]+):", line)
        if match:
            second = re.search(r":: (v_dual_\w+)", match[2])
            name = match[1] + (f" :: {second[1]}" if second else "")
            found[int(match[3], 16)] = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)\b", "", name)
    start = min(found)
    return {at - start: name for at, name in found.items() if at - start < symbol_size}


# Two names for one encoding.
SAME = {"v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write"}


def canonical(name: str) -> str:
    """Where the tables and LLVM name the same encoding differently."""
    name = SAME.get(name, name)
    name = re.sub(r"^v_mad_(mix\w*)", r"v_fma_\1", name)
    name = name.replace("v_add_co_ci", "v_addc_co").replace("_f32_bf16_1k", "_f32_bf16")
    return name


def test_decoder_agrees_with_objdump(gfx, tmp_path):
    checked = 0
    for text in corpus():
        data = link(relocatable(text, gfx))
        (tmp_path / "code.so").write_bytes(data)
        code = CodeObject(data)
        (kernel,) = code.kernels.values()
        decode, pc = decoder(code.isa).decode, 0
        want = disassembled(tmp_path / "code.so", len(kernel.code))
        while pc < len(kernel.code) and pc in want:
            inst = decode(kernel.code, pc)
            assert canonical(inst.name) == canonical(want[pc]), f"{want[pc]} at {pc}"
            pc, checked = inst.next_pc, checked + 1
            if inst.name == "s_endpgm":
                break
    assert checked > 1500
