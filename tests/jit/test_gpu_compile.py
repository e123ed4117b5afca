"""Programs compiled for GPUs that are not there."""

import os
import subprocess
import sys

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, tile
from amdjax.codegen.compile_worker import CompileError, Machine
from amdjax.codegen.elf.format import ElfFile
from amdjax.codegen.engine import Compilation
from amdjax.codegen.gpu.amdgpu_object import assembly, completed
from amdjax.codegen.gpu.kernel import GpuKernel, compile_ir, compile_kernel
from amdjax.core.config import config
from amdjax.jit.gpu import kernels as device_kernels
from amdjax.jit.gpu.records import KernelRecord, warn_of_scratch
from amdjax.targets import get
from tests.support.gpu_cases import CASES, normal, softmax
from tests.support.gpu_programs import PROGRAMS
from tests.support.turns import in_turn

X = np.ones((64, 1000), np.float32)


def lowered(f=softmax, *args):
    return jit(f).lower(*(args or (X,)))


TARGETS = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250",
           "sm_80", "sm_90"]  # fmt: skip


def assert_no_scratch(program, target):
    f, *args = program
    for kernel in jit(f).lower(*args).compile(target).kernels:
        assert kernel.scratch_bytes == 0, (kernel.name, kernel.vgprs, kernel.workgroup)
        assert kernel.lds_bytes <= get(target).lds_bytes
        assert kernel.code and kernel.workgroup % get(target).wave_size == 0


@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_needs_scratch(target):
    """A third of the cases for each target; the next target takes others, the next commit too."""
    for program in in_turn(CASES.values(), 3, TARGETS.index(target)):
        assert_no_scratch(program, target)


@pytest.mark.parametrize("program", ["digits_step", "lstm_step", "gpt_step"])
@pytest.mark.parametrize("target", in_turn(TARGETS, 2))
def test_no_kernel_of_a_network_needs_scratch(target, program):
    assert_no_scratch(PROGRAMS[program](), target)


@pytest.mark.parametrize(
    "target", in_turn(["gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250", "sm_90"], 3)
)
def test_no_kernel_of_resnet_needs_scratch(target):
    """135 kernels: enough of them for a few targets."""
    assert_no_scratch(PROGRAMS["resnet_step"](), target)


def test_kernels_are_on_record():
    (kernel,) = lowered().compile("gfx942").kernels
    assert kernel.name.startswith("rows_reduce_max") and kernel.target == "gfx942"
    assert kernel.format == "elf" and kernel.code[:4] == b"\x7fELF"
    assert (kernel.grid, kernel.launches) == (64, 1)
    assert [(a.role, a.offset, a.size) for a in kernel.arguments] == [("in", 0, 8), ("out", 8, 8)]
    assert kernel.kernarg_bytes == 16
    assert kernel.vgprs > 0 and kernel.sgprs > 0 and 1 <= kernel.occupancy <= 8


def test_every_stage_has_a_text():
    program = lowered().compile("gfx942")
    marks = {
        "jaxpr": "reduce_max",
        "fusion": "of 64×1000",
        "schedule": "64 programs of 1024",
        "tiles": "workgroup=",
        "plan": "CALL rows_reduce_max",
        "llvm": "amdgpu_kernel",
        "asm": "s_endpgm",
        "amdgcn": "s_endpgm",
        "resources": "scratch_bytes",
    }
    for stage, mark in marks.items():
        assert mark in program.as_text(stage), stage
    with pytest.raises(ValueError, match="gfx942 has no ptx; its assembly is amdgcn"):
        program.as_text("ptx")
    with pytest.raises(ValueError, match=r"stage must be one of .*amdgcn.*'hlo'"):
        program.as_text("hlo")


def test_ptx():
    program = lowered().compile("sm_90")
    (kernel,) = program.kernels
    assert kernel.format == "ptx" and kernel.code.decode() == program.as_text("ptx")
    assert ".target sm_90" in program.as_text("asm")
    with pytest.raises(ValueError, match="its assembly is ptx"):
        program.as_text("amdgcn")


def test_a_target_or_its_name():
    by_name, by_target = (lowered().compile(t).kernels for t in ("gfx1100", get("gfx1100")))
    assert by_name == by_target


def test_unknown_targets_are_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"'gfx943'. Did you mean 'gfx942'\? Known targets: gfx908"
    ):
        lowered().compile("gfx943")


@pytest.mark.parametrize("wrong", [0, True, b"gfx942", ["gfx942"], np.float32])
def test_what_is_no_target(wrong):
    with pytest.raises(TypeError, match="a GPU target is a name such as 'gfx942', got"):
        lowered().compile(target=wrong)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_sums_are_scattered_in_order_if_asked(dtype):
    """Atomics come in any order."""
    x, i = jnp.zeros(100, dtype), jnp.zeros(30, int)
    text = {}
    before = config.deterministic
    try:
        for flag in (False, True):
            config.update("deterministic", flag)
            program = jit(lambda x, i, u: x.at[i].add(u)).lower(x, i, x[:30]).compile("gfx942")
            text[flag] = program.as_text("tiles") + program.as_text("amdgcn")
    finally:
        config.update("deterministic", before)
    assert "atomic" in text[False]
    assert "atomic" not in text[True]


def test_calling_needs_a_device():
    program = lowered().compile("gfx908")
    if any(getattr(d, "target", None) is get("gfx908") for d in amdjax.devices()):
        pytest.skip("there is one")
    with pytest.raises(RuntimeError, match=r"no such device here; AMDJAX_EMULATE=gfx908"):
        program(X)
    with pytest.raises(RuntimeError, match=r"compiled for sm_80, and .* no such device here$"):
        lowered(lambda x: x + 1).compile("sm_80")(X)  # nothing emulates that


TWO_DEVICES = """
import amdjax, amdjax.numpy as jnp
first, second = amdjax.devices()
x = jnp.ones(3)
program = amdjax.jit(lambda x, y: x + y).lower(x, x).compile("gfx942")
y, z = (amdjax.device_put(x, device) for device in (first, second))
assert program(x, x).device is first and not program(x, x).committed
assert program(x, z).device is second and program(x, z).committed
assert program(amdjax.device_put(x, amdjax.devices("cpu")[0]), x).device is first
try:
    program(y, z)
except ValueError as error:
    print(error)
"""


def test_compiled_programs_run_where_arguments_are_committed():
    pytest.importorskip("hip", reason="needs hip-python", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env={**os.environ, "AMDJAX_EMULATE": "gfx942x2"},
        capture_output=True,
        text=True,
    )
    assert "incompatible devices" in done.stdout, done.stderr


def test_programs_for_the_cpu_have_no_records():
    with pytest.raises(ValueError, match="compile with a target"):
        _ = lowered().compile().kernels


def test_equal_kernels_are_recorded_once():
    square = np.ones((64, 64), np.float32)
    both = lambda x: amdjax.lax.sort(amdjax.lax.sort(x, dimension=0).T, dimension=0)
    launches = {k.name: k.launches for k in lowered(both, square).compile("gfx942").kernels}
    assert launches == {"sort_fill": 2, "map_transpose": 1}


@pytest.mark.parametrize("donated", [(), (0,)])
def test_updates_of_donated_arrays_write_the_window_alone(donated):
    """As in a cache of keys and values: nothing is copied, and programs cover the window."""
    update = lambda c, u, i: amdjax.lax.dynamic_update_slice(c, u, (0, 0, i, 0))
    cache, keys = np.ones((8, 32, 256, 128), np.float16), np.ones((8, 32, 1, 128), np.float16)
    lowered = jit(update, donate_argnums=donated).lower(cache, keys, np.int32(3))
    program = lowered.compile("gfx942")
    assert ("COPY" in program.as_text("plan")) == (not donated)
    kernel = next(k for k in program.kernels if k.name == "update_slice")
    assert kernel.grid * kernel.workgroup * 16 == keys.nbytes  # 16 bytes a thread


def test_analyses():
    program = lowered(lambda x: x + 1).compile("gfx942")
    assert program.cost_analysis()["bytes accessed"] == 2 * X.nbytes
    assert program.memory_analysis().output_size_in_bytes == X.nbytes


def test_scratch_is_warned_of():
    usual = ("k", "gfx942", b"", "elf", 1, 64, (), 256, 32, 0, 0)
    with pytest.warns(UserWarning, match="kernel k for gfx942 uses 16 bytes of scratch"):
        warn_of_scratch([KernelRecord(*usual, scratch_bytes=16, occupancy=1)])
    with pytest.warns(UserWarning, match="kernel k .* 3 more of which were spilled"):
        warn_of_scratch([KernelRecord(*usual, scratch_bytes=0, occupancy=1, vgpr_spills=3)])


SPILLS = """
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) "amdgpu-flat-work-group-size"="1024,1024" {
  %a = load volatile <REGISTERS x i32>, ptr addrspace(1) %p, align 4
  %b = load volatile <REGISTERS x i32>, ptr addrspace(1) %p, align 4
  %c = mul <REGISTERS x i32> %a, %b
  store <REGISTERS x i32> %c, ptr addrspace(1) %p, align 4
  ret void
}
"""


@pytest.mark.parametrize("registers, spills", [(8, False), (128, True)])
def test_spilled_registers_are_counted(registers, spills):
    k = tile.Builder("k")
    k.param("p", "i32", "inout")
    text = SPILLS.replace("REGISTERS", str(registers))
    made = GpuKernel.of(k.finish(1), get("gfx1100"), compile_ir(text, "gfx1100"), text)
    assert (made.vgpr_spills > 0, made.scratch_bytes > 0) == (spills, spills)
    assert made.sgpr_spills == 0


def test_kernels_are_kept_on_disk(monkeypatch):
    f, args = (lambda x: jnp.tanh(x) * 1.0078125), (normal(77),)
    first = lowered(f, *args).compile("gfx942")
    amdjax.clear_caches()
    monkeypatch.setattr(device_kernels, "kernel_ir", None)  # nothing is generated again
    second = lowered(f, *args).compile("gfx942")
    assert first.kernels == second.kernels
    assert first.as_text("llvm") == second.as_text("llvm")


def compile_for(target, *texts):
    target = get(target)
    machine = Machine(target.triple, target.llvm_cpu, target.features)
    compilation = Compilation(opt=4, machine=machine)
    for text in texts:
        compilation.add(completed(text, target))
    return compilation.finish()


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90"])
def test_what_is_compiled_in_this_process_is_the_code_that_runs(target):
    """Texts of assembly come from here, programs from helper processes."""
    program = lowered(lambda x: jnp.tanh(x) @ softmax(x).T, normal(70, 33)).compile(target)
    code = lambda data: data if target == "sm_90" else ElfFile(data).section(".text").data
    for kernel in program.executable._kernels.values():
        assert code(compile_ir(kernel.llvm, target)) == code(kernel.code)


#: LLVM ends the process that selects instructions for this.
MISSING = """
declare <4 x float> @llvm.amdgcn.mfma.f32.4x4x1f32(float, float, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %x = call <4 x float> @llvm.amdgcn.mfma.f32.4x4x1f32(
    float 1.0, float 1.0, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  store <4 x float> %x, ptr addrspace(1) %p
  ret void
}
"""
EMPTY = "define amdgpu_kernel void @k() { ret void }"


def test_what_llvm_dies_of_is_an_error():
    with pytest.raises(CompileError, match=r"kernel k: .*Cannot select"):
        compile_for("gfx1100", MISSING)
    assert len(compile_for("gfx1100", EMPTY)) == 1  # and others go on


def test_helpers_leave_no_files_open(tmp_path):
    code = (
        "import amdjax, numpy as np\n"
        "for n in range(2, 6):\n"
        "    f = amdjax.jit(lambda x: [(x * i).sum() for i in range(n)])\n"
        "    f.lower(np.ones((9, 9))).compile('gfx942')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "AMDJAX_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_rejected_text_shows_the_place():
    with pytest.raises(CompileError, match="expected"):
        compile_for("gfx1100", "nonsense")


def test_results_keep_their_order():
    texts = [
        f"define amdgpu_kernel void @k{i}(ptr addrspace(1) %p) {{\n"
        f"store i32 {i}, ptr addrspace(1) %p\nret void }}"
        for i in range(12)
    ]
    objects = compile_for("gfx1100", *texts)
    assert all(f"k{i}.kd".encode() in data for i, data in enumerate(objects))


def test_compiling_for_a_gpu_needs_no_driver():
    code = (
        "import sys, amdjax, amdjax.numpy as jnp\n"
        "c = amdjax.jit(lambda x: x + 1).lower(jnp.zeros(100)).compile('gfx942')\n"
        "assert c.kernels[0].code\n"
        "assert not [m for m in sys.modules if m.startswith(('hip', 'cuda'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def loops_over_scratch():
    """A kernel whose inner loop begins with a barrier and ends with stores to scratch."""
    k = tile.Builder("k")
    k.schedule.workgroup = 256
    x, s = k.param("x", "i32", "inout"), k.scratch("s", "i32", 256)
    lanes = k.iota(256)

    def step(i):
        other = k.op("xor", lanes, k.broadcast(k.op("shl", k.const("index", 1), i), (256,)))
        a, b = k.load_at(s, other), k.load_at(s, lanes)
        k.store_at(s, other, a + b, unique=True)
        k.store_at(s, lanes, b, unique=True)

    k.store(s, 0, k.load(x, 0, (256,)))
    k.for_(1, 9, 1, lambda n: k.for_(0, n, 1, step) and None)
    k.store(x, 0, k.load(s, 0, (256,)))
    return k.finish(1)


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"])
def test_barriers_wait_for_stores_to_lds(target):
    text = assembly(compile_kernel(loops_over_scratch(), get(target)).llvm, target)
    code = [line.strip() for line in text.splitlines() if line.startswith("\ts_")]
    barriers = [i for i, line in enumerate(code) if line.startswith("s_barrier")]
    assert barriers and all("s_waitcnt" in code[i - 1] for i in barriers)
