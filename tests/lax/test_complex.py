import numpy as np
import pytest

from amdjax import lax
from tests.support.lax_checks import check_batching, check_derivatives

Z = np.array([0.3 + 0.4j, -0.7 + 0.2j, 0.5 - 0.6j, -0.2 - 0.3j])

UNARY = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sqrt": np.sqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "logistic": lambda z: 1 / (1 + np.exp(-z)),
    "sign": lambda z: z / np.abs(z),
    "abs": np.abs,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
}
HOLOMORPHIC = sorted(set(UNARY) - {"sign", "abs", "real", "imag", "conj"})


@pytest.mark.parametrize("name", sorted(UNARY))
def test_values(name):
    found = getattr(lax, name)(Z.astype(np.complex64))
    np.testing.assert_allclose(found, UNARY[name](Z), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_derivatives(name):
    check_derivatives(getattr(lax, name), Z)


@pytest.mark.parametrize("name", ["abs", "real", "imag", "conj"])
def test_real_derivatives(name):
    check_derivatives(getattr(lax, name), Z, order=1)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_arithmetic(name):
    w = Z[::-1] * 0.5 + 1
    operation = {"sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power"}
    reference = getattr(np, operation.get(name, name))
    found = getattr(lax, name)(Z.astype(np.complex64), w.astype(np.complex64))
    np.testing.assert_allclose(found, reference(Z, w), rtol=3e-6, atol=3e-6)
    check_derivatives(getattr(lax, name), Z, w)


def test_assembly():
    x, y = np.array([1.0, 2.0]), np.array([-3.0, 4.0])
    assert lax.complex(np.float32(1), np.float32(2)).tolist() == 1 + 2j
    assert lax.conj(np.float32(2)).dtype == np.complex64
    check_derivatives(lax.complex, x, y, order=1)
    check_derivatives(lax.conj, x, order=1)
    check_batching(lax.complex, x.astype(np.float32), y.astype(np.float32))
    with pytest.raises(TypeError, match="complex does not accept dtype int32"):
        lax.complex(1, 2)


def test_order_is_lexicographic():
    z = np.array([1 + 1j, 1 + 2j, 0 + 5j], np.complex64)
    assert lax.max(z[0], z[1]).tolist() == 1 + 2j
    assert lax.min(z[0], z[2]).tolist() == 5j
    assert lax.eq(z, z[0]).tolist() == [True, False, False]


def test_conversion_warns():
    with pytest.warns(np.exceptions.ComplexWarning):
        assert float(lax.convert_element_type(1 + 2j, np.float32)) == 1.0
