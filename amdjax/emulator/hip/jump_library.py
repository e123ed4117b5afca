"""A shared library for x86-64 Linux whose functions jump to addresses in a table.

The library is the emulator's `libamdhip64.so`: programs open it and look up `hip*` functions as
they do with AMD's. It is written here byte by byte, since neither a compiler nor a linker may be
needed, and lives in memory only.

Source: "System V Application Binary Interface" with its AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from amdjax.codegen.elf import format as elf
from amdjax.codegen.elf.format import align

TABLE = "amdjax_jump_table"
_EM_X86_64, _DT_SONAME, _PAGE = 62, 14, 0x1000
_STUB = 8  # bytes of `jmp *displacement(%rip)`, padded


def shared_library(soname: str, functions: Sequence[str]) -> bytes:
    """An ELF shared object for x86-64 that exports functions and the table they jump through.

    Args:
      soname: what the dynamic loader knows the library by.
      functions: exported names; the address that function i jumps to is entry i of the exported
        table `amdjax_jump_table`, which is empty at first.
    """
    strings = elf.StringTable()
    names = [*functions, TABLE]
    offsets = [strings.add(name) for name in names]
    soname_at = strings.add(soname)
    hashes = elf.hash_section(["", *names])
    headers = elf.FILE_HEADER.size + 4 * elf.PROGRAM_HEADER.size
    hash_at = align(headers, 8)
    symbols_at = align(hash_at + len(hashes), 8)
    strings_at = symbols_at + (len(names) + 1) * elf.SYMBOL.size
    code_at = align(strings_at + len(strings.data), 16)
    code_end = code_at + _STUB * len(functions)
    # What is written to lies one page further in memory than in the file, hence in its own page.
    dynamic_file_at = align(code_end, 16)
    dynamic_at = dynamic_file_at + _PAGE
    dynamic = _dynamic(hash_at, symbols_at, strings_at, len(strings.data), soname_at)
    table_at = dynamic_at + len(dynamic)

    out = bytearray(dynamic_file_at)
    out += dynamic
    out[hash_at : hash_at + len(hashes)] = hashes
    out[strings_at : strings_at + len(strings.data)] = strings.data
    places = [code_at + _STUB * i for i in range(len(functions))]
    for i, place in enumerate(places):
        out[place : place + _STUB] = _jump(place, table_at + 8 * i)
    table = _symbols(offsets, places, table_at)
    out[symbols_at : symbols_at + len(table)] = table
    data_size = len(dynamic) + 8 * len(functions)
    segments = (
        (elf.PT_LOAD, elf.PF_R | elf.PF_X, 0, 0, code_end, code_end, _PAGE),
        (elf.PT_LOAD, elf.PF_R | elf.PF_W, dynamic_file_at, dynamic_at, len(dynamic), data_size,
         _PAGE),
        (elf.PT_DYNAMIC, elf.PF_R | elf.PF_W, dynamic_file_at, dynamic_at, len(dynamic),
         len(dynamic), 8),
        (elf.PT_GNU_STACK, elf.PF_R | elf.PF_W, 0, 0, 0, 0, 16),
    )  # fmt: skip
    out[:headers] = _headers(segments)
    return bytes(out)


def _headers(segments: Sequence[tuple[int, ...]]) -> bytes:
    head = elf.FILE_HEADER.pack(
        b"\x7fELF", 2, 1, 1, 0, 0, elf.ET_DYN, _EM_X86_64, 1, 0, elf.FILE_HEADER.size, 0, 0,
        elf.FILE_HEADER.size, elf.PROGRAM_HEADER.size, len(segments), 0, 0, 0,
    )  # fmt: skip
    for kind, flags, offset, address, file_size, memory_size, alignment in segments:
        head += elf.PROGRAM_HEADER.pack(
            kind, flags, offset, address, address, file_size, memory_size, alignment
        )
    return head


def _dynamic(hash_at: int, symbols_at: int, strings_at: int, size: int, soname: int) -> bytes:
    entries = (
        (_DT_SONAME, soname),
        (elf.DT_HASH, hash_at),
        (elf.DT_STRTAB, strings_at),
        (elf.DT_SYMTAB, symbols_at),
        (elf.DT_STRSZ, size),
        (elf.DT_SYMENT, elf.SYMBOL.size),
        (elf.DT_NULL, 0),
    )
    return b"".join(elf.DYNAMIC_ENTRY.pack(*entry) for entry in entries)


def _symbols(names: Sequence[int], places: Sequence[int], table_at: int) -> bytes:
    # There are no section headers; any section number but the reserved ones says "defined".
    function, data = (elf.STB_GLOBAL << 4 | kind for kind in (elf.STT_FUNC, elf.STT_OBJECT))
    rows = [elf.SYMBOL.pack(n, function, 0, 1, at, _STUB) for n, at in zip(names, places)]
    rows.append(elf.SYMBOL.pack(names[-1], data, 0, 1, table_at, 8 * len(places)))
    return bytes(elf.SYMBOL.size) + b"".join(rows)


def _jump(place: int, entry: int) -> bytes:
    """`jmp *entry(%rip)`; the displacement counts from the instruction's end."""
    return (b"\xff\x25" + struct.pack("<i", entry - place - 6)).ljust(_STUB, b"\xcc")


class JumpLibrary:
    """A library in this process whose functions are C callbacks.

    Args:
      soname: opening this name finds the library, as long as nothing else of that name is loaded.
      functions: callbacks made with `ctypes.CFUNCTYPE`, by exported name.

    Attributes:
      path: opens the library by file name.

    Raises:
      OSError: the system refuses to load it.
    """

    def __init__(self, soname: str, functions: Mapping[str, Any]) -> None:
        self._callbacks = dict(functions)
        self._file = _anonymous_file(soname, shared_library(soname, list(functions)))
        self.path = f"/proc/self/fd/{self._file}"
        self.handle = ctypes.CDLL(self.path)
        table = (ctypes.c_void_p * len(self._callbacks)).in_dll(self.handle, TABLE)
        for i, callback in enumerate(self._callbacks.values()):
            table[i] = ctypes.cast(callback, ctypes.c_void_p).value


def _anonymous_file(name: str, content: bytes) -> int:
    """A descriptor of a file in memory, or of a deleted one where the system has no such files."""
    try:
        descriptor = os.memfd_create(name)
    except (AttributeError, OSError):
        descriptor, path = tempfile.mkstemp(name)
        os.unlink(path)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor
