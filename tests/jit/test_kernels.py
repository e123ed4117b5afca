"""Kernels are compiled once, by whatever compiles them: another compiler's are not served."""

import llvmlite
import pytest
from llvmlite import binding

import amdjax
import amdjax.numpy as jnp
from amdjax.runtime import cache

PLACES = [None, "gfx942", "gfx1100", "sm_90"]
VERSIONS = {
    "LLVM": (binding, "llvm_version_info", (1, 2, 3)),
    "llvmlite": (llvmlite, "__version__", "0.0.1"),
    "the generator": (cache, "CODEGEN_VERSION", -1),
    "the generator's sources": (cache, "sources_digest", lambda: "others"),
}


def misses(place):
    """How many kernels of a program are neither in memory nor on disk."""
    before = cache.object_cache().misses
    amdjax.clear_caches()
    amdjax.jit(lambda x: jnp.exp(x).sum(0) * 1.001953125).lower(jnp.ones((40, 30))).compile(place)
    return cache.object_cache().misses - before


@pytest.mark.parametrize("place", PLACES)
def test_kernels_of_another_version_of_the_compiler_are_not_used(place, monkeypatch):
    cached = misses(place), misses(place)
    assert cached[1] == 0
    for module, name, version in VERSIONS.values():
        with monkeypatch.context() as patch:
            patch.setattr(module, name, version)
            assert misses(place) > 0, name
            assert misses(place) == 0
    assert misses(place) == 0


def test_what_is_loaded_is_shared_until_it_is_forgotten():
    lowered = amdjax.jit(lambda x: jnp.tanh(x) * 1.00390625).lower(jnp.ones(50))
    first, second = (lowered.compile("gfx942").kernels[0] for _ in range(2))
    assert first.code is second.code
    amdjax.clear_caches()
    assert lowered.compile("gfx942").kernels[0].code is not first.code
