"""The timing model against kernels whose time follows from its constants, and published figures."""

from dataclasses import fields, replace

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.emulator import Counters, trace
from amdjax.emulator.debug import replay
from amdjax.emulator.debug.replay import estimate
from amdjax.emulator.debug.timing import CAUSES, tracing
from amdjax.targets import get
from amdjax.targets.timing import matrix_clocks, timing_of
from tests.support.emulation import IDS, LANES, TARGETS, compiled, run

pytestmark = pytest.mark.parametrize("gfx", TARGETS)


def traced(text, gfx, grid, workgroup, *values, **options):
    """What one launch did."""
    with tracing() as launches:
        run(compiled(text, gfx), grid, workgroup, *values, **options)
    return launches[0]


def chain(body, steps, start="%a", kind="float", declarations=""):
    """A kernel in which `body` makes %y{i+1} of %y{i}, so often."""
    lines = "\n".join(body.format(x=start if i == 0 else f"%y{i}", y=f"%y{i + 1}", i=i)
                      for i in range(steps))  # fmt: skip
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i64 = zext i32 %t to i64
  %pa = getelementptr {kind}, ptr addrspace(1) %in, i64 %i64
  %a = load {kind}, ptr addrspace(1) %pa
{lines}
  %po = getelementptr {kind}, ptr addrspace(1) %out, i64 %i64
  store {kind} %y{steps}, ptr addrspace(1) %po
  ret void
}}
{IDS}
{declarations}
"""


def clocks_of_step(make, gfx, short=32, long=96, **changes):
    """Clocks that a chain takes for each of its steps."""
    found = []
    for steps in (short, long):
        launch = make(steps)
        found.append(estimate(replace(launch, **changes)).cycles)
    return (found[1] - found[0]) / (long - short)


def on_lines(x):
    """A copy that begins with a line of the caches."""
    room = np.empty(x.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 128
    own = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    own[...] = x
    return own


def floats(gfx, count=None):
    return on_lines(np.ones(count or LANES[gfx], np.float32))


def arithmetic(body, gfx, declarations="", workgroup=None):
    x = floats(gfx, workgroup)
    text = lambda steps: chain(body, steps, declarations=declarations)
    return lambda steps: traced(text(steps), gfx, 1, len(x), np.zeros_like(x), x)


FMA = "  {y} = call float @llvm.fma.f32(float {x}, float %a, float {x})"
DECLARED = "declare float @llvm.fma.f32(float, float, float)"


def test_dependent_arithmetic(gfx):
    """GCN's waves issue as fast as they compute; RDNA's wait five clocks."""
    assert clocks_of_step(arithmetic(FMA, gfx, DECLARED), gfx) == timing_of(get(gfx)).arithmetic


def test_waves_hide_the_latency_of_arithmetic(gfx):
    """With eight waves on a SIMD it takes an instruction a turn."""
    threads = min(8 * 4 * LANES[gfx], 1024)
    waves = threads // LANES[gfx] // 4
    step = clocks_of_step(arithmetic(FMA, gfx, DECLARED, threads), gfx)
    t = timing_of(get(gfx))
    assert step == pytest.approx(max(waves * t.issue, t.arithmetic), rel=0.02)


def test_transcendental_functions(gfx):
    body = "  {y} = call float @llvm.amdgcn.rcp.f32(float {x})"
    make = arithmetic(body, gfx, "declare float @llvm.amdgcn.rcp.f32(float)")
    assert clocks_of_step(make, gfx) == timing_of(get(gfx)).transcendental


# A pointer chase: each word holds the number of the next one.
CHASE = """  %o{i} = zext i32 {x} to i64
  %p{i} = getelementptr i32, ptr addrspace(1) %in, i64 %o{i}
  {y} = load i32, ptr addrspace(1) %p{i}"""


def chase(gfx, stride):
    """A chain through memory in steps of so many words, none of which is taken twice."""

    def make(steps):
        links = (np.arange(128 * max(stride, 1) + 1, dtype=np.int32) + stride).astype(np.int32)
        text = chain(CHASE, steps, kind="i32")
        return traced(text, gfx, 1, 1, np.zeros(1, np.int32), on_lines(links))

    return make


def test_pointer_chase_in_the_first_level(gfx):
    """A word that points to itself."""
    t = timing_of(get(gfx))
    step = clocks_of_step(chase(gfx, 0), gfx)
    assert t.l1 <= step <= t.l1 + 16 * t.issue


def test_pointer_chase_behind_the_first_level(gfx):
    """Where arrays fit into a level it answers, and takes its latency and a few instructions."""
    t = timing_of(get(gfx))
    for level in t.levels:
        if not level.keeps:
            continue
        step = clocks_of_step(chase(gfx, 64), gfx, nbytes=level.nbytes or 1 << 40)
        assert level.latency <= step <= level.latency + 16 * t.issue, level.name


LDS_CHASE = """
@tile = internal addrspace(3) global [4096 x i32] undef, align 16
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, i32 %stride) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %m = mul i32 %t, %stride
  %at = getelementptr i32, ptr addrspace(3) @tile, i32 %m
  store i32 %m, ptr addrspace(3) %at
  %y0 = load volatile i32, ptr addrspace(3) %at
{lines}
  %i64 = zext i32 %t to i64
  %po = getelementptr i32, ptr addrspace(1) %out, i64 %i64
  store i32 %y{steps}, ptr addrspace(1) %po
  ret void
}}
"""


def lds_chase(gfx, stride):
    def make(steps):
        lines = "\n".join(
            f"  %p{i} = getelementptr i32, ptr addrspace(3) @tile, i32 %y{i}\n"
            f"  %y{i + 1} = load volatile i32, ptr addrspace(3) %p{i}"
            for i in range(steps)
        )
        text = LDS_CHASE.format(lines=lines, steps=steps) + IDS
        lanes = LANES[gfx]
        return traced(text, gfx, 1, lanes, np.zeros(lanes, np.int32), np.int32(stride))

    return make


def test_lds_and_its_banks(gfx):
    """A step takes the latency; where all lanes want one bank, a clock more for each lane."""
    target = get(gfx)
    t, lanes = timing_of(target), LANES[gfx]
    served = max(lanes // target.lds_banks, 1)
    for stride, cycles in ((1, served), (target.lds_banks, lanes)):
        step = clocks_of_step(lds_chase(gfx, stride), gfx, 16, 48)
        latency = t.lds + cycles - 1
        assert latency <= step <= latency + 16 * t.issue, stride


def copy(gfx, groups):
    width = 4 * LANES[gfx]
    text = f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, {width}
  %j = add i32 %o, %t
  %i = zext i32 %j to i64
  %p = getelementptr <4 x float>, ptr addrspace(1) %in, i64 %i
  %x = load <4 x float>, ptr addrspace(1) %p
  %q = getelementptr <4 x float>, ptr addrspace(1) %out, i64 %i
  store <4 x float> %x, ptr addrspace(1) %q
  ret void
}}
{IDS}"""
    x, out = (on_lines(np.ones((groups, 4 * width), np.float32)) for _ in range(2))
    return x.nbytes, traced(text, gfx, groups, width, out, x)


def test_copies_are_bound_by_the_bandwidth(gfx):
    """A large copy takes at most an eighth longer than memory needs for its bytes."""
    target = get(gfx)
    nbytes, launch = copy(gfx, 4)
    groups = 40 * target.compute_units
    launch = replace(launch, workgroups=groups, nbytes=1 << 40)
    took = estimate(launch)
    needed = 2 * nbytes / 4 * groups / (target.device.bandwidth * timing_of(target).efficiency)
    assert 0.999 < took.microseconds * 1e3 / needed < 1.125
    assert took.split["memory"] > 0.5


def matrix_chain(gfx, x, steps):
    """A kernel of so many products, each of which adds to the one before."""
    ab, c = x.operand_type, x.accumulator_type
    kinds = {"a": ab, "b": ab, "c": c, "signed": "i1"}
    types = ", ".join(kinds.get(a) or a.split()[0] for a in x.arguments)
    lines = []
    for i in range(steps):
        values = {"a": f"{ab} %a", "b": f"{ab} %a", "c": f"{c} %y{i}", "signed": "i1 true"}
        given = ", ".join(values.get(a, a) for a in x.arguments)
        lines.append(f"  %y{i + 1} = call {c} @{x.intrinsic}({given})")
    overloaded = "\n".join(lines)
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {ab}, ptr addrspace(1) %in, i32 %t
  %a = load {ab}, ptr addrspace(1) %pa
  %po = getelementptr {c}, ptr addrspace(1) %out, i32 %t
  %y0 = load {c}, ptr addrspace(1) %po
{overloaded}
  store {c} %y{steps}, ptr addrspace(1) %po
  ret void
}}
{IDS}
declare {c} @{x.intrinsic}({types})
"""


@pytest.mark.parametrize("waves", [4, 8])
def test_matrix_instructions_follow_each_other(gfx, waves):
    """A sum of products takes their clocks, and two waves on a SIMD share its unit."""
    target = get(gfx)
    if not target.matrix:
        pytest.skip("no matrix unit")
    x = target.matrix_for("f16")[0]
    threads = waves * LANES[gfx]
    out, a = np.zeros((threads, 16), np.float32), np.zeros((threads, 8), np.float32)
    make = lambda steps: traced(matrix_chain(gfx, x, steps), gfx, 1, threads, out, a)
    clocks = matrix_clocks(target, "f16", (x.m, x.n, x.k))
    assert clocks_of_step(make, gfx, 16, 48) == pytest.approx(clocks * waves // 4, rel=0.01)


def product(gfx, n=256):
    x = jnp.ones((n, n), jnp.float16)
    return amdjax.jit(lambda x: x @ x).lower(x).compile(gfx).profile(x)


def test_profile_estimates(gfx):
    """Cycles, what they are spent on and where waves stand, as fields and as tables."""
    profile = product(gfx, 64)
    (found,) = profile.timings
    assert found.cycles == profile.cycles > 500
    assert set(found.split) == set(CAUSES) and sum(found.split.values()) == pytest.approx(1)
    assert all(0 <= x <= 1 for x in found.busy.values())
    shares = [wait.share for wait in found.waits]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1
    longest = next(wait for wait in found.waits if wait.cause == "memory")
    assert "wait" in longest.instruction and "load" in longest.behind
    assert longest.chain[0].function == "dot_general"
    text = str(profile)
    assert longest.behind in text and "waves stand at" in text


def test_matrix_units_are_never_faster_than_their_peak(gfx):
    target = get(gfx)
    if not target.matrix:
        pytest.skip("no matrix unit")
    (found,) = product(gfx).timings
    peak = target.matrix_rate["f16"] * target.compute_units
    assert 2 * 256**3 / peak < found.cycles
    assert 0 < found.busy["matrix"] <= 1


@pytest.mark.parametrize("kind", ["f16", "bf16", "i8", "f32"])
def test_the_best_matrix_instructions_reach_the_peak(gfx, kind):
    """One of them on each SIMD all the time is what data sheets say."""
    target = get(gfx)
    known = target.matrix_for(kind)
    if not known:
        pytest.skip("no such instruction")
    clocks = [(x, matrix_clocks(target, kind, (x.m, x.n, x.k), x.blocks)) for x in known]
    rates = [x.flops / c * (4 if target.wave_size == 64 else 2) for x, c in clocks]
    assert max(rates) == target.matrix_rate[kind]


# A loop that loads a number and computes, with the number that was loaded before or with its own.
# The empty instruction keeps LLVM from loading after the work.
LOOP = """
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %n) {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i64 = zext i32 %t to i64
  %p = getelementptr float, ptr addrspace(1) %in, i64 %i64
  %first = load float, ptr addrspace(1) %p
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %held = phi float [ %first, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %y{steps}, %loop ]
  %j = add i32 %i, 1
  %o = mul i32 %j, 64
  %o64 = zext i32 %o to i64
  %q = getelementptr float, ptr addrspace(1) %p, i64 %o64
  %next = load float, ptr addrspace(1) %q
  %y0 = call float asm sideeffect "", "=v,0,~{{memory}}"(float %sum)
{lines}
  %more = icmp ult i32 %j, %n
  br i1 %more, label %loop, label %end
end:
  %po = getelementptr float, ptr addrspace(1) %out, i64 %i64
  store float %y{steps}, ptr addrspace(1) %po
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
"""


def test_waits_behind_the_work_are_shorter(gfx):
    """What is loaded for the next turn costs nothing while this one computes; the wait says so."""
    t, steps = timing_of(get(gfx)), 80
    lines = "\n".join(
        f"  %y{i + 1} = call float @llvm.fma.f32(float %y{i}, float %{{used}}, float %y{i})"
        for i in range(steps)
    )
    found = {}
    for used in ("held", "next"):
        text = LOOP.format(steps=steps, used=used, lines=lines.format(used=used))
        make = lambda n: traced(
            text, gfx, 1, LANES[gfx], floats(gfx), floats(gfx, 64 * 40), np.uint32(n)
        )
        found[used] = clocks_of_step(make, gfx, 10, 30), estimate(make(30)).waits
    (late, hidden), (early, stands) = found["held"], found["next"]
    work, latency = steps * t.arithmetic, next(x for x in t.levels if x.keeps).latency
    assert early - late == pytest.approx(min(work, latency), rel=0.15)
    longest = stands[0]
    assert longest.cause == "memory" and "load" in longest.behind and longest.count == 30
    assert longest.clocks == pytest.approx(latency, rel=0.1)
    assert sum(x.clocks for x in hidden if x.count == 30) < max(latency - work, 0) + 0.1 * latency


SUM = chain(FMA, 60, declarations=DECLARED)


def test_tracing_changes_nothing_that_is_counted(gfx):
    x, n = floats(gfx), LANES[gfx]
    plain = run(compiled(SUM, gfx), 20, n, np.zeros_like(x), x, profile=True)
    with tracing() as launches:
        followed = [run(compiled(SUM, gfx), 20, n, np.zeros_like(x), x) for _ in range(2)]
    for item in fields(Counters):
        assert getattr(followed[0], item.name) == getattr(plain, item.name), item.name
    assert launches[0] is launches[1] and len(launches[0].traces) == 8
    for each in launches[0].traces:
        assert sum(map(len, each.records)) == plain.instructions / 20


@pytest.mark.parametrize("groups", [2, 9])
def test_small_grids_are_traced(gfx, groups):
    x = floats(gfx)
    launch = traced(SUM, gfx, groups, len(x), np.zeros_like(x), x)
    assert 1 <= len(launch.traces) <= groups and estimate(launch).cycles > 0


def test_long_traces_and_short_replays(gfx, monkeypatch):
    """The beginning of a long launch stands for all of it."""
    make = lambda: traced(LOOP_OF_ONE, gfx, 4, 64, floats(gfx, 64), floats(gfx, 64 * 240), N)
    whole = estimate(make())
    monkeypatch.setattr(replay, "_BUDGET", 2000)
    assert estimate(make()).cycles == pytest.approx(whole.cycles, rel=0.1)
    monkeypatch.setattr(trace, "CAPACITY", 2000)
    short = make()
    assert not short.traces[0].whole
    assert estimate(short).cycles == pytest.approx(whole.cycles, rel=0.1)


N = np.uint32(200)
LOOP_OF_ONE = LOOP.format(
    steps=8, used="next",
    lines="\n".join(
        f"  %y{i + 1} = call float @llvm.fma.f32(float %y{i}, float %next, float %y{i})"
        for i in range(8)
    ),
)  # fmt: skip


def test_workgroups_that_wait_for_each_other_are_estimated(gfx):
    """A loop that is one launch, in which workgroups meet at barriers of the grid."""

    def power(x):
        return amdjax.lax.fori_loop(0, 2, lambda i, y: y @ x, x)

    x = jnp.eye(32)
    profile = amdjax.jit(power).lower(x).compile(gfx).profile(x)
    assert all(found.cycles > 100 for found in profile.timings)


def test_waves_stand_at_barriers(gfx):
    """Until the first wave, which computes for longest, has come to it."""
    lanes, steps = LANES[gfx], 400
    lines = "\n".join(
        f"  %y{i + 1} = call float @llvm.fma.f32(float %y{i}, float %y{i}, float %y{i})"
        for i in range(steps)
    )
    text = f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %y0 = uitofp i32 %t to float
  %first = icmp ult i32 %t, {lanes}
  br i1 %first, label %work, label %meet
work:
{lines}
  br label %meet
meet:
  %y = phi float [ %y0, %entry ], [ %y{steps}, %work ]
  call void @llvm.amdgcn.s.barrier()
  %q = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %y, ptr addrspace(1) %q
  ret void
}}
declare void @llvm.amdgcn.s.barrier()
{IDS}
{DECLARED}
"""
    found = estimate(traced(text, gfx, 1, 4 * lanes, floats(gfx, 4 * lanes)))
    (wait,) = [w for w in found.waits if w.cause == "barrier"]
    t = timing_of(get(gfx))
    # The others may have waited for the arguments meanwhile.
    least, most = steps * t.arithmetic - t.constant - t.constant_miss, steps * t.arithmetic
    assert wait.count == 4
    assert least < (wait.clocks - t.barrier) * 4 / 3 < most + 8 * t.issue + t.branch
