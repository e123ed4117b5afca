"""Arguments that no layer or loss takes: refused where they are given, by name."""

import numpy as np
import pytest

import amdjax
from amdjax import nn, optim, random, rnn

KEY = random.key(0)
X, IMAGE, TEXT = (np.ones(s, np.float32) for s in ((2, 5), (2, 8, 8, 4), (2, 7, 6)))
LABELS = np.ones(2, int)

pytestmark = pytest.mark.cpu_only("what functions say before they compute")


def conv(cls=nn.Conv, **options):
    return cls(4, 8, (3, 3), key=KEY, **options)


WRONG = {
    "strides=0": (lambda: conv(strides=0), ValueError, "Conv: strides must be at least 1"),
    "strides": (lambda: conv(strides=(1, 2, 3)), ValueError, "Conv: strides must have one entry"),
    "dilation": (lambda: conv(dilation="2"), TypeError, "Conv: dilation must be an integer"),
    "padding": (lambda: conv(padding="FULL"), ValueError, "Conv: padding must be 'SAME'"),
    "padding=1.5": (lambda: conv(padding=1.5), TypeError, "Conv: padding must be 'SAME'"),
    "paddings": (lambda: conv(padding=(1, 2, 3)), ValueError, "Conv: padding must have one entry"),
    "kernel_init": (lambda: conv(kernel_init=1), TypeError, "Conv: kernel_init must be a function"),
    "output_padding": (lambda: conv(nn.ConvTranspose, output_padding=-1), ValueError,
                       "ConvTranspose: output_padding must be at least 0"),
    "large window": (lambda: nn.conv(IMAGE, np.ones((9, 9, 4, 1)), padding="VALID"), ValueError,
                     "conv: the window must fit"),
    "nothing left": (lambda: nn.conv_transpose(IMAGE, np.ones((2, 2, 4, 1)), padding=9), ValueError,
                     "conv_transpose: padding cuts all off"),
    "pool padding": (lambda: nn.MaxPool(2, padding="X"), ValueError, "MaxPool: padding must be"),
    "divisor": (lambda: nn.AvgPool(2, divisor=0), ValueError, "AvgPool: divisor must be"),
    "p": (lambda: nn.LpPool(2, "2"), ValueError, "LpPool: p must be"),
    "momentum": (lambda: nn.BatchNorm(4, momentum="a"), TypeError, "BatchNorm: momentum must be"),
    "epsilon": (lambda: nn.BatchNorm(4, epsilon=-1), ValueError, "BatchNorm: epsilon must not be"),
    "layer epsilon": (lambda: nn.LayerNorm(4, epsilon="e"), TypeError, "LayerNorm: epsilon must"),
    "channels": (lambda: nn.InstanceNorm(3)(IMAGE), ValueError, "must have 3 channels on axis -1"),
    "mode": (lambda: nn.LocalResponseNorm(5, mode="x"), ValueError, "LocalResponseNorm: mode must"),
    "rate": (lambda: nn.Dropout("a"), TypeError, "Dropout: rate must be a probability"),
    "NumPy's rate": (lambda: nn.Dropout(np.float32(1.5)), ValueError, "Dropout: rate must be"),
    "NumPy's epsilon": (lambda: nn.LayerNorm(4, epsilon=np.float16(-1)), ValueError,
                        "LayerNorm: epsilon must not be"),
    "cache": (lambda: nn.MultiHeadAttention(6, 3, key=KEY)(TEXT, cache=3), TypeError,
              "cache must be a KVCache"),
    "positions": (lambda: nn.rope(TEXT[..., None, :], np.arange(3)), ValueError,
                  r"rope: positions must broadcast to \(2, 7\)"),
    "activation": (lambda: nn.GLU(5, 4, key=KEY, activation=3), TypeError, "GLU: activation must"),
    "fn": (lambda: nn.Lambda(3), TypeError, "Lambda: fn must be a function"),
    "method": (lambda: nn.Upsample(2, method="x"), ValueError, "Upsample: method must be one of"),
    "resize": (lambda: nn.Resize(4.5), ValueError, "Resize: size must be a positive integer"),
    "layout": (lambda: nn.PixelShuffle(2, layout="NHWC"), ValueError, "PixelShuffle: layout must"),
    "state": (lambda: rnn.LSTMCell(6, 8, key=KEY)(TEXT[0], 3), TypeError,
              "lstm_cell: state must be a pair"),
    "smoothing": (lambda: nn.softmax_cross_entropy(X, LABELS, label_smoothing="a"), TypeError,
                  "label_smoothing must be in"),
    "ignore_index": (lambda: nn.softmax_cross_entropy(X, LABELS, ignore_index=1.5), TypeError,
                     "ignore_index must be an integer"),
    "blank": (lambda: nn.ctc_loss(np.ones((3, 2, 4)), [3, 3], np.ones((2, 2), int), [1, 1],
                                  blank=1.5), TypeError, "ctc_loss: blank must be an integer"),
    "delta": (lambda: nn.huber(X, X, delta=-1), ValueError, "huber: delta must not be negative"),
    "complex norm": (lambda: nn.layer_norm(X + 0j), TypeError, "layer_norm: x must have a real"),
    "complex batch": (lambda: nn.batch_norm(X + 0j, None, None, X[0], X[0], train=True), TypeError,
                      "batch_norm: x must have a real"),
    "complex lp": (lambda: nn.lp_pool(TEXT + 0j, 2, 2), TypeError, "lp_pool: x must have a real"),
    "complex lrn": (lambda: nn.local_response_norm(TEXT + 0j, 3), TypeError,
                    "local_response_norm: x must have a real"),
    "complex loss": (lambda: nn.mse(X + 0j, X), TypeError, "mse: a loss is of real numbers"),
    "scale_factor": (lambda: nn.Upsample(scale_factor="a"), ValueError,
                     "Upsample: scale_factor must be a pos"),
    "size": (lambda: nn.Upsample("a"), ValueError, "Upsample: size must be a positive integer"),
    "alpha": (lambda: nn.LocalResponseNorm(3, alpha="a"), TypeError,
              "LocalResponseNorm: alpha must be a number"),
    "axis": (lambda: nn.PReLU(axis="a"), TypeError, "PReLU: axis must be an integer"),
    "misspelled": (lambda: rnn.LSTM(3, 4, key=KEY, bidirectionl=True), TypeError,
                   r"^LSTM\(\) got an unexpected .* 'bidirectionl'"),
    "beta": (lambda: nn.smooth_l1(X, X, beta=-1), ValueError, "smooth_l1: beta must not be"),
    "batch_size": (lambda: nn.data.batches(X, 2.5), TypeError, "batches: batch_size must be an"),
    "prefetch": (lambda: nn.data.batches(X, 2, prefetch="a"), TypeError, "batches: prefetch must"),
    "policy": (lambda: nn.apply(nn.relu, X, policy="bf16"), TypeError, "policy must be an nn.Pol"),
    "train": (lambda: nn.apply(nn.relu, X, train="no"), TypeError, "train must be True, False"),
    "mask": (lambda: optim.masked(optim.sgd(0.1), 3).init(X), TypeError, "masked: mask must be a"),
}  # fmt: skip


def test_sizes_may_be_integers_of_numpy():
    """As products of shapes are."""
    for n in (np.int64(4), np.int32(4)):
        layers = (
            nn.Dense(n, n, key=KEY), nn.Conv(n, n, n, groups=n, key=KEY), nn.BatchNorm(n),
            nn.LayerNorm(n), nn.GroupNorm(n, groups=n), rnn.LSTM(n, n, layers=n, key=KEY),
            nn.MultiHeadAttention(n, n, key=KEY), nn.Embedding(n, n, key=KEY),
        )  # fmt: skip
        plain = (
            nn.Dense(4, 4, key=KEY), nn.Conv(4, 4, 4, groups=4, key=KEY), nn.BatchNorm(4),
            nn.LayerNorm(4), nn.GroupNorm(4, groups=4), rnn.LSTM(4, 4, layers=4, key=KEY),
            nn.MultiHeadAttention(4, 4, key=KEY), nn.Embedding(4, 4, key=KEY),
        )  # fmt: skip
        assert amdjax.tree.structure(layers) == amdjax.tree.structure(plain)
        image = np.ones((2, 4, 4, n), np.float32)
        np.testing.assert_array_equal(layers[1](image), plain[1](image))
        np.testing.assert_array_equal(layers[4](image), plain[4](image))


@pytest.mark.parametrize("which", WRONG)
def test_bad_arguments_are_named(which):
    call, error, words = WRONG[which]
    with pytest.raises(error, match=words):
        call()
