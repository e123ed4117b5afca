"""Functions traced at symbolic shapes compute at given sizes what they do traced at those."""

import numpy as np
import pytest

import amdjax
from amdjax import jit
from amdjax.core.check import check_jaxpr
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.core.parse import parse_jaxpr
from tests.support.symbolic_functions import CONSTRAINTS, FUNCTIONS

SIZES = ({"a": 1, "b": 1, "t": 4}, {"a": 8, "b": 5, "t": 17})


def traced(function, *specs):
    scope = amdjax.export.SymbolicScope(CONSTRAINTS)
    shapes = [amdjax.export.symbolic_shape(spec, scope=scope) for spec in specs]
    args = [amdjax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return amdjax.make_jaxpr(function)(*args), shapes


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes(name, request):
    function, *specs = FUNCTIONS[name]
    closed, shapes = traced(function, *specs)
    check_jaxpr(closed.jaxpr)
    assert str(parse_jaxpr(str(closed))) == str(closed)
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        if sizes["a"] == 1 and shapes[0][0].scope.is_apart(sizes):
            continue  # `jit` traces these apart
        args = [
            rng.uniform(0.5, 3.5, [d if isinstance(d, int) else d.evaluate(sizes) for d in shape])
            .astype(np.float32)
            for shape in shapes
        ]  # fmt: skip
        program = instantiate(closed, sizes)
        check_jaxpr(program.jaxpr)
        expected = amdjax.tree.leaves(jit(function)(*args))
        got = jit(jaxpr_as_fun(program))(*args)
        assert len(got) == len(expected)
        for x, y in zip(got, expected):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-6, atol=1e-6)
