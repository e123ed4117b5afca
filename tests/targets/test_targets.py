import re
import struct

import pytest

from amdjax import targets
from amdjax.codegen.gpu.amdgpu_object import ATOMIC_METADATA, assembly, compile_object
from amdjax.emulator.isa import is_emulated, machines

AMD = [name for name in targets.names() if targets.get(name).is_amdgpu]
# One of each instruction set; the siblings differ in their devices only.
DISTINCT = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"]

EMPTY = "define amdgpu_kernel void @k() {\n  ret void\n}\n"
LLVM_TYPES = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def test_a_target_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "gfx9999.py").write_text(
        "from dataclasses import replace\nfrom amdjax.targets import gfx942\n"
        "TARGETS = (replace(gfx942.TARGETS[0], name='gfx9999', elf_machine=0xFE),)\n"
    )
    monkeypatch.setattr(targets, "__path__", [*targets.__path__, str(tmp_path)])
    targets._known.cache_clear()
    machines.cache_clear()
    try:
        assert targets.get("gfx9999").family == "CDNA3"
        assert is_emulated("gfx9999") and machines()[0xFE].isa == "cdna3"
    finally:
        targets._known.cache_clear()
        machines.cache_clear()


@pytest.mark.parametrize("name", AMD)
def test_numbers_are_those_that_llvm_writes(name):
    (flags,) = struct.unpack_from("<I", compile_object(EMPTY, name), 48)
    assert flags & 0xFF == targets.get(name).elf_machine


def test_names():
    assert targets.get("gfx942").family == "CDNA3"
    assert targets.get("gfx90a:sramecc+:xnack-") is targets.get("gfx90a")
    for name in targets.names():
        assert targets.get(name).name == name
    wanted = {
        *DISTINCT,
        "gfx1031",
        "gfx1036",
        "gfx1101",
        "gfx1103",
        "gfx1150",
        "gfx1152",
        "gfx1200",
        "sm_90",
    }
    assert wanted <= set(targets.names())


@pytest.mark.parametrize(
    "name, near",
    [
        ("gfx94", "gfx942"),
        ("GFX1100", "gfx1100"),
        ("gfx906:sramecc+:xnack-", "gfx908"),
        ("gfx1010", "gfx1030"),
        ("gfx1104", "gfx1103"),
        ("gfx1202", "gfx1201"),
        ("gfx11-generic", "gfx1100"),
        ("gx942", "gfx942"),
    ],
)
def test_unknown_name(name, near):
    message = rf"unknown GPU target '{re.escape(name)}'\. Did you mean '{near}'"
    with pytest.raises(ValueError, match=message):
        targets.get(name)


@pytest.mark.parametrize(
    "name, found", [("MI300X", "gfx942"), ("rdna3", "gfx1100"), ("RX 6600", "gfx1032")]
)
def test_names_of_products(name, found):
    with pytest.raises(ValueError, match=rf"unknown GPU target '{name}'\. .*\) is '{found}'\."):
        targets.get(name)


@pytest.mark.parametrize("wrong", [None, 942, b"gfx942", ["gfx942"]])
def test_what_is_no_name(wrong):
    with pytest.raises(TypeError, match="a GPU target is a name such as 'gfx942', got"):
        targets.get(wrong)


def test_unknown_name_lists_known():
    with pytest.raises(ValueError, match=r"unknown GPU target 'cpu'\. Known targets: gfx908, "):
        targets.get("cpu")


def kernel(body, arguments="ptr addrspace(1) %p", attributes=""):
    return f"define amdgpu_kernel void @k({arguments}) {attributes} {{\n{body}\n ret void\n}}\n"


@pytest.mark.parametrize("name", AMD)
def test_llvm_knows_it(name):
    text = assembly(kernel(" store i32 1, ptr addrspace(1) %p"), name)
    assert f'"amdgcn-amd-amdhsa--{name}"' in text
    size = re.search(r"\.wavefront_size: (\d+)", text)
    assert int(size[1]) == targets.get(name).wave_size


def matrix_kernel(i, number):
    kinds = {"a": i.operand_type, "b": i.operand_type, "c": i.accumulator_type, "signed": "i1"}
    types = ", ".join(kinds.get(x, x.split()[0]) for x in i.arguments)
    loads = "".join(
        f" %{x} = load {kinds[x]}, ptr addrspace(1) %{p}\n" for x, p in zip("abc", "pqr")
    )
    operands = i.call_arguments("%a", "%b", "%c")
    body = (
        f"{loads} %d = call {i.accumulator_type} @{i.intrinsic}({operands})\n"
        f" store {i.accumulator_type} %d, ptr addrspace(1) %r"
    )
    arguments = "ptr addrspace(1) %p, ptr addrspace(1) %q, ptr addrspace(1) %r"
    define = kernel(body, arguments).replace("@k", f"@k{number}")
    return f"declare {i.accumulator_type} @{i.intrinsic}({types})\n" + define


@pytest.mark.parametrize("name", [n for n in DISTINCT if targets.get(n).matrix])
def test_matrix_instructions_select(name):
    """Every table entry is an instruction of the target: LLVM would fail, or call a function."""
    table = targets.get(name).matrix
    text = assembly("".join(matrix_kernel(i, n) for n, i in enumerate(table)), name)
    kernels = re.split(r"^k\d+:", text, flags=re.MULTILINE)[1:]
    assert len(kernels) == len(table)
    for i, code in zip(table, kernels):
        match = re.search(r"v_(mfma|wmma)_(f32|f64|i32)_(\d+)x(\d+)x(\d+)", code)
        assert match and match[2] == i.accumulator, i.intrinsic
        assert tuple(map(int, match.groups()[2:])) == (i.m, i.n, i.k), i.intrinsic


@pytest.mark.parametrize("name", DISTINCT)
def test_matrix_shapes(name):
    target = targets.get(name)
    for i in target.matrix:
        copies = 2 if i.layout == "wmma_rdna3" else 1
        lanes = target.wave_size
        assert i.operand_elements * lanes == i.m * i.k * i.blocks * copies, i.intrinsic
        assert i.accumulator_elements * lanes == i.m * i.n * i.blocks, i.intrinsic
        bits = {"i4": 4, "i8": 8, "f16": 16, "bf16": 16, "f64": 64}.get(i.operand, 32)
        bits = 8 if i.operand.startswith(("fp8", "bf8")) else bits
        assert i.operand_registers * 32 == max(i.operand_elements * bits, 32), i.intrinsic


@pytest.mark.parametrize("name", DISTINCT)
def test_matrix_layouts_are_complete(name):
    """Lanes and elements together hold every element of the operands, and C exactly once."""
    target = targets.get(name)
    lanes = range(target.wave_size)
    for i in target.matrix:
        if i.blocks > 1:
            continue
        held = {i.operand_position(x, e) for x in lanes for e in range(i.operand_elements)}
        assert held == {(r, k) for r in range(i.m) for k in range(i.k)}, i.intrinsic
        places = [
            i.accumulator_position(x, e) for x in lanes for e in range(i.accumulator_elements)
        ]
        assert sorted(places) == [(r, c) for r in range(i.m) for c in range(i.n)], i.intrinsic


def test_matrix_choice():
    t = targets.get("gfx942")
    assert [i.m for i in t.matrix_for("f16")] == [32, 16]
    assert t.matrix_for("f64")[0].intrinsic == "llvm.amdgcn.mfma.f64.16x16x4f64"
    assert targets.get("gfx950").matrix_for("bf16")[0].k == 16
    assert targets.get("gfx1100").matrix_for("f32") == []
    assert targets.get("gfx1030").matrix == ()
    signed = (
        targets.get("gfx1100").matrix_for("i8")[0].call_arguments("%a", "%b", "%c", (True, False))
    )
    assert signed == "i1 true, <4 x i32> %a, i1 false, <4 x i32> %b, <8 x i32> %c, i1 false"


def dot_kernel(dot, number):
    if dot.operand in ("f16", "bf16", "i16"):
        element = LLVM_TYPES.get(dot.operand, dot.operand)
        operand, flags = f"<2 x {element}>", ", i1 false"
    else:
        operand, flags = "i32", ", i1 false"
    result = LLVM_TYPES.get(dot.result, dot.result)
    if "sudot" in dot.intrinsic:
        call = f"i1 true, {operand} %a, i1 true, {operand} %b, {result} %c, i1 false"
        types = f"i1, {operand}, i1, {operand}, {result}, i1"
    else:
        call = f"{operand} %a, {operand} %b, {result} %c{flags}"
        types = f"{operand}, {operand}, {result}, i1"
    body = f" %d = call {result} @{dot.intrinsic}({call})\n store {result} %d, ptr addrspace(1) %p"
    arguments = f"ptr addrspace(1) %p, {operand} %a, {operand} %b, {result} %c"
    define = kernel(body, arguments).replace("@k", f"@k{number}")
    return f"declare {result} @{dot.intrinsic}({types})\n" + define


@pytest.mark.parametrize("name", [n for n in DISTINCT if targets.get(n).dots])
def test_dot_instructions_select(name):
    table = targets.get(name).dots
    text = assembly("".join(dot_kernel(d, n) for n, d in enumerate(table)), name)
    kernels = re.split(r"^k\d+:", text, flags=re.MULTILINE)[1:]
    for dot, code in zip(table, kernels, strict=True):
        assert re.search(rf"v_(dual_)?dot{dot.width}", code), dot.intrinsic


ATOMICS = {
    "fadd_f32": ("fadd", "float", "add_f32"),
    "fadd_f64": ("fadd", "double", "add_f64"),
    "fmin_f32": ("fmin", "float", r"f?min(_num)?(_f32)?"),
    "fmax_f32": ("fmax", "float", r"f?max(_num)?(_f32)?"),
    "fmin_f64": ("fmin", "double", r"f?min(_num)?(_x2|_f64)"),
    "fmax_f64": ("fmax", "double", r"f?max(_num)?(_x2|_f64)"),
    "pk_add_f16": ("fadd", "<2 x half>", "pk_add_f16"),
    "pk_add_bf16": ("fadd", "<2 x bfloat>", "pk_add_bf16"),
}


@pytest.mark.parametrize("name", DISTINCT)
def test_atomics(name):
    """An atomic is listed exactly where LLVM needs no compare-and-swap loop for it."""
    target = targets.get(name)
    text = "".join(
        kernel(
            f" %o = atomicrmw {op} ptr addrspace(1) %p, {kind} %v"
            f' syncscope("agent") monotonic{ATOMIC_METADATA}\n'
            + (f" store {kind} %o, ptr addrspace(1) %q" if returns else ""),
            f"ptr addrspace(1) %p, ptr addrspace(1) %q, {kind} %v",
        ).replace("@k", f"@k_{key}{'' if returns else '_no_return'}")
        for key, (op, kind, _) in ATOMICS.items()
        for returns in (False, True)
    )
    code = assembly(text, target)
    direct = set()
    for key, (_, _, mnemonic) in ATOMICS.items():
        for form in (key, f"{key}_no_return"):
            body = re.search(rf"^k_{form}:.*?s_endpgm", code, re.MULTILINE | re.DOTALL)[0]
            if "cmpswap" not in body:
                assert re.search(rf"global_atomic_{mnemonic}\b", body), (form, body)
                direct.add(form)
    listed = set(target.atomics)
    listed |= {f"{a}_no_return" for a in target.atomics if not a.endswith("_no_return")}
    assert direct == listed


@pytest.mark.parametrize("name", DISTINCT)
def test_packed_math(name):
    target = targets.get(name)
    for dtype in ("f16", "f32", "bf16"):
        kind = f"<2 x {LLVM_TYPES[dtype]}>"
        body = (
            f" %v = load {kind}, ptr addrspace(1) %p\n"
            f" %w = call {kind} @llvm.fma({kind} %v, {kind} %v, {kind} %v)\n"
            f" store {kind} %w, ptr addrspace(1) %p"
        ).replace("@llvm.fma", f"@llvm.fma.v2{dtype}")
        declare = f"declare {kind} @llvm.fma.v2{dtype}({kind}, {kind}, {kind})\n"
        has = "v_pk_fma" in assembly(declare + kernel(body), target)
        assert has == (dtype in target.packed), dtype
