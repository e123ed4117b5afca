"""A network keeps what int8 leaves of it: ResNet-18 of random weights.

The bound is that of onnxruntime's static quantization, one scale a channel by extremes.
"""

import types

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.quantize import quantize, sqnr
from benchmarks import resnet

pytestmark = pytest.mark.turns(12)  # compiles a whole network three times


def test_resnet_18():
    library = types.SimpleNamespace(np=jnp, lax=lax, nn=nn)
    params = resnet._params(np.random.default_rng(0))
    f = lambda params, x: resnet._forward(library, params, x, False)
    rng = np.random.default_rng(1)
    images = [rng.standard_normal((2, 64, 64, 3), dtype=np.float32) for _ in range(3)]
    q = quantize(f, params, images[:2])
    assert all(d.recipe is not None for d in q.decisions.values())
    assert sqnr(amdjax.jit(f)(params, images[2]), q(q.params, images[2])) >= 32.5
