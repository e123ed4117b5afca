"""Random graphs give what onnxruntime or ONNX's reference does, at all sizes.

They are of common operators, or of what networks are made of: cells, attention, integers, loops.
Where the two differ, as in which of two samples is nearer or whether infinity times zero is read,
either will do. Other seeds each day; a failing one is told.
"""

import os
import random

import numpy as np
import pytest

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from amdjax.onnx import OnnxError, load
from tests.support.random_graphs import RandomGraph
from tests.support.random_networks import RandomNetwork

ROTATION = int(os.environ["AMDJAX_TEST_ROTATION"])


class LRN(OpRun):
    """The reference's takes as many channels as there are images."""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        squares = np.pad(x**2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
        sums = np.lib.stride_tricks.sliding_window_view(squares, size, 1).sum(-1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


def reference(proto, x):
    """What ONNX's reference gives."""
    return ReferenceEvaluator(proto, new_ops=[LRN]).run(None, {"x": x})[0]


def is_refused(proto, x):
    """Whether ONNX's reference computes nothing of such an input."""
    try:
        reference(proto, x)
    except Exception:
        return True
    return False


def runner(proto):
    """The model by onnxruntime, without what it rewrites."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options)


def is_close(got, want):
    return got.shape == want.shape and np.allclose(got, want, 2e-4, 1e-4, equal_nan=True)


def check(model, oracle, proto, name, x):
    try:
        want = oracle.run(None, {"x": x})[0]
    except Exception:  # sizes that its constants do not fit
        return
    try:
        got = np.asarray(model(x)[name])
    except OnnxError:
        if is_refused(proto, x):  # such sizes, which onnxruntime takes
            return
        raise
    with np.errstate(all="ignore"):
        is_defined = np.isfinite(want).all()  # no integer is made of what is no number
        fits = is_close(got, want) or not is_defined
        assert fits or is_close(got, reference(proto, x)), x.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", [RandomGraph, RandomNetwork])
def test_random_graphs(kind, part):
    for seed in range(9 * ROTATION + 3 * part, 9 * ROTATION + 3 * part + 3):
        drawn = random.Random(seed)
        graph = kind(drawn, drawn.randint(1, 5))
        if not graph.nodes:
            continue
        draw = np.random.default_rng(seed)
        numbers = lambda shape: (draw.integers(-8, 9, shape) / 4).astype(np.float32)
        try:
            fixed = graph.model()
            check(load(fixed), runner(fixed), fixed, graph.value, numbers(graph.given))
            proto = graph.model([f"d{i}" for i in range(len(graph.given))])
            made, oracle = load(proto), runner(proto)
            for more in (0, 1, 2):
                shape = tuple(n + more for n in graph.given)
                check(made, oracle, proto, graph.value, numbers(shape))
        except Exception as e:
            e.add_note(f"seed {seed}: {', '.join(n.op_type for n in graph.nodes)}")
            raise
