import numpy as np
import pytest

from amdjax import lax
from amdjax.transforms.staging import make_jaxpr


def test_sinks_stay_in_the_program():
    def fun(x):
        lax.dce_sink(lax.sin(x))
        return x

    program = make_jaxpr(fun)(1.0)
    assert [eqn.primitive.name for eqn in program.eqns] == ["sin", "dce_sink"]
    assert fun(1.5) == 1.5


def test_composites_are_what_they_are_made_of():
    tangent = lax.composite(lambda x, *, scale: lax.mul(scale, lax.tan(x)), name="my.tangent")
    assert float(tangent(np.float32(0), scale=2.0)) == 0.0
    with pytest.raises(TypeError, match="keyword argument 'scale'"):
        make_jaxpr(lambda s: tangent(1.0, scale=s))(2.0)


def test_identities():
    assert float(lax.stage(np.float32(2))) == 2.0
    with pytest.raises(ValueError, match="got sharding None"):
        lax.with_sharding_constraint({"a": 1.0}, None)
    with pytest.raises(ValueError, match="negative"):
        lax.Tolerance(atol=-1.0)
