"""What is derived of the elements of tiles holds for the elements themselves."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import tile
from amdjax.tile.axis_info import MOST, AxisInfo, axis_infos, minor_axis
from amdjax.tile.parse import parse_kernel

ROWS, COLUMNS = 8, 33  # runs of the last axis are cut off
ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.floor_divide,
    "rem": np.remainder, "min": np.minimum, "max": np.maximum, "shr_arithmetic": np.right_shift,
    "shr_logical": np.right_shift, "shl": np.left_shift, "lt": np.less, "ge": np.greater_equal,
}  # fmt: skip


class Tracked:
    """Builds tiles of indices, and the same in NumPy."""

    def __init__(self):
        self.k = tile.Builder("k")

    def of(self, v):
        return axis_infos(self.k.finish(1))[v.number]

    def count(self, axis):
        n = (ROWS, COLUMNS)[axis]
        v = self.k.broadcast(self.k.expand(self.k.iota(n), 1 - axis), (ROWS, COLUMNS))
        return v, np.broadcast_to(np.indices((ROWS, COLUMNS))[axis], (ROWS, COLUMNS))

    def constant(self, n):
        return self.k.const("index", n, (ROWS, COLUMNS)), np.full((ROWS, COLUMNS), n)


def assert_holds(info, x):
    """Whether what is known is true of numbers."""
    x = x.astype(np.int64)
    assert (x % info.divisor == 0).all()
    assert info.constant is None or (x == info.constant).all()
    for axis in range(x.ndim):
        lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
        for run, step in ((info.contiguity[axis], 1), (info.constancy[axis], 0)):
            for at in range(0, x.shape[axis], run):
                assert (np.diff(lines[:, at : at + run], axis=1) == step).all()
        firsts = lines[:, :: info.contiguity[axis]]
        assert (firsts % info.divisibility[axis] == 0).all()


@st.composite
def steps(draw):
    leaves = st.one_of(st.sampled_from(["row", "column"]), st.sampled_from([0, 1, 2, 3, 4, 6, 8]))
    names = st.sampled_from(sorted(ARITHMETIC))
    return draw(leaves), draw(st.lists(st.tuples(names, leaves, st.booleans()), max_size=5))


@given(steps())
def test_what_is_known_holds(program):
    first, more = program
    t = Tracked()

    def leaf(name):
        return t.constant(name) if isinstance(name, int) else t.count(int(name == "column"))

    v, x = leaf(first)
    for name, other, turned in more:
        w, y = leaf(other)
        (a, p), (b, q) = ((w, y), (v, x)) if turned else ((v, x), (w, y))
        if a.dtype == "bool" or b.dtype == "bool":
            break
        divides = name in ("div", "rem") or name.startswith("sh")
        if divides and (q.min() < 1 or p.min() < 0 or q.max() > 30):
            continue
        result = ARITHMETIC[name](p, q)
        if np.abs(result.astype(np.int64)).max() > 1 << 40:
            continue
        v, x = t.k.op(name, a, b), result
    assert_holds(t.of(v), x)


HEAD = "kernel test(x: in index, n: size index) grid=1 {\n"


def known(text):
    """What is known of the results of a program, by the names in its text."""
    infos = axis_infos(parse_kernel(HEAD + text + "}"))
    return {f"%{number}": info for number, info in infos.items()}


def test_the_drawn_examples():
    found = known(
        "  %0: index[8] = iota\n  %1: index[8] = const 8\n  %2: index[8] = add %0, %1\n"
        "  %3: index[8] = const 4\n  %4: index[8] = div %0, %3\n"
        "  %5: index[8] = const 16\n  %6: index[8] = mul %4, %5\n"
        "  %7: index[2] = iota\n  %8: index[2,1] = expand axis=1 %7\n"
        "  %9: index[2,4] = broadcast %8\n  %10: index[2,4] = const 32\n"
        "  %11: index[2,4] = mul %9, %10\n  %12: index[4] = iota\n"
        "  %13: index[1,4] = expand axis=0 %12\n  %14: index[2,4] = broadcast %13\n"
        "  %15: index[2,4] = add %11, %14\n"
    )
    assert found["%2"] == AxisInfo((8,), (1,), (8,))
    assert found["%4"] == AxisInfo((1,), (4,), (1,))
    assert found["%6"] == AxisInfo((1,), (4,), (16,))
    assert found["%15"] == AxisInfo((1, 4), (1, 1), (1, 32))


@pytest.mark.parametrize(
    "name, n, constancy, contiguity",
    [("div", 8, 8, 1), ("rem", 8, 1, 8), ("div", 6, 2, 1), ("rem", 6, 1, 2),
     ("shr_arithmetic", 2, 4, 1), ("div", -8, 1, 1)],
)  # fmt: skip
def test_quotients(name, n, constancy, contiguity):
    found = known(
        f"  %0: index[64] = iota\n  %1: index[64] = const {n}\n  %2: index[64] = {name} %0, %1\n"
    )
    assert (found["%2"].constancy, found["%2"].contiguity) == ((constancy,), (contiguity,))


@pytest.mark.parametrize("divisor, run", [(24, 8), (64, 64), (1, 1)])
def test_quotients_by_sizes(divisor, run):
    """What divides a size cuts no run that multiples of the size do not cut."""
    found = known(
        f"  %0: index[64] = iota\n  %1: index = size n divisor={divisor}\n"
        "  %2: index[64] = broadcast %1\n  %3: index[64] = div %0, %2\n"
        "  %4: index[64] = rem %0, %2\n  %5: index[64] = add %0, %2\n  %6: index[64] = rem %2, %5\n"
    )
    assert (found["%3"].constancy, found["%4"].contiguity) == ((run,), (run,))
    assert found["%6"] == AxisInfo((1,), (1,), (1,))  # of divisors that differ nothing is known


def test_scalars():
    found = known(
        "  %0: index = program_id\n  %1: index = const 24\n  %2: index = mul %0, %1\n"
        "  %3: index = const 36\n  %4: index = add %2, %3\n  %5: index = const 0\n"
        "  %6: index = max %2, %5\n  %7: u32 = convert %6\n  %8: index = neg %2\n"
    )
    divisors = [found[f"%{n}"].divisor for n in (2, 4, 5, 6, 7, 8)]
    assert divisors == [8, 4, MOST, 8, 8, 8]


def test_what_loops_carry():
    """The first guess, that what is carried stays as it begins, is taken back."""
    found = known(
        "  %0: index = const 0\n  %1: index = size n\n  %2: index = const 64\n"
        "  %3: index = const 12\n"
        "  %4: index, %5: index = for %0, %1, %2, %0, %3 (%6: index, %7: index, %8: index) {\n"
        "    %9: index = add %7, %3\n    %10: index = add %8, %7\n    yield %9, %10\n  }\n"
        "  %11: index = while %2 (%12: index) {\n    %13: bool = lt %12, %1\n    yield %13\n"
        "   } (%14: index) {\n    %15: index = add %14, %0\n    yield %15\n  }\n"
    )
    assert [found[f"%{n}"].divisor for n in (6, 7, 8, 9, 10, 4, 5)] == [64, 4, 4, 4, 4, 4, 4]
    assert [found[f"%{n}"].divisor for n in (12, 14, 11)] == [64, 64, 64]
    assert found["%7"].constant is None and found["%15"].constant is None


def test_arms_meet():
    found = known(
        "  %0: index = program_id\n  %1: index = const 0\n  %2: bool = lt %0, %1\n"
        "  %3: index = if %2 {\n    %4: index = const 8\n    yield %4\n   } {\n"
        "    %5: index = const 12\n    yield %5\n  }\n"
    )
    assert found["%3"].divisor == 4


def test_neighbors_lie_along_the_last_long_axis():
    assert [minor_axis(shape) for shape in ((8,), (4, 8), (4, 1), (1, 1))] == [0, 1, 0, 0]
