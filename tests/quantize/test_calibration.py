"""Observers against NumPy on all of the numbers at once."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax.quantize import MSE, Entropy, MinMax, Percentile, calibration, quantize

OBSERVERS = (MinMax, Percentile, Entropy, MSE)


def heavy(*shape):
    """Numbers of which a few are far out."""
    rng = np.random.default_rng(shape)
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(np.float32)


def observed(observer, *batches):
    for x in batches:
        observer.update(x)
    return observer.range()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(0, 2))
def test_extremes_of_all_batches(sizes, axis):
    batches = [heavy(*[n if d != axis else 3 for d in range(3)]) for n in sizes]
    rows = np.concatenate([np.moveaxis(x, axis, 0).reshape(3, -1) for x in batches], axis=1)
    if not rows.size:
        with pytest.raises(ValueError, match="no numbers were seen"):
            observed(MinMax(axis), *batches)
        return
    low, high = observed(MinMax(axis), *batches)
    np.testing.assert_array_equal(low, rows.min(1))
    np.testing.assert_array_equal(high, rows.max(1))
    assert observed(MinMax(), *batches) == (rows.min(), rows.max())


@pytest.mark.parametrize("percent", [50.0, 99.0, 99.9, 100.0])
def test_percentile(percent):
    batches = [heavy(500) * s for s in (0.1, 1, 8, 2)]
    everything = np.concatenate(batches)
    low, high = observed(Percentile(percent), *batches)
    kept = np.percentile(np.abs(everything), percent)
    width = np.abs(everything).max() / 512  # bins became wider as the batches did
    assert low == max(everything.min(), low)
    assert abs(max(-low, high) - kept) <= width


@pytest.mark.parametrize("kind", [Percentile, Entropy, MSE])
def test_batches_add_up(kind):
    x = heavy(4000)
    x[0] = np.abs(x).max() * 1.01  # the first number says how wide bins are
    once = observed(kind(), x)
    assert observed(kind(), x[:10], x[10:2000], x[2000:]) == once


@pytest.mark.parametrize("kind", OBSERVERS)
def test_channels_are_by_themselves(kind):
    x = heavy(3, 1000) * np.array([[1], [100], [1e-3]], np.float32)
    low, high = observed(kind(axis=0), x[:, :500], x[:, 500:])
    for i in range(3):
        alone = observed(kind(), x[i, :500], x[i, 500:])
        assert (low[i], high[i]) == alone


@pytest.mark.parametrize("kind", OBSERVERS)
@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
def test_one_number(kind, value):
    low, high = observed(kind(), np.full(10, value, np.float32))
    assert low == high == value


def error(x, low, high):
    scale = (max(high, 0) - min(low, 0)) / 255
    zero = np.round(-128 - min(low, 0) / scale)
    numbers = np.clip(np.round(x / scale) + zero, -128, 127)
    return np.mean(((numbers - zero) * scale - x) ** 2)


@pytest.mark.parametrize("seed", range(4))
def test_least_squares(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, 20000)
    low, high = observed(MSE("int8"), x.astype(np.float32))
    largest = np.abs(x).max()
    limits = largest * np.arange(1, 101) / 100
    tried = [error(x, max(x.min(), -t), min(x.max(), t)) for t in limits]
    assert error(x, low, high) <= 1.05 * min(tried)
    assert error(x, low, high) < error(x, x.min(), x.max())


def test_entropy_clips_what_is_far_out():
    rng = np.random.default_rng(0)
    x = np.append(rng.standard_normal(50000), [80.0, -90.0]).astype(np.float32)
    low, high = observed(Entropy(), x)
    assert 3 < high < 20 and -20 < low < -3
    folded = np.maximum(rng.standard_normal(50000), 0).astype(np.float32)
    assert observed(Entropy(), folded)[1] > 3
    uniform = rng.uniform(-1, 1, 50000).astype(np.float32)
    low, high = observed(Entropy(), uniform)
    assert high > 0.95 and low < -0.95


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_methods_by_name(method):
    w, x = heavy(8, 4), heavy(64, 8)
    q = quantize(lambda w, x: x @ w, w, [x[:32], x[32:]], calibration=method)
    kinds = dict(zip(("minmax", "percentile", "entropy", "mse"), OBSERVERS))
    low, high = observed(kinds[method](), x[:32], x[32:])
    scale = max(high, 0) / np.float32(255) - min(low, 0) / np.float32(255)
    np.testing.assert_allclose(q.params["inputs"]["params"]["scale"], scale, rtol=1e-6)


def test_errors_name_the_argument():
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="x must be finite"):
            MinMax().update(np.array([bad]))
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        MinMax(axis=2).update(np.ones((2, 2)))
    with pytest.raises(ValueError, match="no numbers were seen"):
        Entropy().range()
    with pytest.raises(ValueError, match="percent"):
        Percentile(0)
    with pytest.raises(ValueError, match="dtype"):
        MSE("int9")


def test_progress_is_shown_if_asked(monkeypatch):
    shown = []

    def bar(items, desc):
        shown.append(desc)
        return items

    monkeypatch.setattr(calibration, "_tqdm", lambda: bar)
    w, x = heavy(8, 4), heavy(64, 8)
    quantize(lambda w, x: x @ w, w, [x], progress=True)
    quantize(lambda w, x: x @ w, w, [x], progress=False)
    assert shown == ["calibrating", "means"]
