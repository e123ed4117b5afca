"""Where the sections of a loadable code object lie, in memory and in the file, and the file itself.

The order and the addresses are those of `ld.lld -shared`: headers and read-only data, code, data
that is read-only once relocated, data. Each group starts on a page of its own in memory but follows
the last one directly in the file, so that both offsets agree modulo the page size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from amdjax.codegen.elf import format as elf
from amdjax.codegen.elf.format import Segment, align

PAGE = 0x1000

_READ_ONLY_AFTER_RELOCATION = (".data.rel.ro", ".bss.rel.ro", ".dynamic", ".got", ".relro_padding")


@dataclass(eq=False)
class OutputSection:
    """A section of the file being made.

    `size` counts for NOBITS, where `data` is empty; `link` names the section of sh_link.
    """

    name: str
    type: int
    flags: int
    alignment: int = 1
    entry_size: int = 0
    link: str = ""
    info: int = 0
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    address: int = 0
    offset: int = 0

    @property
    def memory_size(self) -> int:
        return self.size if self.type == elf.SHT_NOBITS else len(self.data)

    @property
    def is_loaded(self) -> bool:
        return bool(self.flags & elf.SHF_ALLOC)

    @property
    def is_relro(self) -> bool:
        return self.name in _READ_ONLY_AFTER_RELOCATION

    @property
    def segment_flags(self) -> int:
        write = elf.PF_W if self.flags & elf.SHF_WRITE else 0
        execute = elf.PF_X if self.flags & elf.SHF_EXECINSTR else 0
        return elf.PF_R | write | execute

    @property
    def rank(self) -> tuple[int, bool]:
        """Sections are sorted by this; NOBITS come last so that they need no file content."""
        if self.flags & elf.SHF_WRITE:
            group = 4 if self.is_relro else 5
        elif self.flags & elf.SHF_EXECINSTR:
            group = 3
        else:
            group = 0 if self.type == elf.SHT_NOTE else 1 if self.link else 2
        return group, self.type == elf.SHT_NOBITS


class Image:
    """Sections laid out for loading.

    Args:
      sections: those that are loaded, in order of `rank`; their addresses and offsets get set, and
        the size of `.relro_padding`.
    """

    def __init__(self, sections: Sequence[OutputSection]) -> None:
        self.sections = list(sections)
        groups = self._groups()
        has_notes = any(s.type == elf.SHT_NOTE for s in self.sections)
        count = len(groups) + 4 + has_notes  # PHDR, DYNAMIC, RELRO, STACK, NOTE
        self.headers_size = elf.FILE_HEADER.size + count * elf.PROGRAM_HEADER.size
        self._place(groups)
        self.segments = self._segments(groups)

    def _groups(self) -> list[list[OutputSection]]:
        """Sections of each PT_LOAD."""
        keyed = groupby(self.sections, lambda s: (s.segment_flags, s.is_relro))
        return [list(group) for _, group in keyed]

    def _place(self, groups: list[list[OutputSection]]) -> None:
        address = offset = self.headers_size
        for i, group in enumerate(groups):
            alignment = max(PAGE, *(s.alignment for s in group))
            if i:
                address = align(address, PAGE) + offset % PAGE
            for j, section in enumerate(group):
                address = align(address, section.alignment)
                if section.type != elf.SHT_NOBITS or j == 0:
                    offset += (address - offset) % alignment
                section.address, section.offset = address, offset
                if section.name == ".relro_padding":
                    section.size = align(address, PAGE) - address
                address += section.memory_size
                offset += len(section.data)
        self.end = offset

    def _segments(self, groups: list[list[OutputSection]]) -> list[Segment]:
        def covering(kind: int, flags: int, chosen: list[OutputSection], alignment: int) -> Segment:
            first, last = chosen[0], chosen[-1]
            content = [s for s in chosen if s.type != elf.SHT_NOBITS]
            file_end = content[-1].offset + len(content[-1].data) if content else first.offset
            memory_size = last.address + last.memory_size - first.address
            return Segment(
                kind,
                flags,
                first.offset,
                first.address,
                file_end - first.offset,
                memory_size,
                alignment,
            )

        at = elf.FILE_HEADER.size
        size = self.headers_size - at
        found = [Segment(elf.PT_PHDR, elf.PF_R, at, at, size, size, 8)]
        for group in groups:
            alignment = max(PAGE, *(s.alignment for s in group))
            found.append(covering(elf.PT_LOAD, group[0].segment_flags, group, alignment))
        # The first one also holds the headers.
        head = found[1]
        end = head.offset + head.file_size
        found[1] = Segment(elf.PT_LOAD, elf.PF_R, 0, 0, end, end, head.alignment)
        dynamic = [s for s in self.sections if s.type == elf.SHT_DYNAMIC]
        found.append(covering(elf.PT_DYNAMIC, elf.PF_R | elf.PF_W, dynamic, 8))
        relro = [s for s in self.sections if s.is_relro]
        found.append(covering(elf.PT_GNU_RELRO, elf.PF_R, relro, 1))
        found.append(Segment(elf.PT_GNU_STACK, elf.PF_R | elf.PF_W, 0, 0, 0, 0, 0))
        notes = [s for s in self.sections if s.type == elf.SHT_NOTE]
        if notes:
            found.append(covering(elf.PT_NOTE, elf.PF_R, notes, notes[0].alignment))
        return found

    def section_index(self, name: str) -> int:
        """The index in the file's section table."""
        return 1 + next(i for i, s in enumerate(self.sections) if s.name == name)

    def write(self, abi_version: int, flags: int, unloaded: Sequence[OutputSection]) -> bytes:
        """The file; `unloaded` sections such as `.symtab` follow those of the image."""
        sections = [*self.sections, *unloaded]
        names = elf.StringTable()
        name_table = OutputSection(".shstrtab", elf.SHT_STRTAB, 0)
        sections.append(name_table)
        offsets = [names.add(s.name) for s in sections]
        name_table.data = names.data
        self._place_unloaded(sections[len(self.sections) :])
        table_at = align(sections[-1].offset + len(sections[-1].data), 8)
        out = bytearray(table_at)
        out[: self.headers_size] = self._headers(abi_version, flags, table_at, len(sections))
        for section in sections:
            out[section.offset : section.offset + len(section.data)] = section.data
        out += bytes(elf.SECTION_HEADER.size)
        for record in _section_headers(sections, offsets):
            out += record
        return bytes(out)

    def _place_unloaded(self, sections: list[OutputSection]) -> None:
        offset = self.end
        for section in sections:
            section.offset = offset = align(offset, section.alignment)
            offset += len(section.data)

    def _headers(self, abi_version: int, flags: int, table_at: int, count: int) -> bytes:
        head = elf.FILE_HEADER.pack(
            b"\x7fELF",
            2,  # 64 bits
            1,  # little-endian
            1,
            elf.OSABI_AMDGPU_HSA,
            abi_version,
            elf.ET_DYN,
            elf.EM_AMDGPU,
            1,
            0,
            elf.FILE_HEADER.size,
            table_at,
            flags,
            elf.FILE_HEADER.size,
            elf.PROGRAM_HEADER.size,
            len(self.segments),
            elf.SECTION_HEADER.size,
            count + 1,
            count,
        )
        return head + b"".join(
            elf.PROGRAM_HEADER.pack(
                s.type,
                s.flags,
                s.offset,
                s.address,
                s.address,
                s.file_size,
                s.memory_size,
                s.alignment,
            )
            for s in self.segments
        )


def _section_headers(sections: list[OutputSection], names: list[int]) -> Iterator[bytes]:
    indices = {s.name: i for i, s in enumerate(sections, 1)}
    for section, name in zip(sections, names, strict=True):
        yield elf.SECTION_HEADER.pack(
            name,
            section.type,
            section.flags,
            section.address,
            section.offset,
            section.memory_size,
            indices[section.link] if section.link else 0,
            section.info,
            section.alignment,
            section.entry_size,
        )
