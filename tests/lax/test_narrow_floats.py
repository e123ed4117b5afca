"""Functions of 16-bit floats, of every argument that there is."""

import numpy as np
import pytest

from amdjax import lax
from amdjax.jit.api import jit
from tests.support import narrow_oracle as oracle

FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sqrt", "rsqrt", "cbrt", "erf",
    "erfc", "sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "asinh", "atanh",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", oracle.DTYPES)
@pytest.mark.parametrize("names", [FUNCTIONS[:11], FUNCTIONS[11:]], ids=["common", "others"])
def test_every_argument(names, dtype):
    def functions(x):
        return [getattr(lax, name)(x) for name in names]

    results = jit(functions)(oracle.arguments(dtype))
    for name, result in zip(names, results, strict=True):
        oracle.check(name, dtype, np.asarray(result))
