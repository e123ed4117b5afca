"""Programs compiled ahead of time, and their texts."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit
from tests.support.jit_helpers import compiled

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def f(x, scale=2.0):
    return {"y": jnp.tanh(x) * scale, "s": x.sum()}


def test_every_stage_has_a_text():
    program = compiled(f, X)
    marks = {
        "jaxpr": "tanh",
        "simplified": "tanh",
        "fusion": "of 2×3",
        "schedule": "rows of",
        "tiles": "kernel kernel(",
        "plan": "HALT",
        "llvm": "define void @kernel",
        "asm": ".text",
    }
    for name, mark in marks.items():
        assert mark in program.as_text(name), name
    assert program.as_text() == program.as_text("fusion")
    lowered = jit(f).lower(X)
    assert lowered.as_text() == program.as_text("jaxpr")
    assert lowered.as_text("plan") == program.as_text("plan")


def test_unknown_stages_list_the_known_ones():
    with pytest.raises(ValueError, match=r"stage.*jaxpr.*asm.*'hlo'"):
        compiled(f, X).as_text("hlo")


def test_compiled_programs_compute():
    program = compiled(f, X, 3.0)
    out = program(X, 3.0)
    np.testing.assert_allclose(out["y"], np.tanh(X) * 3, rtol=1e-6)
    assert out["s"] == 15
    assert program.out_info["y"].shape == (2, 3)


def test_lowering_needs_shapes_only():
    program = jit(f).lower(amdjax.ShapeDtypeStruct((4, 5), "float32")).compile()
    assert program(np.ones((4, 5), np.float32))["s"] == 20
    assert jit(f).eval_shape(X)["s"].shape == ()
    assert "tanh" in str(jit(f).trace(X).jaxpr)


@pytest.mark.parametrize("args,words", [
    ((np.zeros((3, 3), np.float32),), ["'x'", "float32[2,3]", "float32[3,3]"]),
    ((np.zeros((2, 3), np.int32),), ["'x'", "int32[2,3]"]),
    (([X],), ["structure"]),
    ((X, 1.0), ["structure"]),
])  # fmt: skip
def test_calls_with_another_signature(args, words):
    with pytest.raises(TypeError) as caught:
        compiled(f, X)(*args)
    for word in ["f was compiled", *words]:
        assert word in str(caught.value)


def test_static_arguments():
    g = jit(lambda x, n: x * n, static_argnums=1)
    program = g.lower(X, 4).compile()
    np.testing.assert_array_equal(program(X), X * 4)


def test_cost_analysis_counts_products():
    a, b = np.zeros((8, 32), np.float32), np.zeros((32, 16), np.float32)
    cost = compiled(lambda a, b: a @ b, a, b).cost_analysis()
    assert cost["flops"] == 2 * 8 * 32 * 16
    assert cost["bytes accessed"] == 4 * (8 * 32 + 32 * 16 + 8 * 16)
    assert jit(lambda a: a + 1).lower(a).cost_analysis()["bytes accessed"] == 2 * a.nbytes


def test_the_assembly_uses_vectors():
    text = compiled(lambda x: x * 2 + 1, np.zeros(1000, np.float32)).as_text("asm")
    assert any(r in text for r in ("%zmm", "%ymm", "%xmm", ".4s", "z0."))


def test_equal_kernels_appear_once():
    def repeated(x):
        for _ in range(4):
            x = jnp.cumsum(jnp.tanh(x), 0)
        return x

    tiles = compiled(repeated, np.zeros((64, 64), np.float32)).as_text("tiles")
    assert tiles.count("= tanh ") <= 2
