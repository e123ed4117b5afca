"""Where the JSON files beside this script come from; not needed to use them.

AMD publishes machine-readable descriptions of its instruction sets (XML), from which the tinygrad
wheel ships Python tables. What is taken are facts: the bits that select a format, the bits of its
fields, and mnemonic by opcode number. Names and layout of our files are ours.

    pip download tinygrad==0.14.0 --no-deps && unzip tinygrad-*.whl -d tables
    PYTHONPATH=tables python -m amdjax.runtime.emulator.isa.derive

`tests/emulator/test_decode.py` compares what the decoder makes of compiled kernels with
llvm-objdump, so a wrong number shows.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

SOURCES = {"cdna3": "cdna", "rdna3": "rdna3"}
FORMATS = (
    *("SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM"),
    *("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOPD"),
    *("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF"),
)
# The operand roles have one name in all formats.
RENAMED = {"ssrc0": "src0", "ssrc1": "src1", "vsrc1": "src1", "vsrcx1": "srcx1", "vsrcy1": "srcy1"}
IGNORED = {"encoding", "op", "seg"}


def _layout(cls: Any) -> dict[str, Any]:
    """Bits that select a format, bits of its opcode and of its fields, each `[high, low]`."""
    fields, match = {}, []
    for base in reversed(cls.__mro__[:-1]):
        for name, field in vars(base).items():
            if not hasattr(field, "hi"):
                continue
            bits = [field.hi, field.lo]
            if name in ("encoding", "seg"):
                match.append([*bits, field.default])
            elif name not in IGNORED:
                fields[RENAMED.get(name, name)] = bits
    layout: dict[str, Any] = {"match": match, "fields": fields}
    if (op := vars(cls).get("op")) is not None:
        layout["op"] = [op.hi, op.lo]
    return layout


def _names(enum: Any) -> dict[int, str]:
    names: dict[int, str] = {}
    for member in enum:
        name = member.name.lower()
        for suffix in ("_e32", "_e64"):
            name = name.removesuffix(suffix)
        names[member.value] = name
    return names


def derive(package: str) -> dict[str, Any]:
    root = f"tinygrad.runtime.autogen.amd.{package}"
    ins, enum = importlib.import_module(f"{root}.ins"), importlib.import_module(f"{root}.enum")
    formats = {}
    for name in FORMATS:
        if not hasattr(ins, name):
            continue
        formats[name] = _layout(getattr(ins, name))
        formats[name]["names"] = _names(getattr(enum, f"{name}Op"))
    return formats


def _text(formats: dict[str, Any]) -> str:
    """One line a format and one for each opcode: readable differences."""
    blocks = []
    for name, entry in formats.items():
        names = ",\n".join(f'  "{k}": "{v}"' for k, v in sorted(entry["names"].items()))
        rest = {k: v for k, v in entry.items() if k != "names"}
        blocks.append(f'"{name}": {json.dumps(rest)[:-1]}, "names": {{\n{names}}}}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    for ours, theirs in SOURCES.items():
        Path(__file__).with_name(f"{ours}.json").write_text(_text(derive(theirs)))
