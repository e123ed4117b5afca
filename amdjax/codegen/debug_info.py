"""Where instructions come from: debug locations of LLVM, in lines of a text such as a tile program.

The text itself goes into the line table (DWARF's extension for embedded source), so that a code
object alone says what each instruction was made from, to our emulator as to any debugger.
"""

from __future__ import annotations

import re

from amdjax.codegen.llvm import Function

__all__ = ["MODULE_FLAGS", "SourceLines", "with_source"]

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
        add = self._module.add_metadata
        source = add(f'!DIFile(filename: "{file}", directory: "", source: "{_escaped(text)}")')
        # Line tables only: there are no types or variables to describe.
        unit = add(
            f"distinct !DICompileUnit(language: DW_LANG_C, file: {source}, "
            "emissionKind: LineTablesOnly, nameTableKind: None)"
        )
        kind = add("!DISubroutineType(types: !{})")
        self._scope = add(
            f'distinct !DISubprogram(name: "{f.name}", file: {source}, line: 1, type: {kind}, '
            f"unit: {unit}, spFlags: DISPFlagDefinition)"
        )
        f.attributes += f" !dbg {self._scope}"
        self._module.footer.append(f"!llvm.dbg.cu = !{{{unit}}}")

    def at(self, line: int) -> None:
        """What is written from here on comes from `line`, counted from 1."""
        found = self._suffixes.get(line)
        if found is None:
            node = self._module.add_metadata(f"!DILocation(line: {line}, scope: {self._scope})")
            found = self._suffixes[line] = f", !dbg {node}"
        self._f.suffix = found


def _escaped(text: str) -> str:
    """As LLVM writes strings: quotes, backslashes and what is not printable as two digits."""
    return "".join(
        c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode())
        for c in text
    )


_LOCATION = re.compile(r"\t\.loc\t\d+ (\d+) ")
_FOR_DEBUGGERS = re.compile(r"\.Ltmp\d+:|\.Lfunc_begin\d+:|\t\.file\t|\t\.cfi_|\t\.loc\t")


def with_source(assembly: str, text: str) -> str:
    """LLVM's assembly for people: lines of the source above what was made from them.

    Args:
      assembly: of a module whose functions have `SourceLines`; others stay as they are.
      text: what their lines are counted in.
    """
    source, out = text.splitlines(), []
    shown, in_debug_section = 0, False
    for row in assembly.splitlines():
        if row.startswith(("\t.section", "\t.text")):
            in_debug_section = row.startswith("\t.section\t.debug_")
        location = _LOCATION.match(row)
        if location and (line := int(location[1])) not in (0, shown):
            out.append(f"; {line:3}  {source[line - 1]}")
            shown = line
        if not in_debug_section and not _FOR_DEBUGGERS.match(row):
            out.append(row)
    return "\n".join(out)
