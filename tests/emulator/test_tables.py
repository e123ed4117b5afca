"""Opcode numbers of the tables against LLVM's disassembler.

Some tables were made from its answers, others from what AMD publishes; for those this is an
independent check of numbers and places of opcodes.
"""

import json
from importlib import resources

import pytest

from amdjax.emulator.isa import derive
from tests.support.llvm_tools import tool

# Another name for the same encoding, or the two names of a format's two kinds.
SAME = {"v_mad_mix_f32": "v_fma_mix_f32", "v_mad_mixlo_f16": "v_fma_mixlo_f16",
        "v_mad_mixhi_f16": "v_fma_mixhi_f16", "v_accvgpr_read": "v_accvgpr_read_b32",
        "v_accvgpr_write": "v_accvgpr_write_b32"}  # fmt: skip
# What LLVM 19 does not know of a table: CDNA4 shares one with CDNA3.
UNKNOWN = {"cdna3": 130, "rdna3": 20, "rdna4": 20}


@pytest.mark.parametrize(
    ("table", "cpu"),
    [("cdna1", "gfx908"), ("cdna2", "gfx90a"), ("cdna3", "gfx942"), ("rdna2", "gfx1030"),
     ("rdna3", "gfx1150"), ("rdna4", "gfx1201")],
)  # fmt: skip
def test_opcodes(table, cpu):
    tool("llvm-mc")
    text = resources.files("amdjax.emulator.isa").joinpath(f"{table}.json").read_text()
    entries = [
        (form, int(op), SAME.get(mnemonic, mnemonic))
        for form in json.loads(text).values() if "op" in form
        for op, mnemonic in form["names"].items()
    ]  # fmt: skip
    got = derive.mnemonics(cpu, [(form, op) for form, op, _ in entries])
    wrong = [(want, name) for (*_, want), name in zip(entries, got) if name not in (want, None)]
    assert not wrong
    unknown = [want for (*_, want), name in zip(entries, got) if name is None]
    assert len(unknown) <= UNKNOWN.get(table, 0), unknown
    assert len(entries) > 1200
