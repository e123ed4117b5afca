"""Links a relocatable AMDGPU object into a loadable code object, as `ld.lld -shared` would.

What comes out is position independent: references within the file are relative, addresses stored
in data get a RELATIVE64 relocation that the loader applies. Nothing outside is referred to, hence
an undefined symbol is an error here and not when the driver loads the file.

Sources: "System V Application Binary Interface", "User Guide for AMDGPU Backend" (LLVM): code
object files, relocation records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from amdjax.codegen.elf import format as elf
from amdjax.codegen.elf.format import ElfError, ElfFile, Relocation, Section, Symbol, align
from amdjax.codegen.elf.layout import Image, OutputSection

__all__ = ["ElfError", "link"]


def link(data: bytes, name: str = "object") -> bytes:
    """Link a relocatable object into a code object that HIP loads.

    Args:
      data: an ELF object.
      name: what error messages call it.

    Raises:
      ElfError: something else than an object, a symbol undefined, or a relocation that
        position-independent code cannot have.
    """
    try:
        return _Linker(ElfFile(data, name)).link()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, OverflowError):
        raise ElfError(f"{name}: damaged object") from None


# Far above what code objects have; damaged headers do not fill the memory.
_MAX_BYTES = 1 << 28
_MAX_ALIGNMENT = 1 << 20


@dataclass(frozen=True)
class _Form:
    """How a relocation is computed (`absolute`, `relative`, `got`) and stored."""

    base: str
    format: str = "<I"
    shift: int = 0
    checked: bool = False


_FORMS = {
    elf.R_AMDGPU_ABS32: _Form("absolute", checked=True),
    elf.R_AMDGPU_ABS32_LO: _Form("absolute"),
    elf.R_AMDGPU_ABS32_HI: _Form("absolute", shift=32),
    elf.R_AMDGPU_ABS64: _Form("absolute", "<Q"),
    elf.R_AMDGPU_REL32: _Form("relative", checked=True),
    elf.R_AMDGPU_REL32_LO: _Form("relative"),
    elf.R_AMDGPU_REL32_HI: _Form("relative", shift=32),
    elf.R_AMDGPU_REL64: _Form("relative", "<Q"),
    elf.R_AMDGPU_REL16: _Form("relative", "<H", checked=True),
    elf.R_AMDGPU_GOTPCREL: _Form("got", checked=True),
    elf.R_AMDGPU_GOTPCREL32_LO: _Form("got"),
    elf.R_AMDGPU_GOTPCREL32_HI: _Form("got", shift=32),
}


class _Linker:
    def __init__(self, file: ElfFile) -> None:
        if file.type != elf.ET_REL:
            raise ElfError(f"{file.name}: not a relocatable object")
        self.file, self.name = file, file.name
        self.symbols = file.symbols() or [_null_symbol()]
        self._refuse_what_is_not_written()
        self.locals = [s for s in self.symbols if s.binding == elf.STB_LOCAL]
        self.globals = [s for s in self.symbols if s.binding != elf.STB_LOCAL and s.is_defined]
        # Where each input section went: its output section and the offset in it.
        self.places: dict[int, tuple[OutputSection, int]] = {}
        self.outputs: dict[str, OutputSection] = {}
        # The slots of symbols, by their indices.
        self.got: dict[int, int] = {}
        self.relative: list[tuple[OutputSection, int, int]] = []
        self.dynamic_strings = elf.StringTable()

    def link(self) -> bytes:
        self._gather_sections()
        relative_count = self._scan()
        dynamic_symbols = self._dynamic_symbols()
        image = self._lay_out(dynamic_symbols, relative_count)
        self._relocate()
        self._fill_got()
        self._fill_dynamic(image, dynamic_symbols)
        debug = [s for s in self.outputs.values() if not s.is_loaded]
        unloaded = debug + self._symbol_table(image)
        return image.write(self.file.abi_version, self.file.flags, unloaded)

    # Symbols

    def _refuse_what_is_not_written(self) -> None:
        """Our generator's objects stand alone: no function or variable is shared with others."""
        if any(section.type == elf.SHT_GROUP for section in self.file.sections):
            raise ElfError(f"{self.name}: groups of sections (COMDAT) are not linked")
        for symbol in self.symbols:
            for section, kind in ((elf.SHN_COMMON, "common"), (elf.SHN_AMDGPU_LDS, "LDS")):
                if symbol.section == section:
                    raise ElfError(f"{self.name}: the {kind} symbol {symbol.name!r} is not linked")

    def _symbol(self, index: int, where: str) -> Symbol:
        """What a relocation refers to."""
        symbol = self.symbols[index]
        if symbol.is_defined or index == 0:
            return symbol
        raise ElfError(f"undefined symbol {symbol.name!r}, referred to by {self.name} in {where}")

    def _address(self, symbol: Symbol) -> int:
        if _is_constant(symbol) or not symbol.is_defined:
            return symbol.value
        place = self.places.get(symbol.section)
        if place is None:
            raise ElfError(f"{self.name}: {symbol.name!r} is in a dropped section")
        output, offset = place
        return output.address + offset + symbol.value

    # Sections

    def _gather_sections(self) -> None:
        for i, section in enumerate(self.file.sections):
            used = section.size or self._is_named_in(i)
            if _is_debug(section) or (section.flags & elf.SHF_ALLOC and used):
                self._append(i, section)

    def _is_named_in(self, section: int) -> bool:
        return any(s.section == section and s.type != elf.STT_SECTION for s in self.symbols)

    def _append(self, index: int, section: Section) -> None:
        """Put an input section at the end of the output section it belongs to."""
        # Constants that could be merged with equal ones are kept apart: correct, a little larger.
        flags = section.flags & (elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_EXECINSTR)
        name = _output_name(section.name)
        output = self.outputs.setdefault(name, OutputSection(name, section.type, flags))
        if output.flags != flags:
            raise ElfError(f"{self.name}: section {section.name} differs in flags from {name}")
        if output.type == elf.SHT_NOBITS and section.type != elf.SHT_NOBITS:
            output.type, output.data = section.type, bytearray(output.size)
        at = align(output.memory_size, section.alignment)
        if at + section.size > _MAX_BYTES or section.alignment > _MAX_ALIGNMENT:
            raise ElfError(f"{self.name}: section {section.name} is too large")
        output.alignment = max(output.alignment, section.alignment)
        self.places[index] = output, at
        if output.type == elf.SHT_NOBITS:
            output.size = at + section.size
        else:
            output.data += bytes(at - len(output.data)) + section.data.ljust(section.size, b"\0")

    # Relocations

    def _relocations(self) -> Iterator[tuple[int, Relocation, _Form]]:
        """(index of the section, record, form) of every relocation that is applied."""
        for section in self.file.sections:
            if section.type == elf.SHT_REL:
                raise ElfError(f"{self.name}: {section.name} has relocations without addends")
            if section.type != elf.SHT_RELA or section.info not in self.places:
                continue
            for record in self.file.relocations(section):
                if record.type == elf.R_AMDGPU_NONE:
                    continue
                form = _FORMS.get(record.type)
                if form is None:
                    where = self._place_name(section.info, record)
                    raise ElfError(f"{self.name}: unknown relocation {record.type} in {where}")
                yield section.info, record, form

    def _place_name(self, section: int, record: Relocation) -> str:
        return f"{self.file.sections[section].name}+0x{record.offset:x}"

    def _scan(self) -> int:
        """Find what the GOT must hold; returns the number of RELATIVE64 relocations."""
        count, wanted = 0, set()
        for index, record, form in self._relocations():
            where = self._place_name(index, record)
            symbol = self._symbol(record.symbol, where)
            if form.base == "got":
                wanted.add(record.symbol)
            elif not self.places[index][0].is_loaded:
                continue  # written now, not by the loader
            elif form.base == "absolute" and not _is_constant(symbol):
                self._check_can_be_relative(index, record, where)
                count += 1
        # In the order of the symbols, so that the file does not depend on code generation.
        order = sorted(wanted, key=lambda i: (self.symbols[i].binding == elf.STB_LOCAL, i))
        self.got = {symbol: slot for slot, symbol in enumerate(order)}
        return count + sum(not _is_constant(self.symbols[i]) for i in order)

    def _check_can_be_relative(self, index: int, record: Relocation, where: str) -> None:
        """A moving address fits only 64 bits that the loader may write."""
        name = self.symbols[record.symbol].name or "a section"
        if record.type != elf.R_AMDGPU_ABS64:
            raise ElfError(
                f"{self.name}: {where} needs a fixed address of {name!r}; compile with PIC"
            )
        if not self.file.sections[index].flags & elf.SHF_WRITE:
            raise ElfError(f"{self.name}: {where} stores the address of {name!r} in read-only data")

    def _relocate(self) -> None:
        got = self.outputs.get(".got")
        for index, record, form in self._relocations():
            where = self._place_name(index, record)
            symbol = self._symbol(record.symbol, where)
            output, offset = self.places[index]
            at = offset + record.offset
            value = record.addend
            if form.base == "got":
                assert got is not None
                value += got.address + 8 * self.got[record.symbol] - (output.address + at)
            else:
                value += self._address(symbol)
                if form.base == "relative":
                    value -= output.address + at
                elif not _is_constant(symbol) and output.is_loaded:
                    self.relative.append((output, at, value))
                    continue
            try:
                _store(output.data, at, record.type, form, value)
            except (struct.error, OverflowError):
                name = symbol.name or "a section"
                raise ElfError(f"{self.name}: {name!r} is out of reach of {where}") from None

    def _fill_got(self) -> None:
        for index, slot in self.got.items():
            symbol = self.symbols[index]
            output, value = self.outputs[".got"], self._address(symbol)
            if _is_constant(symbol):
                struct.pack_into("<Q", output.data, 8 * slot, value)
            else:
                self.relative.append((output, 8 * slot, value))

    # The dynamic part

    def _dynamic_symbols(self) -> list[Symbol]:
        """What the loader can find by name, in the order that `.gnu.hash` asks for."""
        seen = (elf.STV_DEFAULT, elf.STV_PROTECTED)
        found = [s for s in self.globals if s.visibility in seen and self._is_in_image(s)]
        for symbol in found:
            self.dynamic_strings.add(symbol.name)
        buckets = elf.gnu_hash_buckets(len(found))
        return sorted(found, key=lambda s: elf.gnu_hash(s.name) % buckets)

    def _lay_out(self, symbols: list[Symbol], relative_count: int) -> Image:
        names = [s.name for s in symbols]
        alloc, write = elf.SHF_ALLOC, elf.SHF_ALLOC | elf.SHF_WRITE
        size = elf.SYMBOL.size
        self._synthetic(".dynsym", elf.SHT_DYNSYM, alloc, (len(names) + 1) * size, size, ".dynstr")
        self.outputs[".dynsym"].info = 1  # the null symbol is the only local one
        self._synthetic(".gnu.hash", elf.SHT_GNU_HASH, alloc, 0, 0, ".dynsym")
        self.outputs[".gnu.hash"].data = bytearray(elf.gnu_hash_section(names))
        self._synthetic(".hash", elf.SHT_HASH, alloc, 0, 4, ".dynsym", alignment=4)
        self.outputs[".hash"].data = bytearray(elf.hash_section(["", *names]))
        self._synthetic(".dynstr", elf.SHT_STRTAB, alloc, 0, alignment=1)
        self.outputs[".dynstr"].data = self.dynamic_strings.data
        if relative_count:
            size = elf.RELOCATION.size
            self._synthetic(
                ".rela.dyn", elf.SHT_RELA, alloc, relative_count * size, size, ".dynsym"
            )
        entries = len(self._dynamic_entries()) * elf.DYNAMIC_ENTRY.size
        self._synthetic(".dynamic", elf.SHT_DYNAMIC, write, entries, 16, ".dynstr")
        if self.got:
            self._synthetic(".got", elf.SHT_PROGBITS, write, 8 * len(self.got))
        self.outputs[".relro_padding"] = OutputSection(".relro_padding", elf.SHT_NOBITS, write)
        return Image(sorted((s for s in self.outputs.values() if s.is_loaded), key=_order))

    def _synthetic(
        self, name: str, kind: int, flags: int, size: int, entry_size: int = 0, link: str = "",
        alignment: int = 8,
    ) -> None:  # fmt: skip
        data = bytearray(size)
        self.outputs[name] = OutputSection(
            name, kind, flags, alignment, entry_size, link, data=data
        )

    def _dynamic_entries(self) -> list[tuple[int, int]]:
        """Tags and values of `.dynamic`; the values are right once addresses are."""
        at = {name: output.address for name, output in self.outputs.items()}
        # Names bind within the file, which is why relocations are relative rather than symbolic.
        entries = [(elf.DT_FLAGS, elf.DF_SYMBOLIC)]
        relocations = self.outputs.get(".rela.dyn")
        if relocations is not None:
            size, each = len(relocations.data), elf.RELOCATION.size
            entries += [
                (elf.DT_RELA, at[".rela.dyn"]),
                (elf.DT_RELASZ, size),
                (elf.DT_RELAENT, each),
                (elf.DT_RELACOUNT, size // each),
            ]
        return entries + [
            (elf.DT_SYMTAB, at[".dynsym"]),
            (elf.DT_SYMENT, elf.SYMBOL.size),
            (elf.DT_STRTAB, at[".dynstr"]),
            (elf.DT_STRSZ, len(self.outputs[".dynstr"].data)),
            (elf.DT_GNU_HASH, at[".gnu.hash"]),
            (elf.DT_HASH, at[".hash"]),
            (elf.DT_NULL, 0),
        ]

    def _fill_dynamic(self, image: Image, symbols: list[Symbol]) -> None:
        records = [bytes(elf.SYMBOL.size)]
        records += [self._symbol_record(image, s, self.dynamic_strings) for s in symbols]
        self.outputs[".dynsym"].data = bytearray(b"".join(records))
        entries = [elf.DYNAMIC_ENTRY.pack(*entry) for entry in self._dynamic_entries()]
        self.outputs[".dynamic"].data = bytearray(b"".join(entries))
        if self.relative:
            places = sorted((o.address + at, value) for o, at, value in self.relative)
            kind = elf.R_AMDGPU_RELATIVE64
            packed = [elf.RELOCATION.pack(at, kind, 0, value) for at, value in places]
            self.outputs[".rela.dyn"].data = bytearray(b"".join(packed))

    def _symbol_record(self, image: Image, symbol: Symbol, strings: elf.StringTable) -> bytes:
        section = elf.SHN_ABS
        if not _is_constant(symbol):
            output, _ = self.places[symbol.section]
            section = image.section_index(output.name)
        return elf.SYMBOL.pack(
            strings.add(symbol.name),
            symbol.binding << 4 | symbol.type,
            symbol.visibility,
            section,
            self._address(symbol),
            symbol.size,
        )

    def _symbol_table(self, image: Image) -> list[OutputSection]:
        """`.symtab` and `.strtab`, for people and debuggers; the loader does not need them."""
        strings = elf.StringTable()
        unseen = (elf.STT_SECTION, elf.STT_FILE)
        kept = [s for s in self.locals if s.name and s.type not in unseen and self._is_in_image(s)]
        records = [bytes(elf.SYMBOL.size)]
        records += [self._symbol_record(image, s, strings) for s in kept]
        dynamic = elf.SYMBOL.pack(
            strings.add("_DYNAMIC"),
            elf.STT_NOTYPE,
            elf.STV_HIDDEN,
            image.section_index(".dynamic"),
            self.outputs[".dynamic"].address,
            0,
        )
        records.append(dynamic)
        first_global = len(records)
        visible = [s for s in self.globals if self._is_in_image(s)]
        records += [self._symbol_record(image, s, strings) for s in visible]
        table = OutputSection(
            ".symtab", elf.SHT_SYMTAB, 0, 8, elf.SYMBOL.size, ".strtab", first_global
        )
        table.data = bytearray(b"".join(records))
        return [table, OutputSection(".strtab", elf.SHT_STRTAB, 0, data=strings.data)]

    def _is_in_image(self, symbol: Symbol) -> bool:
        if _is_constant(symbol):
            return True
        place = self.places.get(symbol.section)
        return place is not None and place[0].is_loaded


def _is_constant(symbol: Symbol) -> bool:
    """The value does not move with the file."""
    return symbol.section == elf.SHN_ABS


_SYNTHETIC_ORDER = (".dynsym", ".gnu.hash", ".hash", ".dynstr", ".rela.dyn")


def _order(output: OutputSection) -> tuple[tuple[int, bool], int]:
    """Sections of the loader go together, before other read-only data."""
    if output.name in _SYNTHETIC_ORDER:
        return (1, False), _SYNTHETIC_ORDER.index(output.name)
    return output.rank, 0


def _output_name(name: str) -> str:
    """Sections of single functions and variables join the common ones."""
    for prefix in (".text", ".data.rel.ro", ".bss.rel.ro", ".rodata", ".data", ".bss", ".note"):
        if name == prefix or name.startswith(prefix + "."):
            return prefix
    return name


def _is_debug(section: Section) -> bool:
    """What debuggers read; compressed sections would have to be unpacked to be relocated."""
    kept = section.type == elf.SHT_PROGBITS and not section.flags & elf.SHF_COMPRESSED
    return kept and section.name.startswith(".debug_")


def _null_symbol() -> Symbol:
    return Symbol("", 0, 0, elf.STT_NOTYPE, elf.STB_LOCAL, elf.STV_DEFAULT, elf.SHN_UNDEF)


def _store(data: bytearray, at: int, kind: int, form: _Form, value: int) -> None:
    if kind == elf.R_AMDGPU_REL16:
        # A branch counts words from the next instruction.
        struct.pack_into("<h", data, at, (value - 4) // 4)
        return
    bits = 8 * struct.calcsize(form.format)
    if form.checked and not -(1 << (bits - 1)) <= value < 1 << bits:
        raise OverflowError
    struct.pack_into(form.format, data, at, value >> form.shift & ((1 << bits) - 1))
