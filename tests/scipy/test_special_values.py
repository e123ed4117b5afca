"""Values and derivatives at special arguments, against those recorded from JAX."""

import numpy as np
import pytest

import amdjax
import amdjax.nn
import amdjax.scipy.special
from amdjax import jit
from tests.support import recorded_calls
from tests.support.special_values import CASES, FILE, NARROW, agree, arguments, values
from tests.support.turns import in_turn

TABLE = {tuple(case): told for case, told in recorded_calls.load(FILE)}
# Python calls rules of concrete arrays with NumPy's numbers here and there.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def compare(dtype, name, wrap):
    told = TABLE[dtype, name]
    for kind, found in values(amdjax, name, dtype, wrap).items():
        (_, [wanted]), (_, [open_]) = told[kind], told[f"{kind} open"]
        if dtype in NARROW and wrap is jit:
            # Chains are rounded once: what overflows in between of large arguments does not.
            for x in arguments(name, dtype):
                open_ = open_ | (np.isfinite(x) & (np.abs(x) > 10))
        wrong = ~(agree(found, wanted) | open_)
        args = [tuple(x[i].item() for x in arguments(name, dtype)) for i in np.flatnonzero(wrong)]
        assert not args, (kind, args, found[wrong], wanted[wrong])


@pytest.mark.parametrize("dtype, name", in_turn(CASES, 6))
def test_eager(dtype, name):
    compare(dtype, name, lambda f: f)


@pytest.mark.parametrize("dtype, name", in_turn(CASES, 6, "compiled"))
def test_compiled(dtype, name):
    compare(dtype, name, jit)


@pytest.mark.devices
@pytest.mark.parametrize("name", ["lax.tanh", "lax.pow", "nn.gelu", "numpy.logaddexp", "lax.max"])
def test_on_devices(name):
    compare("float32", name, jit)
