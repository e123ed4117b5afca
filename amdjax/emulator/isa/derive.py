"""Where the JSON files beside this script come from; not needed to use them.

What is taken are facts: the bits that select a format, the bits of its fields, and mnemonic by
opcode number. Names and layout of our files are ours. There are two sources:

AMD publishes machine-readable descriptions of its newer instruction sets (XML), from which the
tinygrad wheel ships Python tables. For older sets the field layouts are those of a similar one but
for the differences listed here, and LLVM's disassembler is asked what every opcode is called.
Asked about the instruction sets that have both, it agrees with the published tables.

    pip download tinygrad==0.14.0 --no-deps && unzip tinygrad-*.whl -d tables
    PYTHONPATH=tables python -m amdjax.emulator.isa.derive

`tests/emulator/test_decode.py` compares what the decoder makes of compiled kernels with LLVM's
text, so a wrong number shows.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

PUBLISHED = {"cdna3": "cdna", "rdna3": "rdna3", "rdna4": "rdna4"}
FORMATS = (
    *("SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM"),
    *("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOPD"),
    *("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "VFLAT", "VGLOBAL", "VSCRATCH", "VBUFFER"),
)
# Formats and operand roles have one name in all instruction sets.
SAME_FORMAT = {"VFLAT": "FLAT", "VGLOBAL": "GLOBAL", "VSCRATCH": "SCRATCH", "VBUFFER": "MUBUF"}
RENAMED = {"ssrc0": "src0", "ssrc1": "src1", "vsrc1": "src1", "vsrcx1": "srcx1", "vsrcy1": "srcy1",
           "vsrc": "data", "ioffset": "offset", "rsrc": "srsrc"}  # fmt: skip
IGNORED = {"encoding", "op", "seg"}
SIZES = {"SOP1": 4, "SOP2": 4, "SOPC": 4, "SOPK": 4, "SOPP": 4, "VOP1": 4, "VOP2": 4, "VOPC": 4}
# Formats whose offset is signed; the older FLAT has no negative ones.
SIGNED_OFFSET = ("SMEM", "GLOBAL", "SCRATCH")

# What LLVM is asked about: its name, the similar one, and the fields that lie elsewhere.
_FLAT_GFX9 = {"glc": [16, 16], "slc": [17, 17], "lds": [13, 13], "sve": None, "sc0": None,
              "nt": None, "sc1": None}  # fmt: skip
_FLAT_GFX10 = {"glc": [16, 16], "slc": [17, 17], "dlc": [12, 12], "lds": [13, 13],
               "offset": [11, 0], "sve": None}  # fmt: skip
_BUFFER_GFX9 = {"glc": [14, 14], "slc": [17, 17], "lds": [16, 16], "tfe": [55, 55], "sc0": None,
                "sc1": None, "nt": None}  # fmt: skip
_BUFFER_GFX10 = {"glc": [14, 14], "dlc": [15, 15], "slc": [54, 54], "lds": [16, 16],
                 "offen": [12, 12], "idxen": [13, 13], "tfe": [55, 55]}  # fmt: skip
_NO_ACC = {"acc": None}
ASKED: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "cdna1": ("gfx908", "cdna3", {
        **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH"), _FLAT_GFX9 | _NO_ACC),
        "MUBUF": _BUFFER_GFX9 | _NO_ACC, "DS": _NO_ACC,
    }),
    "cdna2": ("gfx90a", "cdna3", {
        **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH"), _FLAT_GFX9 | {"scc": [25, 25]}),
        "MUBUF": _BUFFER_GFX9 | {"tfe": None, "scc": [15, 15]},
    }),
    "rdna2": ("gfx1030", "rdna3", {
        **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH"), _FLAT_GFX10),
        "MUBUF": _BUFFER_GFX10, "SMEM": {"glc": [16, 16], "dlc": [14, 14]},
    }),
}  # fmt: skip
# Bits that tell segments of FLAT apart moved in gfx11, the buffer opcode in gfx11 too.
_GFX10_MATCH = {"FLAT": [15, 14, 0], "SCRATCH": [15, 14, 1], "GLOBAL": [15, 14, 2]}
_CARRY_OUT = re.compile(
    r"v_(add|sub|subrev|addc|subb|subbrev)_co(_ci)?_u32|v_div_scale_f\d\d|v_mad_[ui]64_[ui]32"
)
# Operand fields that make one probe or another of each opcode a valid instruction.
_PROBES: tuple[dict[str, int], ...] = (
    {}, {"src0": 256, "src1": 256, "src2": 256}, {"src1": 256}, {"src0": 256},
    {"src0": 256, "src1": 256}, {"soffset": 128}, {"saddr": 127}, {"saddr": 125}, {"saddr": 124},
    {"imm": 1}, {"soffset": 125}, {"soffset": 124}, {"glc": 1, "saddr": 127}, {"glc": 1},
    {"sc0": 1}, {"lds": 1}, {"gds": 1}, {"src0": 193}, {"simm16": 1}, {"vdst": 126},
    {"src0": 256, "src1": 256, "src2": 256, "opsel_hi": 3, "opsel_hi2": 1},
)  # fmt: skip


def _layout(name: str, cls: Any) -> dict[str, Any]:
    """Bits that select a format, bits of its opcode and of its fields, each `[high, low]`."""
    fields, match = {}, []
    for base in reversed(cls.__mro__[:-1]):
        for key, bits in vars(base).items():
            if not hasattr(bits, "hi"):
                continue
            place = [bits.hi, bits.lo]
            if key in ("encoding", "seg"):
                match.append([*place, bits.default])
            elif key not in IGNORED:
                key = "addr" if key == "vaddr" and name not in ("MUBUF", "VBUFFER") else key
                fields[RENAMED.get(key, key)] = place
    wide = name in SAME_FORMAT
    layout: dict[str, Any] = {"size": 12 if wide else SIZES.get(name, 8), "match": match}
    if (op := vars(cls).get("op")) is not None:
        layout["op"] = [op.hi, op.lo]
    if SAME_FORMAT.get(name, name) in SIGNED_OFFSET or name in ("VFLAT", "VBUFFER"):
        layout["signed"] = ["offset"]
    return layout | {"fields": fields}


def _names(enum: Any) -> dict[int, str]:
    return {member.value: _plain(member.name.lower()) for member in enum}


def _plain(mnemonic: str) -> str:
    return re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", mnemonic)


def published(package: str) -> dict[str, Any]:
    """The table of an instruction set from what AMD publishes."""
    root = f"tinygrad.runtime.autogen.amd.{package}"
    ins, enum = importlib.import_module(f"{root}.ins"), importlib.import_module(f"{root}.enum")
    formats = {}
    for name in FORMATS:
        if hasattr(ins, name):
            entry = _layout(name, getattr(ins, name))
            entry["names"] = _names(getattr(enum, f"{name}Op"))
            formats[SAME_FORMAT.get(name, name)] = entry
    return formats


def asked(cpu: str, similar: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table of an instruction set from a similar one's layouts and LLVM's names."""
    formats = {}
    for name, old in similar.items():
        if name == "VOPD":  # only from gfx11 on
            continue
        form = {key: value for key, value in old.items() if key != "names"}
        fields = form["fields"] | changes.get(name, {})
        form["fields"] = {key: bits for key, bits in fields.items() if bits is not None}
        if cpu.startswith("gfx10"):
            match = [form["match"][0]]
            form["match"] = [*match, _GFX10_MATCH[name]] if name in _GFX10_MATCH else match
        formats[name] = form
    for name, form in formats.items():
        claimed = [f for f in formats.values() if f is not form and _size(f) > _size(form)]
        names = {op: n for op, n in _ask(cpu, form, claimed).items() if n != "v_illegal"}
        if name.startswith("VOP3") and name != "VOP3P":
            carries = name == "VOP3SD"
            names = {op: n for op, n in names.items() if bool(_CARRY_OUT.match(n)) == carries}
        form["names"] = names
    return formats


def _size(form: dict[str, Any]) -> int:
    return sum(high - low + 1 for high, low, _ in form["match"])


def _ask(cpu: str, form: dict[str, Any], claimed: list[dict[str, Any]]) -> dict[int, str]:
    """Mnemonic by opcode; not of words that a format with more fixed bits claims."""
    high, low = form["op"]
    opcodes = [op for op in range(1 << (high - low + 1))
               if not any(_matches(f, _encoding(form, op, {})) for f in claimed)]  # fmt: skip
    names = mnemonics(cpu, [(form, op) for op in opcodes])
    return {op: name for op, name in zip(opcodes, names) if name is not None}


def mnemonics(cpu: str, questions: list[tuple[dict[str, Any], int]]) -> list[str | None]:
    """What LLVM calls opcodes of formats; None where no probe makes a valid instruction."""
    names: list[str | None] = [None] * len(questions)
    for probe in _PROBES:
        asked = [i for i, (form, _) in enumerate(questions)
                 if names[i] is None and probe.keys() <= form["fields"].keys()]  # fmt: skip
        words = [_encoding(*questions[i], probe) for i in asked]
        codes = [w.to_bytes(questions[i][0]["size"], "little") for i, w in zip(asked, words)]
        for i, word, line in zip(asked, words, disassembled(cpu, codes)):
            # Unused fields may come back otherwise; what selects the instruction may not.
            form = questions[i][0]
            selecting = (*(bits[:2] for bits in form["match"]), form["op"])
            if line is not None and all(_same(word, line[1], *bits) for bits in selecting):
                names[i] = line[0]
    return names


def _encoding(form: dict[str, Any], op: int, fields: dict[str, int]) -> int:
    word = op << form["op"][1]
    for _, low, value in form["match"]:
        word |= value << low
    for key, value in fields.items():
        high, low = form["fields"][key]
        word |= (value & (1 << (high - low + 1)) - 1) << low
    return word


def _same(a: int, b: int, high: int, low: int) -> bool:
    return not (a ^ b) >> low & (1 << (high - low + 1)) - 1


def _matches(form: dict[str, Any], word: int) -> bool:
    return all(word >> lo & (1 << (hi - lo + 1)) - 1 == value for hi, lo, value in form["match"])


def disassembled(cpu: str, codes: list[bytes]) -> list[tuple[str, int] | None]:
    """What LLVM makes of encodings: mnemonic and the encoding it would write, or None."""
    # A literal may be wanted behind the instruction. What ends in the middle of invalid bits is
    # over within a few s_nop; the next encoding is found by a marked one.
    literal, nop = " 0x00" * 4, "0x{:02x} 0x{:02x} 0x80 0xbf"
    lines = []
    for i, code in enumerate(codes):
        lines += [" ".join(f"0x{byte:02x}" for byte in code) + literal * (len(code) == 4)]
        lines += [*[nop.format(0, 0)] * 3, nop.format(i & 255, 128 | i >> 8)]
    command = ["llvm-mc-19", "-disassemble", "-triple=amdgcn-amd-amdhsa", f"-mcpu={cpu}"]
    text = subprocess.run([*command, "-show-encoding"], input="\n".join(lines),
                          capture_output=True, text=True).stdout  # fmt: skip
    between: list[list[tuple[str, int]]] = [[]]
    for name, bits in re.findall(r"^\s*(\w+).*encoding: \[(.*)\]", text, re.MULTILINE):
        data = bytes(int(x, 16) for x in bits.split(","))
        if name == "s_nop" and data[1] & 128:
            between.append([])
        else:
            between[-1].append((_plain(name), int.from_bytes(data, "little")))
    assert len(between) == len(codes) + 1
    return [group[0] if group else None for group in between[:-1]]


def _text(formats: dict[str, Any]) -> str:
    """One line a format and one for each opcode: readable differences."""
    blocks = []
    for name, entry in formats.items():
        names = ",\n".join(f'  "{k}": "{v}"' for k, v in sorted(entry["names"].items()))
        rest = {k: v for k, v in entry.items() if k != "names"}
        blocks.append(f'"{name}": {json.dumps(rest)[:-1]}, "names": {{\n{names}}}}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    tables = {ours: published(theirs) for ours, theirs in PUBLISHED.items()}
    for ours, (cpu, similar, changes) in ASKED.items():
        tables[ours] = asked(cpu, tables[similar], changes)
    for ours, table in tables.items():
        Path(__file__).with_name(f"{ours}.json").write_text(_text(table))
