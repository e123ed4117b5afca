"""Relocatable objects made by hand, a module with kernels of all kinds, and LLVM's tools."""

import struct
import subprocess
from dataclasses import dataclass, field

import pytest

from amdjax.codegen.elf import format as elf
from tests.support.llvm_tools import find_tool

FLAGS_GFX942 = 0x54C


@dataclass
class ObjectWriter:
    """Sections, symbols and relocations, written as an ELF object for gfx942."""

    flags: int = FLAGS_GFX942
    sections: list = field(default_factory=list)
    symbols: list = field(default_factory=list)
    relocations: dict = field(default_factory=dict)

    def section(self, name, flags, data=b"", kind=elf.SHT_PROGBITS, align=4, size=None, info=0):
        """Returns the index that symbols and groups use."""
        self.sections.append([name, kind, flags, data, align, size, info])
        return len(self.sections)

    def text(self, data=bytes(16), name=".text"):
        return self.section(name, elf.SHF_ALLOC | elf.SHF_EXECINSTR, data)

    def data(self, data=bytes(16), name=".data", align=8):
        return self.section(name, elf.SHF_ALLOC | elf.SHF_WRITE, data, align=align)

    def symbol(self, name, section, value=0, size=0, binding=elf.STB_GLOBAL, kind=0, visibility=0):
        self.symbols.append((name, section, value, size, binding, kind, visibility))
        return len(self.symbols) - 1

    def relocate(self, section, offset, kind, symbol, addend=0):
        self.relocations.setdefault(section, []).append((offset, kind, symbol, addend))

    def bytes(self):
        # Local symbols come first in a symbol table.
        order = sorted(range(len(self.symbols)), key=lambda i: self.symbols[i][4] != 0)
        number = {old: new + 1 for new, old in enumerate(order)}
        strings = elf.StringTable()
        table = bytes(elf.SYMBOL.size)
        for i in order:
            name, section, value, size, binding, kind, visibility = self.symbols[i]
            info = binding << 4 | kind
            table += elf.SYMBOL.pack(strings.add(name), info, visibility, section, value, size)
        sections = [list(s) + [0, 0] for s in self.sections]
        symtab = len(sections) + len(self.relocations) + 1
        for s in sections:
            if s[1] == elf.SHT_GROUP:
                s[6], s[7], s[8] = number[s[6]], symtab, 4
        for section, records in self.relocations.items():
            data = b"".join(elf.RELOCATION.pack(o, k, number[s], a) for o, k, s, a in records)
            name = ".rela" + self.sections[section - 1][0]
            info = [name, elf.SHT_RELA, elf.SHF_INFO_LINK, data, 8, None, section, symtab, 24]
            sections.append(info)
        local = 1 + sum(s[4] == 0 for s in self.symbols)
        sections.append([".symtab", elf.SHT_SYMTAB, 0, table, 8, None, local, symtab + 1, 24])
        sections.append([".strtab", elf.SHT_STRTAB, 0, None, 1, None, 0, 0, 0])
        names = [strings.add(s[0]) for s in sections]
        sections[-1][3] = bytes(strings.data)
        return self._file(sections, names)

    def _file(self, sections, names):
        body, headers = bytearray(elf.FILE_HEADER.size), bytes(elf.SECTION_HEADER.size)
        for (_, kind, flags, data, align, size, info, link, entry), name in zip(sections, names):
            body += bytes(-len(body) % max(align, 1))
            size = len(data) if size is None else size
            headers += elf.SECTION_HEADER.pack(
                name, kind, flags, 0, len(body), size, link, info, align, entry
            )
            body += data
        body += bytes(-len(body) % 8)
        body[: elf.FILE_HEADER.size] = elf.FILE_HEADER.pack(
            b"\x7fELF", 2, 1, 1, elf.OSABI_AMDGPU_HSA, 3, elf.ET_REL, elf.EM_AMDGPU, 1, 0, 0,
            len(body), self.flags, elf.FILE_HEADER.size, 0, 0, elf.SECTION_HEADER.size,
            len(sections) + 1, len(sections),
        )  # fmt: skip
        return bytes(body) + headers


LLD, READELF = find_tool("ld.lld"), find_tool("llvm-readelf")
needs_lld = pytest.mark.skipif(not LLD, reason="ld.lld is not installed (Debian: lld-19)")
needs_readelf = pytest.mark.skipif(
    not READELF, reason="llvm-readelf is not installed (Debian: llvm-19)"
)


def lld(folder, *objects):
    """`ld.lld -shared`; names bind within the file, as with `link`."""
    paths = []
    for i, data in enumerate(objects):
        paths.append(folder / f"{i}.o")
        paths[-1].write_bytes(data)
    out = folder / "lld.hsaco"
    # -O0: constants are not merged.
    command = [LLD, "-shared", "-Bsymbolic", "-O0", *map(str, paths), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def readelf(folder, data):
    """What `llvm-readelf --all` prints; fails when it warns."""
    path = folder / "linked.hsaco"
    path.write_bytes(data)
    done = subprocess.run([READELF, "--all", str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "warning" not in done.stdout
    return done.stdout


def loaded(file, address):
    """The file's memory as a loader makes it at an address."""
    loads = [s for s in file.segments if s.type == elf.PT_LOAD]
    memory = bytearray(max(s.address + s.memory_size for s in loads))
    for s in loads:
        memory[s.address : s.address + s.file_size] = file.data[s.offset : s.offset + s.file_size]
    for section in file.sections:
        if section.type != elf.SHT_RELA:
            continue
        for r in file.relocations(section):
            assert (r.type, r.symbol) == (elf.R_AMDGPU_RELATIVE64, 0)
            struct.pack_into("<Q", memory, r.offset, address + r.addend)
    return bytes(memory)


MODULE = """
@lds = internal addrspace(3) global [256 x float] poison, align 16
@table = internal addrspace(4) constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
@pointers = internal addrspace(4) constant [2 x ptr addrspace(4)]
  [ptr addrspace(4) @table, ptr addrspace(4) getelementptr (i8, ptr addrspace(4) @table, i64 8)]
@counter = addrspace(1) global [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@zeros = addrspace(1) global [100 x i32] zeroinitializer, align 32

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()

define float @scaled(float %x, i32 %n) noinline {
  %k = sitofp i32 %n to float
  %y = fmul float %x, %k
  ret float %y
}

define internal float @shifted(float %x, i32 %n) noinline {
  %y = call float @scaled(float %x, i32 %n)
  %z = fadd float %y, 1.0
  ret float %z
}

define amdgpu_kernel void @add(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %n) ATTRIBUTES {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %s = mul i32 %g, 256
  %i = add i32 %s, %t
  %in = icmp slt i32 %i, %n
  br i1 %in, label %body, label %done
body:
  %p = getelementptr float, ptr addrspace(1) %a, i32 %i
  %q = getelementptr float, ptr addrspace(1) %b, i32 %i
  %x = load float, ptr addrspace(1) %p
  %y = load float, ptr addrspace(1) %q
  %z = fadd float %x, %y
  store float %z, ptr addrspace(1) %q
  br label %done
done:
  ret void
}

define amdgpu_kernel void @reduce(ptr addrspace(1) %a, ptr addrspace(1) %out) ATTRIBUTES {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr float, ptr addrspace(1) %a, i32 %t
  %x = load float, ptr addrspace(1) %p
  %l = getelementptr float, ptr addrspace(3) @lds, i32 %t
  store float %x, ptr addrspace(3) %l
  br label %loop
loop:
  %step = phi i32 [ 128, %entry ], [ %half, %next ]
  call void @llvm.amdgcn.s.barrier()
  %low = icmp ult i32 %t, %step
  br i1 %low, label %sum, label %next
sum:
  %j = add i32 %t, %step
  %m = getelementptr float, ptr addrspace(3) @lds, i32 %j
  %u = load float, ptr addrspace(3) %l
  %v = load float, ptr addrspace(3) %m
  %w = fadd float %u, %v
  store float %w, ptr addrspace(3) %l
  br label %next
next:
  %half = lshr i32 %step, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %loop, label %write
write:
  %r = load float, ptr addrspace(3) @lds
  store float %r, ptr addrspace(1) %out
  ret void
}

define amdgpu_kernel void @tables(ptr addrspace(1) %a, i32 %n, i32 %m) ATTRIBUTES {
  %pt = getelementptr float, ptr addrspace(4) @table, i32 %n
  %c = load float, ptr addrspace(4) %pt
  %pp = getelementptr ptr addrspace(4), ptr addrspace(4) @pointers, i32 %m
  %q = load ptr addrspace(4), ptr addrspace(4) %pp
  %d = load float, ptr addrspace(4) %q
  %pc = getelementptr i32, ptr addrspace(1) @counter, i32 %n
  %k = load i32, ptr addrspace(1) %pc
  %pz = getelementptr i32, ptr addrspace(1) @zeros, i32 %m
  store i32 %k, ptr addrspace(1) %pz
  %e = fadd float %c, %d
  store float %e, ptr addrspace(1) %a
  ret void
}

define amdgpu_kernel void @calls(ptr addrspace(1) %a, i32 %n) {
  %x = load float, ptr addrspace(1) %a
  %y = call float @shifted(float %x, i32 %n)
  %z = call float @scaled(float %y, i32 %n)
  store float %z, ptr addrspace(1) %a
  ret void
}

define amdgpu_kernel void @switches(ptr addrspace(1) %a, i32 %n) ATTRIBUTES {
entry:
  switch i32 %n, label %other [
    i32 0, label %join
    i32 1, label %one
    i32 2, label %two
    i32 3, label %three
    i32 4, label %four
  ]
one:
  br label %join
two:
  br label %join
three:
  br label %join
four:
  store i32 9, ptr addrspace(1) %a
  br label %join
other:
  br label %join
join:
  %r = phi i32 [5, %entry], [17, %one], [-3, %two], [99, %three], [1000, %four], [0, %other]
  store i32 %r, ptr addrspace(1) %a
  ret void
}
"""
