"""What is derived of neighbouring elements holds for the elements themselves."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import tile
from amdjax.codegen.gpu.neighbours import Neighbours

VECTOR, ROWS, COLUMNS = 4, 8, 32
ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.floor_divide,
    "rem": np.remainder, "min": np.minimum, "max": np.maximum, "shr_arithmetic": np.right_shift,
    "lt": np.less, "ge": np.greater_equal,
}  # fmt: skip


class Tracked:
    """Builds tiles of indices, and the same in NumPy."""

    def __init__(self):
        self.k = tile.Builder("k")
        self.facts = Neighbours(VECTOR, {})
        self.seen = 0

    def learn(self):
        for op in self.k.block.ops[self.seen :]:
            self.facts.note(op)
        self.seen = len(self.k.block.ops)

    def count(self, axis):
        n = (ROWS, COLUMNS)[axis]
        v = self.k.broadcast(self.k.expand(self.k.iota(n), 1 - axis), (ROWS, COLUMNS))
        return v, np.broadcast_to(np.indices((ROWS, COLUMNS))[axis], (ROWS, COLUMNS))

    def constant(self, n):
        return self.k.const("index", n, (ROWS, COLUMNS)), np.full((ROWS, COLUMNS), n)


def holds(fact, x):
    """Whether a fact is true of numbers."""
    groups = x.reshape(-1, VECTOR).astype(np.int64)
    if fact.step is not None:
        assert (np.diff(groups, axis=1) == fact.step).all()
    if fact.step == 1:
        assert (groups[:, 0] % min(fact.first, VECTOR) == 0).all()
    assert (x.astype(np.int64) % fact.each == 0).all()


@st.composite
def steps(draw):
    leaves = st.one_of(st.sampled_from(["row", "column"]), st.sampled_from([0, 1, 2, 3, 4, 6, 8]))
    names = st.sampled_from(sorted(ARITHMETIC))
    return draw(leaves), draw(st.lists(st.tuples(names, leaves, st.booleans()), max_size=5))


@given(steps())
def test_facts_hold(program):
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
        if name in ("div", "rem", "shr_arithmetic") and (
            q.min() < 1 or p.min() < 0 or q.max() > 30
        ):
            continue
        v, x = t.k.op(name, a, b), ARITHMETIC[name](p, q)
    t.learn()
    holds(t.facts.of(v), x)


@pytest.mark.parametrize(
    "name, n, step", [("div", 8, 0), ("rem", 8, 1), ("div", 6, None), ("shr_arithmetic", 2, 0)]
)
def test_whole_groups(name, n, step):
    t = Tracked()
    v = t.k.op(name, t.count(1)[0], t.constant(n)[0])
    t.learn()
    assert t.facts.of(v).step == step


def test_rows_and_columns():
    """Offsets of a tile whose rows lie anywhere, as a product stores them."""
    t = Tracked()
    row, column = t.count(0)[0], t.count(1)[0]
    offsets = t.k.op("mul", row, t.constant(24)[0]) + column + t.constant(16)[0]
    t.learn()
    fact = t.facts.of(offsets)
    assert (fact.step, min(fact.first, VECTOR)) == (1, VECTOR)
