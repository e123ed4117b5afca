"""Machine code that says which op of its tile program each instruction was made from."""

import subprocess

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen import llvm
from amdjax.codegen.debug_info import SourceLines, with_source
from amdjax.codegen.elf.format import ElfFile
from amdjax.codegen.elf.linker import link
from amdjax.codegen.gpu.amdgpu_object import compile_object
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.emulator import CodeObject, MemoryFault, UninitializedRead
from amdjax.emulator.program import Program
from tests.support import gpu_zoo
from tests.support.llvm_tools import tool
from tests.support.tile_runner import Backend, compile_gpu, kernel

ZOO = ("elementwise_f32", "elementwise_bool", "reductions_i64", "moves_f32", "products", "math")
GFX942, GFX1100 = Backend("gfx942", 4, 4), Backend("gfx1100", 4, 2, 32)
MEMORY = ("global_", "ds_", "buffer_", "flat_", "s_barrier")


@pytest.mark.parametrize("name", ["gfx908", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("program", ZOO)
def test_code_is_the_same_with_and_without(program, name):
    target = targets.get(name)
    built = gpu_zoo.build(program, 256, 4)
    plain, debug = (
        ElfFile(compile_object(kernel_ir(built, target, debug=d), target)) for d in (False, True)
    )
    for section in (".text", ".rodata", ".note"):
        assert plain.section(section).data == debug.section(section).data, section
    assert not any(s.name.startswith(".debug_line") for s in plain.sections)
    assert debug.section(".debug_line").data


@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("program", ZOO)
def test_every_access_has_its_op(program, name):
    compiled = compile_kernel(gpu_zoo.build(program, 256, 4), targets.get(name))
    lines = compiled.tile.splitlines()
    loaded = CodeObject(compiled.code).kernels["kernel"]
    found = set()
    for inst, text in instructions(loaded):
        source = loaded.source_of(inst.pc)
        if source:
            file, line, op = source.split(":", 2)
            assert file == f"{program}.tile" and op.strip() == lines[int(line) - 1].strip()
            found.add(int(line))
        else:
            assert not text.startswith(MEMORY), text
    stores = {i for i, line in enumerate(lines, 1) if line.strip().startswith("store")}
    assert stores <= found


def instructions(loaded):
    program = Program(loaded)
    return [(inst, program.text(i)) for i, inst in enumerate(program.instructions)]


def test_lines_of_ops():
    """Those of blocks too, and an op that is used again has one."""
    k = tile.Builder("nested")
    y = k.param("y", "f32", "out")
    k.for_(0, 4, 1, lambda i: k.store(y, i, k.const("f32", 1.0)))
    text, lines = tile.listing(k.finish(1))
    ops = {id(op): op.name for op in k.finish(1).body.ops}
    (loop,) = (op for op in k.finish(1).body.ops if op.name == "for")
    ops |= {id(op): op.name for op in loop.blocks[0].ops}
    assert lines.keys() == ops.keys()
    for op, line in lines.items():
        assert f"{ops[op]} " in text.splitlines()[line - 1]


@pytest.mark.parametrize("backend", [GFX942, GFX1100], ids=lambda b: b.gfx)
def test_a_fault_names_the_op(backend):
    def write(k, x, y):
        twice = k.load(x, 0, (1024,)) * k.load(x, 1024, (1024,))
        k.store(y, 0, twice)

    program = kernel(write, {"x": ("f32", "in"), "y": ("f32", "out")})
    run = compile_gpu(program, backend)
    x, y = np.ones(1536, np.float32), np.empty(1024, np.float32)
    (second,) = (i for i, line in enumerate(str(program).splitlines(), 1) if "load x" in line
                 and not line.endswith("%0"))  # fmt: skip
    place = rf"global_load.* at \+0x\w+ \(test\.tile:{second}: %\d+: f32\[1024\] = load x "
    with pytest.raises(MemoryFault, match=place) as caught:
        run(x, y)
    assert caught.value.lane >= 0
    with pytest.raises(MemoryFault, match=r"store y strides=\(1\)"):
        run(np.ones(2048, np.float32), y[:512])


def test_a_fault_in_lds_names_the_op():
    def write(k, y):
        s = k.scratch("s", "f32", 256)
        k.store(s, 0, k.const("f32", 1.0, (128,)))
        k.store(y, 0, k.load(s, 0, (256,)))

    run = compile_gpu(kernel(write, {"y": ("f32", "out")}), GFX942)
    with pytest.raises(UninitializedRead, match=r"load s"):
        run(np.empty(256, np.float32))


def test_disassemblers_show_the_ops(tmp_path):
    compiled = compile_kernel(gpu_zoo.build("reductions_f32", 256, 4), targets.get("gfx90a"))
    path = tmp_path / "kernel.co"
    path.write_bytes(compiled.code)
    command = [tool("llvm-objdump"), "-d", "-S", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "; " + compiled.tile.splitlines()[6] in text


def test_text_is_escaped():
    target = targets.get("gfx942")
    module = llvm.Module(target.triple, target.data_layout)
    f = module.function(
        "kernel", [("x", llvm.Type("ptr addrspace(1)"))], convention="amdgpu_kernel"
    )
    SourceLines(f, "a.tile", 'first\né "quoted" \\22 back').at(2)
    f.store(llvm.const(llvm.I32, 1), f.args[0], 4)
    f.ret()
    code = link(compile_object(str(module), target))
    lines = {text for _, text in CodeObject(code).debug.lines}
    assert 'a.tile:2: é "quoted" \\22 back' in lines


def test_lines_of_the_user_are_none_of_the_text():
    rows = ["\t.loc\t0 2 0", "\tv_add", "\t.loc\t1 233 0", "\tv_mul", "\t.loc\t1 1 0", "\tv_sub"]
    shown = with_source("\n".join(rows), "first\nsecond", {})
    assert shown.splitlines() == [";   2  second", "\tv_add", "\tv_mul", "\tv_sub"]
