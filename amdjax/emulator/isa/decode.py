"""Machine code to instructions, by the tables of `isa/`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources

from amdjax.emulator.errors import UnknownInstruction
from amdjax.emulator.isa import ISAS

# Values of a source field that are neither register nor inline constant.
SDWA, DPP8, DPP8_FI, DPP16, LITERAL = 249, 233, 234, 250, 255
VGPR = 256

# Further bits of instructions whose source 0 says so; the real source 0 is `vsrc0`.
_DPP16 = {"vsrc0": (7, 0), "dpp": (16, 8), "fi": (18, 18), "bc": (19, 19), "src0_neg": (20, 20),
          "src0_abs": (21, 21), "src1_neg": (22, 22), "src1_abs": (23, 23), "bank_mask": (27, 24),
          "row_mask": (31, 28)}  # fmt: skip
_DPP8 = {"vsrc0": (7, 0), "lanes8": (31, 8)}
_SDWA = {"vsrc0": (7, 0), "dst_sel": (10, 8), "dst_unused": (12, 11), "clmp": (13, 13),
         "omod": (15, 14), "src0_sel": (18, 16), "src0_sext": (19, 19), "src0_neg": (20, 20),
         "src0_abs": (21, 21), "s0": (23, 23), "src1_sel": (26, 24), "src1_sext": (27, 27),
         "src1_neg": (28, 28), "src1_abs": (29, 29), "s1": (31, 31), "sdst": (14, 8),
         "sd": (15, 15)}  # fmt: skip
_MFMA = {"cbsz": (10, 8), "abid": (14, 11), "acc_cd": (15, 15), "acc": (60, 59), "blgp": (63, 61)}
# These carry a constant behind them whatever their operands are.
_WITH_LITERAL = ("fmamk", "fmaak", "madmk", "madak", "s_setreg_imm32")


# Most formats are told from these bits on.
_TOP = 23


@dataclass(slots=True)
class Instruction:
    """One decoded instruction; `pc` counts bytes from the kernel's entry."""

    name: str
    format: str
    fields: dict[str, int]
    pc: int
    size: int
    literal: int | None = None
    dpp: dict[str, int] | None = None
    sdwa: dict[str, int] | None = None
    parts: list[Instruction] = field(default_factory=list)  # the two halves of a VOPD

    @property
    def next_pc(self) -> int:
        return self.pc + self.size


@dataclass(frozen=True)
class _Format:
    name: str
    size: int
    signed: tuple[str, ...]  # fields
    match: tuple[tuple[int, int, int], ...]
    op: tuple[int, int] | None
    fields: dict[str, tuple[int, int]]
    names: dict[int, str]

    @cached_property
    def places(self) -> tuple[tuple[str, int, int], ...]:
        """Fields as (name, lowest bit, mask)."""
        return tuple((key, lo, (1 << (hi - lo + 1)) - 1) for key, (hi, lo) in self.fields.items())

    @cached_property
    def known_bits(self) -> tuple[int, int]:
        """The bits that select the format, and what they must be."""
        mask = sum(((1 << (hi - lo + 1)) - 1) << lo for hi, lo, _ in self.match)
        return mask, sum(value << lo for _, lo, value in self.match)

    def matches(self, word: int, above: int = 0) -> bool:
        """Whether a word is of this format, as far as the bits from `above` on tell."""
        mask, wanted = self.known_bits
        return not (word & mask ^ wanted) >> above

    @property
    def specificity(self) -> int:
        return sum(hi - lo + 1 for hi, lo, _ in self.match)


def _bits(word: int, hi: int, lo: int) -> int:
    return (word >> lo) & ((1 << (hi - lo + 1)) - 1)


class Decoder:
    """Decodes the instructions of one instruction set, by a table of `isa/`."""

    def __init__(self, table: str) -> None:
        text = resources.files("amdjax.emulator.isa").joinpath(f"{table}.json").read_text()
        formats = [
            _Format(
                name,
                entry["size"],
                tuple(entry.get("signed", ())),
                tuple(tuple(m) for m in entry["match"]),
                tuple(entry["op"]) if "op" in entry else None,
                {k: tuple(v) for k, v in entry["fields"].items()},
                {int(k): v for k, v in entry["names"].items()},
            )
            for name, entry in json.loads(text).items()
        ]
        # VOP2 and SOP2 are what remains when the longer prefixes do not match.
        self._formats = sorted(formats, key=lambda f: -f.specificity)
        self._by_top: dict[int, list[_Format]] = {}

    def _candidates(self, word: int) -> list[_Format]:
        """Formats that the top bits of a word leave open."""
        top = word >> _TOP
        found = self._by_top.get(top)
        if found is None:
            found = self._by_top[top] = [f for f in self._formats if f.matches(word, _TOP)]
        return found

    def decode(self, code: bytes, pc: int) -> Instruction:
        """The instruction at byte `pc` of `code`.

        Raises:
            UnknownInstruction: no format matches, or the format has no such opcode.
        """
        window = int.from_bytes(code[pc : pc + 20].ljust(20, b"\0"), "little")
        first = window & 0xFFFFFFFF
        tried = ""
        for form in self._candidates(first):
            if not form.matches(first):
                continue
            if form.op is None:
                return self._decode_dual(form, window, pc)
            number = _bits(window, *form.op)
            tried = tried or f"{form.name} opcode {number}"
            if number in form.names:
                return self._finish(form, form.names[number], window, pc)
        raise UnknownInstruction(
            f"unknown instruction at +0x{pc:x}: 0x{first:08x} ({tried or 'no such encoding'})"
        )

    def _finish(self, form: _Format, name: str, window: int, pc: int) -> Instruction:
        fields = {key: window >> lo & mask for key, lo, mask in form.places}
        for key in form.signed:
            width = form.fields[key][0] - form.fields[key][1] + 1
            fields[key] -= fields[key] >> (width - 1) << width
        size = form.size
        if form.name == "VOP3P" and ("mfma" in name or "accvgpr" in name):
            fields |= {key: _bits(window, *bits) for key, bits in _MFMA.items()}
        inst = Instruction(name, form.name, fields, pc, size)
        sources = [fields[key] for key in ("src0", "src1", "src2") if key in fields]
        if form.name in ("VOP1", "VOP2", "VOPC") and "src1" in fields:
            fields["src1"] += VGPR
            sources = sources[:1]
        extra = window >> (8 * size) & 0xFFFFFFFF
        built_in = name.find("k_f") > 0 and any(x in name for x in _WITH_LITERAL)
        if LITERAL in sources or built_in or name == "s_setreg_imm32_b32":
            inst.literal = extra
            inst.size += 4
        elif form.name.startswith("VOP") and sources:
            self._modify(inst, sources[0], extra)
        return inst

    @staticmethod
    def _modify(inst: Instruction, source: int, extra: int) -> None:
        """Read the word that says how lanes (DPP) or parts of registers (SDWA) are picked."""
        layout = {DPP16: _DPP16, DPP8: _DPP8, DPP8_FI: _DPP8, SDWA: _SDWA}.get(source)
        if layout is None:
            return
        bits = {key: _bits(extra, *place) for key, place in layout.items()}
        inst.size += 4
        if source == SDWA:
            inst.sdwa = bits
            inst.fields["src0"] = bits["vsrc0"] + (0 if bits["s0"] else VGPR)
            if "src1" in inst.fields and bits["s1"]:
                inst.fields["src1"] -= VGPR
            return
        inst.fields["src0"] = bits["vsrc0"] + VGPR
        inst.dpp = bits | ({"fi": 1} if source == DPP8_FI else {})

    def _decode_dual(self, form: _Format, window: int, pc: int) -> Instruction:
        f = {key: _bits(window, *bits) for key, bits in form.fields.items()}
        if f["opx"] not in form.names or f["opy"] not in form.names:
            raise UnknownInstruction(
                f"unknown instruction at +0x{pc:x}: VOPD opcodes {f['opx']}, {f['opy']}"
            )
        names = [form.names[f[key]].replace("v_dual_", "v_") for key in ("opx", "opy")]
        needs = LITERAL in (f["srcx0"], f["srcy0"]) or any("mk_" in n or "ak_" in n for n in names)
        literal = window >> 64 & 0xFFFFFFFF if needs else None
        # The y half's destination has the parity that x's lacks.
        targets = f["vdstx"], f["vdsty"] << 1 | (~f["vdstx"] & 1)
        parts = [
            Instruction(
                name, "VOP2",
                {"vdst": target, "src0": f[f"src{half}0"], "src1": f[f"src{half}1"] + VGPR},
                pc, 0, literal,
            )
            for name, target, half in zip(names, targets, "xy")
        ]  # fmt: skip
        name = " :: ".join(n.replace("v_", "v_dual_", 1) for n in names)
        return Instruction(name, "VOPD", {}, pc, 12 if needs else 8, literal, parts=parts)


@cache
def decoder(isa: str) -> Decoder:
    """The decoder of an instruction set, made once."""
    return Decoder(ISAS[isa].table)
