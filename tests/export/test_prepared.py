"""What follows from parameters alone is computed once, whatever the inputs' sizes."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.export.prepared import Prepared


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def assert_close(got, want):
    """Equal within four ulps of the largest number."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    bound = 4 * np.finfo(np.float32).eps * np.abs(want).max()
    assert np.abs(got - want).max() <= bound


def layer(params, x):
    """Gates in another order, transposed, and a scale that follows from two parameters."""
    kernel = params["w"].reshape(2, 8, 16)[np.array([1, 0])].reshape(16, 16).T
    scale = params["s"] / jnp.sqrt(params["v"] + 1e-5)
    return {"y": (x @ kernel) * scale + params["b"]}


@pytest.fixture
def params():
    return {"w": normal(16, 16), "s": normal(16), "v": np.abs(normal(16)), "b": normal(16)}


def test_the_rest_reads_what_was_computed(params):
    x = normal(4, 16, seed=1)
    run = Prepared(layer)
    want = amdjax.jit(layer)(params, x=x)["y"]
    assert_close(run(params, {"x": x})["y"], want)
    state = run._state
    assert set(state.arrays) == {"b"}  # the others are read by what was computed alone
    assert sorted(v.shape for v in state.made.values()) == [(16,), (16, 16)]
    assert run.prepared_bytes == 4 * (16 + 256)


def test_other_sizes_and_other_parameters(params):
    """One set of values serves all sizes, and is made anew when a parameter is another object."""
    run = Prepared(layer)
    for n in (1, 2, 5, 9):
        x = normal(n, 16, seed=n)
        assert_close(run(params, {"x": x})["y"], layer(params, x)["y"])
        made = run._state.made
    assert run._state.made is made
    for name in params:
        params = {**params, name: normal(*params[name].shape, seed=7) ** 2}
        assert_close(run(params, {"x": x})["y"], layer(params, x)["y"])
        assert run._state.made is not made


def test_what_is_much_larger_than_its_parameters_stays():
    def spread(params, x):
        wide = jnp.exp(params["a"])[:, None] * jnp.exp(params["b"])[None, :]
        return x + jnp.tanh(wide).sum() + params["c"].astype(np.float32)[: x.shape[0]]

    params = {"a": normal(300), "b": normal(400), "c": np.arange(60_000).astype(np.int8)}
    run = Prepared(spread)
    x = normal(3)
    assert_close(run(params, {"x": x}), spread(params, x))
    assert run.prepared_bytes < 1 << 12


def test_another_size_may_read_other_parameters():
    """The choice between parameters by a size is made anew in each trace."""

    def chosen(params, x):
        return x * jnp.exp(params["a" if x.shape[0] == 2 else "b"])

    params = {"a": normal(3), "b": normal(3, seed=1)}
    run = Prepared(chosen)
    for n in (2, 4, 2, 5):
        x = normal(n, 3)
        assert_close(run(params, {"x": x}), chosen(params, x))


def test_keys_tell_apart_what_differs_in_constants_or_parameters_of_operations():
    """Values of one trace that another asks for are those that were computed likewise."""

    def signed(params, x):
        zero = np.float32(-0.0 if x.shape[0] == 2 else 0.0)
        table = np.arange(3, dtype=np.float32) + x.shape[0]
        flipped = jnp.flip(params["a"], 0 if x.shape[0] == 2 else 1)
        return x + jnp.copysign(params["a"], zero)[:1] * flipped[0] * (params["b"] @ table)

    params = {"a": np.abs(normal(3, 3)), "b": normal(3, 3)}
    run = Prepared(signed)
    for n in (2, 3, 4):
        x = normal(n, 3)
        assert_close(run(params, {"x": x}), signed(params, x))


def test_functions_without_parameters_and_errors():
    run = Prepared(lambda params, x: x + 1)
    assert run({}, {"x": np.float32(1)}) == 2

    def fails(params, x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Prepared(fails)({"a": normal(2)}, {"x": normal(2)})


def test_arrays_of_other_parameters_are_those_that_are_read_then(params):
    """The first parameters are constants of the program that runs; others never meet it."""
    x = normal(4, 16, seed=1)
    run = Prepared(layer)
    for seed in (0, 7, 9):
        given = {**params, "b": normal(16, seed=seed)}
        if seed == 7:
            run.arrays(given)
        for _ in range(2):
            assert_close(run(given, {"x": x})["y"], layer(given, x)["y"])
