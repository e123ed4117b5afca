"""The machine this process runs on."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm


@dataclass(frozen=True)
class HostMachine:
    """What the generator and the schedule want to know of this computer."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    physical_cores: int
    logical_cores: int

    def has(self, feature: str) -> bool:
        """Whether the CPU has an LLVM feature such as `avx512fp16`."""
        return f"+{feature}" in self.features.split(",")

    @property
    def dot_dtypes(self) -> tuple[str, ...]:
        """Of what an instruction sums the products in each 32-bit lane; see `ops.DotWords`."""
        features = {"avx512vnni": ("i8", "u8"), "avx512bf16": ("bf16",), self._pairs: ("i16",)}
        return tuple(d for name, dtypes in features.items() if self.has(name) for d in dtypes)

    @property
    def _pairs(self) -> str:
        """The feature that multiplies pairs of 16 bits in vectors of this machine's width."""
        return "avx512bw" if self.vector_bits >= 512 else "avx2"

    @property
    def native(self) -> frozenset[str]:
        """Intrinsics that are instructions here; see `codegen.llvm.Module`."""
        if not (self.has("avx512f") and self.has("avx512vl")):
            return frozenset()
        masked = {"masked.load", "masked.store"} if self.has("avx512bw") else set()
        return frozenset({"ldexp"} | masked)


@cache
def host() -> HostMachine:
    """The machine this process runs on."""
    features = llvm.get_host_cpu_features()
    physical, logical = _cores()
    l1d, l2, l3 = _caches()
    return HostMachine(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bits=_vector_bits(features),
        l1d_bytes=l1d,
        l2_bytes=l2,
        l3_bytes=l3,
        physical_cores=physical,
        logical_cores=logical,
    )


def _vector_bits(features: dict[str, bool]) -> int:
    if features.get("avx512f") and features.get("avx512vl"):
        return 512
    return 256 if features.get("avx2") else 128


def _caches() -> tuple[int, int, int]:
    """Bytes of the data caches as one core sees them: L1d, L2, L3."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]]
            level = int((index / "level").read_text())
            sizes[level] = int(text[:-1]) * unit or sizes[level]  # some machines do not tell
    return sizes[1], sizes[2], sizes[3]


def _cores() -> tuple[int, int]:
    """Physical and logical cores of the machine, whatever part of it we may use."""
    logical = os.cpu_count() or 1
    siblings = set()
    for cpu in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
        with contextlib.suppress(OSError):
            siblings.add((cpu / "topology/thread_siblings").read_text())
    return min(len(siblings), logical) or logical, logical
