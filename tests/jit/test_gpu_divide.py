"""Elements divided by one number on GPUs: the same bits as IEEE division, whatever they are."""

import numpy as np
import pytest

import amdjax
from amdjax.codegen.gpu import divide

pytestmark = pytest.mark.devices

SPECIAL = [
    0, 1, 7, np.inf, np.nan, 1e-45, 1.1754944e-38, 3e-39, 3.4028235e38,
    *(2.0**e * s for e in (-125, -103, -102, -101, -85, 105, 106, 107, 126)
      for s in (0.99999994, 1, 1.5)),
]  # fmt: skip
DIVISORS = [
    0, -0.0, 1, 2, 3, -3, 1e-45, 1e-40, 1e38, -1e-30, np.inf, np.nan, 2 - 2.0**-23, 1 + 2.0**-23,
    *(2.0**e * s for e in (-126, -40, -21, -20, 22, 23, 40, 126, 127)
      for s in (0.99999994, 1, 1.0000001)),
]  # fmt: skip


def near_midpoints(d):
    """Numbers in `1 <= x < 2` whose quotients by `d` are next to the middle of two floats.

    With `D` and `X` the integers of 24 bits in `d` and `x`, they differ from a middle `M` by
    `X 2**24 - D M = c` or, for smaller quotients, `X 2**25 - D M = c`, with a small integer `c`.
    """
    mantissa = int(np.frexp(d)[0] * 2**24)
    twos = (mantissa & -mantissa).bit_length() - 1
    for bits in (24, 25):
        modulus = 1 << (bits - twos)
        for c in range(-6, 7):
            if c == 0 or c % (1 << twos):
                continue
            middle = pow(mantissa >> twos, -1, modulus) * -(c >> twos) % modulus
            for m in range(middle, 1 << 25, modulus):
                x = (mantissa * m + c) >> bits
                if m & 1 and m >> 24 and x >> 23 == 1 and (x >= mantissa) == (bits == 24):
                    yield x * 2.0**-23


def hostile(columns):
    """Elements, a row for each divisor, and the divisors."""
    rng = np.random.default_rng(0)
    random = np.ldexp(1 + rng.integers(0, 1 << 23, 400) * 2.0**-23, rng.integers(-22, 24, 400))
    divisors = np.float32([*DIVISORS, *random])
    x = np.empty((divisors.size, columns), np.float32)
    for row, d in zip(x, divisors, strict=True):
        normal = np.isfinite(d) and abs(d) >= 2.0**-126
        near = np.fromiter(near_midpoints(abs(float(d))) if normal else (), np.float64)
        near = near * 2.0 ** int(rng.integers(-100, 100))
        some = SPECIAL if rng.integers(2) else []  # they take all others of their thread along
        both = np.array([*near, *some, 1])
        row[:] = np.resize(np.concatenate([both, -both]), columns)
    return x, divisors


def assert_quotients(found, x, d):
    with np.errstate(all="ignore"):
        wanted = x / d
    found, nan = np.asarray(found), np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.int32), wanted[~nan].view(np.int32))


@pytest.mark.parametrize("columns", [1024, 200, 16, 1])
def test_rows_divided_by_a_number_each(device, columns):
    x, d = hostile(columns)
    assert_quotients(amdjax.jit(lambda x, d: x / d[:, None])(x, d), x, d[:, None])
    # Beside a reduction, whose programs hold rows in another way.
    quotients, _ = amdjax.jit(lambda x, d: (x / d[:, None], x.max(-1)))(x, d)
    assert_quotients(quotients, x, d[:, None])


def test_rows_of_one_number(device):
    """Nothing else in them that would take the safe way."""
    values = np.float32([*SPECIAL, *np.negative(SPECIAL)])
    x, d = np.meshgrid(values, np.float32(DIVISORS))
    x = np.repeat(x.reshape(-1, 1), 256, 1)
    quotients, _ = amdjax.jit(lambda x, d: (x / d[:, None], x.max(-1)))(x, d.ravel())
    assert_quotients(quotients, x, d.reshape(-1, 1))


def test_columns_divided_by_a_number_each(device):
    x, d = hostile(64)
    assert_quotients(amdjax.jit(lambda x, d: x / d)(x.T.copy(), d), x.T, d)


@pytest.mark.parametrize("i", [2, 4, 9, 60])
def test_all_divided_by_a_number(device, i):
    x, d = hostile(1024)
    x = x.ravel()
    assert_quotients(amdjax.jit(lambda x, d: x / d)(x, d[i]), x, d[i])


def test_what_is_divided_by_a_sum(device):
    x = np.abs(hostile(1024)[0])
    x[~(x < 1e30)] = 1
    quotients, total = amdjax.jit(lambda x: (x / x.sum(-1, keepdims=True), x.sum(-1)))(x)
    assert_quotients(quotients, x, np.asarray(total)[:, None])


def test_elements_with_one_divisor_are_not_divided_one_by_one():
    x, d = amdjax.numpy.zeros((4096, 1024)), amdjax.numpy.ones(4096)
    program = amdjax.jit(lambda x, d: x / d[:, None]).lower(x, d).compile(target="gfx942")
    assert program.as_text("llvm").count("call i32 @llvm.umin.i32") >= divide.FEWEST - 1
