"""Programs that are kept apart from the functions they were traced from."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import export, lax
from amdjax.core.parse import parse_jaxpr
from amdjax.export import symbolic_shape
from tests.support.symbolic_functions import CONSTRAINTS, FUNCTIONS
from tests.support.turns import in_turn

REFUSED: set[str] = set()


def read_back(f, *specs):
    return export.deserialize(export.export(amdjax.jit(f))(*specs).serialize())


def spec(text, dtype=np.float32, **options):
    return amdjax.ShapeDtypeStruct(symbolic_shape(text, **options), dtype)


@pytest.mark.parametrize("name", in_turn(FUNCTIONS, 16, "export"))
def test_functions(name):
    function, *texts = FUNCTIONS[name]
    scope = export.SymbolicScope(CONSTRAINTS if any("t" in text for text in texts) else ())
    specs = [spec(text, scope=scope) for text in texts]
    try:
        exported = read_back(function, *specs)
    except ValueError as e:
        assert "the program cannot be written" in str(e) and name in REFUSED
        return
    rng = np.random.default_rng(0)
    for sizes in ({"a": 6, "b": 8, "t": 11}, {"a": 10, "b": 5, "t": 7}):
        shapes = [[d if isinstance(d, int) else d.evaluate(sizes) for d in s.shape] for s in specs]
        args = [rng.uniform(0.5, 3.5, shape).astype(np.float32) for shape in shapes]
        got = amdjax.tree.leaves(exported.call(*args))
        for x, y in zip(got, amdjax.tree.leaves(amdjax.jit(function)(*args)), strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-6)


def test_structures_constants_and_types():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    half = jnp.arange(3, dtype=jnp.bfloat16)

    def f(x, *, w):
        return {"y": x["a"] @ table * 0.1, "z": [w.astype(jnp.bfloat16) + half, None]}, x["b"] + 1

    args = {"a": spec("n, 2"), "b": spec("", np.int32)}
    exported = export.export(amdjax.jit(f))(args, w=spec("3"))
    again = export.deserialize(exported.serialize())
    a, w = np.ones((4, 2), np.float32), np.ones(3, np.float32)
    for e in (exported, again):
        (out, b) = e.call({"a": a, "b": np.int32(4)}, w=w)
        np.testing.assert_allclose(out["y"], a @ table * np.float32(0.1), rtol=1e-6)
        np.testing.assert_array_equal(out["z"][0].astype(np.float32), [1, 2, 3])
        assert out["z"][0].dtype == jnp.bfloat16 and out["z"][1] is None and b == 5
    assert str(again.in_avals) == str(exported.in_avals) and again.fun_name == "f"
    assert str(again.out_avals) == str(exported.out_avals)
    assert again.in_tree == exported.in_tree and again.out_tree == exported.out_tree


def test_sizes_are_checked():
    f = lambda x: x * 2 if x.shape[0] == 7 else x * 3
    exported = read_back(f, spec("b", constraints=["b <= 9"]))
    np.testing.assert_array_equal(exported.call(np.ones(4, np.float32)), np.full(4, 3))
    with pytest.raises(ValueError, match="constraint 'b <= 9'"):
        exported.call(np.ones(10, np.float32))
    with pytest.raises(ValueError, match="b = 7 do not: trace and export it for these too"):
        exported.call(np.ones(7, np.float32))


def test_what_cannot_be_written():
    def callback(x):
        return amdjax.pure_callback(np.sin, amdjax.ShapeDtypeStruct((3,), np.float32), x)

    with pytest.raises(ValueError, match="cannot be written"):
        export.export(amdjax.jit(callback))(spec("3")).serialize()
    with pytest.raises(ValueError, match="must be made by jit"):
        export.export(lambda x: x)
    with pytest.raises(ValueError, match="platforms must be some of"):
        export.export(amdjax.jit(jnp.sin), platforms=["tpu"])


def test_programs_in_programs_keep_their_constants():
    table = np.arange(3, dtype=np.float32)
    f = lambda x: lax.scan(lambda c, r: (c + r * table, c.sum()), jnp.zeros(3), x)
    x = np.ones((4, 3), np.float32)
    got, expected = read_back(f, spec("n, 3")).call(x), f(x)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


def test_others_trace_differentiate_and_vectorize_it():
    f = lambda x: jnp.sin(x).sum() * x.shape[0]
    again = read_back(f, spec("n"))
    x = np.linspace(0, 1, 4, dtype=np.float32)
    np.testing.assert_allclose(amdjax.grad(again.call)(x), 4 * np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(amdjax.jit(again.call)(x[:3]), 3 * np.sin(x[:3]).sum(), rtol=1e-6)
    rows = np.stack([x, 2 * x])
    np.testing.assert_allclose(amdjax.vmap(again.call)(rows), 4 * np.sin(rows).sum(1), rtol=1e-6)
    with pytest.raises(TypeError, match="Argument types differ"):
        amdjax.jit(again.call)(rows)


def test_derivatives_of_their_own_are_those_of_symbolic_shapes():
    f = amdjax.jit(lambda x: (amdjax.nn.relu(x) * amdjax.nn.logsumexp(x)).sum())
    exported = export.export(f)(spec("n"))
    for n in (4, 7):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        expected = amdjax.grad(f)(x)
        np.testing.assert_allclose(amdjax.grad(exported.call)(x), expected, rtol=2e-6, atol=1e-6)
    traced = amdjax.jit(exported.call, symbolic="m")
    np.testing.assert_allclose(traced(x), f(x), rtol=2e-6)


def test_functions_that_look_sizes_up_are_for_no_other_size():
    table = {3: 1.0}
    again = read_back(lambda x: x * table.get(x.shape[0], 2.0), spec("n"))
    with pytest.raises(ValueError, match="trace and export it for these too"):
        again.call(np.ones(3, np.float32))


def test_huge_constants_are_an_error_before_memory_is_taken():
    with pytest.raises(ValueError, match=r"too|large|big"):
        parse_jaxpr("{ lambda a:f32[9999999999999999,999999]; . let  in (a,) }")
    parse_jaxpr("{ lambda a:f32[9999999999999]; . let  in (a,) }")
