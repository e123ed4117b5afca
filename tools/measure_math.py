"""Measure errors and speed of the math functions; prints the table of docs/math.md.

    python -m tools.measure_math [NAME ...]
    python -m tools.measure_math special
    python -m tools.measure_math complex

The first measures the functions of one instruction of programs. The others print the errors of
`scipy.special`, and of complex functions and their slopes, by function and dtype, over whole
ranges, against mpmath.

Errors are in units in the last place: float32 against float64 over many random numbers of all
exponents and a dense interval, both dtypes against mpmath over fewer. Times are nanoseconds an
element, one thread, data in the first-level cache, beside NumPy's or SciPy's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from tests.support import complex_accuracy, math_harness as harness, special_accuracy

COUNT = 4096


def best_time(call: Callable[[], object], repeats: int = 200) -> float:
    """Nanoseconds an element, the best of several runs."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, time.perf_counter() - start)
    return best / repeats / COUNT * 1e9


def times(name: str, dtype: type, lanes: int) -> tuple[float, float]:
    """Ours and the reference's."""
    reference, _, low, high = harness.REFERENCES[name]
    rng = np.random.default_rng(0)
    low, high = max(low, -3), min(high, 3)
    xs = [rng.uniform(low, high, COUNT).astype(dtype) for _ in range(1 + (name in harness.BINARY))]
    out = np.empty(COUNT, dtype)
    elem = harness.ELEMS[out.dtype]
    kernel = harness.math_kernel(name, elem, len(xs), lanes, None, ())
    pointers = [x.ctypes.data for x in (*xs, out)]
    ours = best_time(lambda: kernel.run(*pointers, COUNT))
    with np.errstate(all="ignore"):
        if isinstance(reference, np.ufunc):
            return ours, best_time(lambda: reference(*xs, out=out), 50)
        return ours, best_time(lambda: reference(*xs), 50)


def row(name: str) -> str:
    """One line of the table."""
    slow = name in harness.SLOW
    float32 = harness.measure_float32(name, 4_000_000)[0]
    float32 = max(float32, harness.measure_mpmath(name, np.float32, 1000 if slow else 5000)[0])
    float64 = harness.measure_mpmath(name, np.float64, 2000 if slow else 20000)[0]
    single, reference = times(name, np.float32, 64)
    double, reference64 = times(name, np.float64, 32)
    cells = [f"`{name}`", f"{float32:.2f}", f"{float64:.2f}", f"{single:.2f}", f"{reference:.2f}"]
    return "| " + " | ".join([*cells, f"{double:.2f}", f"{reference64:.2f}"]) + " |"


def main(names: list[str]) -> None:
    """Print a table."""
    reports = {"special": special_accuracy.report, "complex": complex_accuracy.report}
    if len(names) == 1 and names[0] in reports:
        for line in reports[names[0]]():
            print(line, flush=True)
        return
    print("| function | f32 ulp | f64 ulp | f32 ns | reference | f64 ns | reference |")
    print("|---|---|---|---|---|---|---|")
    for name in names or harness.REFERENCES:
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
