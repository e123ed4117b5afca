"""Attention kernels of CPUs against NumPy: values and gradients, all options, odd sizes."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.plan import plan_program
from amdjax.kernels import shaped
from amdjax.kernels.attention import cpu
from amdjax.kernels.attention.cpu_rows import FewRowsPlan
from amdjax.kernels.attention.problem import Attention
from amdjax.schedule.search import Family
from tests.support import attention as reference
from tests.support.attention import operands
from tests.support.jit_helpers import on_machine

NAMES = {
    "window": "local_window_size",
    "query_lengths": "query_seq_lengths",
    "key_lengths": "key_value_seq_lengths",
}
#: Rounding of a result that is about 1, times a few.
TOLERANCE = {"float32": 4e-6, "float64": 1e-13, "bfloat16": 3e-2, "float16": 4e-3}


def check(sizes, dtype="float32", seed=0, **options):
    q, k, v, ct = operands(sizes, dtype, seed)
    call = {NAMES.get(name, name): x for name, x in options.items()}
    if "bias" in call:
        call["bias"] = jnp.asarray(call["bias"], dtype)

    def attend(q, k, v):
        return nn.dot_product_attention(q, k, v, return_residual=True, **call)

    def loss(q, k, v):
        out, residual = attend(q, k, v)
        return (out * ct).sum(dtype=residual.dtype), (out, residual)

    gradient = amdjax.jit(amdjax.grad(loss, (0, 1, 2), has_aux=True))
    found, (out, residual) = gradient(*map(jnp.asarray, (q, k, v)))
    wide = [np.asarray(x, np.float64) for x in (q, k, v, ct)]
    if "bias" in options:
        options["bias"] = np.asarray(call["bias"], np.float64)
    expected, sums, slopes = reference.attention(*wide[:3], ct=wide[3], **options)
    tolerance = TOLERANCE[dtype]
    assert out.dtype == q.dtype and all(g.dtype == q.dtype for g in found)
    for got, want in zip((out, residual, *found), (expected, sums, *slopes)):
        assert got.shape == want.shape
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance,
                                   atol=tolerance * scale)  # fmt: skip


SIZES = [
    (2, 5, 7, 4, 2, 8, 8),
    (1, 1, 70, 2, 2, 16, 16),
    (1, 130, 65, 2, 1, 33, 20),
    (2, 64, 128, 2, 2, 64, 64),
    (1, 3, 1, 6, 2, 5, 3),
    (3, 1, 700, 4, 2, 32, 32),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_sizes(sizes, is_causal):
    check(sizes, is_causal=is_causal)


def _options():
    rng = np.random.default_rng(1)
    sizes = (2, 37, 70, 4, 2, 16, 16)
    batch, queries, keys, heads = sizes[:4]
    full = (batch, heads, queries, keys)
    sparse = rng.random(full) < 0.02  # some rows have no key
    return sizes, {
        "window": {"window": (3, 1)},
        "window behind all keys": {"window": (2, -1), "is_causal": True},
        "causal window": {"window": (20, 4), "is_causal": True},
        "key lengths": {"key_lengths": np.array([0, 41], np.int32)},
        "query lengths": {"query_lengths": np.array([0, 20], np.int32), "is_causal": True},
        "both lengths": {"query_lengths": np.array([30, 99], np.int32),
                         "key_lengths": np.array([66, 9], np.int32)},
        "bias": {"bias": rng.normal(size=full)},
        "bias of heads": {"bias": rng.normal(size=(1, heads, 1, keys)), "is_causal": True},
        "bias of queries": {"bias": rng.normal(size=(batch, 1, queries, 1)), "window": (9, 9)},
        "mask": {"mask": rng.random(full) < 0.5},
        "sparse mask": {"mask": sparse, "is_causal": True},
        "mask of keys": {"mask": rng.random((batch, 1, 1, keys)) < 0.5, "scale": 0.3},
        "everything": {
            "bias": rng.normal(size=(1, 1, queries, keys)), "mask": rng.random(full) < 0.9,
            "key_lengths": np.array([70, 50], np.int32), "is_causal": True, "window": (30, 0),
            "query_lengths": np.array([37, 36], np.int32),
        },
    }  # fmt: skip


OPTION_SIZES, OPTIONS = _options()


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    check(OPTION_SIZES, **OPTIONS[name])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_few_rows(name, count, monkeypatch):
    """As in decoding; several programs for the keys of a row, and one."""
    find = Family.find

    def few(self, problem, target):
        if self is not cpu.ATTENTION:
            return find(self, problem, target)
        heads = problem.key_heads if count == 1 else 1
        return FewRowsPlan(problem, heads, count)

    monkeypatch.setattr(Family, "find", few)
    amdjax.clear_caches()
    rng = np.random.default_rng(5)
    sizes = (2, 2, 150, 4, 2, 20, 9)
    batch, queries, keys, heads = sizes[:4]
    full = (batch, heads, queries, keys)
    options = dict(OPTIONS[name])
    for which in set(options) & {"bias", "mask"}:
        shape = [n if m > 1 else 1 for n, m in zip(full, options[which].shape)]
        drawn = rng.normal(size=shape)
        options[which] = drawn if which == "bias" else drawn < options[which].mean() * 2 - 1
    if "key_lengths" in options:
        options["key_lengths"] = options["key_lengths"] * 2
    if "query_lengths" in options:
        options["query_lengths"] = np.array([0, 1], np.int32)
    check(sizes, **options)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(dtype):
    with amdjax.enable_x64(True):
        check((1, 40, 50, 4, 2, 24, 24), dtype, is_causal=True)


@pytest.mark.parametrize("sizes", SIZES[1:])
@pytest.mark.parametrize("name", ["causal", "lengths", "bias"])
def test_matrix_unit(sizes, name):
    """What AMX multiplies where there is one: bfloat16, at all edges of its squares."""
    batch, queries, keys, heads = sizes[:4]
    rng = np.random.default_rng(2)
    options = {
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": rng.integers(0, keys + 1, batch).astype(np.int32)},
        "bias": {"bias": rng.normal(size=(1, heads, queries, keys)), "window": (40, 3)},
    }[name]
    check(sizes, "bfloat16", **options)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bits_behind_the_length_of_keys(dtype):
    """That are no numbers, where blocks hold them beside keys that count."""
    q, k, v, ct = (jnp.asarray(x) for x in operands((1, 40, 80, 2, 2, 20, 12), dtype))
    behind = (np.arange(80) >= 50)[:, None, None]
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, key_value_seq_lengths=np.array([50]))
    found = amdjax.vjp(f, q, jnp.where(behind, np.nan, k), jnp.where(behind, np.inf, v))
    expected = amdjax.vjp(f, q, k, v)
    np.testing.assert_array_equal(found[0], expected[0])
    for got, want in zip(found[1](ct), expected[1](ct), strict=True):
        np.testing.assert_array_equal(got, want)


BIASES = {
    "whole": (2, 4, 37, 70), "heads": (1, 4, 37, 70), "pairs": (1, 1, 37, 70),
    "keys": (1, 4, 1, 70), "keys of examples": (2, 1, 1, 70), "queries": (2, 4, 37, 1),
    "number": (1, 1, 1, 1), "number of heads": (1, 4, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BIASES)
def test_bias_gradient(name):
    """Summed where the bias is broadcast, in memory that is linear in the lengths but for it."""
    shape, rng = BIASES[name], np.random.default_rng(6)
    q, k, v, ct = operands(OPTION_SIZES, "float32")
    bias = rng.normal(size=shape).astype(np.float32)
    options = {"mask": rng.random((2, 1, 37, 70)) < 0.6, "is_causal": name != "pairs"}
    if name == "whole":
        options = {"key_lengths": np.array([5, 70], np.int32), "window": (9, 2)}
    call = {NAMES.get(n, n): x for n, x in options.items()}

    def loss(q, k, v, bias):
        return (nn.dot_product_attention(q, k, v, bias, **call) * ct).sum()

    gradient = amdjax.jit(amdjax.grad(loss, (0, 1, 2, 3)))
    assert "gradient of its bias" in gradient.lower(q, k, v, bias).compile().as_text("schedule")
    found = gradient(q, k, v, bias)
    wide = [np.asarray(x, np.float64) for x in (q, k, v, bias)]
    *_, expected = reference.attention(*wide[:3], bias=wide[3], ct=ct, **options)
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=4e-6, atol=8e-6 * scale)


def test_infinite_bias_masks():
    """Minus infinity takes a pair out; a row of nothing else is NaN, as sums of no weights are."""
    rng = np.random.default_rng(3)
    bias = np.where(rng.random((1, 2, 40, 80)) < 0.5, -np.inf, 0.0)
    bias[..., :70] = -np.inf
    bias[..., 75] = 0
    bias[0, 0, 7] = -np.inf
    q, k, v, _ = operands((1, 40, 80, 2, 2, 8, 8), "float32")
    out = np.asarray(nn.dot_product_attention(q, k, v, bias.astype(np.float32)))
    with np.errstate(invalid="ignore"):
        expected, _ = reference.attention(q, k, v, bias)
    assert np.isnan(out[0, 7, 0]).all() and np.isnan(out).sum() == 8
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_every_candidate_computes_the_same(threads, monkeypatch):
    on_machine(monkeypatch, threads=threads)
    find, counts = Family.find, {}

    def nth(self, problem, target):
        if not isinstance(problem, Attention):
            return find(self, problem, target)
        plans = [p for s in self.solvers for p in s.plans(problem, target)]
        counts[self.name] = len(plans)
        return plans[n % len(plans)]

    monkeypatch.setattr(Family, "find", nth)
    n = 0
    while n < max(counts.values(), default=1):
        amdjax.clear_caches()
        check((1, 90, 70, 4, 2, 16, 16), is_causal=True)
        n += 1
    assert len(counts) == 2


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_narrow_vectors(bits, dtype, monkeypatch):
    """Machines without vectors of 512 bits, and without a matrix unit."""
    on_machine(monkeypatch, vector_bits=bits, matrix_dtypes=())
    amdjax.clear_caches()
    with amdjax.enable_x64(True):
        check((1, 50, 70, 4, 2, 24, 12), dtype, is_causal=True)
        # Less than a block of keys, up to one of which there are less than lines of a tile.
        for keys in (3, 17):
            check((1, 9, keys, 4, 2, 4, 5), dtype)
        bias = np.random.default_rng(4).normal(size=(1, 4, 3, 70))
        check((1, 3, 70, 4, 2, 24, 12), dtype, bias=bias)


@pytest.mark.parametrize("features", [300, 1000, 20_000])
def test_many_features(features):
    """Scratch has room for blocks of so many, or the definition takes the place of kernels."""
    check((1, 20, 24, 1, 1, features, 40), is_causal=True)


def _definitions(monkeypatch):
    """Run attention by its definition from here on."""
    for name in ("attention", "attention_gradient"):
        monkeypatch.setitem(shaped.PLANNERS["cpu"], name, lambda ctx: None)
    amdjax.clear_caches()


@pytest.mark.parametrize("sizes", [(2, 37, 70, 4, 2, 16, 70), (1, 130, 65, 2, 1, 33, 65)])
def test_dropped_weights(sizes, monkeypatch):
    """Kernels and definition drop the same pairs, forward and backward, at the rate asked for."""
    batch, _, keys, heads, key_heads, features, _ = sizes
    q, k, _, ct = operands(sizes, "float32")
    v = np.broadcast_to(np.eye(keys, dtype=np.float32)[:, None], (batch, keys, key_heads, keys))
    rate, options = 0.3, {"is_causal": True}

    def attend(q, k, v, rate=rate):
        key = amdjax.random.key(7)
        return nn.dot_product_attention(q, k, v, dropout_rate=rate, dropout_key=key, **options)

    def both(q, k, v):
        out, pull = amdjax.vjp(attend, q, k, v)
        return out, *pull(ct)

    whole = np.asarray(attend(q, k, v, 0.0), np.float64)
    found = [np.asarray(x) for x in amdjax.jit(both)(q, k, v)]
    weights, kept = found[0], (found[0] != 0) | (whole == 0)
    taken = whole > 0
    np.testing.assert_allclose(weights[kept], (whole / (1 - rate))[kept], rtol=1e-5, atol=1e-6)
    share = 1 - kept[taken].mean()
    assert abs(share - rate) < 4 * np.sqrt(rate * (1 - rate) / taken.sum())
    # The gradient of attention whose weights are multiplied by what was found.
    factor = np.moveaxis(kept / (1 - rate), 2, 1)
    group = heads // key_heads
    wide_q, wide_k = np.asarray(q, np.float64), np.repeat(np.asarray(k, np.float64), group, 2)
    w = np.moveaxis(whole, 2, 1)
    slope = w * (np.moveaxis(ct, 2, 1) * factor)
    slope = slope - w * slope.sum(-1, keepdims=True)
    d_query = np.einsum("bnts,bsnh->btnh", slope, wide_k) / np.sqrt(features)
    d_key = np.einsum("bnts,btnh->bsnh", slope, wide_q) / np.sqrt(features)
    sums = lambda x: x.reshape(batch, keys, key_heads, group, -1).sum(3)
    d_value = np.einsum("bnts,btnd->bsnd", w * factor, ct)
    for got, want in zip(found[1:], (d_query, sums(d_key), sums(d_value)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    _definitions(monkeypatch)
    again = amdjax.jit(lambda *args: both(*args))(q, k, v)
    np.testing.assert_array_equal(np.asarray(again[0]) == 0, weights == 0)
    for got, want in zip(again, found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
@pytest.mark.parametrize("queries", [1, 40])
def test_operands_with_scales(dtype, queries, monkeypatch):
    """As of float8, in kernels and in the definition; each example may have scales of its own."""
    q, k, v, _ = operands((2, queries, 300, 4, 2, 20, 9), dtype)
    scales = {"query_scale": 0.3, "key_scale": np.array([0.5, 2.0]), "value_scale": 4.0}
    options = {"key_value_seq_lengths": np.array([300, 211]), "is_causal": queries > 1}
    attend = lambda q, k, v: nn.dot_product_attention(
        q, k, v, return_residual=True, out_dtype=np.float32, **scales, **options
    )
    wide = [np.asarray(x, np.float64) for x in (q, k, v)]
    factors = np.array([0.5, 2.0])[:, None, None, None]
    expected = reference.attention(
        0.3 * wide[0], factors * wide[1], 4 * wide[2], is_causal=queries > 1,
        key_lengths=options["key_value_seq_lengths"],
    )  # fmt: skip
    text = amdjax.jit(attend).lower(q, k, v).compile().as_text("schedule")
    assert "attention of" in text
    tolerance = 4e-6 if dtype.startswith("float8") else 3e-2  # weights that AMX rounds
    for definition in (False, True):
        if definition:
            _definitions(monkeypatch)
        for got, want in zip(amdjax.jit(lambda *a: attend(*a))(q, k, v), expected, strict=True):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=4 * tolerance)
    with pytest.raises(ValueError, match="key_scale must have shape"):
        nn.dot_product_attention(q, k, v, key_scale=np.ones(3))


def memory(queries, grad):
    shapes = [amdjax.ShapeDtypeStruct((1, queries, 2, 16), np.float32)] * 3
    key = amdjax.random.key(0)
    f = lambda q, k, v: nn.dot_product_attention(
        q, k, v, is_causal=True, dropout_rate=0.1, dropout_key=key
    )
    if grad:
        f = amdjax.grad(lambda *args, attend=f: attend(*args).sum(), (0, 1, 2))
    return amdjax.jit(f).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("grad", [False, True])
def test_memory_is_linear(grad):
    small, large = memory(512, grad), memory(4096, grad)
    assert large <= 8.5 * max(small, 1)
    assert large < 4096 * 4096 * 2  # of the logits: 2 heads of 4 bytes


def test_blocks_are_written_once():
    """Whether pairs are masked, or a row found no key, takes no second copy of the products."""
    q, mask = jnp.ones((1, 100, 2, 64)), jnp.ones((1, 1, 100, 100), bool)
    options = (
        {}, {"is_causal": True}, {"mask": mask}, {"local_window_size": (9, 9)},
        {"key_value_seq_lengths": jnp.int32([9]), "query_seq_lengths": jnp.int32([9])},
    )  # fmt: skip
    for grad in (False, True):
        found = set()
        for given in options:
            f = lambda q, given=given: nn.dot_product_attention(q, q, q, **given).sum()
            f = amdjax.grad(f) if grad else f
            plan = plan_program(amdjax.jit(f).trace(q).jaxpr, cpu_target())
            words = (w for i in plan.instructions for w in i.words)
            name = "attention_gradient" if grad else "attention"
            text = str(next(w for w in words if getattr(w, "name", "") == name))
            found.add((text.count(" = exp "), text.count(" = fma ")))
        assert len(found) == 1 and 0 not in next(iter(found))
