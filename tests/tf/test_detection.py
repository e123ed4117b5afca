"""Operators of detectors, against their definitions in NumPy."""

import heapq

import numpy as np
import pytest

import amdjax
from amdjax import tf
from tests.support.tf_graphs import Builder

f32 = np.float32


def overlap_of(a, b):
    """The part of their union that two boxes share; none if one is empty."""
    (a0, a1), (b0, b1) = (np.sort(x.reshape(2, 2).astype(np.float64), axis=0) for x in (a, b))
    common = np.maximum(np.minimum(a1, b1) - np.maximum(a0, b0), 0).prod()
    areas = (a1 - a0).prod(), (b1 - b0).prod()
    return common / (sum(areas) - common) if min(areas) > 0 else 0.0


def suppressed(boxes, scores, most, overlap, least=-np.inf):
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        apart = all(overlap_of(boxes[i], boxes[k]) <= overlap for k in kept)
        if len(kept) < most and scores[i] > least and apart:
            kept.append(i)
    return kept


def drawn(seed, n=20):
    """Boxes on a grid, some of which are empty or turned around, and scores that repeat."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 6, (n, 4)) / 5).astype(f32), (rng.integers(0, 9, n) / 8).astype(f32)


@pytest.mark.parametrize("version", ["", "V2", "V3", "V4", "V5"])
def test_suppression(version):
    """As many as are kept, where that is known; V4 and V5 with their number."""
    graph, number = Builder(), int(version[1:] or 1)
    ins = [
        graph.input("boxes", (None, 4)),
        graph.input("scores", (None,)),
        graph.const(np.int32(6)),
    ]
    ins += [graph.typed(f32(0.3))] * (number >= 2) + [graph.typed(f32(0.2))] * (number >= 3)
    ins += [graph.typed(f32(0))] * (number >= 5)
    how = {"iou_threshold": 0.3} if number == 1 else {}
    graph.op(f"NonMaxSuppression{version}", *ins, name="y", **how)
    outputs = ["y", "y:1", "y:2"][: max(number - 2, 1)]
    model = tf.load(graph.bytes(), outputs=outputs)
    for seed in range(3):
        boxes, scores = drawn(seed)
        want = suppressed(boxes, scores, 6, 0.3, 0.2 if number >= 3 else -np.inf)
        made = model.function({}, boxes=boxes, scores=scores)
        np.testing.assert_array_equal(made["y"], want)
        assert number < 4 or int(made[outputs[-1]]) == len(want)
        assert number < 5 or made["y:1"].tolist() == scores[want].tolist()


def test_padded_suppression_is_compiled():
    graph = Builder()
    graph.op(
        "NonMaxSuppressionV4", graph.input("boxes", (None, 4)), graph.input("scores", (None,)),
        graph.const(np.int32(30)), graph.typed(f32(0.3)), graph.typed(f32(0.2)), name="y",
        pad_to_max_output_size=True,
    )  # fmt: skip
    model = tf.load(graph.bytes(), outputs=["y", "y:1"])
    run = amdjax.jit(model.function)
    for n in (20, 40):
        boxes, scores = drawn(n, n)
        want = suppressed(boxes, scores, 30, 0.3, 0.2)
        made = run({}, boxes=boxes, scores=scores)
        assert made["y"].shape == (30,) and int(made["y:1"]) == len(want)
        np.testing.assert_array_equal(made["y"], [*want, *[0] * (30 - len(want))])


def softly_suppressed(boxes, scores, most, overlap, least, sigma):
    """By a queue, where boxes whose scores have fallen wait again, as the operator is defined."""
    queue = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
    kept, values = [], []
    while queue and len(kept) < most:
        heapq.heapify(queue)
        score, box, seen = heapq.heappop(queue)
        now = score = -score
        for other in kept[seen:][::-1]:
            part = overlap_of(boxes[box], boxes[other])
            now *= np.exp(-(part**2) / (2 * sigma)) if part <= overlap else 0
        if now == score:
            kept.append(box)
            values.append(score)
        elif now > least:
            queue.append((-now, box, len(kept)))
    return kept, values


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("overlap", [0.43, 1.0])
@pytest.mark.parametrize("least", [0.05, 0.3])
def test_soft_suppression(sigma, overlap, least):
    """Boxes that overlap others lose some of their scores, by which they are told."""
    models = []
    for pads in (False, True):
        graph = Builder()
        graph.op(
            "NonMaxSuppressionV5", graph.input("boxes", (None, 4)), graph.input("scores", (None,)),
            graph.const(np.int32(12)), graph.typed(f32(overlap)), graph.typed(f32(least)),
            graph.typed(f32(sigma)), name="y", pad_to_max_output_size=pads,
        )  # fmt: skip
        models.append(tf.load(graph.bytes(), outputs=["y", "y:1", "y:2"]))
    run = amdjax.jit(models[1].function)
    for seed in range(3):
        boxes, _ = drawn(seed, 25)
        scores = np.random.default_rng(seed).permutation(25).astype(f32) / 25
        want, values = softly_suppressed(boxes, scores, 12, overlap, least, sigma)
        made = models[0].function({}, boxes=boxes, scores=scores)
        padded = run({}, boxes=boxes, scores=scores)
        rest = [0] * (12 - len(want))
        assert int(made["y:2"]) == int(padded["y:2"]) == len(want)
        np.testing.assert_array_equal(made["y"], want)
        np.testing.assert_array_equal(padded["y"], [*want, *rest])
        np.testing.assert_allclose(made["y:1"], values, rtol=1e-5)
        np.testing.assert_allclose(padded["y:1"], [*values, *rest], rtol=1e-5)


@pytest.mark.parametrize(("shared", "per_class"), [(True, False), (False, True)])
def test_combined_suppression(shared, per_class):
    rng, classes, each, total = np.random.default_rng(0), 3, 4, 10
    boxes = (rng.integers(0, 6, (2, 12, 1 if shared else classes, 4)) / 4).astype(f32)
    scores = rng.permutation(2 * 12 * classes).reshape(2, 12, classes).astype(f32) / 72
    graph = Builder()
    graph.op(
        "CombinedNonMaxSuppression", graph.input("boxes", boxes.shape),
        graph.input("scores", scores.shape), graph.const(np.int32(each)),
        graph.const(np.int32(total)), graph.typed(f32(0.3)), graph.typed(f32(0.4)), name="y",
        pad_per_class=per_class, clip_boxes=True,
    )  # fmt: skip
    made = tf.load(graph.bytes(), outputs=["y", "y:1", "y:2", "y:3"])(boxes=boxes, scores=scores)
    for b in range(2):
        found = []
        for c in range(classes):
            of_class = boxes[b, :, 0 if shared else c]
            kept = suppressed(of_class, scores[b, :, c], each, 0.3, 0.4)
            found += [(scores[b, i, c], c, of_class[i]) for i in kept]
        found = sorted(found, key=lambda x: -x[0])[:total]
        n = len(found)
        assert int(made["y:3"][b]) == n
        np.testing.assert_array_equal(made["y"][b][:n], np.clip([x[2] for x in found], 0, 1))
        np.testing.assert_array_equal(made["y:1"][b][:n], [x[0] for x in found])
        np.testing.assert_array_equal(made["y:2"][b][:n], [x[1] for x in found])
        assert not any(np.asarray(made[k][b][n:]).any() for k in ("y", "y:1", "y:2"))


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("new", [(3, 4), (1, 5)])
def test_crops(method, new):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 7, 9, 3)).astype(f32)
    boxes = f32([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [0.9, 0.8, 0.2, 0.1], [-0.3, 0.5, 0.6, 1.4]])
    which = np.int32([0, 1, 1, 0])
    graph = Builder()
    image_in = graph.input("image", (None, None, None, 3))
    boxes_in, which_in = graph.input("boxes", (None, 4)), graph.input("which", (None,), np.int32)
    graph.op(
        "CropAndResize", image_in, boxes_in, which_in, graph.const(np.int32(new)), name="y",
        method=method, extrapolation_value=2.5,
    )  # fmt: skip
    want = np.full((4, *new, 3), 2.5)
    for i, (y0, x0, y1, x1) in enumerate(boxes.astype(np.float64)):
        for r in range(new[0]):
            for c in range(new[1]):
                place = lambda a, b, k, m, n: (
                    (a + k * (b - a) / (m - 1) if m > 1 else (a + b) / 2) * (n - 1)
                )
                y, x = place(y0, y1, r, new[0], 7), place(x0, x1, c, new[1], 9)
                if not (0 <= y <= 6 and 0 <= x <= 8):
                    continue
                if method == "nearest":
                    want[i, r, c] = image[which[i], int(y + 0.5), int(x + 0.5)]
                    continue
                top, left, dy, dx = int(y), int(x), y % 1, x % 1
                rows, columns = (top, int(np.ceil(y))), (left, int(np.ceil(x)))
                part = image[which[i]][np.ix_(rows, columns)].astype(np.float64)
                want[i, r, c] = np.einsum("y,x,yxc->c", [1 - dy, dy], [1 - dx, dx], part)
    made = tf.load(graph.bytes())(image=image, boxes=boxes, which=which)["y"]
    np.testing.assert_allclose(made, want, atol=1e-5)
