"""Which inlined functions an instruction belongs to, against what LLVM's tools read."""

import json
import posixpath
import subprocess
from itertools import pairwise, product

import pytest

from amdjax.emulator import CodeObject
from amdjax.emulator.debug.scopes import Inlined, chain_text, scope_table
from tests.support.emulation import IDS, link, relocatable, tool

# `mul` is inlined in two places between which lies code of `sub`: its code has two ranges.
TEXT = """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) !dbg !4 {
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !7
  %i = zext i32 %t to i64, !dbg !7
  %p = getelementptr float, ptr addrspace(1) %in, i64 %i, !dbg !20
  %x = load volatile float, ptr addrspace(1) %p, !dbg !20
  %y = load volatile float, ptr addrspace(1) %p, !dbg !21
  %z = load volatile float, ptr addrspace(1) %p, !dbg !20
  %a = fmul float %x, %y, !dbg !22
  %b = fmul float %a, %z, !dbg !22
  %q = getelementptr float, ptr addrspace(1) %out, i64 %i, !dbg !7
  store volatile float %b, ptr addrspace(1) %q, !dbg !7
  ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: KIND)
!1 = !DIFile(filename: "loss.tile", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 VERSION}
!4 = distinct !DISubprogram(name: "kernel", file: !1, line: 1, type: !5, unit: !0, spFlags: 8)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 3, scope: !4)
!8 = !DIFile(filename: "train.py", directory: "/home/me")
!9 = distinct !DISubprogram(name: "loss", file: !8, line: 30, type: !5, unit: !0, spFlags: 8)
!10 = distinct !DISubprogram(name: "mul", file: !1, line: 1, type: !5, unit: !0, spFlags: 8)
!11 = distinct !DISubprogram(name: "sub", file: !1, line: 1, type: !5, unit: !0, spFlags: 8)
!12 = distinct !DILocation(line: 2, scope: !4)
!13 = distinct !DILocation(line: 41, scope: !9, inlinedAt: !12)
!14 = distinct !DILocation(line: 42, scope: !9, inlinedAt: !12)
!20 = !DILocation(line: 4, scope: !10, inlinedAt: !13)
!21 = !DILocation(line: 5, scope: !11, inlinedAt: !14)
!22 = !DILocation(line: 6, scope: !9, inlinedAt: !12)
"""
LOSS = Inlined("loss", "loss.tile", 2, "kernel")
MUL, SUB = (Inlined(n, "/home/me/train.py", i, "loss") for n, i in (("mul", 41), ("sub", 42)))


@pytest.fixture(scope="module", params=product((4, 5), ("LineTablesOnly", "FullDebug")))
def linked(request):
    version, kind = request.param
    text = TEXT.replace("VERSION", str(version)).replace("KIND", kind) + IDS
    return link(relocatable(text, "gfx942"))


def test_chains(linked):
    table = CodeObject(linked).debug.scopes
    assert table == sorted(table, key=lambda row: row[0])
    chains = [chain for _, chain in table]
    assert chains[-1] == (), "the end of the code"
    assert {(MUL, LOSS), (SUB, LOSS), (LOSS,)} <= set(chains)
    first, last = chains.index((MUL, LOSS)), len(chains) - chains[::-1].index((MUL, LOSS)) - 1
    assert (SUB, LOSS) in chains[first:last], "code of another function lies between"
    assert chain_text((MUL, LOSS)) == "`mul` at /home/me/train.py:41 (loss)"
    assert chain_text((LOSS,)) == "`loss`" and chain_text(()) == ""


def test_against_the_symbolizer(linked, tmp_path):
    path = tmp_path / "kernel.co"
    path.write_bytes(linked)
    code = CodeObject(linked)
    kernel = code.kernels["kernel"]
    places = range(kernel.start, kernel.start + len(kernel.code), 4)
    command = [tool("llvm-symbolizer"), "--output-style=JSON", f"--obj={path}", *map(hex, places)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = set()
    for place, found in zip(places, json.loads(done.stdout), strict=True):
        chain = kernel.chain_of(place - kernel.start)
        ours = [(c.function, posixpath.join("/", c.file), c.line, c.caller) for c in chain]
        theirs = [
            (inner["FunctionName"], outer["FileName"], outer["Line"], outer["FunctionName"])
            for inner, outer in pairwise(found["Symbol"])
        ]
        assert ours == theirs
        seen.add(tuple(c.function for c in chain))
    assert seen == {("mul", "loss"), ("sub", "loss"), ("loss",), ()}


def test_without_debug_sections():
    assert scope_table({}) == []
