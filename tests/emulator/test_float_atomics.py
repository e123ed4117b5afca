"""Every float atomic that a target lists is one instruction, and adds what it should."""

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets
from tests.support.emulation import IDS, TARGETS, compiled, run

LISTED = [(gfx, name) for gfx in TARGETS for name in sorted(targets.get(gfx).atomics)]
TYPES = {
    "f32": ("float", np.float32, 1),
    "f64": ("double", np.float64, 1),
    "f16": ("<2 x half>", np.float16, 2),
    "bf16": ("<2 x bfloat>", ml_dtypes.bfloat16, 2),
}


def kernel_text(operation: str, type: str, returns: bool) -> str:
    """`old[i] = out[i % 4]; out[i % 4] op= x[i]` (no old value where not wanted)."""
    keep = f"""  %po = getelementptr {type}, ptr addrspace(1) %old, i32 %t
  store {type} %o, ptr addrspace(1) %po"""
    return f"""
define amdgpu_kernel void @kernel(ptr addrspace(1) %out, ptr addrspace(1) %x,
                                  ptr addrspace(1) %old) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %j = and i32 %t, 3
  %px = getelementptr {type}, ptr addrspace(1) %x, i32 %t
  %v = load {type}, ptr addrspace(1) %px
  %p = getelementptr {type}, ptr addrspace(1) %out, i32 %j
  %o = atomicrmw {operation} ptr addrspace(1) %p, {type} %v syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0, !amdgpu.ignore.denormal.mode !0
{keep if returns else ""}
  ret void
}}
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" }}
!0 = !{{}}
{IDS}"""  # noqa: E501


@pytest.mark.parametrize(("gfx", "name"), LISTED, ids=[f"{g}-{n}" for g, n in LISTED])
def test_float_atomic(gfx, name):
    plain = name.removesuffix("_no_return")
    operation, kind = plain.removeprefix("pk_").rsplit("_", 1)
    operation = {"add": "fadd"}.get(operation, operation)
    type, dtype, lanes = TYPES[kind]
    x = np.random.default_rng(0).integers(-8, 8, (64, lanes)).astype(dtype)
    out, old = np.zeros((4, lanes), dtype), np.zeros((64, lanes), dtype)
    text = kernel_text(operation, type, name == plain)
    counters = run(compiled(text, gfx), 1, 64, out, x, old)
    groups = np.concatenate([np.zeros((1, 4, lanes)), x.astype(np.float64).reshape(16, 4, lanes)])
    combine = {"fadd": np.add, "fmin": np.minimum, "fmax": np.maximum}[operation]
    running = combine.accumulate(groups)
    np.testing.assert_array_equal(out.astype(np.float64), running[-1])
    if name == plain:
        np.testing.assert_array_equal(old.astype(np.float64), running[:-1].reshape(64, lanes))
    atomics = [n for n in counters.by_mnemonic if "atomic" in n]
    assert len(atomics) == 1 and "swap" not in atomics[0]
