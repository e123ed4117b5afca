"""Where instructions come from: debug locations of LLVM, in lines of a text such as a tile program.

The text itself goes into the line table (DWARF's extension for embedded source), so that a code
object alone says what each instruction was made from, to our emulator as to any debugger. The
operation that a line was made from is an inlined function, called on the user's line: debuggers
show `exp`, called at train.py:41 in `loss`, as they show calls that a compiler has inlined.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import CodeType

from amdjax.codegen.llvm import Function
from amdjax.core.source_info import Origin

#: Embedded source needs DWARF 5.
MODULE_FLAGS = ('!{i32 2, !"Debug Info Version", i32 3}', '!{i32 7, !"Dwarf Version", i32 5}')


class SourceLines:
    """Says of the instructions of a function from which line of a text they were made.

    Args:
      f: the function, still without instructions; its module gets the text.
      file: what the text is called in line tables.
      text: what lines are counted in.
    """

    def __init__(self, f: Function, file: str, text: str) -> None:
        self._f, self._module = f, f.module
        self._suffixes: dict[int, str] = {}
        self._nodes: dict[object, str] = {}
        add = self._module.add_metadata
        self._file = add(f'!DIFile(filename: "{file}", directory: "", source: "{_escaped(text)}")')
        # Line tables only: there are no types or variables to describe.
        self._compile_unit = add(
            f"distinct !DICompileUnit(language: DW_LANG_C, file: {self._file}, "
            "emissionKind: LineTablesOnly, nameTableKind: None)"
        )
        self._kind = add("!DISubroutineType(types: !{})")
        self._scope = self._function(f.name, self._file, 1)
        f.attributes += f" !dbg {self._scope}"
        self._module.footer.append(f"!llvm.dbg.cu = !{{{self._compile_unit}}}")

    def at(self, line: int, origin: Origin | None = None) -> None:
        """What is written from here on comes from a line.

        Args:
          line: counted from 1.
          origin: what the line was made from.
        """
        found = self._suffixes.get(line)
        if found is None:
            place = f"line: {line}, {self._inside(origin)}"
            node = self._module.add_metadata(f"!DILocation({place})")
            found = self._suffixes[line] = f", !dbg {node}"
        self._f.suffix = found

    def _inside(self, origin: Origin | None) -> str:
        """The function that a line belongs to, and where that was inlined."""
        if origin is None:
            return f"scope: {self._scope}"
        name, (code, line, _) = origin
        site = self._whole if code is None else self._site(code, line)
        operation = self._node(name, lambda: self._function(name, self._file, 1))
        return f"scope: {operation}, inlinedAt: {site}"

    @property
    def _whole(self) -> str:
        """Where the function itself calls what is inlined into it: on no line in particular."""
        return self._node("", lambda: self._call(0, f"scope: {self._scope}"))

    def _site(self, code: CodeType, line: int) -> str:
        """A line of the user, in a function that the kernel has inlined."""

        def function() -> str:
            folder, name = os.path.split(code.co_filename)
            text = f'!DIFile(filename: "{_escaped(name)}", directory: "{_escaped(folder)}")'
            file = self._module.add_metadata(text)
            return self._function(code.co_name, file, code.co_firstlineno)

        key = code.co_filename, code.co_firstlineno, code.co_name
        inside = f"scope: {self._node(key, function)}, inlinedAt: {self._whole}"
        return self._node((*key, line), lambda: self._call(line, inside))

    def _node(self, key: object, make: Callable[[], str]) -> str:
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = make()
        return found

    def _function(self, name: str, file: str, line: int) -> str:
        return self._module.add_metadata(
            f'distinct !DISubprogram(name: "{_escaped(name)}", file: {file}, line: {line}, '
            f"type: {self._kind}, unit: {self._compile_unit}, spFlags: DISPFlagDefinition)"
        )

    def _call(self, line: int, inside: str) -> str:
        return self._module.add_metadata(f"distinct !DILocation(line: {line}, {inside})")


def _escaped(text: str) -> str:
    """As LLVM writes strings: quotes, backslashes and what is not printable as two digits."""
    return "".join(
        c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode())
        for c in text
    )


#: A line of the text itself, which is file 0; LLVM gives a line of the user to what it joins.
_LOCATION = re.compile(r"\t\.loc\t0 (\d+) ")
_FOR_DEBUGGERS = re.compile(r"\.Ltmp\d+:|\.Lfunc_begin\d+:|\t\.file\t|\t\.cfi_|\t\.loc\t")


def with_source(assembly: str, text: str, origins: Mapping[int, Origin]) -> str:
    """LLVM's assembly for people: lines of the source above what was made from them.

    Args:
      assembly: of a module whose functions have `SourceLines`; others stay as they are.
      text: what their lines are counted in.
      origins: what lines were made from; stands above the first of several with one origin.
    """
    source, out = text.splitlines(), []
    shown, in_debug_section = 0, False
    origin: Origin | None = None
    for row in assembly.splitlines():
        if row.startswith(("\t.section", "\t.text")):
            in_debug_section = row.startswith("\t.section\t.debug_")
        location = _LOCATION.match(row)
        if location and (line := int(location[1])) not in (0, shown):
            now = origins.get(line)
            if now is not None and now != origin:
                out.append(f"; {now}")
            out.append(f"; {line:3}  {source[line - 1]}")
            shown, origin = line, now
        if not in_debug_section and not _FOR_DEBUGGERS.match(row):
            out.append(row)
    return "\n".join(out)


MARGIN = 72  # column of remarks


def with_origins(text: str, origins: Mapping[int, Origin]) -> str:
    """A text with what its lines were made from in the margin, where that changes."""
    out = []
    shown: Origin | None = None
    for number, line in enumerate(text.splitlines(), 1):
        origin = origins.get(number)
        if origin is not None and origin != shown:
            line = f"{line.ljust(MARGIN)}  ; {origin}"
        if origin is not None:
            shown = origin
        out.append(line)
    return "\n".join(out)
