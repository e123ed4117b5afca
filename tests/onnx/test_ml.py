"""Classical models: trees against a tree that is followed node by node, and tables."""

import numpy as np
import pytest

from amdjax.onnx import OnnxError
from tests.support.onnx_nodes import run_node

ML = "ai.onnx.ml"
MODES = {"LEQ": np.less_equal, "LT": np.less, "GTE": np.greater_equal, "GT": np.greater,
         "EQ": np.equal, "NEQ": np.not_equal}  # fmt: skip


def run(op, inputs, outputs=1, **attributes):
    return run_node(op, inputs, outputs, domain=ML, opset=15, **attributes)


def grown(rng, trees, targets, kind):
    """Random trees as attributes, and as nested tuples."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    nodes = {f"nodes_{n}": [] for n in names}
    leaf = {f"{kind}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, count, depth):
        i = next(count)
        row = len(nodes["nodes_treeids"])
        is_leaf = depth == 0
        mode = "LEAF" if is_leaf else "BRANCH_" + str(rng.choice(list(MODES)))
        given = (tree, i, int(rng.integers(3)), float(rng.integers(-2, 3)), mode, 0, 0,
                 int(rng.integers(2)))  # fmt: skip
        for name, value in zip(names, given):
            nodes[f"nodes_{name}"].append(value)
        if is_leaf:
            ids = rng.choice(targets, 2, replace=False).tolist()
            weights = rng.normal(size=2).round(2).tolist()
            for target, weight in zip(ids, weights):
                for n, v in zip(leaf.values(), (tree, i, target, weight)):
                    n.append(v)
            return dict(zip(ids, weights))
        below = []
        for name in ("truenodeids", "falsenodeids"):
            nodes[f"nodes_{name}"][row] = len(nodes["nodes_treeids"]) - row + i
            below.append(grow(tree, count, depth - 1))
        return (given, *below)

    found = [grow(t, iter(range(100)), 3) for t in range(trees)]
    return {**nodes, **leaf}, found


def followed(tree, x):
    while isinstance(tree, tuple):
        (_, _, feature, bound, mode, _, _, missing), true, false = tree
        value = x[feature]
        goes = MODES[mode.removeprefix("BRANCH_")](value, bound) or (np.isnan(value) and missing)
        tree = true if goes else false
    return tree


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees(aggregate):
    rng = np.random.default_rng(0)
    attributes, trees = grown(rng, 4, 3, "target")
    x = rng.integers(-3, 4, size=(20, 3)).astype(np.float32)
    x[0, 0] = np.nan
    want = np.zeros((20, 3))
    for row, out in zip(x, want):
        leaves = [followed(tree, row) for tree in trees]
        for t in range(3):
            votes = [leaf[t] for leaf in leaves if t in leaf]
            out[t] = {"SUM": sum, "MIN": min, "MAX": max,
                      "AVERAGE": lambda v: sum(v) / 4}[aggregate](votes or [0])  # fmt: skip
    got = run("TreeEnsembleRegressor", [x], n_targets=3, aggregate_function=aggregate, **attributes)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_classes_of_trees():
    rng = np.random.default_rng(1)
    attributes, trees = grown(rng, 5, 3, "class")
    x = rng.integers(-3, 4, size=(20, 3)).astype(np.float32)
    scores = np.zeros((20, 3))
    for row, out in zip(x, scores):
        for tree in trees:
            for t, weight in followed(tree, row).items():
                out[t] += weight
    for labels in ({"classlabels_int64s": [7, 8, 9]}, {"classlabels_strings": ["a", "b", "c"]}):
        got, shown = run("TreeEnsembleClassifier", [x], 2, **labels, **attributes)
        (names,) = labels.values()
        assert got.tolist() == [names[i] for i in scores.argmax(-1)]
        np.testing.assert_allclose(shown, scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong, message", [
    ({"nodes_truenodeids": [0, 0, 0]}, "circle"), ({"nodes_falsenodeids": [9, 0, 0]}, "children"),
    ({"nodes_featureids": [5, 0, 0]}, "features"), ({"target_ids": [4, 0]}, "targets"),
    ({"n_targets": 10**12}, "too large"),
    ({"target_nodeids": [1, 7]}, "not there"),
    ({"nodes_modes": ["BRANCH_X", "LEAF", "LEAF"]}, "has 'X'"),
])  # fmt: skip
def test_trees_that_are_none(wrong, message):
    tree = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
        "nodes_values": [0.0] * 3, "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
        "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    x = np.zeros((2, 1), np.float32)
    assert run("TreeEnsembleRegressor", [x], **tree).tolist() == [[1], [1]]
    with pytest.raises(OnnxError, match=message):
        run("TreeEnsembleRegressor", [x], **{**tree, **wrong})


def test_linear_models():
    rng = np.random.default_rng(2)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((5, 4), (3, 4), 3))
    scores = x.astype(np.float64) @ w.T + b
    form = {"coefficients": w.ravel().tolist(), "intercepts": b.tolist()}
    got = run("LinearRegressor", [x], targets=3, **form)
    np.testing.assert_allclose(got, scores, rtol=1e-5, atol=1e-6)
    labels, shown = run(
        "LinearClassifier", [x], 2, classlabels_strings=["a", "b", "c"], post_transform="SOFTMAX",
        **form,
    )  # fmt: skip
    assert labels.tolist() == [["a", "b", "c"][i] for i in scores.argmax(-1)]
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(shown, weights, rtol=1e-5)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind):
    rng = np.random.default_rng(3)
    x, vectors, w = (rng.normal(size=s).astype(np.float32) for s in ((5, 4), (6, 4), 6))
    gamma, offset, degree = 0.3, 0.2, 2.0
    x64 = x.astype(np.float64)
    kernels = {
        "LINEAR": x64 @ vectors.T, "POLY": (gamma * x64 @ vectors.T + offset) ** degree,
        "RBF": np.exp(-gamma * ((x64[:, None] - vectors) ** 2).sum(-1)),
        "SIGMOID": np.tanh(gamma * x64 @ vectors.T + offset),
    }  # fmt: skip
    got = run(
        "SVMRegressor", [x], coefficients=w.tolist(), support_vectors=vectors.ravel().tolist(),
        n_supports=6, rho=[0.5], kernel_type=kind, kernel_params=[gamma, offset, degree],
    )  # fmt: skip
    np.testing.assert_allclose(got[:, 0], kernels[kind] @ w + 0.5, rtol=1e-4, atol=1e-5)


def test_tables():
    words = np.array(["x", "y", "z"], object)
    table = {"keys_strings": ["x", "y"], "values_int64s": [5, 6], "default_int64": -1}
    assert run("LabelEncoder", [words], **table).tolist() == [5, 6, -1]
    numbers = np.array([1.0, np.nan], np.float32)
    table = {"keys_floats": [1.0, float("nan")], "values_strings": ["one", "none"]}
    assert run("LabelEncoder", [numbers], **table).tolist() == ["one", "none"]
    assert run("OneHotEncoder", [np.array([3, 9])], cats_int64s=[9, 3]).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(OnnxError, match="not known"):
        run("OneHotEncoder", [np.array([4])], cats_int64s=[9, 3], zeros=0)


def test_features():
    x = np.array([[3.0, -4.0], [0.0, 0.0]], np.float32)
    for norm, by in (("MAX", 4), ("L1", 7), ("L2", 5)):
        np.testing.assert_allclose(run("Normalizer", [x], norm=norm), x / by, rtol=1e-6)
    assert run("Scaler", [x], offset=[1.0], scale=[2.0]).tolist() == [[4, -10], [-2, -2]]
    assert run("Binarizer", [x], threshold=1.0).tolist() == [[1, 0], [0, 0]]
    missing = np.array([[1, np.nan]], np.float32)
    imputed = run(
        "Imputer", [missing], imputed_value_floats=[7.0], replaced_value_float=float("nan")
    )
    assert imputed.tolist() == [[1, 7]]


def one_leaf(kind, weights, **attributes):
    """Trees of one leaf, which gives a weight for each target."""
    count = len(weights)
    nodes = {"treeids": [0], "nodeids": [0], "featureids": [0], "values": [0.0], "modes": ["LEAF"],
             "truenodeids": [0], "falsenodeids": [0]}  # fmt: skip
    leaf = {"treeids": [0] * count, "nodeids": [0] * count, "ids": list(range(count)),
            "weights": weights}  # fmt: skip
    return {f"nodes_{n}": v for n, v in nodes.items()} | {
        f"{kind}_{n}": v for n, v in leaf.items()
    } | attributes  # fmt: skip


def test_probit_is_the_quantile_of_the_normal_distribution():
    form = one_leaf("class", [0.975, 0.5, 0.1], classlabels_int64s=[3, 5, 7])
    label, scores = run(
        "TreeEnsembleClassifier", [np.zeros((1, 1), np.float32)], 2, post_transform="PROBIT", **form
    )
    assert label == 3
    np.testing.assert_allclose(scores, [[1.959963985, 0, -1.281551566]], rtol=1e-6, atol=1e-7)


def test_classes_without_a_leaf_have_their_base_value():
    """The label is that of the highest score, whether a leaf gave it or not."""
    x = np.zeros((1, 1), np.float32)
    form = one_leaf("class", [-0.25, -0.5], classlabels_int64s=[3, 5, 7])
    label, scores = run("TreeEnsembleClassifier", [x], 2, **form)
    assert label == 7 and scores.tolist() == [[-0.25, -0.5, 0]]
    label, scores = run("TreeEnsembleClassifier", [x], 2, base_values=[0, 1, 0.25], **form)
    assert label == 5 and scores.tolist() == [[-0.25, 0.5, 0.25]]
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        form = one_leaf("target", [-0.25, -0.5], n_targets=3, base_values=[0, 1, 0.25])
        y = run("TreeEnsembleRegressor", [x], aggregate_function=aggregate, **form)
        assert y.tolist() == [[-0.25, 0.5, 0.25]]


@pytest.mark.parametrize("op, kind, form", [
    ("TreeEnsembleRegressor", "target", {"n_targets": 2}),
    ("TreeEnsembleClassifier", "class", {"classlabels_int64s": [1, 2]}),
])  # fmt: skip
def test_base_values_are_one_for_each_score(op, kind, form):
    outputs = 2 if kind == "class" else 1
    with pytest.raises(OnnxError, match="base_values must have 2 numbers, or none, not 1"):
        run(op, [np.zeros((1, 1), np.float32)], outputs, base_values=[1.0],
            **one_leaf(kind, [0.5, 0.25], **form))  # fmt: skip
    if kind == "class":  # one score of two classes has one
        single = one_leaf(kind, [0.5], **form)
        label, scores = run(
            op, [np.zeros((1, 1), np.float32)], 2, base_values=[-1.0], post_transform="LOGISTIC",
            **single,
        )  # fmt: skip
        assert label == 1 and scores[0, 1] < 0.5
