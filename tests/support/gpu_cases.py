"""Programs that between them meet every kind of schedule and kernel family."""

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn

rng = np.random.default_rng(7)


def normal(*shape, dtype="float32"):
    return rng.normal(size=shape).astype(jnp.dtype(dtype))


def softmax(x, axis=-1):
    e = jnp.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x, scale, shift):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


layer_norm_gradient = amdjax.grad(lambda *args: (layer_norm(*args) ** 2).sum(), (0, 1, 2))


def softmax_gradient(x, g):
    return amdjax.grad(lambda x: (softmax(x) * g).sum())(x)


def attend(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


def attend_gradient(q, k, v):
    return amdjax.grad(lambda *args: attend(*args).sum(), (0, 1, 2))(q, k, v)


def depthwise(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", feature_group_count=x.shape[-1], dimension_numbers=layout
    )


MAPS = {
    "flat": (lambda x: x * 2 + 1, normal(1000)),
    "flat_odd": (lambda x: x * 2 + 1, normal(1027)),
    "single": (lambda x: x + 1, normal()),
    "bias": (lambda x, b: x + b, normal(37, 50), normal(50)),
    "short_loops": (lambda x, b, c: x * b + c, normal(11, 7, 3), normal(7, 1), normal(3)),
    "transposed": (lambda x, y: x.T + y, normal(70, 45), normal(45, 70)),
    "transposed_square": (lambda x: x.T + x, normal(70, 70)),
    "batched_transpose": (lambda x: x.transpose(0, 2, 1) * 2, normal(3, 40, 33)),
    "reshaped": (lambda x: x.reshape(10, 6, 7).transpose(2, 0, 1) + 1, normal(20, 21)),
    "padded": (lambda x: jnp.pad(x, ((1, 2), (3, 1))) * 2, normal(20, 33)),
    "sliced": (lambda x: x[1:, 3:] - x[:-1, :-3], normal(20, 33)),
    "joined": (lambda x, y: jnp.concatenate([x, y], 1), normal(20, 33), normal(20, 7)),
    "gathered": (lambda x, i: x[i], normal(20, 33), np.array([3, 1, 19, 0])),
    "pooled": (lambda x: nn.max_pool(x, (2, 2)), normal(2, 8, 8, 3)),
    "folded": (lambda x: nn.avg_pool(x, (8, 8)), normal(2, 16, 16, 3)),
    "complex": (lambda x: x * (1 + 2j), normal(5, 70)),
    "bytes": (lambda x: x * 2 + 1, np.arange(1000).astype(np.int8)),
    "half": (lambda x: x * 2 + 1, normal(1000, dtype="float16")),
    "gelu": (nn.gelu, normal(3000)),
    "random": (lambda: amdjax.random.normal(amdjax.random.PRNGKey(0), (100,)),),
}
ROWS = {
    "softmax": (softmax, normal(9, 100)),
    "softmax_long": (softmax, normal(3, 3000)),
    "softmax_in_passes": (softmax, normal(16, 16_600)),
    "softmax_in_passes_odd": (softmax, normal(17, 16_603)),
    "softmax_kept": (softmax, normal(17, 16_601, dtype="bfloat16")),
    "softmax_kept_part": (softmax, normal(17, 40_001, dtype="bfloat16")),
    "softmax_gradient_in_passes": (softmax_gradient, normal(16, 20_001), normal(16, 20_001)),
    "layer_norm_kept": (layer_norm, normal(16, 12_289), normal(12_289), normal(12_289)),
    "logsumexp_in_passes": (lambda x: nn.logsumexp(x, -1), normal(17, 16_602)),
    "softmax_short": (softmax, normal(130, 10)),
    "softmax_columns": (lambda x: softmax(x, 0), normal(30, 50)),
    "softmax_narrow": (softmax, normal(9, 100, dtype="bfloat16")),
    "layer_norm": (layer_norm, normal(20, 33), normal(33), normal(33)),
    "layer_norm_gradient": (layer_norm_gradient, normal(20, 33), normal(33), normal(33)),
    "sum_small": (lambda x: x.sum(), normal(100)),
    "sum_large": (lambda x: x.sum(), normal(100_000)),
    "sum_rows": (lambda x: x.sum(1), normal(50, 1000)),
    "sum_columns": (lambda x: x.sum(0), normal(1000, 50)),
    "sum_few_columns": (lambda x: x.sum(0), normal(20_000, 5)),
    "sum_apart": (lambda x: x.sum((0, 2)), normal(50, 10, 20)),
    "sum_pairs": (lambda x: x.sum((1, 3)), normal(9, 10, 11, 4)),
    "variance": (lambda x: x.var(0), normal(50, 70)),
    "argmax": (lambda x: x.argmax(-1), normal(50, 100)),
    "argmax_short": (lambda x: x.argmax(-1), normal(50, 7)),
    "argmax_columns": (lambda x: x.argmax(0), normal(50, 7)),
    "argmax_all": (lambda x: x.argmax(), normal(50_000)),
    "complex_sum": (lambda x: (x * (1 + 2j)).sum(-1), normal(5, 70)),
    "complex_product": (lambda x: (x * (1 + 2j)).prod(-1), normal(5, 7)),
    "bytes_and_sum": (lambda x: x * 2 + x.sum(), np.arange(300).astype(np.int8)),
    "half_sum": (lambda x: jnp.exp(x).sum(-1), normal(30, 40, dtype="float16")),
    "empty": (lambda x: (x.sum(0), x + 1), normal(0, 5)),
}
CONTROL = {
    "scan": (lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), x[0], x), normal(10, 30)),
    "while": (
        lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * 1.5, x),
        np.ones(7, np.float32),
    ),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda x: x + 1, lambda x: x - 1, x), normal(7)),
    "numbers": (lambda n: lax.fori_loop(0, n, lambda i, s: s + i * i, 0), np.int32(10)),
}
FAMILIES = {
    "sort": (jnp.sort, normal(30, 100)),
    "sort_long": (jnp.sort, normal(30_000)),
    "sort_long_bytes": (jnp.sort, rng.integers(-99, 99, 9000).astype(np.int8)),
    "sort_long_columns": (
        lambda a, b: lax.sort([a, b], dimension=0),
        rng.integers(0, 99, (9000, 2)).astype(np.int16), normal(9000, 2),
    ),
    "top_k_of_many": (lambda x: lax.top_k(x, 3), normal(20_000)),
    "sort_columns": (lambda x: jnp.sort(x, 1), normal(5, 300, 7)),
    "sort_doubles": (jnp.sort, rng.integers(-(2**40), 2**40, (3, 700))),
    "sort_zeros": (lambda x: jnp.sort(x), np.array([0.0, -0.0, 1, -0.0, 0.0, np.nan, -1] * 30)),
    "sort_pairs": (
        lambda a, b, c: lax.sort([a, b, c], num_keys=2),
        rng.integers(0, 4, 700), normal(700), normal(700),
    ),
    "sort_bytes": (jnp.sort, rng.integers(-99, 99, (9, 900)).astype(np.int8)),
    "sort_complex": (jnp.sort, normal(200).round() + 1j * normal(200)),
    "argsort": (lambda x: jnp.argsort(x, -1), normal(5, 3000)),
    "cumsum": (lambda x: jnp.cumsum(x, -1), normal(30, 1000)),
    "cumsum_short": (lambda x: jnp.cumsum(x, -1), normal(50, 16)),
    "cumsum_rows": (lambda x: jnp.cumsum(x, -1), normal(128, 32)),
    "cummax_short_back": (
        lambda x: lax.cummax(x, 1, reverse=True), rng.integers(-9, 9, (37, 11)).astype(np.int8),
    ),
    "cumsum_long": (lambda x: jnp.cumsum(x), normal(50_000)),
    "cumsum_back": (lambda x: lax.cumsum(x, 0, reverse=True), normal(50_001)),
    "cummax_rows": (lambda x: lax.cummax(x, 1), normal(7, 999)),
    "cumprod_bytes": (lambda x: lax.cumprod(x, 0), rng.integers(-3, 4, 700).astype(np.int8)),
    "cumsum_complex": (lambda x: jnp.cumsum(x), normal(300) * 1j),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 0), normal(300, 5)),
    "cumsum_long_columns": (lambda x: jnp.cumsum(x, 0), normal(20_000, 3)),
    "cumsum_columns": (lambda x: jnp.cumsum(x, 0), normal(1000, 30)),
    "cummax_back": (lambda x: lax.cummax(x, 0, reverse=True), normal(1000, 3)),
    "top_k": (lambda x: lax.top_k(x, 5), normal(30, 1000)),
    "top_k_long": (lambda x: lax.top_k(x, 3), normal(9000)),
    "add_at": (lambda x, i: x.at[i].add(1.0), normal(1000), np.array([1, 2, 2, 999])),
    "set_at": (lambda x, i: x.at[i].set(1.0), normal(1000, 4), np.array([1, 2, 2])),
    "max_at": (lambda x, i: x.at[i].max(0.5), normal(50), np.arange(40) % 7),
    "add_windows": (
        lambda x, i, u: x.at[i, 2:5].add(u), normal(20, 9, 3), np.arange(40) % 20, normal(40, 3, 3),
    ),
    "add_complex": (lambda x, i: x.at[i].add(1 + 2j), normal(9) * 1j, np.array([1, 1, 1, -1])),
    "add_narrow": (
        lambda x, i: x.at[i].add(1), normal(9, dtype="bfloat16"), np.array([1, 1, 1, -1]),
    ),
    "add_narrow_rows": (
        lambda x, i: x.at[i].add(1), normal(10, 7, dtype="bfloat16"), np.array([1, 1, 1, -1]),
    ),
    "subtract_narrow": (
        lambda x, i: x.at[i].subtract(1), normal(10, 3, dtype="float16"), np.array([1, 1, 1, -1]),
    ),
    "add_outside": (
        lambda x, i: x.at[i].add(1, mode="drop"), normal(9), np.array([1, 900, -7, -800]),
    ),
    "add_unique": (
        lambda x, i: x.at[i].multiply(2, unique_indices=True), normal(900), np.arange(0, 900, 3),
    ),
    "multiply_at": (lambda x, i: x.at[i].multiply(2), normal(9), np.array([1, 1, 1, -1])),
    "embedding_gradient": (
        amdjax.grad(lambda e, i: (e[i] ** 2).sum()), normal(100, 33), np.arange(50) % 7,
    ),
    "update": (
        lambda x, i: lax.dynamic_update_slice(x, x[:2] * 2, (i, 0)), normal(20, 30), np.int32(3),
    ),
    "update_rows": (
        lambda x, y, i: lax.dynamic_update_slice(x, y, (0, 0, i, 0)),
        normal(3, 2, 7, 256), normal(3, 2, 1, 256), np.int32(4),
    ),
    "product": (lambda x, y: x @ y, normal(30, 40), normal(40, 20)),
    "product_narrow": (
        lambda x, y: x @ y, normal(30, 40, dtype="bfloat16"), normal(40, 20, dtype="bfloat16"),
    ),
    "pooling_gradient": (
        amdjax.grad(lambda x: (nn.max_pool(x, (2, 2)) ** 2).sum()), normal(2, 8, 8, 3),
    ),
    "convolution": (nn.conv, normal(2, 8, 8, 3), normal(3, 3, 3, 4)),
    "depthwise": (depthwise, normal(2, 8, 8, 8), normal(3, 3, 1, 8)),
    "fourier": (jnp.fft.fft, normal(4, 64)),
    "attention": (attend, *[normal(2, 200, 4, 32) for _ in range(3)]),
    "attention_gradient": (attend_gradient, *[normal(1, 200, 2, 32) for _ in range(3)]),
}  # fmt: skip
CASES = {**MAPS, **ROWS, **CONTROL, **FAMILIES}
