"""What docs/miopen.md maps MIOpen's layers to computes what MIOpen's entry points do.

Oracles are definitions in NumPy, written from what MIOpen's modes mean; gradients are compared with
their differences.
"""

import itertools

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from tests.support import attention as attention_reference, layer_references as reference
from tests.support.miopen import check, check_names, close, draw, table, wide

CASES, covers = table()


# Convolutions


def _conv(strides, pads, dilation, groups):
    return lambda x, kernel: reference.conv(x, kernel, strides, pads, dilation, groups)


CONVOLUTIONS = {
    "1-D": ((2, 9, 3), (3, 3, 4), (2,), ((1, 1),), (1,), 1),
    "2-D": ((2, 7, 6, 4), (3, 2, 4, 5), (1, 2), ((1, 0), (2, 1)), (2, 1), 1),
    "3-D": ((1, 5, 4, 6, 2), (2, 3, 2, 2, 3), (1, 1, 2), ((0, 1),) * 3, (1, 1, 2), 1),
    "groups": ((2, 6, 6, 6), (3, 3, 2, 6), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
    "depthwise": ((1, 6, 7, 4), (3, 3, 1, 8), (2, 1), ((1, 1), (0, 0)), (1, 1), 4),
}


@covers("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardWeights",
        "SetConvolutionGroupCount", "InitConvolutionDescriptor", "InitConvolutionNdDescriptor",
        by=("nn.conv",))  # fmt: skip
def convolutions_and_gradients():
    """Of one to three dimensions, with groups, in both layouts."""
    for x_shape, kernel_shape, strides, pads, dilation, groups in CONVOLUTIONS.values():
        x, kernel = draw(*x_shape), draw(*kernel_shape)
        options = {"strides": strides, "padding": pads, "dilation": dilation, "groups": groups}
        define = _conv(strides, pads, dilation, groups)
        check(lambda x, w, o=options: nn.conv(x, w, **o), define, x, kernel)
        first = nn.conv(
            reference.channels_first(x), reference.kernel_channels_first(kernel),
            layout="channels_first", **options,
        )  # fmt: skip
        close(first, reference.channels_first(define(x, kernel)))


@covers("ConvolutionForward", by=("lax.conv_general_dilated", "nn.Conv"))
def convolutions_of_every_dtype():
    x_shape, kernel_shape, strides, pads, dilation, _ = CONVOLUTIONS["2-D"]
    for dtype, tolerance in (("float16", 4e-3), ("bfloat16", 3e-2), ("float64", 1e-12)):
        with amdjax.enable_x64(dtype == "float64"):
            x, kernel = draw(*x_shape, dtype=dtype), draw(*kernel_shape, dtype=dtype)
            found = nn.conv(x, kernel, strides=strides, padding=pads, dilation=dilation)
            assert found.dtype == x.dtype
            close(found, _conv(strides, pads, dilation, 1)(wide(x), wide(kernel)), tolerance)
    x, kernel = (np.clip(30 * draw(*s), -128, 127).astype(np.int8) for s in (x_shape, kernel_shape))
    found = nn.conv(x, kernel, strides=strides, padding=pads, dilation=dilation)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, _conv(strides, pads, dilation, 1)(x, kernel))


@covers("ConvolutionForwardBias", "ConvolutionBackwardBias", by=("nn.conv",))
def biases_of_convolutions():
    x, kernel, bias = draw(2, 5, 5, 3), draw(3, 3, 3, 4), draw(4)
    define = lambda x, w, b: _conv((1, 1), ((1, 1),) * 2, (1, 1), 1)(x, w) + b
    check(lambda x, w, b: nn.conv(x, w, b, padding=1), define, x, kernel, bias)


@covers("SetTransposeConvOutputPadding", "SetTransposeConvNdOutputPadding",
        "ConvolutionBackwardData", by=("output_padding",))  # fmt: skip
def transposed_convolutions():
    """The transpose of the convolution that shrinks what they return."""
    for rank, groups in ((2, 1), (3, 2)):
        x, extra = draw(2, *(4,) * rank, 4), (1,) * rank
        kernel = draw(*(3,) * rank, 4 // groups, 6)
        f = lambda x, w, r=rank, g=groups, e=extra: nn.conv_transpose(
            x, w, strides=2, padding=1, output_padding=e, groups=g
        )
        out = f(x, kernel)
        assert out.shape == (2, *(8,) * rank, 6)
        # Features and channels of each group change places.
        parts = np.split(kernel, groups, axis=-1)
        turned = np.concatenate([np.moveaxis(p, -1, -2) for p in parts], axis=-1)
        shrink = _conv((2,) * rank, ((1, 1),) * rank, (1,) * rank, groups)
        y = draw(*out.shape, seed=3)
        forward = (shrink(y.astype(np.float64), turned) * x).sum()
        np.testing.assert_allclose((wide(out) * y).sum(), forward, rtol=1e-4, atol=1e-3)


@covers("GetConvolutionForwardOutputDim", "GetConvolutionNdForwardOutputDim",
        "GetConvolutionSpatialDim", by=("amdjax.eval_shape",))  # fmt: skip
def shapes_of_convolutions():
    for x, kernel, strides, pads, dilation, groups in CONVOLUTIONS.values():
        f = lambda x, w, s=strides, p=pads, d=dilation, g=groups: nn.conv(
            x, w, strides=s, padding=p, dilation=d, groups=g
        )
        found = amdjax.eval_shape(f, *(amdjax.ShapeDtypeStruct(s, np.float32) for s in (x, kernel)))
        space = [
            (n + low + high - (k - 1) * d - 1) // s + 1
            for n, k, s, (low, high), d in zip(x[1:-1], kernel, strides, pads, dilation)
        ]
        assert found.shape == (x[0], *space, kernel[-1])


@covers("ConvolutionBiasActivationForward", "CreateFusionPlan", "CompileFusionPlan",
        "ExecuteFusionPlan", "CreateOpConvForward", "CreateOpBiasForward",
        "CreateOpActivationForward", "CreateOpBatchNormInference", "SetOpArgsActivForward",
        by=("compile().as_text",))  # fmt: skip
def fused_convolutions():
    """Bias, batch norm and activation are computed where the convolution stores its result."""
    x, kernel, bias = draw(2, 6, 6, 3), draw(3, 3, 3, 4), draw(4)
    mean, variance = draw(4, seed=1), draw(4, seed=2) ** 2 + 0.5

    def f(x, kernel, bias, mean, variance):
        y = nn.conv(x, kernel, bias, padding=1)
        y, _ = nn.batch_norm(y, None, None, mean, variance, train=False)
        return nn.leaky_relu(y, 0.1)

    y = _conv((1, 1), ((1, 1),) * 2, (1, 1), 1)(x, kernel) + bias
    y = (y - mean) / np.sqrt(variance + 1e-5)
    program = amdjax.jit(f)
    close(program(x, kernel, bias, mean, variance), np.where(y > 0, y, 0.1 * y))
    text = program.lower(x, kernel, bias, mean, variance).compile().as_text("fusion")
    (step,) = (line for line in text.splitlines() if "conv_general_dilated" in line)
    assert "conv_general_dilated then" in step and "select_n" in step
    assert len(text.splitlines()) == 2  # and the inverse deviations


@covers("CreateOpBatchNormForward", "CreateOpBatchNormBackward", "CreateOpActivationBackward",
        "BatchNormalizationForwardTraining", "BatchNormalizationBackward",
        by=())  # fmt: skip
def fused_batch_norm_and_activation():
    x, scale, bias = draw(6, 4, 3), draw(3), draw(3, seed=1)
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    f = lambda x, s, b: nn.relu(nn.batch_norm(x, s, b, zeros, ones, train=True)[0])

    def define(x, s, b):
        y = (x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5)
        return np.maximum(y * s + b, 0)

    check(f, define, x, scale, bias, tolerance=5e-5)


# Pools


@covers("PoolingForward", "PoolingBackward", "SetPoolingIndexType", "SetPoolingWorkSpaceIndexMode",
        "Set2dPoolingDescriptor", "SetNdPoolingDescriptor",
        by=("nn.max_pool", "nn.avg_pool"))  # fmt: skip
def pools():
    """The largest with its place in the image, and both means, of two and three dimensions."""
    for space in ((7, 6), (5, 4, 6)):
        rank = len(space)
        x = np.random.default_rng(0).permutation(2 * 3 * int(np.prod(space))).astype(np.float32)
        x = x.reshape(2, *space, 3) / 16
        window, strides, pads = (3,) * rank, (2,) * rank, ((1, 1),) * rank
        options = {"strides": strides, "padding": pads}
        largest = lambda x, w=window, s=strides, p=pads: reference.pool(
            x, w, s, p, lambda y, axes: y.max(axes), -np.inf
        )
        check(lambda x, w=window, o=options: nn.max_pool(x, w, **o), largest, x)
        values, places = nn.max_pool(x, window, return_indices=True, **options)
        rows = x.reshape(2, -1, 3)
        at = np.asarray(places).reshape(2, -1, 3)
        found = np.take_along_axis(rows, at, axis=1).reshape(values.shape)
        np.testing.assert_array_equal(found, values)
        inclusive = lambda x, w=window, s=strides, p=pads: reference.pool(
            x, w, s, p, lambda y, axes: y.mean(axes), 0.0
        )
        check(lambda x, w=window, o=options: nn.avg_pool(x, w, **o), inclusive, x)

        def exclusive(x, w=window, s=strides, p=pads):
            total = reference.pool(x, w, s, p, lambda y, axes: y.sum(axes), 0.0)
            ones = np.ones_like(x)
            return total / reference.pool(ones, w, s, p, lambda y, axes: y.sum(axes), 0.0)

        check(lambda x, w=window, o=options: nn.avg_pool(x, w, count_include_pad=False, **o),
              exclusive, x)  # fmt: skip
        close(nn.global_max_pool(x), x.max(tuple(range(1, rank + 1))))
        close(nn.global_avg_pool(x), x.mean(tuple(range(1, rank + 1)), dtype=np.float64))


@covers("GetPoolingForwardOutputDim", "GetPoolingNdForwardOutputDim", by=("amdjax.eval_shape",))
def shapes_of_pools():
    for rank in (2, 3):
        x = amdjax.ShapeDtypeStruct((2, *(9,) * rank, 3), np.float32)
        for pool in (nn.max_pool, nn.avg_pool):
            found = amdjax.eval_shape(lambda x, p=pool: p(x, 3, strides=2, padding=1), x)
            assert found.shape == (2, *((9 + 2 - 3) // 2 + 1,) * rank, 3)


# Elementwise layers

LOGISTIC = lambda x: 1 / (1 + np.exp(-x))
ACTIVATIONS = {
    "PASTHRU": (nn.identity, lambda x: x),
    "LOGISTIC": (nn.sigmoid, LOGISTIC),
    "TANH": (lambda x: nn.scaled_tanh(x, 0.5, 2.0), lambda x: 2 * np.tanh(0.5 * x)),
    "RELU": (nn.relu, lambda x: np.maximum(x, 0)),
    "SOFTRELU": (nn.softplus, lambda x: np.log1p(np.exp(x))),
    "ABS": (jnp.abs, np.abs),
    "POWER": (lambda x: nn.power(x, 9.0, 0.5, 1.5), lambda x: (9 + 0.5 * x) ** 1.5),
    "CLIPPEDRELU": (lambda x: nn.clipped_relu(x, 0.7), lambda x: np.minimum(np.maximum(x, 0), 0.7)),
    "LEAKYRELU": (lambda x: nn.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "ELU": (lambda x: nn.elu(x, 0.8), lambda x: np.where(x > 0, x, 0.8 * np.expm1(x))),
    "CLAMP": (lambda x: nn.clamp(x, -0.5, 0.9), lambda x: np.clip(x, -0.5, 0.9)),
}


@covers("ActivationForward", "ActivationBackward", "SetActivationDescriptor",
        by=(*ACTIVATIONS, "nn.scaled_tanh", "nn.power", "nn.clipped_relu"))  # fmt: skip
def activations():
    for f, define in ACTIVATIONS.values():
        check(f, define, draw(5, 40))


@covers("PReLUBackward", by=("nn.prelu", "nn.PReLU"))
def prelu():
    define = lambda x, a: np.where(x > 0, x, a * x)
    check(nn.prelu, define, draw(6, 5), draw(5))
    check(nn.prelu, lambda x, a: define(x, a[0]), draw(6, 5), draw(1))
    close(nn.PReLU(5)(draw(6, 5)), define(draw(6, 5), 0.25))


@covers("GLUForward", "GLUBackward", by=("nn.glu", "nn.GLU"))
def glu():
    for axis in (0, 1, -1):
        define = lambda x, a=axis: np.split(x, 2, a)[0] * LOGISTIC(np.split(x, 2, a)[1])
        check(lambda x, a=axis: nn.glu(x, a), define, draw(4, 6, 8))


@covers("DropoutForward", "DropoutBackward", "SetDropoutDescriptor", "RestoreDropoutDescriptor",
        by=("nn.dropout", "nn.Dropout"))  # fmt: skip
def dropout():
    """A key gives one mask, forward and backward; a layer draws its own."""
    x, key, rate = draw(50, 40), amdjax.random.key(3), 0.3
    out, pull = amdjax.vjp(lambda x: nn.dropout(key, x, rate), x)
    kept = np.asarray(out) != 0
    close(out, np.where(kept, wide(x) / (1 - rate), 0))
    assert abs(kept.mean() - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / x.size)
    close(pull(jnp.ones_like(out))[0], kept / (1 - rate))
    np.testing.assert_array_equal(amdjax.jit(nn.dropout, static_argnums=2)(key, x, rate), out)
    layer = nn.Dropout(rate)
    first, second = (nn.apply(layer, x, key=k, train=True)[0] for k in amdjax.random.split(key))
    assert np.any(first != second)
    np.testing.assert_array_equal(nn.apply(layer, x)[0], x)


# Norms


@covers("BatchNormalizationForwardTraining", "BatchNormalizationForwardTraining_V2",
        "BatchNormalizationForwardInference", "BatchNormalizationForwardInference_V2",
        "BatchNormalizationBackward", "BatchNormalizationBackward_V2", "DeriveBNTensorDescriptor",
        by=("nn.batch_norm",))  # fmt: skip
def batch_norm():
    """By channels and by activations: running statistics, those that are saved, gradients."""
    x = 2 * draw(6, 5, 4, 3) + 1
    for axis, axes in ((-1, (0, 1, 2)), ((1, 2, 3), (0,))):
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        scale, bias, mean = draw(*shape, seed=1), draw(*shape, seed=2), draw(*shape, seed=3)
        variance = draw(*shape, seed=4) ** 2 + 0.5
        count = x.size // scale.size

        def norm(x, scale, bias, train, **more):
            return nn.batch_norm(x, scale, bias, mean, variance, train=train, axis=axis,
                                 momentum=0.75, epsilon=1e-4, **more)  # fmt: skip

        def training(x, scale, bias):
            y = (x - x.mean(axes)) / np.sqrt(x.var(axes) + 1e-4)
            return y * scale + bias

        def inference(x, scale, bias):
            return (x - mean) / np.sqrt(variance + 1e-4) * scale + bias

        train = lambda *args: norm(*args, True)[0]
        check(train, training, x, scale, bias, tolerance=1e-4)
        check(lambda *args: norm(*args, False)[0], inference, x, scale, bias)
        _, running, saved = norm(x, scale, bias, True, return_statistics=True)
        now, spread = wide(x).mean(axes), wide(x).var(axes)
        close(running[0], 0.75 * mean + 0.25 * now)
        close(running[1], 0.75 * variance + 0.25 * spread * count / (count - 1))
        close(saved[0], now)
        close(saved[1], 1 / np.sqrt(spread + 1e-4))


@covers("LayerNormForward", "AddLayerNormForward", "T5LayerNormForward", "T5LayerNormBackward",
        "GroupNormForward",
        by=("nn.layer_norm", "nn.add_layer_norm", "nn.rms_norm", "nn.group_norm"))  # fmt: skip
def norms_of_examples():
    x, other, scale, bias = draw(3, 5, 8), draw(3, 5, 8, seed=1), draw(8), draw(8, seed=2)

    def layer(x, scale, bias):
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return y * scale + bias

    check(nn.layer_norm, layer, x, scale, bias, tolerance=5e-5)
    _, (mean, inverse) = nn.layer_norm(x, return_statistics=True)
    close(mean, wide(x).mean(-1))
    close(inverse, 1 / np.sqrt(wide(x).var(-1) + 1e-5))
    add = lambda x, y, s, b: layer(x + y, s, b)
    check(nn.add_layer_norm, add, x, other, scale, bias, tolerance=5e-5)
    root = lambda x, s: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * s
    check(lambda x, s: nn.rms_norm(x, s, epsilon=1e-6), root, x, scale, tolerance=5e-5)

    def group(x, scale, bias):
        y = x.reshape(3, 5, 2, 4)
        y = (y - y.mean((1, 3), keepdims=True)) / np.sqrt(y.var((1, 3), keepdims=True) + 1e-5)
        return y.reshape(x.shape) * scale + bias

    check(lambda x, s, b: nn.group_norm(x, s, b, groups=2), group, x, scale, bias, tolerance=5e-5)


@covers("LRNForward", "LRNBackward", "SetLRNDescriptor", by=("nn.local_response_norm",))
def local_response_norm():
    x = draw(2, 5, 6, 7)
    for mode, axes in (("cross_channel", (3,)), ("within_channel", (1, 2))):
        define = lambda x, a=axes: reference.local_response(x, 3, a, 0.5, 0.75, 2.0)
        f = lambda x, m=mode: nn.local_response_norm(x, 3, alpha=0.5, beta=0.75, k=2.0, mode=m)
        check(f, define, x)


@covers("SoftmaxForward", "SoftmaxForward_V2", "SoftmaxBackward", "SoftmaxBackward_V2",
        "SetSoftmaxDescriptor", by=("nn.softmax", "nn.log_softmax", "axis"))  # fmt: skip
def softmax():
    """Over channels and over an example, each algorithm, scaled and added to what was there."""
    x, before = draw(2, 3, 4, 5), draw(2, 3, 4, 5, seed=1)
    for axis, algorithm in itertools.product((1, (1, 2, 3)), ("accurate", "fast", "log")):

        def define(x, before, axis=axis, algorithm=algorithm):
            y = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
            return 1.5 * (np.log(y) if algorithm == "log" else y) + 0.5 * before

        f = lambda x, before, axis=axis, a=algorithm: (
            1.5 * nn.softmax(x, axis, algorithm=a) + 0.5 * before
        )
        check(f, define, x, before)
    close(nn.log_softmax(x, 1), np.log(np.exp(wide(x)) / np.exp(wide(x)).sum(1, keepdims=True)))


# Attention and losses


@covers("CreateMhaDescriptor", "SetMhaDescriptor", "GetMhaDescriptor", "CreateMhaProblem",
        by=())  # fmt: skip
def attention():
    """Forward and backward, scaled, with a bias and a causal mask, and what is kept for both."""
    sizes = (2, 6, 6, 3, 3, 4, 4)
    q, k, v, ct = attention_reference.operands(sizes, "float32")
    bias = draw(1, 3, 6, 6)
    options = {"scale": 0.3, "is_causal": True}
    f = lambda *args: nn.dot_product_attention(*args, **options)
    out, pull = amdjax.vjp(f, q, k, v, bias)
    expected, sums, gradients = attention_reference.attention(
        *map(wide, (q, k, v)), bias=wide(bias), ct=wide(ct), **options
    )
    close(out, expected)
    for got, want in zip(pull(jnp.asarray(ct)), gradients, strict=True):
        close(got, want)
    close(nn.dot_product_attention(q, k, v, bias, return_residual=True, **options)[1], sums)


@covers("RoPEForward", "RoPEBackward", by=("nn.rope",))
def rope():
    x = draw(2, 5, 3, 8)
    turns = np.arange(5)[:, None] / 10000.0 ** (np.arange(4) / 4)

    def halves(x):
        c, s = np.cos(turns)[:, None], np.sin(turns)[:, None]
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def neighbors(x):
        y = halves(np.concatenate([x[..., ::2], x[..., 1::2]], -1))
        return np.stack(np.split(y, 2, -1), -1).reshape(x.shape)

    check(nn.rope, halves, x)
    check(lambda x: nn.rope(x, pairing="interleaved"), neighbors, x)


@covers("CTCLoss", "SetCTCLossDescriptor", "GetCTCLossWorkspaceSize", by=("nn.ctc_loss",))
def ctc_loss():
    """The sum over all alignments of few times, by enumeration."""
    logits, lengths = draw(4, 2, 3), np.array([4, 3])
    labels, counts = np.array([[1, 2], [2, 0]]), np.array([2, 1])

    def define(logits):
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        losses = []
        for b, (time, label) in enumerate(zip(lengths, labels, strict=True)):
            total = 0.0
            for path in itertools.product(range(3), repeat=int(time)):
                read = [c for c, _ in itertools.groupby(path) if c != 0]
                if read == list(label[: counts[b]]):
                    total += np.prod([p[t, b, c] for t, c in enumerate(path)])
            losses.append(-np.log(total))
        return np.array(losses)

    f = lambda x: nn.ctc_loss(x, lengths, labels, counts, reduction="none")
    check(f, define, logits)


@covers("SoftMarginLossForward", "SoftMarginLossBackward", "MultiMarginLossForward",
        by=("nn.soft_margin_loss", "nn.multi_margin_loss"))  # fmt: skip
def margin_losses():
    x, signs = draw(5, 4), np.sign(draw(5, 4, seed=1))
    labels, weight = np.array([0, 3, 1, 1, 2]), np.array([0.5, 1.0, 2.0, 1.5], np.float32)
    reduce = {"none": lambda x: x, "sum": np.sum, "mean": np.mean}
    for name, reduced in reduce.items():
        soft = lambda x, r=reduced: r(np.log1p(np.exp(-signs * x)))
        check(lambda x, n=name: nn.soft_margin_loss(x, signs, reduction=n), soft, x)
        for p in (1, 2):

            def multi(x, p=p, r=reduced):
                rows = np.arange(5)
                short = np.maximum(0, 0.7 - x[rows, labels][:, None] + x) ** p
                short[rows, labels] = 0
                return r(short.sum(1) / 4 * weight[labels])

            f = lambda x, p=p, n=name: nn.multi_margin_loss(
                x, labels, p=p, margin=0.7, weight=weight, reduction=n
            )
            check(f, multi, x)


@pytest.mark.turns(3)
@pytest.mark.parametrize("function", [c[0] for c in CASES], ids=lambda f: f.__name__)
def test_entries(function):
    function()


def test_the_page_names_what_is_called():
    check_names(CASES)
