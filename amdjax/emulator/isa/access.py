"""Loads, stores and atomics: what each mnemonic moves."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

_SIZES = {
    "ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True),
    "byte": (1, False), "short": (2, False), "dword": (4, False),
    "u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True), "b8": (1, False),
    "b16": (2, False), "b32": (4, False), "b64": (8, False), "b96": (12, False),
    "b128": (16, False), "b256": (32, False), "b512": (64, False),
    **{f"dwordx{n}": (4 * n, False) for n in (2, 3, 4, 8, 16)},
}  # fmt: skip

# Name in the mnemonic: the operation of atomicrmw, and whether operands are floats.
_ATOMICS = {
    "add": "add", "sub": "sub", "smin": "min", "umin": "umin", "smax": "max", "umax": "umax",
    "min_i": "min", "min_u": "umin", "max_i": "max", "max_u": "umax", "and": "and", "or": "or",
    "xor": "xor", "inc": "uinc_wrap", "dec": "udec_wrap", "swap": "xchg", "wrxchg": "xchg",
    "storexchg": "xchg", "add_f": "fadd", "min_f": "fmin", "max_f": "fmax", "fmin": "fmin",
    "fmax": "fmax", "min_num_f": "fmin", "max_num_f": "fmax", "cond_sub_u": "usub_cond",
    "sub_clamp_u": "usub_sat", "csub": "usub_sat", "cmpswap": "cmpxchg",
    "cmpst": "cmpxchg", "cmpstore": "cmpxchg", "pk_add_f": "fadd", "pk_add_bf": "fadd",
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """What a memory instruction moves.

    `half` is where 16-bit data goes: "", "lo" or "hi". A load `to_lds` has no destination register:
    the dwords of each lane go behind those of the lane before.
    """

    kind: str
    space: str
    size: int
    signed: bool = False
    half: str = ""
    operation: str = ""
    elem: str = ""
    count: int = 1  # 2 for the forms with two addresses
    scale: int = 1  # of their offsets
    to_lds: bool = False

    @property
    def dwords(self) -> int:
        return max(1, self.size // 4)


@cache
def access_of(name: str) -> Access | None:
    """What the mnemonic does, or None if it is no (known) memory access."""
    if match := re.fullmatch(r"s_load_(\w+)", name):
        found = _SIZES.get(match[1])
        return Access("scalar", "global", *found) if found else None
    if match := re.fullmatch(r"global_load_lds_(\w+)", name):
        plain = _plain("load", "global", match[1])
        return replace(plain, to_lds=True) if plain is not None else None
    if match := re.fullmatch(r"(global|flat|scratch|buffer)_(load|store)_(\w+)", name):
        return _plain(match[2], match[1], match[3])
    if match := re.fullmatch(r"(global|flat|buffer)_atomic_(\w+)", name):
        return _atomic(match[1], match[2])
    if match := re.fullmatch(r"ds_(read|load|write|store)(2|_2addr)?(st64|_stride64)?_(\w+)", name):
        kind = {"read": "load", "write": "store"}.get(match[1], match[1])
        plain = _plain(kind, "lds", match[4])
        if plain is None or not match[2]:
            return plain
        scale = plain.size * (64 if match[3] else 1)
        return Access(kind, "lds", plain.size, count=2, scale=scale)
    if match := re.fullmatch(r"ds_(\w+)", name):
        return _atomic("lds", match[1].replace("_rtn", ""))
    return None


def _plain(kind: str, space: str, what: str) -> Access | None:
    half = "hi" if "d16_hi" in what else "lo" if "d16" in what else ""
    found = _SIZES.get(re.sub(r"_?d16(_hi)?_?", "", what))
    return Access(kind, space, *found, half=half) if found else None


def _atomic(space: str, what: str) -> Access | None:
    wide = what.endswith(("_x2", "64"))
    body = what.removesuffix("_x2")
    packed = re.fullmatch(r"(pk_add_b?f)16", body)
    if packed:
        elem = "<2 x bfloat>" if "bf" in body else "<2 x half>"
        return Access("atomic", space, 4, operation="fadd", elem=elem)
    match = re.fullmatch(r"([a-z_]+?)(?:_([biuf])(?:32|64))?", body)
    if match is None:
        return None
    name, letter = match[1], match[2] or ""
    operation = _ATOMICS.get(f"{name}_{letter}") or _ATOMICS.get(name)
    if operation is None:
        return None
    floating = operation in ("fadd", "fmin", "fmax") or (operation == "cmpxchg" and letter == "f")
    elem = ("double" if wide else "float") if floating else ("i64" if wide else "i32")
    return Access("atomic", space, 8 if wide else 4, operation=operation, elem=elem)
