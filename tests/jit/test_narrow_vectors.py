"""Code for CPUs with narrower vectors than this one has, run on this one."""

import platform
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import dataclasses, sys
import numpy as np
import amdjax.codegen.engine as engine

cpu, features, bits = sys.argv[1], sys.argv[2], int(sys.argv[3])
narrow = dataclasses.replace(engine.host(), cpu=cpu, features=features, vector_bits=bits)
engine.host = lambda: narrow
import amdjax.jit.cpu.program, amdjax.jit.cpu.kernels, amdjax.runtime.cache
for module in (amdjax.jit.cpu.program, amdjax.jit.cpu.kernels, amdjax.runtime.cache):
    if hasattr(module, "host"):
        module.host = engine.host

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

rng = np.random.default_rng(0)


def padded(x):
    return lax.pad(x, x.dtype.type(0), ((0, 2, 0), (1, 2, 0)))


def check(function, reference, *args):
    got, want = amdjax.jit(function)(*args), reference(*args)
    got = np.asarray(got).astype(np.float64)
    np.testing.assert_allclose(got, np.asarray(want, np.float64), rtol=2e-6, atol=1e-6)


for columns in (1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100):
    x = rng.standard_normal((5, columns)).astype(np.float32)
    pad = lambda x: np.pad(x, ((0, 2), (1, 2)))
    check(padded, pad, x)
    check(lambda x: padded(x).sum(0), lambda x: pad(x).sum(0), x)
    check(lambda x: padded(x).sum(1), lambda x: pad(x).sum(1, dtype=np.float64), x)
    check(lambda x: jnp.max(x, axis=1), lambda x: x.max(1), x)
    check(lambda x: jnp.concatenate([x, -x], 1), lambda x: np.concatenate([x, -x], 1), x)
    check(lambda x: x.T + 1, lambda x: x.T + 1, x)
    half = x.astype(jnp.bfloat16)
    check(lambda x: x + x, lambda x: x.astype(np.float32) * 2, half)
    check(lambda x: padded(x), lambda x: pad(x.astype(np.float32)), half)
    small = rng.integers(-9, 9, (5, columns)).astype(np.int8)
    check(padded, pad, small)
    check(lambda x: (x > 2) & (x < 5), lambda x: (x > 2) & (x < 5), small)
print("passed")
"""


@pytest.mark.turns(3)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 processors")
@pytest.mark.parametrize(
    ("cpu", "features", "bits"),
    [("haswell", "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt", 256), ("x86-64-v2", "", 128)],
)
def test_tails_and_guards_on_narrower_machines(cpu, features, bits):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), cpu, features, str(bits)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0 and run.stdout.strip() == "passed", run.stderr[-2000:]
