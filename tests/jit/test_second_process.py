"""What one process compiled, the next one loads."""

import json
import os

import pytest

from tests.support.jit_helpers import run_python

PROGRAM = """
import json
from amdjax.codegen import engine
from amdjax.jit.cpu import kernels
from amdjax.runtime import cache, native

compiled = []
for module in (engine, kernels, cache, native):
    for name in ("compile_ir", "compile_many"):
        original = getattr(module, name, None)
        if original is not None:
            def counted(texts, *args, _original=original, **kwargs):
                compiled.extend([texts] if isinstance(texts, str) else texts)
                return _original(texts, *args, **kwargs)
            setattr(module, name, counted)

import amdjax, amdjax.numpy as jnp
import numpy as np

x = jnp.ones((64, 64)) * 0.5
def loss(x):
    return jnp.tanh(x @ x).sum() + jnp.cumsum(x, 0)[3, 3]
value = float(amdjax.jit(loss)(x))
slope = float(amdjax.jit(amdjax.grad(loss))(x)[1, 2])
store = cache.object_cache()
print(json.dumps([value, slope, len(compiled), store.hits, store.misses]))
"""


def run(folder):
    value, slope, compiled, hits, misses = json.loads(
        run_python(PROGRAM, AMDJAX_CACHE_DIR=str(folder)).splitlines()[-1]
    )
    return (value, slope), compiled, hits, misses


def entries(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    result, compiled, _, misses = run(folder)
    assert compiled > 0 and misses > 0
    return folder, result


def test_a_second_process_compiles_nothing(filled):
    folder, result = filled
    again, compiled, hits, misses = run(folder)
    assert again == result
    assert compiled == 0 and misses == 0 and hits > 0


def test_damaged_entries_are_compiled_again(filled):
    folder, result = filled
    damaged = entries(folder)[::2]
    for i, path in enumerate(damaged):
        data = bytearray(path.read_bytes())
        if i % 3 == 0:
            del data[len(data) // 2 :]
        else:
            data[-(i + 1)] ^= 0x40
        path.write_bytes(bytes(data))
    again, compiled, _, misses = run(folder)
    assert again == result
    assert 0 < misses <= len(damaged) and compiled > 0
    _, compiled, _, misses = run(folder)
    assert compiled == 0 and misses == 0


def test_without_a_cache_everything_is_compiled(filled):
    _, result = filled
    again, compiled, _, _ = run("off")
    assert again == result and compiled > 0


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written(filled, tmp_path):
    _, result = filled
    tmp_path.chmod(0o500)
    assert run(tmp_path)[0] == result


FOR_A_GPU = """
import amdjax, amdjax.numpy as jnp
from amdjax.jit.gpu import kernels
from amdjax.runtime.cache import object_cache

planned = []
def counted(*args, _original=kernels.plan_program, **kwargs):
    planned.append(args)
    return _original(*args, **kwargs)
kernels.plan_program = counted

def f(x):
    for i in range(8):
        x = jnp.tanh(x @ x) + i
    return x
compiled = amdjax.jit(f).lower(jnp.ones((64, 64))).compile(TARGET)
print(len(planned), object_cache().misses, sorted(k.name for k in compiled.kernels))
"""


@pytest.mark.parametrize("target, plans", [("sm_80", 0), ("gfx1100", 1)])
def test_a_second_process_makes_no_kernels_for_gpus(tmp_path, target, plans):
    """Strings have other hashes there. Stages of AMD's kernels are planned, as these name lines."""
    said = [
        run_python(
            FOR_A_GPU.replace("TARGET", repr(target)), AMDJAX_CACHE_DIR=str(tmp_path),
            AMDJAX_KEEP_PLANS="1", PYTHONHASHSEED=seed,
        ).split(maxsplit=2)
        for seed in "123"
    ]  # fmt: skip
    assert [planned for planned, _, _ in said] == ["1", str(plans), str(plans)]
    assert int(said[0][1]) > 0 and said[1][1] == said[2][1] == "0"
    assert said[0][2] == said[1][2] == said[2][2]
