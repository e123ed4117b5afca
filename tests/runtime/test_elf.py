import contextlib
import itertools
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from amdjax import targets
from amdjax.codegen.elf import format as elf, msgpack
from amdjax.codegen.elf.code_object import kernel_info, target_id
from amdjax.codegen.elf.format import ElfFile
from amdjax.codegen.elf.linker import ElfError, link
from amdjax.codegen.gpu.amdgpu_object import compile_object, kernel_attributes
from tests.support.elf_objects import (
    MODULE,
    ObjectWriter,
    lld,
    loaded,
    needs_lld,
    needs_readelf,
    readelf,
)

TARGETS = [name for name in targets.names() if targets.get(name).is_amdgpu]
DISTINCT = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"]
KERNELS = ["add", "reduce", "tables", "calls", "switches"]

_objects = {}


def objects(name, opt=3):
    """The module of all kinds of kernels, compiled once a target."""
    if (name, opt) not in _objects:
        text = MODULE.replace("ATTRIBUTES", kernel_attributes(256, grid_rank=1, workgroup_rank=1))
        _objects[name, opt] = compile_object(text, name, opt)
    return _objects[name, opt]


def dynamic_symbols(file):
    return {s.name: s for s in file.symbols(elf.SHT_DYNSYM)[1:]}


def check_file(data):
    """What every loadable code object must satisfy."""
    file = ElfFile(data)
    assert file.type == elf.ET_DYN
    loads = [s for s in file.segments if s.type == elf.PT_LOAD]
    end = 0
    for s in loads:
        assert (s.address - s.offset) % s.alignment == 0 and s.alignment % 4096 == 0
        assert s.address // 4096 >= -(-end // 4096), "segments share a page"
        assert s.flags in (elf.PF_R, elf.PF_R | elf.PF_X, elf.PF_R | elf.PF_W)
        assert s.offset + s.file_size <= len(data) and s.file_size <= s.memory_size
        end = s.address + s.memory_size
    for section in file.sections:
        assert section.address % max(section.alignment, 1) == 0
        if section.flags & elf.SHF_ALLOC and section.size:
            home = [s for s in loads if 0 <= section.address - s.address < s.memory_size]
            assert len(home) == 1 and bool(home[0].flags & elf.PF_W) == bool(section.flags & 1)
    check_hashes(file)
    return file


def check_hashes(file):
    """Look every dynamic symbol up, as a loader does, through both hash tables."""
    names = [s.name for s in file.symbols(elf.SHT_DYNSYM)]
    data = file.section(".hash").data
    count, _, *words = struct.unpack(f"<{len(data) // 4}I", data)
    buckets, chains = words[:count], words[count:]
    for i, name in enumerate(names[1:], 1):
        at = buckets[elf.sysv_hash(name) % count]
        while at and at != i:
            at = chains[at]
        assert at == i
    for i, name in enumerate(names[1:], 1):
        assert gnu_look_up(file.section(".gnu.hash").data, names, name) == i
    assert gnu_look_up(file.section(".gnu.hash").data, names, "not there") is None


def gnu_look_up(data, names, name):
    count, first, bloom, shift = struct.unpack_from("<4I", data)
    words = struct.unpack_from(f"<{bloom}Q", data, 16)
    buckets = struct.unpack_from(f"<{count}I", data, 16 + 8 * bloom)
    chain = struct.unpack_from(f"<{len(names) - first}I", data, 16 + 8 * bloom + 4 * count)
    h = elf.gnu_hash(name)
    mask = 1 << h % 64 | 1 << (h >> shift) % 64
    if words[h // 64 % bloom] & mask != mask or not (at := buckets[h % count]):
        return None
    while True:
        if chain[at - first] | 1 == h | 1 and names[at] == name:
            return at
        if chain[at - first] & 1:
            return None
        at += 1


@pytest.mark.parametrize("name", TARGETS)
def test_kernels_of_every_target(name):
    data = link(objects(name))
    file = check_file(data)
    symbols = dynamic_symbols(file)
    infos = kernel_info(data)
    assert list(infos) == KERNELS and target_id(data) == name
    relocatable = kernel_info(objects(name))
    for kernel, info in infos.items():
        moved = replace(info.descriptor, entry_offset=relocatable[kernel].descriptor.entry_offset)
        assert relocatable[kernel] == replace(info, descriptor=moved)
    for kernel, info in infos.items():
        descriptor = symbols[f"{kernel}.kd"]
        assert descriptor.value % 64 == 0 and descriptor.size == 64
        entry = descriptor.value + info.descriptor.entry_offset
        assert entry == symbols[kernel].value and entry % 256 == 0
        assert info.wave_size == targets.get(name).wave_size
        assert info.kernarg_size == info.descriptor.kernarg_size
        assert info.lds == info.descriptor.group_segment_size
    assert [a.name for a in infos["add"].arguments] == ["a", "b", "n"]
    assert [a.offset for a in infos["add"].arguments] == [0, 8, 16]
    assert infos["reduce"].lds == 1024 and infos["add"].lds == 0
    assert infos["add"].max_workgroup == 256 and not infos["add"].uses_scratch
    assert {"calls", "calls.kd", "scaled", "counter", "zeros"} <= set(symbols)
    assert "shifted" not in symbols and "table" not in symbols


@pytest.mark.parametrize("name", DISTINCT)
def test_data_and_pointers(name):
    file = ElfFile(link(objects(name)))
    base = 0x7F0000000000
    memory = loaded(file, base)
    symbols = {s.name: s for s in file.symbols()}
    table = struct.unpack_from("<4f", memory, symbols["table"].value)
    assert table == (1, 2, 3, 4)
    pointers = struct.unpack_from("<2Q", memory, symbols["pointers"].value)
    assert pointers == tuple(base + symbols["table"].value + i for i in (0, 8))
    assert struct.unpack_from("<4i", memory, symbols["counter"].value) == (1, 2, 3, 4)
    assert not any(memory[symbols["zeros"].value :][:400]) and symbols["zeros"].value % 32 == 0
    got = file.section(".got")
    slots = struct.unpack_from(f"<{got.size // 8}Q", memory, got.address)
    assert base + symbols["counter"].value in slots and base + symbols["zeros"].value in slots


def same_as_lld(mine, theirs):
    """Everything that is loaded is byte for byte what lld makes; so are symbols and segments."""
    a, b = ElfFile(mine), ElfFile(theirs)
    assert a.segments == b.segments
    for s in a.segments:
        if s.type == elf.PT_LOAD:
            start = elf.FILE_HEADER.size if s.offset == 0 else s.offset
            assert mine[start : s.offset + s.file_size] == theirs[start : s.offset + s.file_size]
    assert (a.flags, a.abi_version, a.os_abi) == (b.flags, b.abi_version, b.os_abi)
    described = lambda s: (s.name, s.value, s.size, s.type, s.binding, s.visibility)
    for table in (elf.SHT_SYMTAB, elf.SHT_DYNSYM):
        assert sorted(map(described, a.symbols(table))) == sorted(map(described, b.symbols(table)))
    sections = [
        [
            (s.name, s.type, s.flags, s.address, s.size, s.alignment, s.entry_size)
            for s in file.sections
            if s.flags & elf.SHF_ALLOC
        ]
        for file in (a, b)
    ]
    assert sections[0] == sections[1]


@needs_lld
@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("name", DISTINCT)
def test_same_as_lld(tmp_path, name, opt):
    data = objects(name, opt)
    mine, theirs = link(data), lld(tmp_path, data)
    same_as_lld(mine, theirs)
    assert kernel_info(mine) == kernel_info(theirs)


DEBUG = """
define internal void @helper(ptr addrspace(1) %x) noinline !dbg !3 {
  store volatile i32 1, ptr addrspace(1) %x, !dbg !5
  ret void, !dbg !6
}
define amdgpu_kernel void @KERNEL(ptr addrspace(1) %x) !dbg !7 {
  call void @helper(ptr addrspace(1) %x), !dbg !8
  ret void, !dbg !8
}
!llvm.dbg.cu = !{!1}
!0 = !DIFile(filename: "FILE", directory: "", source: "one\\0Atwo\\0Athree")
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !0, emissionKind: LineTablesOnly)
!3 = distinct !DISubprogram(name: "helper", file: !0, line: 1, type: !4, unit: !1, spFlags: 12)
!4 = !DISubroutineType(types: !{})
!5 = !DILocation(line: 2, scope: !3)
!6 = !DILocation(line: 3, scope: !3)
!7 = distinct !DISubprogram(name: "KERNEL", file: !0, line: 1, type: !4, unit: !1, spFlags: 8)
!8 = !DILocation(line: 1, scope: !7)
"""


def debug_sections(data):
    sections = ElfFile(data).sections
    assert all(s.address == 0 == s.flags & elf.SHF_ALLOC for s in sections if "debug" in s.name)
    return {s.name: s.data for s in sections if s.name.startswith(".debug_")}


@needs_lld
@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
def test_debug_sections_as_lld(tmp_path, name):
    data = compile_object(DEBUG, name)
    mine, theirs = link(data), lld(tmp_path, data)
    same_as_lld(mine, theirs)
    assert debug_sections(mine) == debug_sections(theirs)
    assert {".debug_line", ".debug_line_str", ".debug_info"} <= debug_sections(mine).keys()


@needs_readelf
@pytest.mark.parametrize("name", TARGETS)
def test_readelf_accepts(tmp_path, name):
    text = readelf(tmp_path, link(objects(name)))
    assert "DYN (Shared object file)" in text and "NT_AMDGPU_METADATA" in text
    assert text.count("R_AMDGPU_RELATIVE64") >= 4 and "SYMBOLIC" in text


def test_small_kernel_without_data(tmp_path):
    data = compile_object("define amdgpu_kernel void @k() {\n ret void\n}", "gfx1100")
    file = check_file(link(data))
    assert set(dynamic_symbols(file)) == {"k", "k.kd"}
    assert not any(s.name in (".got", ".rela.dyn", ".data") for s in file.sections)
    assert len(link(data)) < 8192


def test_undefined_symbol():
    o = ObjectWriter()
    text = o.text()
    o.relocate(text, 4, elf.R_AMDGPU_REL32, o.symbol("missing", elf.SHN_UNDEF))
    with pytest.raises(ElfError, match=r"undefined symbol 'missing', .* by mine in \.text\+0x"):
        link(o.bytes(), "mine")


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "not an ELF file"),
        (b"\x7fELF", "damaged"),
        (b"\x7fELF" + bytes(100), "not a 64-bit AMDGPU ELF file"),
    ],
)
def test_not_an_object(data, message):
    with pytest.raises(ElfError, match=message):
        link(data)


def test_linked_files_and_damaged_ones():
    with pytest.raises(ElfError, match="not a relocatable object"):
        link(link(objects("gfx942")))
    data = objects("gfx942")
    with pytest.raises(ElfError, match="damaged"):
        link(data[: len(data) // 2])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_raise_no_other_error(changes):
    data = bytearray(one_relocation(elf.R_AMDGPU_GOTPCREL32_LO))
    for at, value in changes:
        data[at % len(data)] = value
    with contextlib.suppress(ElfError):
        link(bytes(data))


RELOCATIONS = {
    elf.R_AMDGPU_REL32: ("<i", lambda s, a, p, g: s + a - p),
    elf.R_AMDGPU_REL64: ("<q", lambda s, a, p, g: s + a - p),
    elf.R_AMDGPU_REL32_LO: ("<I", lambda s, a, p, g: (s + a - p) & 0xFFFFFFFF),
    elf.R_AMDGPU_REL32_HI: ("<I", lambda s, a, p, g: (s + a - p) >> 32 & 0xFFFFFFFF),
    elf.R_AMDGPU_REL16: ("<h", lambda s, a, p, g: (s + a - p - 4) // 4),
    elf.R_AMDGPU_GOTPCREL: ("<i", lambda s, a, p, g: g + a - p),
    elf.R_AMDGPU_GOTPCREL32_LO: ("<I", lambda s, a, p, g: (g + a - p) & 0xFFFFFFFF),
    elf.R_AMDGPU_GOTPCREL32_HI: ("<I", lambda s, a, p, g: (g + a - p) >> 32 & 0xFFFFFFFF),
}


def one_relocation(kind, addend=0):
    o = ObjectWriter()
    text = o.text(bytes(64))
    o.symbol("start", text)
    symbol = o.symbol("there", text, 40)
    o.relocate(text, 8, kind, symbol, addend)
    return o.bytes()


@pytest.mark.parametrize("addend", [0, 4, -8])
@pytest.mark.parametrize("kind", RELOCATIONS)
def test_relative_relocations(kind, addend):
    file = check_file(link(one_relocation(kind, addend)))
    symbols = dynamic_symbols(file)
    place = symbols["start"].value + 8
    got = next((s.address for s in file.sections if s.name == ".got"), 0)
    form, value = RELOCATIONS[kind]
    (stored,) = struct.unpack(form, file.read(place, struct.calcsize(form)))
    assert stored == value(symbols["there"].value, addend, place, got)
    if got:
        (entry,) = file.relocations(file.section(".rela.dyn"))
        assert (entry.offset, entry.addend) == (got, symbols["there"].value)


@needs_lld
@pytest.mark.parametrize("kind", RELOCATIONS)
def test_relative_relocations_as_lld(tmp_path, kind):
    data = one_relocation(kind, 4)
    same_as_lld(link(data), lld(tmp_path, data))


def test_absolute_values():
    o = ObjectWriter()
    data = o.data(bytes(24))
    o.symbol("start", data)
    constant = o.symbol("constant", elf.SHN_ABS, 0x123456789A)
    small = o.symbol("small", elf.SHN_ABS, 77)
    o.relocate(data, 0, elf.R_AMDGPU_ABS64, constant, 1)
    o.relocate(data, 8, elf.R_AMDGPU_ABS32_LO, constant)
    o.relocate(data, 12, elf.R_AMDGPU_ABS32_HI, constant)
    o.relocate(data, 16, elf.R_AMDGPU_ABS32, small)
    file = check_file(link(o.bytes()))
    start = dynamic_symbols(file)["start"].value
    values = struct.unpack("<QIIII", file.read(start, 24))
    assert values == (0x123456789B, 0x3456789A, 0x12, 77, 0)
    assert not any(s.name == ".rela.dyn" for s in file.sections)


@pytest.mark.parametrize(
    "kind, flags, message",
    [
        (
            elf.R_AMDGPU_ABS32_LO,
            elf.SHF_WRITE,
            "needs a fixed address of 'there'; compile with PIC",
        ),
        (elf.R_AMDGPU_ABS64, 0, "stores the address of 'there' in read-only data"),
        (99, elf.SHF_WRITE, "unknown relocation 99 in .data"),
    ],
)
def test_what_cannot_be_linked(kind, flags, message):
    o = ObjectWriter()
    text = o.text()
    data = o.section(".data", elf.SHF_ALLOC | flags, bytes(8))
    o.relocate(data, 0, kind, o.symbol("there", text))
    with pytest.raises(ElfError, match=message):
        link(o.bytes())


def test_out_of_reach():
    o = ObjectWriter()
    text = o.text(bytes(8))
    far = o.symbol("far", text, 1 << 20)
    o.relocate(text, 0, elf.R_AMDGPU_REL16, far)
    with pytest.raises(ElfError, match=r"'far' is out of reach of \.text\+0x0"):
        link(o.bytes())


def test_what_our_generator_does_not_write_is_refused():
    for section, kind in ((elf.SHN_COMMON, "common"), (elf.SHN_AMDGPU_LDS, "LDS")):
        shared = ObjectWriter()
        shared.symbol("shared", section, 16, 40)
        with pytest.raises(ElfError, match=f"{kind} symbol 'shared'"):
            link(shared.bytes())
    grouped = ObjectWriter()
    text = grouped.text(bytes(16), ".text.inline")
    signature = grouped.symbol("inline", text, binding=elf.STB_WEAK)
    grouped.section(".group", 0, struct.pack("<2I", 1, text), elf.SHT_GROUP, info=signature)
    with pytest.raises(ElfError, match="COMDAT"):
        link(grouped.bytes())


section_kinds = st.sampled_from([".text", ".rodata", ".data", ".bss", ".data.rel.ro"])
random_sections = st.lists(
    st.tuples(section_kinds, st.integers(1, 5000), st.sampled_from([1, 4, 16, 256, 4096, 16384])),
    min_size=1,
    max_size=8,
)
FLAGS = {
    ".text": elf.SHF_ALLOC | elf.SHF_EXECINSTR,
    ".rodata": elf.SHF_ALLOC,
    ".data": elf.SHF_ALLOC | elf.SHF_WRITE,
    ".data.rel.ro": elf.SHF_ALLOC | elf.SHF_WRITE,
    ".bss": elf.SHF_ALLOC | elf.SHF_WRITE,
}


def random_object(sections):
    o = ObjectWriter()
    for i, (name, size, align) in enumerate(sections):
        nobits = name == ".bss"
        kind = elf.SHT_NOBITS if nobits else elf.SHT_PROGBITS
        content = b"" if nobits else bytes((i * 37 + j) % 251 for j in range(size))
        index = o.section(f"{name}.{i}", FLAGS[name], content, kind, align, size)
        o.symbol(f"s{i}", index, size=size, kind=elf.STT_OBJECT)
    return o.bytes()


@settings(max_examples=40, deadline=None)
@given(random_sections)
def test_random_sections(sections):
    file = check_file(link(random_object(sections)))
    symbols = dynamic_symbols(file)
    taken = []
    for i, (name, size, align) in enumerate(sections):
        symbol = symbols[f"s{i}"]
        assert symbol.value % align == 0
        expected = bytes((i * 37 + j) % 251 for j in range(size)) if name != ".bss" else bytes(size)
        assert file.read(symbol.value, size) == expected
        taken.append((symbol.value, symbol.value + size))
    taken.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))


@needs_lld
@settings(max_examples=15, deadline=None)
@given(random_sections)
def test_random_sections_as_lld(tmp_path_factory, sections):
    data = random_object(sections)
    same_as_lld(link(data), lld(tmp_path_factory.mktemp("lld"), data))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x83\xa1a\x07\xa1b\xff\xa1c\xc0", {"a": 7, "b": -1, "c": None}),
        (b"\x93\xc2\xc3\xcb" + struct.pack(">d", 1.5), [False, True, 1.5]),
        (b"\xca" + struct.pack(">f", 0.5), 0.5),
        *((bytes([0xCC + i]) + bytes([0x80] * (1 << i)), 0x8080808080808080 >> 64 - (8 << i))
          for i in range(4)),
        *((bytes([0xD0 + i]) + bytes([0xFF] * (1 << i)), -1) for i in range(4)),
        *((bytes([0xD9 + i]) + (300).to_bytes(1 << i) + b"x" * 300, "x" * 300) for i in (1, 2)),
        (b"\xd9\xc8" + b"x" * 200, "x" * 200),
        (b"\xc4\x03abc", b"abc"),
        (b"\xdc\x00\x02\x01\x02", [1, 2]),
        (b"\xdd\x00\x00\x00\x01\x05", [5]),
        (b"\xde\x00\x01\x01\x02", {1: 2}),
        (b"\xdf\x00\x00\x00\x01\x01\x02", {1: 2}),
    ],
)  # fmt: skip
def test_msgpack(data, value):
    assert msgpack.unpack(data) == value


@pytest.mark.parametrize("data", [b"", b"\xa5abc", b"\x92\x01", b"\xc1", b"\xcd\x01"])
def test_damaged_msgpack(data):
    with pytest.raises(ValueError, match="msgpack"):
        msgpack.unpack(data)
