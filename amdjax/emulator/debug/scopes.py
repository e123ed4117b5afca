"""Which inlined functions each instruction belongs to, by `.debug_info` (DWARF 4 and 5)."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from amdjax.core.source_info import short_place
from amdjax.emulator.debug import dwarf
from amdjax.emulator.debug.dwarf import Reader
from amdjax.emulator.debug.lines import file_names

_INLINED, _SUBPROGRAM, _UNIT = 0x1D, 0x2E, 0x11  # DW_TAG_…
# DW_AT_…
(_NAME, _STMT_LIST, _LOW, _HIGH, _ABSTRACT_ORIGIN, _RANGES, _CALL_FILE, _CALL_LINE, _STR_BASE,
 _ADDR_BASE, _RNG_BASE) = (0x03, 0x10, 0x11, 0x12, 0x31, 0x55, 0x58, 0x59, 0x72, 0x73,
                           0x74)  # fmt: skip
# DW_FORM_…
_ADDR, _STRX, _ADDRX, _PRESENT, _CONST, _RNGLISTX = 0x01, 0x1A, 0x1B, 0x19, 0x21, 0x23
_STRX_SIZES, _ADDRX_SIZES = ({first + i: i + 1 for i in range(4)} for first in (0x25, 0x29))
#: Bytes of forms of one size: references, flag, sec_offset, numbers of strings and addresses.
_SIZES = {0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x10: 4, 0x20: 8, 0x0C: 1, 0x17: 4,
          **_STRX_SIZES, **_ADDRX_SIZES}  # fmt: skip
_ULEB = (_STRX, _ADDRX, _RNGLISTX, 0x22, 0x15)  # also loclistx, ref_udata
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4, 0x09: 0, 0x18: 0}  # bytes of their length; 0: a LEB128
_TYPE_UNITS, _SKELETONS = (2, 6), (4, 5)  # DW_UT_…; these have more in their heads

Value = str | int
Range = tuple[int, int]


@dataclass(frozen=True)
class Inlined:
    """A function where a compiler has inlined it.

    Attributes:
        function: its name.
        file, line: of the call; line 0 is none in particular.
        caller: name of the function that calls it.
    """

    function: str
    file: str
    line: int
    caller: str

    @property
    def short(self) -> str:
        """For tables: "exp at train.py:41 (loss)"."""
        if not self.line:
            return self.function
        return f"{self.function} at {short_place(self.file, self.line, self.caller)}"


#: What an instruction belongs to, the innermost function first.
Chain = tuple[Inlined, ...]


def scope_table(sections: Mapping[str, bytes]) -> list[tuple[int, Chain]]:
    """Sorted (address, inlined functions), each for the code up to the next.

    Args:
        sections: contents by name, as far as they are there.
    """
    data, at = sections.get(".debug_info", b""), 0
    found: list[tuple[Range, Chain]] = []
    while at + 4 <= len(data):
        compile_unit = _Unit(sections, at)
        found += _chains(compile_unit.root, "", ())
        at = compile_unit.end
    return _painted(found)


def _painted(chains: list[tuple[Range, Chain]]) -> list[tuple[int, Chain]]:
    """Ranges that may lie in each other as a table; the longest chain of a place counts."""
    starts = sorted({address for span, _ in chains for address in span})
    table: list[Chain] = [()] * len(starts)
    for (low, high), chain in sorted(chains, key=lambda x: len(x[1])):
        for i in range(bisect.bisect_left(starts, low), bisect.bisect_left(starts, high)):
            table[i] = chain
    return list(zip(starts, table))


def _chains(entry: _Entry, function: str, outer: Chain) -> Iterator[tuple[Range, Chain]]:
    """The code of every inlined function below an entry of `function`."""
    for child in entry.children:
        name, chain = function, outer
        if child.tag == _SUBPROGRAM:
            name, chain = child.name, ()
        elif child.tag == _INLINED:
            name = child.name
            chain = (Inlined(name, child.call_file, child.number(_CALL_LINE), function), *outer)
            yield from ((span, chain) for span in child.ranges)
        yield from _chains(child, name, chain)


@dataclass
class _Entry:
    """A debugging information entry: a tag, attributes as (form, value), entries below it."""

    compile_unit: _Unit
    tag: int = 0
    attributes: dict[int, tuple[int, Value]] = field(default_factory=dict)
    children: list[_Entry] = field(default_factory=list)

    def number(self, attribute: int) -> int:
        """A constant or offset; 0 where there is none."""
        return int(self.attributes.get(attribute, (0, 0))[1])

    @property
    def name(self) -> str:
        """Its own, or that of what it is a copy of."""
        form, value = self.attributes.get(_NAME, (0, ""))
        if not value and _ABSTRACT_ORIGIN in self.attributes:
            return self.compile_unit.entries[self.number(_ABSTRACT_ORIGIN)].name
        return self.compile_unit.text(form, value)

    @property
    def call_file(self) -> str:
        names = self.compile_unit.files
        return names[min(self.number(_CALL_FILE), len(names) - 1)]

    @property
    def ranges(self) -> list[Range]:
        """The code it stands for."""
        compile_unit = self.compile_unit
        if _RANGES in self.attributes:
            return compile_unit.ranges(*self.attributes[_RANGES])
        if _LOW not in self.attributes:
            return []
        low, (form, high) = compile_unit.address(*self.attributes[_LOW]), self.attributes[_HIGH]
        return [(low, compile_unit.address(form, high) if form == _ADDR else low + int(high))]


class _Unit:
    """A unit of `.debug_info`."""

    def __init__(self, sections: Mapping[str, bytes], at: int) -> None:
        self.sections, self.start = sections, at
        r = Reader(sections[".debug_info"], at)
        self.end = r.number(4) + r.at
        self.version = r.number(2)
        kind = r.number(1) if self.version >= 5 else 1
        if self.version >= 5:
            self.address_size = r.number(1)
        abbreviations = self._abbreviations(r.number(4))
        if self.version < 5:
            self.address_size = r.number(1)
        r.at += 12 if kind in _TYPE_UNITS else 8 if kind in _SKELETONS else 0
        self.entries: dict[int, _Entry] = {}  # by their places in the unit
        self.root = _Entry(self)
        self._read(r, abbreviations)
        self._head = head = self.root.children[0]
        has_lines = head.tag == _UNIT and _STMT_LIST in head.attributes
        self.files = file_names(sections, head.number(_STMT_LIST)) if has_lines else [""]

    def _abbreviations(self, at: int) -> dict[int, tuple[int, bool, list[tuple[int, int, int]]]]:
        """Tag, whether there are children, and (attribute, form, constant) by code."""
        r, found = Reader(self.sections[".debug_abbrev"], at), {}
        while code := r.uleb():
            tag, has_children = r.uleb(), bool(r.number(1))
            attributes = []
            while True:
                attribute, form = r.uleb(), r.uleb()
                constant = r.sleb() if form == _CONST else 0
                if not form:
                    break
                attributes.append((attribute, form, constant))
            found[code] = tag, has_children, attributes
        return found

    def _read(
        self, r: Reader, abbreviations: dict[int, tuple[int, bool, list[tuple[int, int, int]]]]
    ) -> None:
        outer = [self.root]
        while r.at < self.end:
            place = r.at - self.start
            code = r.uleb()
            if not code:
                outer.pop()
                continue
            tag, has_children, attributes = abbreviations[code]
            values = {a: (form, self._value(r, form, constant)) for a, form, constant in attributes}
            entry = self.entries[place] = _Entry(self, tag, values)
            outer[-1].children.append(entry)
            if has_children:
                outer.append(entry)

    def _value(self, r: Reader, form: int, constant: int) -> Value:
        """A value as it stands; strings and addresses by number are looked up when asked for."""
        if form in (_CONST, _PRESENT):
            return constant
        if form == _ADDR:
            return r.number(self.address_size)
        if form in _ULEB:
            return r.uleb()
        if form in _SIZES:
            return r.number(_SIZES[form])
        if form in _BLOCKS:
            size = r.number(_BLOCKS[form]) if _BLOCKS[form] else r.uleb()
            r.at += size
            return size
        return dwarf.plain_value(r, form, self.sections)

    def text(self, form: int, value: Value) -> str:
        """A string, which may be given by its number."""
        if form != _STRX and form not in _STRX_SIZES:
            return str(value)
        at = self._head.number(_STR_BASE) + 4 * int(value)
        offset = Reader(self.sections[".debug_str_offsets"], at).number(4)
        return Reader(self.sections[".debug_str"], offset).string()

    def address(self, form: int, value: Value) -> int:
        """An address, which may be given by its number."""
        if form == _ADDR:
            return int(value)
        return self._address_at(int(value))

    def _address_at(self, index: int) -> int:
        at = self._head.number(_ADDR_BASE) + self.address_size * index
        return Reader(self.sections[".debug_addr"], at).number(self.address_size)

    def ranges(self, form: int, value: Value) -> list[Range]:
        """A list of ranges, given by its place or its number."""
        head = self._head
        low = self.address(*head.attributes[_LOW]) if _LOW in head.attributes else 0
        if self.version < 5:
            return self._old_ranges(int(value), low)
        at = int(value)
        if form == _RNGLISTX:
            base = head.number(_RNG_BASE)
            at = base + Reader(self.sections[".debug_rnglists"], base + 4 * at).number(4)
        return self._new_ranges(at, low)

    def _old_ranges(self, at: int, base: int) -> list[Range]:
        r, size = Reader(self.sections[".debug_ranges"], at), self.address_size
        out: list[Range] = []
        while True:
            low, high = r.number(size), r.number(size)
            if not low and not high:
                return out
            if low == (1 << 8 * size) - 1:
                base = high
            else:
                out.append((base + low, base + high))

    def _new_ranges(self, at: int, base: int) -> list[Range]:
        r, size = Reader(self.sections[".debug_rnglists"], at), self.address_size
        out: list[Range] = []
        while kind := r.number(1):  # DW_RLE_…
            if kind == 1:  # base_addressx
                base = self._address_at(r.uleb())
            elif kind == 2:  # startx_endx
                out.append((self._address_at(r.uleb()), self._address_at(r.uleb())))
            elif kind == 3:  # startx_length
                low = self._address_at(r.uleb())
                out.append((low, low + r.uleb()))
            elif kind == 4:  # offset_pair
                low = base + r.uleb()
                out.append((low, base + r.uleb()))
            elif kind == 5:  # base_address
                base = r.number(size)
            elif kind == 6:  # start_end
                low = r.number(size)
                out.append((low, r.number(size)))
            else:  # start_length
                low = r.number(size)
                out.append((low, low + r.uleb()))
        return out


def chain_text(chain: Chain) -> str:
    """In words: "`exp` at train.py:41 (loss)"; the outermost function is the kernel itself."""
    if not chain:
        return ""
    calls = (
        f" at {inner.file}:{inner.line} ({outer.function})" for inner, outer in pairwise(chain)
    )
    return f"`{chain[0].function}`" + "".join(calls)
