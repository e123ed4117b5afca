"""Maps on a CPU compute each piece of what is joined or padded from the operands that lie there."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.schedule.index import Index, LoopVar, Quotient

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def check(f, reference, *args):
    """Values are exact; where pieces begin, and how often memory is read under a mask."""
    compiled = amdjax.jit(f).lower(*args).compile()
    np.testing.assert_array_equal(compiled(*args), reference(*args).astype(np.float32))
    starts = re.findall(r"apart from ([\d ]+)", compiled.as_text("schedule"))
    masked = compiled.as_text("tiles").count("= load x") - len(
        re.findall(r"= load x\d+ strides=\(\d+\) %\d+$", compiled.as_text("tiles"), re.M)
    )
    return [[int(x) for x in line.split()] for line in starts], masked


# Rows of several programs, and several rows of one; with and without the ends of pieces masked.
@pytest.mark.parametrize("sizes", [(256, 64, 128), (130, 70, 200), (4000, 4096, 5000)])
@pytest.mark.parametrize("rows", [1, 7])
def test_joined(sizes, rows):
    parts = [draw(rows, n) for n in sizes]
    joined = lambda xp: lambda *p: xp.concatenate([x * 3 for x in p], axis=1)
    starts, masked = check(joined(jnp), joined(np), *parts)
    assert starts == [[0, sizes[0], sizes[0] + sizes[1]]]
    assert masked == 0 or any(n % 64 for n in sizes)


@pytest.mark.parametrize("low,high", [(64, 128), (100, 0), (0, 77)])
def test_padded(low, high):
    x = draw(5, 300)
    f = lambda x: lax.pad(x * 2, np.float32(7), [(0, 0, 0), (low, high, 0)])
    starts, _ = check(f, lambda x: np.pad(x * 2, [(0, 0), (low, high)], constant_values=7), x)
    assert starts == [sorted({0, low, low + 300} - {low + high + 300})]


def test_gradients_of_slices():
    """Sums of padded arrays, one for each slice."""
    x, w = draw(9, 384), [draw(9, 128) for _ in range(3)]

    def f(x):
        a, b, c = jnp.split(x, 3, axis=1)
        return (w[0] * a + w[1] * b + w[2] * c).sum()

    starts, masked = check(amdjax.grad(f), lambda x: np.concatenate(w, axis=1), x)
    assert starts == [[0, 128, 256]] and masked == 0


@pytest.mark.parametrize("sizes", [(3, 300), (64,) * 9])
def test_short_and_many_pieces_share_code(sizes):
    parts = [draw(4, n) for n in sizes]
    starts, _ = check(lambda *p: jnp.concatenate(p, 1), lambda *p: np.concatenate(p, 1), *parts)
    assert starts == []


def test_positions_in_pieces():
    """Indices that are values, quotients among them, whose ranges are smaller in a piece."""
    x = draw(3, 256)

    def f(xp, iota):
        def run(x):
            i = iota(512)
            ends = xp.concatenate([x, x + 1], axis=1)
            return xp.where(i < 256, ends * (i // 100), ends - i % 7)

        return run

    iota = lambda n: lax.broadcasted_iota(np.int32, (1, n), 1)
    check(f(jnp, iota), f(np, lambda n: np.arange(n, dtype=np.int32)[None]), x)


def test_quotients_in_a_part_of_a_loop_are_others():
    var = LoopVar("i", 100)
    whole = Index.of(var) // 30
    with var.within(60, 70):
        assert (Index.of(var) // 30).range() == (2, 2) and var.lo == 60
        part = Quotient.of(Index.of(var) + 7, 9, remainder=False)
    assert whole.range() == (0, 3) and (var.lo, var.hi) == (0, 99)
    assert part.hi == 8 and ((Index.of(var) + 7) // 9).range() == (0, 11)
