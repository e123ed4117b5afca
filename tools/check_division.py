"""``python tools/check_division.py``: quotients by a reciprocal and a residual are those of IEEE.

`amdjax/codegen/gpu/divide.py` says why only quotients next to the middle of two floats can go
wrong: those with `|c| < 6` where `X 2**24 - D M = c`, or `X 2**25 - D M = c` for quotients below
one, with `D`, `X` the integers of 24 bits in divisor and element and the middle `M` an odd one of
25 bits. All of them are tried, for every `D`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

NEAR = 6
CHUNK = 1 << 18


def inverses(odd: np.ndarray) -> np.ndarray:
    """Of odd numbers modulo 2**32, by Newton's iteration."""
    x = odd.copy()
    for _ in range(5):
        x = x * (2 - odd * x) & 0xFFFFFFFF
    return x


def near_middles(d: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Divisors, as integers, and elements whose quotients are next to a middle."""
    twos = np.zeros_like(d)
    for i in range(1, 4):  # a higher power of two divides no such `c`
        twos[d % (1 << i) == 0] = i
    inverse = inverses(d >> twos)
    for bits in (24, 25):
        modulus = np.int64(1) << (bits - twos)
        for c in range(-NEAR, NEAR + 1):
            fits = (c % (1 << twos) == 0) & (c != 0) & (d % 16 != 0)
            first = inverse * (-(c >> twos) % modulus) % modulus
            for i in range(1 << 4):  # all middles of this residue
                m = first + i * modulus
                x = (d * m + c) >> bits
                inside = (m & 1 == 1) & (m >> 24 == 1) & (x >> 23 == 1)
                found = fits & inside & ((x >= d) == (bits == 24))
                yield d[found], x[found]


def rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of doubles as float, rounded once."""
    total = a + b
    virtual = total - a
    rest = (a - (total - virtual)) + (b - virtual)
    nearest = total.astype(np.float32)
    gap = total - nearest  # exact; half of a unit where the first rounding met a middle
    toward = np.where(rest > 0, np.inf, -np.inf).astype(np.float32)
    neighbor = np.nextafter(nearest, toward)
    tie = (gap != 0) & (np.abs(gap) == np.abs(neighbor - total)) & (rest != 0)
    return np.where(tie, neighbor, nearest)


def quotients(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """As the generator's code computes them."""
    r = np.float32(1) / d
    q = x * r
    wide = (v.astype(np.float64) for v in (q, d, x, r))
    q64, d64, x64, r64 = wide
    excess = (q64 * d64 - x64).astype(np.float32)  # the product and the difference are exact
    return rounded(q64, -excess.astype(np.float64) * r64)


def nearest(numerators: np.ndarray, bits: int) -> np.ndarray:
    """Integers divided by a power of two, to the nearest, of ties the even one."""
    whole = numerators >> bits
    rest, half = numerators - (whole << bits), np.int64(1) << (bits - 1)
    return whole + ((rest > half) | ((rest == half) & (whole & 1 == 1)))


def check_iteration() -> None:
    """One of Newton's iterations rounds `1 / d` correctly, but where all bits of `d` are ones.

    It begins at either neighbor, as integers in units of `2**-24`; residuals are in `2**-47`.
    """
    one = np.int64(1) << 47
    d = np.arange(1 << 23, 1 << 24, dtype=np.int64)
    below = one // d
    right = below + (2 * (one - below * d) > d)
    for estimate in (below, below + 1):
        residual = one - d * estimate
        long = np.abs(residual) >> 24 > 0
        residual = np.where(long, nearest(residual, 1) << 1, residual)
        wrong = estimate + nearest(residual * estimate, 47) != right
        assert set(d[wrong & (np.abs(residual) <= d)]) <= {(1 << 24) - 1}


def main() -> None:
    """Try them all; half a minute."""
    check_iteration()
    tried = 0
    for start in range(1 << 23, 1 << 24, CHUNK):
        d = np.arange(start, start + CHUNK, dtype=np.int64)
        for divisors, elements in near_middles(d):
            x, y = elements.astype(np.float32), divisors.astype(np.float32)
            tried += x.size
            wrong = quotients(x, y) != x / y
            assert not wrong.any(), (x[wrong][0], y[wrong][0])
    print(f"{tried:,} quotients of 8,388,608 divisors are right")


if __name__ == "__main__":
    main()
