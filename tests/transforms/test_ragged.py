"""`lax.ragged_all_to_all` against copying the rows one message after the other."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.test_util import check_grads


def messages(n, seed):
    """Rows that members send each other, and what each should have then."""
    rng = np.random.default_rng(seed)
    sends = rng.integers(0, 3, (n, n))
    before = lambda counts: np.cumsum(counts, 1) - counts
    starts, ends = before(sends), before(sends.T).T
    rows = int(max(sends.sum(), 1))
    x, out = (rng.standard_normal((n, rows, 2)).astype(np.float32) for _ in range(2))
    want = out.copy()
    for j, i in np.ndindex(n, n):
        a, b, count = starts[j, i], ends[j, i], sends[j, i]
        want[i, b : b + count] = x[j, a : a + count]
    return x, out, (starts, sends, ends, sends.T), want


def exchanged(x, out, plan):
    f = lambda *args: lax.ragged_all_to_all(*args, axis_name="i")
    return amdjax.vmap(f, axis_name="i")(x, out, *plan)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_rows_arrive(n):
    x, out, plan, want = messages(n, n)
    np.testing.assert_array_equal(exchanged(x, out, plan), want)
    jitted = amdjax.jit(lambda x, out: exchanged(x, out, plan))
    np.testing.assert_array_equal(jitted(x, out), want)
    batch = amdjax.vmap(lambda x: exchanged(x, out, plan))(jnp.stack([x, 2 * x]))
    np.testing.assert_array_equal(batch[0], want)


def test_derivatives():
    x, out, plan, _ = messages(3, 0)
    check_grads(lambda x, out: exchanged(x, out, plan), (x, out), 2, atol=1e-2, rtol=1e-2)


def test_bad_plans():
    x, out, plan, _ = messages(2, 0)
    with pytest.raises(ValueError, match="send_sizes must be 2 integers"):
        exchanged(x, out, (plan[0], plan[1][:, :1], *plan[2:]))
    with pytest.raises(ValueError, match="agree but in the first axis"):
        exchanged(x, out[..., :1], plan)
    with pytest.raises(NotImplementedError, match="axis_index_groups"):
        lax.ragged_all_to_all(x, out, *plan, axis_name="i", axis_index_groups=[[0], [1]])
