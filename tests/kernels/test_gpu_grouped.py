"""Products of groups on GPUs, as machine code in the emulator, against NumPy."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.kernels
from amdjax import jit, lax, numpy as jnp
from amdjax.lax.ragged_dot import grouped_dot_p
from tests.support.gpu_runner import DISTINCT, EMULATED, GpuRunner

pytestmark = pytest.mark.share(2)

FLOATS = np.float32, np.float16, ml_dtypes.bfloat16
OUT = {np.dtype(np.int8): np.dtype(np.int32), np.dtype(ml_dtypes.bfloat16): np.dtype(np.float32)}
SIZES = {
    "some": [70, 0, 31], "single rows": [1, 0, 0, 1, 98], "one": [101], "too many": [60, 30, 50],
    "many": [3] * 30 + [0] * 20 + [1] * 11, "nothing": [0, 0],
}  # fmt: skip


def integers(shape, dtype, seed=0):
    """Integers whose products and sums every dtype here holds."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def numbers_of(cut, turned):
    """Of matrices whose rows or depth is cut, each transposed or not."""
    if cut == "rows":
        contract = (1 - turned[0],), (1 + turned[1],)
        return lax.RaggedDotDimensionNumbers((contract, ((), ())), (turned[0],), (0,))
    contract = (turned[0],), (turned[1],)
    return lax.RaggedDotDimensionNumbers((contract, ((), ())), (turned[0],), ())


def check(gfx, cut, sizes, dtype, turned=(0, 0), shape=(101, 48, 72)):
    """Groups of `shape[0]` rows or steps against their products one by one."""
    n, k, m = shape
    x = integers((n, k), dtype)
    y = integers((len(sizes), k, m) if cut == "rows" else (n, m), dtype, 1)
    bounds = np.minimum(np.cumsum([0, *sizes]), n).astype(np.int32)
    wide = x.astype(np.float64), y.astype(np.float64)
    pieces = [slice(*pair) for pair in itertools.pairwise(bounds)]
    if cut == "rows":
        wanted = np.zeros((n, m))
        for piece, one in zip(pieces, wide[1], strict=True):
            wanted[piece] = wide[0][piece] @ one
    else:
        wanted = np.stack([wide[0][piece].T @ wide[1][piece] for piece in pieces])
    operands = [np.swapaxes(v, -1, -2) if turn else v for v, turn in zip((x, y), turned)]
    params = {
        "numbers": numbers_of(cut, turned), "precision": None, "out_sharding": None,
        "preferred_element_type": OUT.get(np.dtype(dtype)),
    }  # fmt: skip
    runner = GpuRunner(grouped_dot_p, [*operands, bounds], params, gfx)
    found = runner(*operands, bounds)
    np.testing.assert_array_equal(found.astype(np.float64), wanted)
    return runner


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("cut", ["rows", "depth"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_groups_of_any_sizes(gfx, cut, sizes):
    """Empty groups, single rows, all rows in one, fewer and more than there are, many groups."""
    check(gfx, cut, sizes, np.float32)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("cut", ["rows", "depth"])
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize("dtype", [*FLOATS, np.int8])
def test_transposed_operands(gfx, cut, turned, dtype):
    """What lies side by side in memory may be what is cut, which begins anywhere."""
    check(gfx, cut, [9, 0, 47, 1, 43], dtype, turned, (104, 48, 64))


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("cut", ["rows", "depth"])
def test_work_is_that_of_all_rows_once(gfx, cut):
    """However many groups there are; masked products multiply each row with each group."""
    runner = check(gfx, cut, [16] * 16, np.float16, (0, 0), (256, 128, 128))
    (counters,) = runner.counters
    assert counters.flops < 3 * 2 * 256 * 128 * 128


def test_groups_share_a_launch_and_fuse_what_follows():
    """The product, its gradients, bias and activation: one launch each behind one for bounds."""
    x, w, b = np.zeros((64, 32), np.float16), np.zeros((4, 32, 48), np.float16), np.ones(48)
    sizes = np.zeros(4, np.int32)
    layer = lambda x, w, sizes: jnp.maximum(lax.ragged_dot(x, w, sizes) + b.astype(np.float16), 0)
    lowered = jit(layer).lower(x, w, sizes)
    assert [k.name for k in lowered.compile("gfx942").kernels][1:] == ["product"]
    loss = lambda x, w, sizes: (lax.ragged_dot(x, w, sizes) * lax.stop_gradient(x.sum())).sum()
    compiled = jit(amdjax.grad(loss, (0, 1))).lower(x, w, sizes).compile("gfx942")
    assert [k.name for k in compiled.kernels].count("product") == 2


@pytest.mark.parametrize("cut, turned", [("rows", (0, 0)), ("rows", (0, 1)), ("depth", (0, 0))])
def test_hopper_copies_groups_to_its_matrix_unit(cut, turned):
    """Where whole cells lie side by side from wherever a group begins; not along what is cut."""
    x = np.zeros((256, 128), np.float16)
    y = np.zeros(((4, 128, 128) if cut == "rows" else (256, 128)), np.float16)
    sizes = np.zeros(4, np.int32)

    def text(x, turned):
        product = lambda *args: lax.ragged_dot_general(*args, numbers_of(cut, turned))
        return jit(product).lower(x, y, sizes).compile("sm_90a").as_text("ptx")

    assert "wgmma.mma_async" in text(x, turned)
    other = text(x.T, (1, turned[1]))
    assert "wgmma" not in other and "mma.sync" in other
