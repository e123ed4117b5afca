import numpy as np
import pytest

from tests.support.special_accuracy import CASES, DTYPES, bound, errors


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_error_over_the_range(name, dtype):
    if dtype.itemsize == 2 and not CASES[name].narrow:
        pytest.skip("takes float32 and float64 only")
    found, xs = errors(name, dtype, 25)
    worst = int(np.argmax(found))
    assert found[worst] <= bound(name, dtype), [x[worst] for x in xs]
