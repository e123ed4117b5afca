"""Errors name the line that an instruction was made from, where the code object knows it."""

import subprocess

import numpy as np
import pytest

from amdjax.emulator import CodeObject, MemoryFault
from amdjax.emulator.debug.lines import line_table
from tests.support.emulation import IDS, link, link_with_lld, relocatable, run
from tests.support.llvm_tools import tool

TEXT = """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) !dbg !4 {
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !7
  %i = zext i32 %t to i64, !dbg !7
  %p = getelementptr float, ptr addrspace(1) %in, i64 %i, !dbg !8
  %x = load float, ptr addrspace(1) %p, !dbg !8
  %q = getelementptr float, ptr addrspace(1) %out, i64 %i, !dbg !9
  store float %x, ptr addrspace(1) %q, !dbg !9
  ret void, !dbg !9
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "softmax.tile", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 VERSION}
!4 = distinct !DISubprogram(name: "kernel", file: !1, line: 1, type: !5, unit: !0, spFlags: 8)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 3, scope: !4)
!8 = !DILocation(line: 300, scope: !4)
!9 = !DILocation(line: 70, scope: !4)
"""


@pytest.fixture(scope="module", params=[("gfx942", 4), ("gfx1100", 5)], ids=str)
def code(request):
    gfx, version = request.param
    text = TEXT.replace("VERSION", str(version)) + IDS
    data = relocatable(text, gfx)
    return CodeObject(link_with_lld(data))


def test_faults_name_the_line(code):
    a, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run(code, 1, 64, out, a)
    with pytest.raises(MemoryFault, match=r"global_load.*\(softmax.tile:300\)") as caught:
        run(code, 1, 64, out, a[:32])
    assert caught.value.source == "softmax.tile:300"
    with pytest.raises(MemoryFault, match=r"global_store.*\(softmax.tile:70\)"):
        run(code, 1, 64, out[:32], a)


def test_table_against_llvm(code, tmp_path):
    path = tmp_path / "code.so"
    path.write_bytes(code._data)
    command = [tool("llvm-dwarfdump"), "--debug-line", path]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    want = []
    for line in listing.splitlines():
        words = line.split()
        if words and words[0].startswith("0x00") and words[1].isdigit():
            ended = "end_sequence" in words
            want.append((int(words[0], 16), "" if ended else f"softmax.tile:{words[1]}"))
    assert want and code.debug.lines == sorted(want, key=lambda row: row[0])


def test_source_in_the_table():
    """Embedded source, as debuggers read it; and line 0, which is what LLVM made of several."""
    text = "\\0A".join(["a"] * 299 + ["  x = load"])
    ir = TEXT.replace("VERSION", "5") + IDS
    ir = ir.replace('directory: "/"', f'directory: "/", source: "{text}"')
    ir = ir.replace("DILocation(line: 70", "DILocation(line: 0")
    rows = {text for _, text in CodeObject(link(relocatable(ir, "gfx942"))).debug.lines}
    assert {"softmax.tile:300: x = load", "softmax.tile:3: a", ""} <= rows
    assert not any(":0" in row for row in rows)


def test_without_debug_sections():
    assert line_table({}) == []
