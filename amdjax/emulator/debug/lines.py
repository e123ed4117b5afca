"""Which line of source each instruction was made from, by the `.debug_line` section (DWARF 2 to 5).

A line table may hold its source too, as those of our generator do; then the line itself is shown.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from amdjax.emulator.debug.dwarf import Reader, plain_value

_PATH, _DIRECTORY, _SOURCE = 1, 2, 0x2001  # DW_LNCT_path, directory_index, LLVM_source
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True)
class _File:
    name: str
    lines: Sequence[str] = ()

    def place(self, line: int) -> str:
        """The name of a line, and what is there; nothing belongs to line 0."""
        if not line:
            return ""
        text = f": {self.lines[line - 1].strip()}" if line <= len(self.lines) else ""
        return f"{self.name}:{line}{text}"


@dataclass
class _Unit:
    """The head of a line program."""

    end: int
    min_length: int
    line_base: int
    line_range: int
    opcode_lengths: tuple[int, ...]
    files: list[_File] = field(default_factory=list)


def line_table(sections: Mapping[str, bytes]) -> list[tuple[int, str]]:
    """Sorted (address, "file:line" or "file:line: text"), each for the code up to the next.

    The text is empty where code ends, or was made from nothing in particular.

    Args:
        sections: contents by name, as far as they are there.
    """
    data = sections.get(".debug_line", b"")
    reader, rows = Reader(data), []
    while reader.at + 4 <= len(data):
        unit = _head(reader, sections)
        rows += list(_rows(reader, unit))
        reader.at = unit.end
    return sorted(rows, key=lambda row: row[0])


def file_names(sections: Mapping[str, bytes], at: int) -> list[str]:
    """The files of a line table by their numbers, with their folders.

    Args:
        sections: contents by name.
        at: where the table begins.
    """
    return [file.name for file in _head(Reader(sections[".debug_line"], at), sections).files]


def _head(r: Reader, sections: Mapping[str, bytes]) -> _Unit:
    end = r.number(4)
    end += r.at
    version = r.number(2)
    if version >= 5:
        r.number(2)  # sizes of addresses and segment selectors
    program = r.number(4)
    program += r.at
    min_length = r.number(1)
    if version >= 4:
        r.number(1)  # operations of a long instruction word
    r.number(1)
    (line_base,) = struct.unpack("b", bytes([r.number(1)]))
    line_range, opcodes = r.number(1), r.number(1)
    lengths = tuple(r.number(1) for _ in range(opcodes - 1))
    unit = _Unit(end, min_length, line_base, line_range, lengths)
    unit.files = _new_files(r, sections) if version >= 5 else _old_files(r)
    r.at = program
    return unit


def _old_files(r: Reader) -> list[_File]:
    """Names of files, which count from 1."""
    folders = [""]
    while folder := r.string():
        folders.append(folder)
    files = [_File("")]
    while name := r.string():
        files.append(_File(posixpath.join(folders[r.uleb()], name)))
        r.uleb(), r.uleb()  # when it was changed, how long it is
    return files


def _new_files(r: Reader, sections: Mapping[str, bytes]) -> list[_File]:
    """Names of files; of those in the folder of the compilation, number 0, without the folder."""
    folders = ["", *(str(entry[_PATH]) for entry in _entries(r, sections)[1:])]
    return [
        _File(
            posixpath.join(folders[int(entry.get(_DIRECTORY, 0))], str(entry[_PATH])),
            str(entry.get(_SOURCE, "")).splitlines(),
        )
        for entry in _entries(r, sections)
    ]


def _entries(r: Reader, sections: Mapping[str, bytes]) -> list[dict[int, str | int]]:
    formats = [(r.uleb(), r.uleb()) for _ in range(r.number(1))]
    return [
        {kind: plain_value(r, form, sections) for kind, form in formats} for _ in range(r.uleb())
    ]


def _rows(r: Reader, unit: _Unit) -> Iterator[tuple[int, str]]:
    """Run a line program."""
    address, line, file = 0, 1, 1
    base = len(unit.opcode_lengths) + 1
    place = lambda: (address, unit.files[min(file, len(unit.files) - 1)].place(line))
    while r.at < unit.end:
        op = r.number(1)
        if op >= base:
            address += (op - base) // unit.line_range * unit.min_length
            line += unit.line_base + (op - base) % unit.line_range
            yield place()
        elif op == 0:
            following = r.uleb()
            following += r.at
            extended = r.number(1)
            if extended == _SET_ADDRESS:
                address = r.number(following - r.at)
            elif extended == _END_SEQUENCE:
                yield address, ""
                address, line, file = 0, 1, 1
            r.at = following
        elif op == _COPY:
            yield place()
        elif op == _ADVANCE_PC:
            address += r.uleb() * unit.min_length
        elif op == _ADVANCE_LINE:
            line += r.sleb()
        elif op == _SET_FILE:
            file = r.uleb()
        elif op == _CONST_ADD_PC:
            address += (255 - base) // unit.line_range * unit.min_length
        elif op == _FIXED_ADVANCE:
            address += r.number(2)
        else:
            for _ in range(unit.opcode_lengths[op - 1]):
                r.uleb()
