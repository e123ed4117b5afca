import numpy as np
import pytest
from hypothesis import given

import amdjax
import amdjax.numpy as jnp
from tests.support.strategies import arrays, close

REDUCTIONS = "sum prod max min mean var std any all argmax argmin median ptp"
NAN = "nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian nanargmax"
PADDINGS = "constant edge linear_ramp maximum mean reflect symmetric wrap"


@pytest.mark.parametrize("name", REDUCTIONS.split())
@given(x=arrays(dtypes=["float32", "int32"]))
def test_reductions_agree_with_numpy(name, x):
    if not x.size:
        return
    # Without x64 a product of integers wraps at 32 bits.
    options = {"dtype": np.int32} if name == "prod" and x.dtype == np.int32 else {}
    for axis in (None, *range(x.ndim)):
        expected = getattr(np, name)(x, axis, **options)
        close(getattr(jnp, name)(x, axis), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAN.split())
def test_nan_reductions_agree_with_numpy(name):
    x = np.array([[1, np.nan, 3], [4, 5, np.nan]], np.float32)
    for axis in (None, 0, 1):
        close(getattr(jnp, name)(x, axis), getattr(np, name)(x, axis))


def test_reductions_with_masks_and_initial_values():
    x, mask = np.arange(6.0).reshape(2, 3), np.array([[1, 0, 1], [0, 0, 1]], bool)
    close(jnp.sum(x, 1, where=mask), np.sum(x, 1, where=mask))
    close(jnp.mean(x, 1, where=mask), np.mean(x, 1, where=mask))
    close(jnp.max(x, 1, where=mask, initial=-1), np.max(x, 1, where=mask, initial=-1))
    with pytest.raises(ValueError, match="identity"):
        jnp.max(x, where=mask)
    with pytest.raises(ValueError, match="zero-size"):
        jnp.max(jnp.zeros((0,)))
    with pytest.raises(ValueError, match="out of bounds"):
        jnp.sum(x, axis=5)


def test_small_floats_are_summed_in_float32():
    assert float(jnp.full((4096,), 1, jnp.bfloat16).sum()) == 4096


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(method):
    x, q = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32), np.array([0.1, 0.5, 1])
    close(jnp.quantile(x, q, axis=1, method=method), np.quantile(x, q, axis=1, method=method))


@given(x=arrays(dtypes=["float32", "int32"], special=True))
def test_sorting_agrees_with_numpy(x):
    for axis in range(x.ndim):
        close(jnp.sort(x, axis), np.sort(x, axis))
        close(jnp.argsort(x, axis), np.argsort(x, axis, kind="stable"))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["scan", "sort", "compare_all", "scan_unrolled"])
def test_searchsorted(side, method):
    rng = np.random.default_rng(0)
    a, v = np.sort(rng.integers(0, 9, 12)), rng.integers(-1, 11, (3, 4))
    close(jnp.searchsorted(a, v, side, method=method), np.searchsorted(a, v, side))


def test_sets():
    a, b = np.array([3, 1, 2, 3, 1]), np.array([2, 3, 7, 2])
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        close(getattr(jnp, name)(a, b), getattr(np, name)(a, b))
    for ours, theirs in zip(
        jnp.unique(a, True, True, True), np.unique(a, True, True, True), strict=True
    ):
        close(ours, theirs)
    assert amdjax.jit(lambda x: jnp.unique(x, size=4, fill_value=-1))(a).tolist() == [1, 2, 3, -1]
    close(jnp.isin(a, b), np.isin(a, b))


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)), ((5, 1, 3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("left, right", SHAPES)
def test_matmul_broadcasts_like_numpy(left, right):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in (left, right))
    close(jnp.matmul(x, y), np.matmul(x, y), rtol=1e-4, atol=1e-4)
    close(jnp.dot(x, y), np.dot(x, y), rtol=1e-4, atol=1e-4)


def test_matmul_refuses_scalars_and_unequal_extents():
    with pytest.raises(ValueError, match="operand 1"):
        jnp.matmul(jnp.ones(2), 2.0)
    with pytest.raises(TypeError, match="contracting dimensions"):
        jnp.ones((2, 3)) @ jnp.ones((4, 2))


EINSUMS = [
    "ij,jk->ik", "bij,bjk->bki", "ii->i", "ii", "ij->ji", "ij->", "...i,...i->...", "i,j->ij",
    "ij,jk,kl->il", "bqhd,bkhd->bhqk", "iij,jk->ik", "i...->...", "ij,k->ijk",
]  # fmt: skip


@pytest.mark.parametrize("text", EINSUMS)
def test_einsum_agrees_with_numpy(text):
    rng = np.random.default_rng(0)
    inputs = text.split("->")[0].split(",")
    operands = [
        rng.normal(size=[3] * len(s.replace("...", "z"))).astype(np.float32) for s in inputs
    ]
    close(jnp.einsum(text, *operands), np.einsum(text, *operands), rtol=1e-4, atol=1e-4)


def test_einsum_takes_operands_with_label_lists():
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    close(jnp.einsum(x, [0, 1], y, [1, 2], [0, 2]), x @ y)


@pytest.mark.parametrize("mode", PADDINGS.split())
def test_pad_agrees_with_numpy(mode):
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    close(jnp.pad(x, ((1, 2), (5, 0)), mode), np.pad(x, ((1, 2), (5, 0)), mode))


def test_linear_algebra():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 4, 4)).astype(np.float32)
    spd = a @ a.transpose(0, 2, 1) + np.eye(4, dtype=np.float32)
    for name in ("det", "inv", "cholesky", "eigvalsh", "pinv"):
        ours, theirs = getattr(jnp.linalg, name)(spd), getattr(np.linalg, name)(spd)
        close(ours, theirs, rtol=1e-3, atol=1e-3)
    b = rng.normal(size=(2, 4, 3)).astype(np.float32)
    close(jnp.linalg.solve(spd, b), np.linalg.solve(spd, b), rtol=1e-3, atol=1e-3)
    close(jnp.linalg.norm(a, axis=(1, 2)), np.linalg.norm(a, axis=(1, 2)), rtol=1e-4)
    close(jnp.linalg.slogdet(a)[1], np.linalg.slogdet(a)[1], rtol=1e-3, atol=1e-3)


def test_gradient_of_det_of_a_singular_matrix():
    a = np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)
    close(amdjax.grad(jnp.linalg.det)(a), np.array([[4.0, -2.0], [-2.0, 1.0]]), atol=1e-4)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "rfft2"])
def test_fourier_transforms(name, norm):
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    close(getattr(jnp.fft, name)(x, norm=norm), getattr(np.fft, name)(x, norm=norm), atol=1e-4)


def test_creation():
    close(jnp.arange(2, 9, 3), np.arange(2, 9, 3))
    close(jnp.linspace(0, 1, 7), np.linspace(0, 1, 7))
    close(jnp.array([[1, 2.5], [3, 4]]), np.array([[1, 2.5], [3, 4]]))
    assert jnp.array([jnp.float16(1), 2]).dtype == np.float16
    assert jnp.eye(2, 3, 1).tolist() == np.eye(2, 3, 1).tolist()
    for bad, error in ((None, ValueError), ("a", TypeError), ([[1], [2, 3]], ValueError)):
        with pytest.raises(error):
            jnp.array(bad)
    with pytest.raises(TypeError, match="concrete"):
        amdjax.jit(lambda n: jnp.zeros(n))(3)


def test_shapes():
    x = jnp.arange(24).reshape(2, 3, 4)
    assert x.T.shape == (4, 3, 2) and x.mT.shape == (2, 4, 3)
    assert x.transpose(1, 0, 2).shape == x.transpose((1, 0, 2)).shape == (3, 2, 4)
    assert x.reshape(4, -1).shape == (4, 6) and x.ravel().shape == x.flatten().shape == (24,)
    with pytest.raises(TypeError, match="cannot reshape"):
        x.reshape(5, 5)
    close(jnp.roll(x, (1, 2), (0, 2)), np.roll(np.asarray(x), (1, 2), (0, 2)))
    close(jnp.repeat(x, 2, 1), np.repeat(np.asarray(x), 2, 1))
    close(jnp.tile(x, (2, 1, 2)), np.tile(np.asarray(x), (2, 1, 2)))
    close(jnp.tril(x), np.tril(np.asarray(x)))


def test_out_is_refused():
    with pytest.raises(NotImplementedError, match="'out' argument to jnp"):
        jnp.sum(jnp.ones(2), out=jnp.ones(()))


def test_functions_inline_under_tracing():
    jaxpr = str(amdjax.make_jaxpr(lambda x: jnp.where(x > 0, jnp.mean(x), x))(np.ones(3, "f")))
    assert "jit" not in jaxpr
    assert jaxpr.count("=") <= 8


def test_ravel_pytree_round_trip():
    tree = {"a": jnp.arange(3), "b": [jnp.ones((2, 2), jnp.float16)]}
    flat, unravel = amdjax.flatten_util.ravel_pytree(tree)
    assert flat.shape == (7,) and flat.dtype == np.float16
    assert unravel(flat)["a"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="shape"):
        unravel(flat[:3])
    with pytest.raises(TypeError, match="expected dtype float16"):
        unravel(flat > 0)


def test_unravel_of_one_dtype():
    with amdjax.enable_x64(True):
        assert amdjax.flatten_util.ravel_pytree(())[0].dtype == np.float32
    flat, unravel = amdjax.flatten_util.ravel_pytree([jnp.ones(2), jnp.zeros((1, 3))])
    assert [x.dtype for x in unravel(flat > 0)] == [np.bool_, np.bool_]
    traces = []
    run = amdjax.jit(lambda x, f: traces.append(f) or f(x), static_argnums=1)
    for tree in ([jnp.ones(2), jnp.ones((1, 3))], [jnp.zeros(2), jnp.ones((1, 3))]):
        back = run(*amdjax.flatten_util.ravel_pytree(tree))
        np.testing.assert_array_equal(back[0], tree[0])
    assert len(traces) == 1


@pytest.mark.parametrize("name, expected", [("sum", [3, 3]), ("prod", [2, 3]), ("max", [2, 3]),
                                            ("min", [1, 3])])  # fmt: skip
def test_segments(name, expected):
    data, ids = jnp.array([1, 2, 3, 9]), jnp.array([0, 0, 1, -1])
    fn = getattr(amdjax.ops, f"segment_{name}")
    assert fn(data, ids, num_segments=2).tolist() == expected


METHODS = """sum prod max min mean std var all any argmax argmin cumsum cumprod ravel squeeze trace
diagonal conj flatten copy"""


@pytest.mark.parametrize("name", METHODS.split())
def test_methods_agree_with_those_of_numpy(name):
    x = np.array([[1.26, -2.5], [3.75, 0.5]], np.float32)
    close(getattr(jnp.asarray(x), name)(), getattr(x, name)())


def test_methods_with_arguments_and_operators():
    theirs = np.array([[1.26, -2.5], [3.75, 0.5]], np.float32)
    x = jnp.asarray(theirs)
    close(x.round(1), theirs.round(1))
    close(round(x, 1), theirs.round(1))
    close(x.clip(0, 1), theirs.clip(0, 1))
    close(x.astype(int), theirs.astype(int))
    close(x.take(jnp.array([0, 3])), theirs.take([0, 3]))
    close(x.sort(), np.sort(theirs))
    close(x.imag, np.zeros((2, 2)))
    close(abs(-x), abs(theirs))
    assert x.view(jnp.int32).dtype == np.int32
    assert x.__array_namespace__() is jnp


def test_equal_numbers_are_arrays_of_their_own():
    x, y = jnp.float32(3), jnp.float32(3)
    x.delete()
    assert float(y) == 3.0 and float(jnp.asarray(3.0)) == 3.0

    def add(x):
        return x + 1

    doubled = amdjax.jit(add, donate_argnums=0)
    z = jnp.float32(5)
    assert float(doubled(jnp.float32(5))) == 6.0 and float(doubled(jnp.float32(5))) == 6.0
    assert float(z) == 5.0 and float(jnp.float32(5)) == 5.0


def test_iterating_takes_one_row_at_a_time():
    rows = iter(jnp.zeros((1 << 20, 256), jnp.int8))
    assert next(rows).shape == (256,)
    assert [float(v) for v in jnp.arange(3.0)] == [0, 1, 2]
    with pytest.raises(TypeError, match="0-d"):
        iter(jnp.float32(1))


@pytest.mark.parametrize("spec", ["", ".2f", ">10", "d", "s"])
@pytest.mark.parametrize(
    "value", [np.float32(1.25), np.int32(3), np.ones(1, np.float32), np.arange(3.0, dtype="f")]
)
def test_format_is_numpys(value, spec):
    try:
        wanted = format(value, spec)
    except (TypeError, ValueError) as e:
        with pytest.raises(type(e)):
            format(jnp.asarray(value), spec)
    else:
        assert format(jnp.asarray(value), spec) == wanted


def test_numbers_of_numpy_stand_where_ints_do() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    one = np.array(1)
    assert np.array_equal(jnp.eye(3, k=np.int64(-1)), np.eye(3, k=-1))
    assert np.array_equal(jnp.eye(3, k=one), np.eye(3, k=1))
    assert np.array_equal(x.transpose(np.array([1, 0])), np.transpose(x))
    assert np.array_equal(jnp.roll(x, one, axis=one), np.roll(x, 1, axis=1))


def test_wide_integers_fill_arrays_of_floats_with_their_value() -> None:
    for dtype in ("float32", "bfloat16", "complex64", "bool"):
        full = jnp.full(2, 2**33, dtype)
        assert full.dtype == dtype and np.all(full == np.asarray(2**33).astype(dtype))
    assert np.all(np.isinf(jnp.full(2, 2**40, "float16")))
