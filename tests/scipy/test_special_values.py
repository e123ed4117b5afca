"""Values and derivatives at special arguments, against those recorded from JAX."""

import numpy as np
import pytest

import amdjax
import amdjax.nn
import amdjax.scipy.special
from amdjax import jit
from tests.support.special_values import FILE, NAMES, agree, arguments, values

TABLE = np.load(FILE)
# Python calls rules of concrete arrays with NumPy's numbers here and there.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def compare(name, wrap):
    for kind, found in values(amdjax, name, wrap).items():
        wanted, open_ = TABLE[f"{name}:{kind}"], TABLE[f"{name}:{kind}:open"]
        wrong = ~(agree(found, wanted) | open_)
        args = [tuple(float(x[i]) for x in arguments(name)) for i in np.flatnonzero(wrong)]
        assert not args, (kind, args, found[wrong], wanted[wrong])


@pytest.mark.parametrize("name", NAMES)
def test_eager(name):
    compare(name, lambda f: f)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name):
    compare(name, jit)


@pytest.mark.devices
@pytest.mark.parametrize("name", ["lax.tanh", "lax.pow", "nn.gelu", "numpy.logaddexp", "lax.max"])
def test_on_devices(name):
    compare(name, jit)
