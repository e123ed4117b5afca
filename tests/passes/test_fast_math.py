"""`fast_math`: off unless asked for, part of every key, within its bounds, shown in every form."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.config import config, fast_math
from tests.support.jit_helpers import run_python

X = np.random.default_rng(0).normal(0, 3, (16, 300)).astype(np.float32)


def softmax(x):
    return nn.softmax(x)


def gelu(x):
    return nn.gelu(x)


def silu(x):
    return nn.silu(x)


def layer_norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * 1.1 + 0.3


def quotient(x):
    return x / x[:, :1]


FUNCTIONS = [softmax, gelu, silu, layer_norm, quotient]


def exact(f, x):
    with amdjax.enable_x64(True):
        return np.asarray(f(jnp.asarray(x, np.float64)))


def compiled(f, relaxed, target=None):
    lowered = amdjax.jit(f).lower(X)
    return lowered.compile(target, compiler_options={"fast_math": relaxed})


@pytest.mark.devices
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_results_are_near(f):
    want = exact(f, X)
    got = np.asarray(amdjax.jit(f, compiler_options={"fast_math": True})(X))
    scale = np.abs(want).max(-1, keepdims=True)
    assert (np.abs(got - want) <= 8 * 2.0**-23 * (np.abs(want) + scale / 4)).all()


@pytest.mark.devices
@pytest.mark.parametrize("f", [softmax, gelu, silu], ids=lambda f: f.__name__)
def test_infinities_and_nan_are_what_they_were(f):
    x = X.copy()
    x[1, 3], x[2, 5], x[3, :], x[4, 7], x[5] = np.nan, -np.inf, -np.inf, np.inf, -1e30
    relaxed = np.asarray(amdjax.jit(f, compiler_options={"fast_math": True})(x))
    plain = np.asarray(amdjax.jit(f)(x))
    np.testing.assert_array_equal(np.isnan(relaxed), np.isnan(plain))
    np.testing.assert_array_equal(np.isinf(relaxed), np.isinf(plain))
    np.testing.assert_allclose(relaxed, plain, rtol=3e-5, atol=1e-6)


def test_it_is_off_and_shown_where_it_is_on():
    assert not config.fast_math
    assert "relaxed" not in compiled(softmax, False).as_text("tiles")
    on = compiled(softmax, True)
    for stage in ("tiles", "passes"):
        assert "exp relaxed=True" in on.as_text(stage)
    assert "fmul contract" in compiled(layer_norm, True).as_text("llvm")
    assert "one plus tanh" not in on.as_text("passes")
    assert "logistic" in compiled(gelu, True).as_text("passes")


def test_its_passes_have_switches():
    options = {"fast_math": True, "disabled_passes": "relax_arithmetic,relax_functions"}
    text = amdjax.jit(gelu).lower(X).compile(compiler_options=options).as_text("tiles")
    assert "relaxed" not in text and "logistic" not in text


def test_rows_are_divided_by_one_reciprocal():
    text = compiled(quotient, True).as_text("tiles")
    divisions = [line for line in text.splitlines() if " = div " in line and "f32" in line]
    assert divisions and all(": f32 = div" in line for line in divisions)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90"])
def test_gpus_take_fewer_instructions(target):
    stage = "ptx" if target == "sm_90" else "amdgcn"
    for f in (softmax, gelu, silu):
        plain, relaxed = (compiled(f, on, target).as_text(stage) for on in (False, True))
        assert len(relaxed.splitlines()) < 0.9 * len(plain.splitlines())


def test_programs_with_and_without_are_different_programs():
    f = amdjax.jit(lambda x: jnp.exp(x) / 3.0)
    plain = np.asarray(f(X))
    with fast_math(True):
        relaxed = np.asarray(f(X))
        alone = np.asarray(jnp.exp(jnp.asarray(X)))
    assert (plain != relaxed).any()
    assert (alone != np.asarray(jnp.exp(jnp.asarray(X)))).any()
    np.testing.assert_array_equal(f(X), plain)


def test_plans_have_keys_of_their_own():
    """Where plans are kept: in a process in which nothing was changed since."""
    told = run_python(
        """
        import amdjax, amdjax.numpy as jnp, numpy as np
        from amdjax.core.config import fast_math
        from amdjax.jit.cpu.program import cpu_target
        from amdjax.jit.plan_keys import plan_key

        closed = amdjax.make_jaxpr(lambda x: sum(jnp.sin(x * i) for i in range(12)))(np.ones(9))
        for on in (False, True):
            with fast_math(on):
                print(plan_key(closed, [False], cpu_target(), ()).local.hex())
        """,
        AMDJAX_KEEP_PLANS="1",
        AMDJAX_CHECK="0",
    )
    assert len(set(told.split())) == 2


def test_doubles_keep_their_functions():
    with amdjax.enable_x64(True):
        got = amdjax.jit(jnp.exp, compiler_options={"fast_math": True})(X.astype(np.float64))
        np.testing.assert_allclose(got, np.exp(X.astype(np.float64)), rtol=1e-15)


def test_gradients():
    relaxed = amdjax.jit(
        amdjax.grad(lambda x: (softmax(gelu(x)) * x).sum()), compiler_options={"fast_math": True}
    )(X)
    want = exact(amdjax.grad(lambda x: (softmax(gelu(x)) * x).sum()), X)
    np.testing.assert_allclose(relaxed, want, rtol=1e-4, atol=2e-6)


def test_the_environment_says_so():
    code = "from amdjax.core.config import config; print(config.fast_math)"
    assert run_python(code, AMDJAX_FAST_MATH="1").strip() == "True"
