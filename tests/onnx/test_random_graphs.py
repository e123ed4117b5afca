"""Random graphs of common operators give what onnxruntime or ONNX's reference does, at all sizes.

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

from amdjax.onnx import load
from tests.support.random_graphs import RandomGraph

ROTATION = int(os.environ["AMDJAX_TEST_ROTATION"])


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
    got = np.asarray(model(x)[name])
    with np.errstate(all="ignore"):
        is_defined = np.isfinite(want).all()  # no integer is made of what is no number
        fits = is_close(got, want) or not is_defined
        assert fits or is_close(got, ReferenceEvaluator(proto).run(None, {"x": x})[0]), x.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(3))
def test_random_graphs(part):
    for seed in range(9 * ROTATION + 3 * part, 9 * ROTATION + 3 * part + 3):
        drawn = random.Random(seed)
        graph = RandomGraph(drawn, drawn.randint(1, 5))
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
