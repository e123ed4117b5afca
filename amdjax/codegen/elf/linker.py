"""Links relocatable AMDGPU objects into one loadable code object, as `ld.lld -shared` would.

What comes out is position independent: references within the file are relative, addresses stored
in data get a RELATIVE64 relocation that the loader applies. Nothing outside is referred to, hence
an undefined symbol is an error here and not when the driver loads the file.

Sources: "System V Application Binary Interface", "User Guide for AMDGPU Backend" (LLVM): code
object files, relocation records, SHN_AMDGPU_LDS.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amdjax.codegen.elf import format as elf, msgpack
from amdjax.codegen.elf.format import ElfError, ElfFile, Relocation, Section, Symbol, align
from amdjax.codegen.elf.layout import Image, OutputSection

__all__ = ["ElfError", "link"]


def link(objects: bytes | Sequence[bytes], names: Sequence[str] = ()) -> bytes:
    """Link relocatable objects into a code object that HIP loads.

    Args:
      objects: one ELF object or several, for the same target. Where several define kernels, the
        metadata of all of them goes into one note: the HIP runtime reads only the first.
      names: what error messages call the objects.

    Raises:
      ElfError: something else than an object, different targets, a symbol undefined or defined
        twice, or a relocation that position-independent code cannot have.
    """
    data = [objects] if isinstance(objects, (bytes, bytearray)) else list(objects)
    if not data:
        raise ElfError("nothing to link")
    labels = [*names, *(f"object {i}" for i in range(len(names), len(data)))]
    try:
        return _Linker([ElfFile(d, n) for d, n in zip(data, labels)]).link()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, OverflowError):
        raise ElfError(f"damaged object among {', '.join(labels)}") from None


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


@dataclass(eq=False)
class _Object:
    """An input file and its symbols."""

    file: ElfFile
    symbols: list[Symbol]

    @property
    def name(self) -> str:
        return self.file.name


@dataclass(eq=False)
class _Definition:
    """A symbol and the object that defines it."""

    object: _Object
    symbol: Symbol

    @property
    def is_constant(self) -> bool:
        """The value does not move with the file."""
        return self.symbol.section in (elf.SHN_ABS, elf.SHN_AMDGPU_LDS)


class _Linker:
    def __init__(self, files: list[ElfFile]) -> None:
        for file in files:
            if file.type != elf.ET_REL:
                raise ElfError(f"{file.name}: not a relocatable object")
        self.objects = [_Object(f, f.symbols() or [_null_symbol()]) for f in files]
        self._refuse_what_is_not_written()
        self.flags = _merged_flags(files)
        # Where each input section went: its output section and the offset in it.
        self.places: dict[tuple[_Object, int], tuple[OutputSection, int]] = {}
        self.outputs: dict[str, OutputSection] = {}
        self.globals: dict[str, _Definition] = {}
        self.locals: dict[tuple[_Object, int], _Definition] = {}
        self.got: dict[_Definition, int] = {}
        self.relative: list[tuple[OutputSection, int, int]] = []
        self.lds_size = 0
        self.dynamic_strings = elf.StringTable()

    def link(self) -> bytes:
        self._resolve()
        self._allocate_lds()
        self._gather_sections()
        self._merge_notes()
        relative_count = self._scan()
        dynamic_symbols = self._dynamic_symbols()
        image = self._lay_out(dynamic_symbols, relative_count)
        self._relocate()
        self._patch_descriptors()
        self._fill_got()
        self._fill_dynamic(image, dynamic_symbols)
        debug = [s for s in self.outputs.values() if not s.is_loaded]
        unloaded = debug + self._symbol_table(image)
        return image.write(self.objects[0].file.abi_version, self.flags, unloaded)

    # Symbols

    def _refuse_what_is_not_written(self) -> None:
        """No function of our generator is in several objects, no variable has no value."""
        for o in self.objects:
            if any(section.type == elf.SHT_GROUP for section in o.file.sections):
                raise ElfError(f"{o.name}: groups of sections (COMDAT) are not linked")
            for symbol in o.symbols:
                if symbol.section == elf.SHN_COMMON:
                    raise ElfError(f"{o.name}: the common symbol {symbol.name!r} is not linked")

    def _resolve(self) -> None:
        for o in self.objects:
            for i, symbol in enumerate(o.symbols):
                if symbol.binding == elf.STB_LOCAL:
                    self.locals[o, i] = _Definition(o, symbol)
                elif symbol.is_defined:
                    self._define(_Definition(o, symbol))

    def _define(self, new: _Definition) -> None:
        old = self.globals.setdefault(new.symbol.name, new)
        if old is new:
            return
        a, b = old.symbol, new.symbol
        if a.section == b.section == elf.SHN_AMDGPU_LDS:
            # One variable that several objects declare; `value` is its alignment.
            old.symbol = replace(a, value=max(a.value, b.value), size=max(a.size, b.size))
        elif b.binding == elf.STB_WEAK:
            return
        elif a.binding == elf.STB_WEAK:
            self.globals[b.name] = new
        else:
            raise ElfError(
                f"symbol {b.name!r} is defined by {old.object.name} and by {new.object.name}"
            )

    def _definition(self, o: _Object, index: int, where: str) -> _Definition | None:
        """What a relocation refers to; None for a weak symbol that nobody defines."""
        symbol = o.symbols[index]
        found = self.locals.get((o, index)) or self.globals.get(symbol.name)
        if found is not None and (found.symbol.is_defined or index == 0):
            return found
        if symbol.binding == elf.STB_WEAK:
            return None
        raise ElfError(f"undefined symbol {symbol.name!r}, referred to by {o.name} in {where}")

    def _allocate_lds(self) -> None:
        """Give LDS variables their offsets, behind the LDS that kernels have already.

        Variables of unknown size (the dynamic LDS of a launch) come last and share one offset.
        """
        chosen = [d for d in self.globals.values() if d.symbol.section == elf.SHN_AMDGPU_LDS]
        if not chosen:
            return
        at = max((_lds_of(data) for _, _, _, data in self._descriptors()), default=0)
        for definition in sorted(chosen, key=lambda d: (d.symbol.size == 0, -d.symbol.value)):
            symbol = definition.symbol
            at = align(at, symbol.value)
            definition.symbol = replace(symbol, value=at)
            at += symbol.size
        self.lds_size = at

    def _descriptors(self) -> Iterator[tuple[_Object, str, int, bytes]]:
        """(object, kernel, section index, content) of every kernel descriptor."""
        for d in self.globals.values():
            symbol, o = d.symbol, d.object
            if symbol.name.endswith(".kd") and symbol.section < len(o.file.sections):
                data = o.file.sections[symbol.section].data
                content = data[symbol.value : symbol.value + symbol.size]
                yield o, symbol.name.removesuffix(".kd"), symbol.section, content

    def _address(self, definition: _Definition) -> int:
        symbol = definition.symbol
        if definition.is_constant or not symbol.is_defined:
            return symbol.value
        place = self.places.get((definition.object, symbol.section))
        if place is None:
            raise ElfError(f"{definition.object.name}: {symbol.name!r} is in a dropped section")
        output, offset = place
        return output.address + offset + symbol.value

    # Sections

    def _output(self, name: str, kind: int, flags: int) -> OutputSection:
        return self.outputs.setdefault(name, OutputSection(name, kind, flags))

    def _gather_sections(self) -> None:
        for o in self.objects:
            for i, section in enumerate(o.file.sections):
                used = section.size or _is_named_in(o, i)
                if _is_debug(section) or (section.flags & elf.SHF_ALLOC and used):
                    self._append(o, i, section)

    def _append(self, o: _Object, index: int, section: Section) -> None:
        """Put an input section at the end of the output section it belongs to."""
        # Constants that could be merged with equal ones are kept apart: correct, a little larger.
        flags = section.flags & (elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_EXECINSTR)
        name = _output_name(section.name)
        output = self._output(name, section.type, flags)
        if output.flags != flags:
            raise ElfError(f"{o.name}: section {section.name} differs in flags from {name}")
        if output.type == elf.SHT_NOBITS and section.type != elf.SHT_NOBITS:
            output.type, output.data = section.type, bytearray(output.size)
        at = align(output.memory_size, section.alignment)
        if at + section.size > _MAX_BYTES or section.alignment > _MAX_ALIGNMENT:
            raise ElfError(f"{o.name}: section {section.name} is too large")
        output.alignment = max(output.alignment, section.alignment)
        self.places[o, index] = output, at
        if output.type == elf.SHT_NOBITS:
            output.size = at + section.size
        else:
            output.data += bytes(at - len(output.data)) + section.data.ljust(section.size, b"\0")

    def _merge_notes(self) -> None:
        note = self.outputs.get(".note")
        if note is None or (len(self.objects) == 1 and not self.lds_size):
            return
        metadata: dict | None = None
        others = []
        for o in self.objects:
            for owner, kind, content in o.file.notes():
                if (owner, kind) != ("AMDGPU", elf.NT_AMDGPU_METADATA):
                    others.append(elf.make_note(owner, kind, content))
                    continue
                own = self._own_metadata(o, msgpack.unpack(content))
                metadata = own if metadata is None else _merged_metadata(metadata, own)
        if metadata is not None:
            content = msgpack.pack(metadata)
            others.insert(0, elf.make_note("AMDGPU", elf.NT_AMDGPU_METADATA, content))
        note.data = bytearray(b"".join(dict.fromkeys(others)))

    def _own_metadata(self, o: _Object, metadata: dict) -> dict:
        if self._uses_lds(o):
            for kernel in metadata.get("amdhsa.kernels", ()):
                kernel[".group_segment_fixed_size"] = self.lds_size
        return metadata

    def _uses_lds(self, o: _Object) -> bool:
        return any(s.section == elf.SHN_AMDGPU_LDS for s in o.symbols)

    def _patch_descriptors(self) -> None:
        for o, name, section, _ in self._descriptors():
            if self._uses_lds(o):
                output, offset = self.places[o, section]
                at = offset + self.globals[f"{name}.kd"].symbol.value
                struct.pack_into("<I", output.data, at, self.lds_size)

    # Relocations

    def _relocations(self) -> Iterator[tuple[_Object, int, Relocation, _Form]]:
        """(object, index of the section, record, form) of every relocation that is applied."""
        for o in self.objects:
            for section in o.file.sections:
                if section.type == elf.SHT_REL:
                    raise ElfError(f"{o.name}: {section.name} has relocations without addends")
                if section.type != elf.SHT_RELA or (o, section.info) not in self.places:
                    continue
                for record in o.file.relocations(section):
                    if record.type == elf.R_AMDGPU_NONE:
                        continue
                    form = _FORMS.get(record.type)
                    if form is None:
                        where = _place_name(o, section.info, record)
                        raise ElfError(f"{o.name}: unknown relocation {record.type} in {where}")
                    yield o, section.info, record, form

    def _scan(self) -> int:
        """Find what the GOT must hold; returns the number of RELATIVE64 relocations."""
        count, wanted = 0, set()
        for o, index, record, form in self._relocations():
            where = _place_name(o, index, record)
            definition = self._definition(o, record.symbol, where)
            if form.base == "got":
                if definition is None:
                    definition = self.globals.setdefault(
                        o.symbols[record.symbol].name, _absent(o, record.symbol)
                    )
                wanted.add(definition)
            elif not self.places[o, index][0].is_loaded:
                continue  # written now, not by the loader
            elif form.base == "absolute" and definition and not definition.is_constant:
                _check_can_be_relative(o, index, record, where)
                count += 1
        # In the order of the symbols, so that the file does not depend on code generation.
        for d in (*self.globals.values(), *self.locals.values()):
            if d in wanted:
                self.got[d] = len(self.got)
        return count + sum(not d.is_constant for d in self.got)

    def _relocate(self) -> None:
        got = self.outputs.get(".got")
        for o, index, record, form in self._relocations():
            where = _place_name(o, index, record)
            definition = self._definition(o, record.symbol, where)
            output, offset = self.places[o, index]
            at = offset + record.offset
            value = record.addend
            if form.base == "got":
                assert got is not None and definition is not None
                value += got.address + 8 * self.got[definition] - (output.address + at)
            elif definition is None:
                value = 0
            else:
                value += self._address(definition)
                if form.base == "relative":
                    value -= output.address + at
                elif not definition.is_constant and output.is_loaded:
                    self.relative.append((output, at, value))
                    continue
            try:
                _store(output.data, at, record.type, form, value)
            except (struct.error, OverflowError):
                name = o.symbols[record.symbol].name or "a section"
                raise ElfError(f"{o.name}: {name!r} is out of reach of {where}") from None

    def _fill_got(self) -> None:
        for definition, slot in self.got.items():
            output, value = self.outputs[".got"], self._address(definition)
            if definition.is_constant:
                struct.pack_into("<Q", output.data, 8 * slot, value)
            else:
                self.relative.append((output, 8 * slot, value))

    # The dynamic part

    def _dynamic_symbols(self) -> list[_Definition]:
        """What the loader can find by name, in the order that `.gnu.hash` asks for."""
        seen = (elf.STV_DEFAULT, elf.STV_PROTECTED)
        found = [
            d
            for d in self.globals.values()
            if d.symbol.visibility in seen
            and d.symbol.is_defined
            and d.symbol.section != elf.SHN_AMDGPU_LDS
            and self._is_in_image(d)
        ]
        for d in found:
            self.dynamic_strings.add(d.symbol.name)
        buckets = elf.gnu_hash_buckets(len(found))
        return sorted(found, key=lambda d: elf.gnu_hash(d.symbol.name) % buckets)

    def _lay_out(self, symbols: list[_Definition], relative_count: int) -> Image:
        names = [d.symbol.name for d in symbols]
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
        self,
        name: str,
        kind: int,
        flags: int,
        size: int,
        entry_size: int = 0,
        link: str = "",
        alignment: int = 8,
    ) -> None:
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

    def _fill_dynamic(self, image: Image, symbols: list[_Definition]) -> None:
        records = [bytes(elf.SYMBOL.size)]
        records += [self._symbol_record(image, d, self.dynamic_strings) for d in symbols]
        self.outputs[".dynsym"].data = bytearray(b"".join(records))
        entries = [elf.DYNAMIC_ENTRY.pack(*entry) for entry in self._dynamic_entries()]
        self.outputs[".dynamic"].data = bytearray(b"".join(entries))
        if self.relative:
            places = sorted((o.address + at, value) for o, at, value in self.relative)
            kind = elf.R_AMDGPU_RELATIVE64
            packed = [elf.RELOCATION.pack(at, kind, 0, value) for at, value in places]
            self.outputs[".rela.dyn"].data = bytearray(b"".join(packed))

    def _symbol_record(
        self, image: Image, definition: _Definition, strings: elf.StringTable
    ) -> bytes:
        symbol = definition.symbol
        section = elf.SHN_ABS
        if not definition.is_constant:
            output, _ = self.places[definition.object, symbol.section]
            section = image.section_index(output.name)
        return elf.SYMBOL.pack(
            strings.add(symbol.name),
            symbol.binding << 4 | symbol.type,
            symbol.visibility,
            section,
            self._address(definition),
            symbol.size,
        )

    def _symbol_table(self, image: Image) -> list[OutputSection]:
        """`.symtab` and `.strtab`, for people and debuggers; the loader does not need them."""
        strings = elf.StringTable()
        kept = [
            d
            for d in self.locals.values()
            if d.symbol.name
            and d.symbol.type not in (elf.STT_SECTION, elf.STT_FILE)
            and self._is_in_image(d)
        ]
        records = [bytes(elf.SYMBOL.size)]
        records += [self._symbol_record(image, d, strings) for d in kept]
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
        visible = [d for d in self.globals.values() if d.symbol.is_defined and self._is_in_image(d)]
        records += [self._symbol_record(image, d, strings) for d in visible]
        table = OutputSection(
            ".symtab", elf.SHT_SYMTAB, 0, 8, elf.SYMBOL.size, ".strtab", first_global
        )
        table.data = bytearray(b"".join(records))
        return [table, OutputSection(".strtab", elf.SHT_STRTAB, 0, data=strings.data)]

    def _is_in_image(self, definition: _Definition) -> bool:
        if definition.is_constant:
            return True
        place = self.places.get((definition.object, definition.symbol.section))
        return place is not None and place[0].is_loaded


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


def _is_named_in(o: _Object, section: int) -> bool:
    return any(s.section == section and s.type != elf.STT_SECTION for s in o.symbols)


def _null_symbol() -> Symbol:
    return Symbol("", 0, 0, elf.STT_NOTYPE, elf.STB_LOCAL, elf.STV_DEFAULT, elf.SHN_UNDEF)


def _absent(o: _Object, index: int) -> _Definition:
    """The value zero, for a weak symbol that nobody defines."""
    return _Definition(o, replace(o.symbols[index], section=elf.SHN_ABS, visibility=elf.STV_HIDDEN))


def _place_name(o: _Object, section: int, record: Relocation) -> str:
    return f"{o.file.sections[section].name}+0x{record.offset:x}"


def _check_can_be_relative(o: _Object, index: int, record: Relocation, where: str) -> None:
    """A moving address fits only 64 bits that the loader may write."""
    name = o.symbols[record.symbol].name or "a section"
    if record.type != elf.R_AMDGPU_ABS64:
        raise ElfError(f"{o.name}: {where} needs a fixed address of {name!r}; compile with PIC")
    if not o.file.sections[index].flags & elf.SHF_WRITE:
        raise ElfError(f"{o.name}: {where} stores the address of {name!r} in read-only data")


def _store(data: bytearray, at: int, kind: int, form: _Form, value: int) -> None:
    if kind == elf.R_AMDGPU_REL16:
        # A branch counts words from the next instruction.
        struct.pack_into("<h", data, at, (value - 4) // 4)
        return
    bits = 8 * struct.calcsize(form.format)
    if form.checked and not -(1 << (bits - 1)) <= value < 1 << bits:
        raise OverflowError
    struct.pack_into(form.format, data, at, value >> form.shift & ((1 << bits) - 1))


def _lds_of(descriptor: bytes) -> int:
    return int.from_bytes(descriptor[:4], "little")


def _merged_metadata(first: dict, other: dict) -> dict:
    merged = dict(first)
    for key in ("amdhsa.kernels", "amdhsa.printf"):
        if key in other:
            merged[key] = [*merged.get(key, []), *other[key]]
    return merged


_MACH = 0xFF
_FEATURES = (("xnack", 0x300, 0x100), ("sramecc", 0xC00, 0x400))  # name, mask, "any"
_GENERIC = 0xFF000000


def _merged_flags(files: list[ElfFile]) -> int:
    """e_flags of the result: the same processor, and features that do not contradict."""
    first = files[0]
    flags = first.flags
    for file in files[1:]:
        if (file.flags ^ flags) & (_MACH | _GENERIC) or file.abi_version != first.abi_version:
            raise ElfError(f"{first.name} and {file.name} are for different targets")
        for name, mask, any_setting in _FEATURES:
            old, new = flags & mask, file.flags & mask
            if old == any_setting and new:
                flags = flags & ~mask | new
            elif new != old and new != any_setting:
                raise ElfError(f"{first.name} and {file.name} differ in the setting of {name}")
    return flags
