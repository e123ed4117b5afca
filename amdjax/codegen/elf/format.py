"""ELF files of AMD GPUs: constants, records, reading.

Sources: "System V Application Binary Interface" (ELF-64), "User Guide for AMDGPU Backend" (LLVM).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from amdjax.core.integers import round_up

ET_REL, ET_DYN = 1, 3
EM_AMDGPU = 224
OSABI_AMDGPU_HSA = 64

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS = range(
    1, 9
)
SHT_REL, SHT_DYNSYM, SHT_GROUP = 9, 11, 17
SHT_GNU_HASH = 0x6FFFFFF6
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK = 0x1, 0x2, 0x4, 0x40
SHF_COMPRESSED = 0x800
SHN_UNDEF, SHN_AMDGPU_LDS, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2

STB_LOCAL, STB_GLOBAL, STB_WEAK = range(3)
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_COMMON = range(6)
STV_DEFAULT, STV_INTERNAL, STV_HIDDEN, STV_PROTECTED = range(4)

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR = 1, 2, 4, 6
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 0, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_FLAGS = 10, 11, 30
DF_SYMBOLIC = 2
DT_GNU_HASH, DT_RELACOUNT = 0x6FFFFEF5, 0x6FFFFFF9

NT_AMDGPU_METADATA = 32

R_AMDGPU_NONE = 0
R_AMDGPU_ABS32_LO = 1
R_AMDGPU_ABS32_HI = 2
R_AMDGPU_ABS64 = 3
R_AMDGPU_REL32 = 4
R_AMDGPU_REL64 = 5
R_AMDGPU_ABS32 = 6
R_AMDGPU_GOTPCREL = 7
R_AMDGPU_GOTPCREL32_LO = 8
R_AMDGPU_GOTPCREL32_HI = 9
R_AMDGPU_REL32_LO = 10
R_AMDGPU_REL32_HI = 11
R_AMDGPU_RELATIVE64 = 13
R_AMDGPU_REL16 = 14

FILE_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QIIq")
DYNAMIC_ENTRY = struct.Struct("<qQ")
NOTE_HEADER = struct.Struct("<III")


class ElfError(ValueError):
    """A file that is not what is asked for, or objects that do not link; the message says which."""


@dataclass(slots=True)
class Section:
    """A section header and, in memory, its content (empty for NOBITS)."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int
    data: bytes = b""


@dataclass(slots=True)
class Symbol:
    """An entry of a symbol table; `section` is an index or one of the SHN constants."""

    name: str
    value: int
    size: int
    type: int
    binding: int
    visibility: int
    section: int

    @property
    def is_defined(self) -> bool:
        return self.section != SHN_UNDEF


@dataclass(frozen=True, slots=True)
class Relocation:
    """A RELA record: where, how, against which symbol (an index), plus what."""

    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A program header."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int


class ElfFile:
    """A 64-bit little-endian ELF file for AMD GPUs, relocatable or loadable.

    Args:
      data: the file.
      name: what error messages call it.

    Raises:
      ElfError: the data is something else, or damaged.
    """

    def __init__(self, data: bytes, name: str = "object") -> None:
        self.name, self.data = name, bytes(data)
        try:
            self._read_header()
            self.sections = self._read_sections()
            self.segments = self._read_segments()
        except (struct.error, IndexError, UnicodeDecodeError):
            raise ElfError(f"{name}: damaged ELF file") from None

    def _read_header(self) -> None:
        if self.data[:4] != b"\x7fELF":
            raise ElfError(f"{self.name}: not an ELF file")
        fields = FILE_HEADER.unpack_from(self.data)
        _, bits, order, _, self.os_abi, self.abi_version, self.type, machine = fields[:8]
        if (bits, order, machine) != (2, 1, EM_AMDGPU):
            raise ElfError(f"{self.name}: not a 64-bit AMDGPU ELF file")
        self._segments_at, self._sections_at, self.flags = fields[10:13]
        self._segment_count, self._section_count, self._names_index = (
            fields[15],
            fields[17],
            fields[18],
        )

    def _read_sections(self) -> list[Section]:
        headers = [
            SECTION_HEADER.unpack_from(self.data, self._sections_at + i * SECTION_HEADER.size)
            for i in range(self._section_count)
        ]
        if not headers:
            return []
        names = self._content(headers[self._names_index])
        sections = [Section(string_at(names, name), *fields) for name, *fields in headers]
        for section, header in zip(sections, headers):
            section.data = self._content(header)
        return sections

    def _content(self, header: tuple[int, ...]) -> bytes:
        kind, offset, size = header[1], header[4], header[5]
        if kind in (0, SHT_NOBITS):
            return b""
        if offset + size > len(self.data):
            raise IndexError
        return self.data[offset : offset + size]

    def _read_segments(self) -> list[Segment]:
        found = []
        for i in range(self._segment_count):
            at = self._segments_at + i * PROGRAM_HEADER.size
            kind, flags, offset, address, _, *sizes = PROGRAM_HEADER.unpack_from(self.data, at)
            found.append(Segment(kind, flags, offset, address, *sizes))
        return found

    def section(self, name: str) -> Section:
        """The first section of a name."""
        for section in self.sections:
            if section.name == name:
                return section
        raise ElfError(f"{self.name}: no section {name}")

    def symbols(self, table: int = SHT_SYMTAB) -> list[Symbol]:
        """Symbols of `.symtab`, or `.dynsym` for `SHT_DYNSYM`; the first is the null symbol."""
        for section in self.sections:
            if section.type == table:
                names = self.sections[section.link].data
                return [_symbol(fields, names) for fields in SYMBOL.iter_unpack(section.data)]
        return []

    def relocations(self, section: Section) -> list[Relocation]:
        """The records of a RELA section."""
        return [
            Relocation(offset, kind, symbol, addend)
            for offset, kind, symbol, addend in RELOCATION.iter_unpack(section.data)
        ]

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """(owner, type, content) of every note."""
        for section in self.sections:
            if section.type == SHT_NOTE:
                yield from iterate_notes(section.data)

    def read(self, address: int, size: int) -> bytes:
        """Bytes at a virtual address of a loadable file; what no file content backs is zero."""
        for segment in self.segments:
            start = address - segment.address
            if segment.type == PT_LOAD and 0 <= start <= segment.memory_size - size:
                content = self.data[segment.offset : segment.offset + segment.file_size]
                return content[start : start + size].ljust(size, b"\0")
        raise ElfError(f"{self.name}: no segment holds {size} bytes at 0x{address:x}")

    def section_bytes(self, symbol: Symbol) -> bytes:
        """What a defined symbol labels."""
        section = self.sections[symbol.section]
        start = symbol.value - (section.address if self.type == ET_DYN else 0)
        return section.data[start : start + symbol.size]


def _symbol(fields: tuple[int, ...], names: bytes) -> Symbol:
    name, info, other, section, value, size = fields
    return Symbol(string_at(names, name), value, size, info & 15, info >> 4, other & 3, section)


def string_at(table: bytes, offset: int) -> str:
    """The zero-terminated string at an offset of a string table."""
    end = table.find(b"\0", offset)
    if end < 0 and table:
        raise IndexError(offset)
    return table[offset : max(end, 0)].decode()


def iterate_notes(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(owner, type, content) of the notes in a section or segment."""
    at = 0
    while at + NOTE_HEADER.size <= len(data):
        name_size, size, kind = NOTE_HEADER.unpack_from(data, at)
        at += NOTE_HEADER.size
        owner = data[at : at + name_size].rstrip(b"\0").decode()
        at += align(name_size, 4)
        yield owner, kind, data[at : at + size]
        at += align(size, 4)


def align(value: int, alignment: int) -> int:
    """`value` rounded up to a multiple of `alignment`."""
    return round_up(value, max(alignment, 1))


class StringTable:
    """Zero-terminated strings, each stored once."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._offsets = {"": 0}

    def add(self, text: str) -> int:
        """The offset of `text`."""
        if text not in self._offsets:
            self._offsets[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._offsets[text]


def sysv_hash(name: str) -> int:
    """The hash function of DT_HASH."""
    h = 0
    for byte in name.encode():
        h = (h << 4) + byte
        h = (h ^ (h & 0xF0000000) >> 24) & 0x0FFFFFFF
    return h


def gnu_hash(name: str) -> int:
    """The hash function of DT_GNU_HASH."""
    h = 5381
    for byte in name.encode():
        h = (h * 33 + byte) & 0xFFFFFFFF
    return h


def hash_section(names: list[str]) -> bytes:
    """Content of `.hash` for a dynamic symbol table; `names` includes the null symbol's."""
    count = len(names)
    buckets, chains = [0] * count, [0] * count
    for i, name in enumerate(names[1:], 1):
        slot = sysv_hash(name) % count
        chains[i], buckets[slot] = buckets[slot], i
    return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)


_BLOOM_SHIFT = 26


def gnu_hash_buckets(count: int) -> int:
    """Buckets of `.gnu.hash`; the dynamic symbols must be sorted by hash modulo this."""
    return max(count // 4, 1)


def gnu_hash_section(names: list[str]) -> bytes:
    """Content of `.gnu.hash` for sorted names, the null symbol's not among them."""
    hashes = [gnu_hash(name) for name in names]
    buckets_count = gnu_hash_buckets(len(names))
    # Twelve bits a symbol keep false positives rare.
    words_count = 1 << (len(names) * 12 // 64).bit_length()
    words = [0] * words_count
    buckets, chain = [0] * buckets_count, []
    for i, h in enumerate(hashes):
        words[h // 64 % words_count] |= 1 << h % 64 | 1 << (h >> _BLOOM_SHIFT) % 64
        slot = h % buckets_count
        buckets[slot] = buckets[slot] or i + 1
        last = i + 1 == len(hashes) or hashes[i + 1] % buckets_count != slot
        chain.append(h & ~1 | last)
    head = struct.pack("<4I", buckets_count, 1, words_count, _BLOOM_SHIFT)
    body = struct.pack(f"<{words_count}Q", *words)
    return head + body + struct.pack(f"<{buckets_count + len(chain)}I", *buckets, *chain)
