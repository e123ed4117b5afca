"""Selections that are padded, and what follows from them, beside ONNX's reference."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import amdjax
from amdjax.onnx import OnnxError, load
from tests.onnx.test_models import F, model, value

#: What follows from the boxes that are selected, `places` (rows, 2), of which `s` are the scores.
TAILS = {
    "by element": [("Mul", ["s", "half"], {}), ("Add", ["Mul", "column"], {}),
                   ("Where", ["yes", "Add", "half"], {})],
    "looked up": [("GatherND", ["boxes", "places"], {})],
    "looked up on another axis": [("Gather", ["boxes", "of"], {"axis": 1}),
                                  ("Transpose", ["Gather"], {"perm": [1, 0, 2]})],
    "columns": [("Slice", ["found", "last", "far", "one"], {})],
    "joined": [("Concat", ["found", "found"], {"axis": -1}),
               ("Split", ["Concat", "three"], {"axis": 1})],
    "the best": [("Shape", ["s"], {}), ("Concat", ["Shape", "two"], {"axis": 0}),
                 ("ReduceMin", ["Concat"], {}), ("TopK", ["s", "ReduceMin"], {}),
                 ("Gather", ["found", "TopK_1"], {"axis": 0})],
    "the best of several": [("Neg", ["s"], {}), ("TopK", ["Neg", "two"], {"axis": 0})],
    "the least": [("TopK", ["s", "two"], {"axis": 0, "largest": 0})],
    "the first": [("Slice", ["s", "zero", "two", "zero"], {})],
    "all but in order": [("Shape", ["s"], {}), ("TopK", ["s", "Shape"], {"axis": 0, "largest": 0})],
    "sums": [("Neg", ["s"], {}), ("ReduceSum", ["Neg", "zero"], {"keepdims": 0})],
    "largest": [("Neg", ["s"], {}), ("ReduceMax", ["Neg"], {})],
    "largest integer": [("Neg", ["found"], {}), ("ReduceMax", ["Neg", "zero"], {})],
    "least of columns": [("ReduceMin", ["found", "one"], {"keepdims": 0})],
    "which is largest": [("Neg", ["s"], {}), ("ArgMax", ["Neg"], {"axis": 0})],
    "weights": [("Softmax", ["s"], {"axis": 0})],
    "weights of columns": [("Cast", ["found"], {"to": F}), ("Softmax", ["Cast"], {"axis": 1})],
    "from the end": [("Sub", ["zero", "ones_of"], {}), ("Gather", ["s", "Sub"], {"axis": 0})],
    "products": [("GatherND", ["boxes", "places"], {}), ("MatMul", ["GatherND", "w"], {})],
    "products with a bias": [("GatherND", ["boxes", "places"], {}),
                             ("Gemm", ["GatherND", "w", "half"], {})],
    "shapes": [("Shape", ["found"], {}), ("Gather", ["Shape", "one"], {}),
               ("Concat", ["last", "Gather"], {"axis": 0}), ("Reshape", ["found", "Concat"], {}),
               ("Unsqueeze", ["Reshape", "last"], {}), ("Squeeze", ["Unsqueeze", "two"], {}),
               ("Flatten", ["Unsqueeze"], {})],
    "sizes as they are": [("Shape", ["found"], {}), ("Reshape", ["found", "Shape"], {})],
    "mixed: nonzero": [("NonZero", ["found"], {})],
    "mixed: the last": [("Gather", ["found", "last"], {"axis": 0})],
    "mixed: the last slice": [("Slice", ["s", "last", "far", "zero"], {})],
    "mixed: but the first": [("Slice", ["s", "one", "far", "zero"], {})],
    "mixed: both axes": [("Gather", ["found", "of"], {"axis": 1})],
    "mixed: outer": [("Unsqueeze", ["s", "zero"], {}), ("Mul", ["Unsqueeze", "column_of"], {})],
    "mixed: joined rows": [("Concat", ["s", "s"], {"axis": 0})],
    "mixed: mean": [("ReduceMean", ["s"], {})],
    "mixed: sums up to each": [("CumSum", ["s", "naught"], {})],
    "mixed: count": [("Shape", ["s"], {}), ("Cast", ["Shape"], {"to": F})],
    "mixed: regrouped": [("Reshape", ["found", "pairs"], {})],
    "mixed: transposed product": [("Transpose", ["found"], {}), ("Cast", ["Transpose"], {"to": F}),
                                  ("MatMul", ["Cast", "any"], {})],
}  # fmt: skip


@pytest.mark.parametrize("tail", TAILS)
def test_what_follows_from_padded_rows(tail):
    """The first rows are what the reference gives of those that are selected, or it is refused."""
    node, rng = helper.make_node, np.random.default_rng(5)
    constants = {
        "zero": np.int64([0]), "one": np.int64([1]), "two": np.int64([2]), "last": np.int64([-1]),
        "three": np.int64([3, 3]), "far": np.int64([99]),
        "naught": np.int64(0), "half": np.float32(0.5),
        "ends": np.int64([0, 2]), "column": np.float32([[1], [2]]), "yes": np.array([True]),
        "w": rng.standard_normal((4, 3)).astype(np.float32), "pairs": np.int64([-1, 2]),
        "any": np.ones((8, 2), np.float32), "overlap": np.float32([0.3]),
        "least": np.float32([0.1]),
    }  # fmt: skip
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "far", "overlap", "least"], ["found"]),
        node("Gather", ["found", "ends"], ["places"], axis=1),
        node("Gather", ["found", "two"], ["of_column"], axis=1),
        node("Squeeze", ["of_column", "one"], ["of"]),
        node("Unsqueeze", ["of", "one"], ["column_of_64"]),
        node("Cast", ["column_of_64"], ["column_of"], to=F),
        node("Min", ["of", "one"], ["ones_of"]),
        node("GatherND", ["scores", "found"], ["s"]),
    ]
    for op, inputs, attributes in TAILS[tail]:
        more = [f"{op}_1"] if op in ("TopK", "Split") else []
        nodes.append(node(op, inputs, [op, *more], name=f"it_{op}", **attributes))
    made = nodes[-1].output
    whole = model(
        nodes, [value("boxes"), value("scores")],
        [onnx.ValueInfoProto(name=n) for n in made], constants,
    )  # fmt: skip
    boxes = rng.uniform(0, 1, (1, 12, 4)).astype(np.float32)
    boxes[..., 2:] += boxes[..., :2]
    scores = rng.uniform(0.1, 1, (1, 1, 12)).astype(np.float32)
    scores[..., -1] = 0.01  # which is not selected, but looked up by padding
    padded = load(whole, padded=True)
    if tail.startswith("mixed"):
        with pytest.raises(
            OnnxError, match=rf"(it_{op}.*may mix|{op}' counts) rows.*without padded"
        ):
            padded(boxes, scores)
        return
    want = ReferenceEvaluator(whole).run(None, {"boxes": boxes, "scores": scores})
    run = amdjax.jit(lambda **given: padded.function(padded.params, **given))
    for got in (padded(boxes, scores), run(boxes=boxes, scores=scores)):
        count = int(got["found.count"])
        assert 3 < count < 12
        for name, exact in zip(made, want):
            found = np.asarray(got[name])
            cut = tuple(
                slice(min(count, n) if n != m else n) for n, m in zip(found.shape, exact.shape)
            )
            np.testing.assert_allclose(found[cut], exact, rtol=1e-6, err_msg=name)


def test_padded_models_are_no_source():
    nodes = [helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["found"])]
    proto = model(nodes, [value("boxes"), value("scores")], [value("found", None, 7)])
    with pytest.raises(OnnxError, match="without padded=True to write it as source"):
        load(proto, padded=True).to_python()
