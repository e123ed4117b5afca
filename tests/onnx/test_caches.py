"""Attention of com.microsoft with caches, from step to step, beside onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from amdjax.onnx import OnnxError, load
from tests.onnx.test_attention import MS, by_heads, close, flat, reference
from tests.support.onnx_nodes import run_node

ort = pytest.importorskip("onnxruntime")
N, K, H, ROOM, WINDOW = 4, 2, 32, 8, 5
INPUTS = {
    "GroupQueryAttention": (
        "query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin",
        "positions", "bias", "sink", "k_scale", "v_scale", "q_norm", "k_norm", "query_seqlens",
    ),
    "MultiHeadAttention": (
        "query", "key", "value", "biases", "mask", "bias", "past_key", "past_value", "past_length",
    ),
}  # fmt: skip
#: Axes whose sizes are open.
OPEN = {"query": (0, 1), "key": (0, 1), "value": (0, 1), "past_key": (0, 2), "past_value": (0, 2)}


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def both(op, given, outputs=3, **attributes):
    """What onnxruntime gives and what amdjax gives; the sizes of all inputs are open."""
    names = [n if n in given else "" for n in INPUTS[op]]
    names = names[: 1 + max(i for i, n in enumerate(names) if n)]
    kept = helper.np_dtype_to_tensor_dtype(given["past_key"].dtype) if "past_key" in given else 1
    given = {n: np.asarray(x) for n, x in given.items()}
    infos = []
    for name, x in given.items():
        sizes = [f"{name}_{i}" if i in OPEN.get(name, ()) else n for i, n in enumerate(x.shape)]
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        infos.append(helper.make_tensor_value_info(name, kind, sizes))
    types = [TensorProto.FLOAT, kept, kept, TensorProto.FLOAT]
    outs = [helper.make_tensor_value_info(f"y{i}", types[i], None) for i in range(outputs)]
    node = helper.make_node(op, names, [v.name for v in outs], domain=MS, **attributes)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", infos, outs)
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    want = ort.InferenceSession(proto.SerializeToString()).run(None, given)
    return want, [np.asarray(v) for v in load(proto)(**given).values()]


def resident(length, has_window):
    """How many rows of a cache are told."""
    slack = ROOM - WINDOW + 1
    return length - slack * -(-max(length - ROOM, 0) // slack) if has_window else length


@pytest.mark.parametrize("has_window", [False, True], ids=["whole", "window"])
@pytest.mark.parametrize("kind", ["floats", "int8", "int8 by channel", "int4", "int4 by channel"])
def test_caches_from_step_to_step(kind, has_window):
    rng = np.random.default_rng(0)
    form = {"local_window_size": WINDOW, "sliding_window_cache": int(has_window), "do_rotary": 1}
    cos, sin = floats(rng, 40, H // 2), floats(rng, 40, H // 2)
    fixed, cache = {"cos": cos, "sin": sin}, floats(rng, 2, K, ROOM, H)
    if kind != "floats":
        bits, by_channel = int(kind[3]), "channel" in kind
        mode = "PER_CHANNEL" if by_channel else "PER_TENSOR"
        scale = rng.uniform(0.5, 1, (1, K, 1, H) if by_channel else 1) * (4 / (1 << bits - 1))
        fixed |= {"k_scale": scale.astype(np.float32), "v_scale": scale[::-1].astype(np.float32)}
        form |= {"k_quant_type": mode, "v_quant_type": mode, "kv_cache_bit_width": bits}
        dtype = np.int8 if bits == 8 else np.uint8
        cache = rng.integers(0, 99, (2, K, ROOM, H * bits // 8)).astype(dtype)
    caches, lengths = [cache, cache], np.zeros(2, int)
    # A prompt whose second sequence is padded, then tokens; for one sequence, several at once.
    for counts in ([5, 3], [1, 1], [1, 1], [1, 1], [3, None], [1, None], [2, None]):
        batch, new = 2 - (counts[1] is None), max(filter(None, counts))
        lengths = lengths[:batch] + counts[:batch]
        if not has_window and lengths.max() > ROOM:
            break
        given = {
            n: floats(rng, batch, new, m * H) for n, m in zip(("query", "key", "value"), (N, K, K))
        }
        given |= {"past_key": caches[0][:batch], "past_value": caches[1][:batch]}
        given |= {"seqlens_k": (lengths - 1).astype(np.int32), "total": np.int32(lengths.max())}
        if has_window and batch == 2:  # which onnxruntime takes as unpadded if it is not told
            given["query_seqlens"] = np.int32(counts)
        want, got = both("GroupQueryAttention", given | fixed, num_heads=N, kv_num_heads=K, **form)
        caches = want[1:]
        for b, (count, length) in enumerate(zip(counts, lengths)):
            close(got[0][b, :count], want[0][b, :count])
            rows = resident(length, has_window)
            for mine, theirs in zip(got[1:], want[1:]):
                close(mine[b, :, :rows], theirs[b, :, :rows])


@pytest.mark.parametrize("has_window", [False, True], ids=["whole", "window"])
def test_chunks_that_are_padded(has_window):
    rng = np.random.default_rng(1)
    counts, lengths = np.int32([2, 0, 3]), np.int32([6, 4, 3])
    lengths = lengths + 6 * has_window
    given = {n: floats(rng, 3, 3, m * H) for n, m in zip(("query", "key", "value"), (N, K, K))}
    past, total = floats(rng, 3, K, ROOM, H), np.int32(lengths.max() + 1)
    given |= {"past_key": past, "past_value": past * 2, "seqlens_k": lengths - 1, "total": total}
    given |= {"query_seqlens": counts, "bias": floats(rng, 3, N, 3, total)}
    want, got = both(
        "GroupQueryAttention", given, num_heads=N, kv_num_heads=K, local_window_size=WINDOW,
        sliding_window_cache=int(has_window), softcap=3.0, smooth_softmax=1,
    )  # fmt: skip
    for b, (count, length) in enumerate(zip(counts, lengths)):
        close(got[0][b, :count], want[0][b, :count])
        rows = resident(length, has_window)
        for mine, theirs in zip(got[1:], want[1:]):
            assert np.array_equal(mine[b, :, :rows], theirs[b, :, :rows])


@pytest.mark.parametrize("shown", [1, 2])
@pytest.mark.parametrize("more", ["nothing", "softcap", "bias", "sink"])
def test_logits_and_weights_are_shown(shown, more):
    rng = np.random.default_rng(2)
    given = {n: floats(rng, 2, 1, m * H) for n, m in zip(("query", "key", "value"), (N, K, K))}
    past, lengths = floats(rng, 2, K, ROOM, H), np.int32([6, 3])
    given |= {"past_key": past, "past_value": past, "seqlens_k": lengths - 1, "total": np.int32(6)}
    given |= {"bias": {"bias": floats(rng, 2, N, 1, 6)}, "sink": {"sink": floats(rng, N)}}.get(
        more, {}
    )
    want, got = both(
        "GroupQueryAttention", given, 4, num_heads=N, kv_num_heads=K, local_window_size=4,
        qk_output=shown, softcap=2.0 * (more == "softcap"),
    )  # fmt: skip
    for mine, theirs in zip((got[0], got[3]), (want[0], want[3])):
        assert mine.shape == theirs.shape
        close(mine, theirs)


@pytest.mark.parametrize("total", [3, 5])
def test_positions_of_a_prompt_are_counted_from_its_first(total):
    rng = np.random.default_rng(3)
    given = {n: floats(rng, 1, 3, m * H) for n, m in zip(("query", "key", "value"), (N, K, K))}
    past, angles = floats(rng, 1, K, ROOM, H), floats(rng, 20, H // 2)
    given |= {"past_key": past, "past_value": past, "total": np.int32(total)}
    given |= {"seqlens_k": np.int32([total - 1]), "cos": np.cos(angles), "sin": np.sin(angles)}
    given |= {"positions": np.int64([[7, 2, 4]])}
    want, got = both("GroupQueryAttention", given, num_heads=N, kv_num_heads=K, do_rotary=1)
    for mine, theirs in zip(got, want):
        close(mine[..., :total, :], theirs[..., :total, :])


def test_caches_of_float8_are_attended_to_as_they_are_stored():
    rng = np.random.default_rng(4)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)
    q, k, v = (floats(rng, 2, 1, n * H) for n in (N, K, K))
    past = floats(rng, 2, K, ROOM, H).astype(dtype)
    k_scale, v_scale = np.float32([0.25]), np.float32([1e-3])  # the largest are cut
    got = run_node(
        "GroupQueryAttention",
        [q, k, v, past, past, np.int32([4, 4]), np.int32(5), *[None] * 5, k_scale, v_scale], 3,
        domain=MS, num_heads=N, kv_num_heads=K, k_quant_type="PER_TENSOR",
        v_quant_type="PER_TENSOR", kv_cache_bit_width=8,
    )  # fmt: skip
    parts = []
    for new, scale, found in ((k, k_scale, got[1]), (v, v_scale, got[2])):
        ratio = np.clip(by_heads(new, K) / scale, -448, 448).astype(dtype)
        whole = np.concatenate([past[:, :, :4], ratio], 2)
        assert np.array_equal(found[:, :, :5].astype(np.float32), whole.astype(np.float32))
        parts.append(whole.astype(np.float64) * scale)
    close(got[0], flat(reference(by_heads(q, N), *parts)))


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("mask", ["none", "keys", "ends"])
def test_buffers_that_past_and_present_share(mask, new):
    rng = np.random.default_rng(5)
    given = {n: floats(rng, 2, new, N * H) for n in ("query", "key", "value")}
    past, length = floats(rng, 2, N, ROOM, H), 3
    given |= {"past_key": past, "past_value": past * 2, "past_length": np.int32([length])}
    whole = length + new
    masks = {
        "keys": np.int32([[1] * whole, [0, 0] + [1] * (whole - 2)]),
        "ends": np.int32([whole, 2]),
    }
    given |= {"mask": masks[mask]} if mask in masks else {}
    unidirectional = int(mask == "none")
    want, got = both("MultiHeadAttention", given, num_heads=N, unidirectional=unidirectional)
    for mine, theirs in zip(got, want):
        close(mine[..., :whole, :], theirs[..., :whole, :])
    w, x = floats(rng, N * H, 3 * N * H) / 8, given["query"]
    pair = np.stack([past, past * 2])
    form = {"domain": MS, "num_heads": N, "unidirectional": unidirectional}
    y, present = run_node(
        "Attention", [x, w, None, given.get("mask"), pair, None, np.int32(length)], 2,
        past_present_share_buffer=1, **form,
    )  # fmt: skip
    apart = [x, w, None, given.get("mask"), np.ascontiguousarray(pair[..., :length, :])]
    y_apart, present_apart = run_node("Attention", apart, 2, **form)
    close(y, y_apart)
    assert np.array_equal(present[..., :whole, :], present_apart)
    assert np.array_equal(present[..., whole:, :], pair[..., whole:, :])


@pytest.mark.parametrize("op", ["whole", "window", "scores", "shared"])
def test_anything_may_lie_behind_the_ends_of_caches(op):
    rng = np.random.default_rng(8)
    heads = N if op == "shared" else K
    q, k, v = (floats(rng, 2, 1, n * H) for n in (N, heads, heads))
    lengths, found = np.int32([4, 2] if op != "shared" else [4, 4]), []
    past = floats(rng, 2, heads, ROOM, H)
    for rest in (0, np.nan):
        for b, length in enumerate(lengths):
            past[b, :, length - 1 :] = rest
        if op == "shared":
            given = [q, k, v, None, None, None, past, past, np.int32([3])]
            made = run_node("MultiHeadAttention", given, 3, domain=MS, num_heads=N)
        else:
            form = (
                {"sliding_window_cache": 1}
                if op == "window"
                else {"softcap": 3.0 * (op == "scores")}
            )
            given = [q, k, v, past, past, lengths - 1, np.int32(4)]
            made = run_node(
                "GroupQueryAttention", given, 3, domain=MS, num_heads=N, kv_num_heads=K,
                local_window_size=3, **form,
            )  # fmt: skip
        found.append(made[0])
    assert np.isfinite(found[0]).all()
    close(*found)


def test_lengths_beside_their_sums():
    rng = np.random.default_rng(6)
    given = {n: floats(rng, 2, 4, N * H) for n in ("query", "key", "value")}
    given["mask"] = np.int32([4, 2, 0, 4, 8, 0, 4, 6])
    want, got = both("MultiHeadAttention", given, 1, num_heads=N)
    close(got[0], want[0])


@pytest.mark.parametrize("wrong", [
    ({"k_quant_type": "PER_TENSOR"}, r"PER_TENSOR needs past_key and k_scale"),
    ({"kv_cache_bit_width": 4}, r"kv_cache_bit_width must be 8.*or 4.*got 4 and past_key of int8"),
    ({"v_quant_type": "NONE"}, r"past_value must be of float32, got int8"),
    ({"k_quant_type": "PER_ROW"}, r"k_quant_type must be NONE or of .*'PER_ROW'"),
    ({"sliding_window_cache": 1}, r"sliding_window_cache needs past_key of local_window_size"),
    ({"causal": 0, "local_window_size": 2}, r"local_window_size must be -1"),
    ({"do_rotary": 1}, r"cos_cache and sin_cache must be given"),
])  # fmt: skip
def test_what_does_not_fit_is_said(wrong):
    changed, told = wrong
    q, k = np.zeros((1, 1, N * H), np.float32), np.zeros((1, 1, K * H), np.float32)
    past, scale = np.zeros((1, K, ROOM, H), np.int8), np.float32([1])
    scales = [None, None] if "needs past_key and" in told else [scale, scale]
    form = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    given = [q, k, k, past, past, np.int32([0]), np.int32(1), *[None] * 5, *scales]
    with pytest.raises(OnnxError, match=rf"'GroupQueryAttention_0'.*{told}"):
        run_node(
            "GroupQueryAttention", given, 3, domain=MS, num_heads=N, kv_num_heads=K,
            **(form | changed),
        )  # fmt: skip
