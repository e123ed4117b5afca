"""Ensembles of decision trees: all rows go down all trees at once, a level a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax import numpy as jnp

from ..errors import OnnxError
from .ml import POST_TRANSFORMS, labeled, ml

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
#: Numbers in the table of what leaves give; a file could claim any number of targets.
_MOST_WEIGHTS = 1 << 28
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


class _Trees(NamedTuple):
    """Nodes of all trees; a leaf is its own child."""

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray  # place in _MODES
    true: np.ndarray
    false: np.ndarray
    missing_is_true: np.ndarray
    members: np.ndarray  # (nodes, most), filled up with NaN, or (0, 0) where no node has a set

    def leaves(self, x: Any) -> Any:
        """The leaf of each row in each tree, `(rows, trees)`."""
        at = jnp.broadcast_to(self.roots.astype(np.int32), (x.shape[0], len(self.roots)))
        rows = jnp.arange(x.shape[0], dtype=np.int32)[:, None]
        for _ in range(self.depth()):
            value = x[rows, jnp.asarray(self.feature)[at]]
            goes = self._goes_true(value, at)
            if self.missing_is_true.any():
                goes = goes | (jnp.isnan(value) & jnp.asarray(self.missing_is_true)[at])
            at = jnp.where(goes, jnp.asarray(self.true)[at], jnp.asarray(self.false)[at])
        return at

    def _goes_true(self, value: Any, at: Any) -> Any:
        bound = jnp.asarray(self.threshold)[at]
        inner = self.true != np.arange(len(self.true))
        used = sorted(set(self.mode[inner].tolist()))
        found: Any = jnp.zeros(value.shape, bool)
        for mode in used:
            one = self._compared(_MODES[mode], value, bound, at)
            found = (
                one if len(used) == 1 else jnp.where(jnp.asarray(self.mode)[at] == mode, one, found)
            )
        return found

    def _compared(self, mode: str, value: Any, bound: Any, at: Any) -> Any:
        if mode == "MEMBER":
            return jnp.any(value[..., None] == jnp.asarray(self.members)[at], -1)
        return {
            "LEQ": lambda: value <= bound, "LT": lambda: value < bound,
            "GTE": lambda: value >= bound, "GT": lambda: value > bound,
            "EQ": lambda: value == bound, "NEQ": lambda: value != bound,
        }[mode]()  # fmt: skip

    def depth(self) -> int:
        """How many steps lead to the deepest leaf."""
        at, depth = np.unique(self.roots), 0
        while True:
            inner = at[self.true[at] != at]
            if not len(inner):
                return depth
            at, depth = np.unique([self.true[inner], self.false[inner]]), depth + 1
            if depth > len(self.true):
                raise OnnxError("its trees have a circle")


def _checked(trees: _Trees, is_leaf: np.ndarray, features: int) -> _Trees:
    """The trees, whose nodes and features all exist; no inner node is its own child."""
    count = len(trees.true)
    own = np.arange(count)
    if (((trees.true == own) | (trees.false == own)) & ~is_leaf).any():
        raise OnnxError("its trees have a circle")
    for name, places, end in (
        ("children", np.concatenate([trees.true, trees.false, trees.roots]), count),
        ("features", trees.feature, features),
    ):
        if len(places) and not (places.min() >= 0 and places.max() < end):
            raise OnnxError(f"{name} of its nodes must be in [0, {end})")
    return trees


def _legacy_trees(x: Any, dtype: Any, nodes: dict[str, Any]) -> tuple[_Trees, dict[Any, int]]:
    """Trees whose nodes are named by tree and number, and the place of each of these names."""
    names = list(zip(*(np.asarray(nodes[k]).tolist() for k in ("treeids", "nodeids"))))
    places = {name: i for i, name in enumerate(names)}
    modes = [m.removeprefix("BRANCH_") for m in nodes["modes"]]
    if unknown := set(modes) - {*_MODES[:6], "LEAF"}:
        raise OnnxError(f"nodes_modes has {sorted(unknown)[0]!r}")
    own = np.arange(len(names), dtype=np.int32)
    is_leaf = np.array([m == "LEAF" for m in modes], bool)
    children = []
    for key in ("truenodeids", "falsenodeids"):
        ids = np.asarray(nodes[key]).tolist()
        found = [places.get((tree, i), -1) for (tree, _), i in zip(names, ids)]
        children.append(np.where(is_leaf, own, np.array(found, np.int32)))
    if (np.concatenate(children) < 0).any():
        raise OnnxError("children of its nodes must be nodes of the same tree")
    inner = ~is_leaf
    below = {*children[0][inner].tolist(), *children[1][inner].tolist()}
    roots = np.array([i for i in own.tolist() if i not in below], np.int32)
    if len(roots) != len({tree for tree, _ in names}):
        raise OnnxError("its trees must have one root each, and no circle")
    tracks = nodes.get("missing_value_tracks_true")
    missing = np.zeros(len(names), bool) if tracks is None or not len(tracks) else tracks
    trees = _Trees(
        roots, np.where(is_leaf, 0, np.asarray(nodes["featureids"])).astype(np.int32),
        np.asarray(nodes["values"], dtype),
        np.array([0 if m == "LEAF" else _MODES.index(m) for m in modes], np.int32),
        children[0], children[1], np.asarray(missing, bool), np.zeros((0, 0), dtype),
    )  # fmt: skip
    return _checked(trees, is_leaf, x.shape[-1]), places


def _total(leaves: Any, weights: np.ndarray, given: np.ndarray, aggregate: str, base: Any) -> Any:
    """What leaves give for each target, of all trees, `(rows, targets)`."""
    values = jnp.asarray(weights)[leaves]
    if aggregate in ("SUM", "AVERAGE"):
        total = jnp.sum(values, 1)
        total = total / leaves.shape[1] if aggregate == "AVERAGE" else total
    else:
        has = jnp.asarray(given)[leaves]
        reduce, edge = (jnp.min, np.inf) if aggregate == "MIN" else (jnp.max, -np.inf)
        total = reduce(jnp.where(has, values, edge), 1)
        total = jnp.where(jnp.any(has, 1), total, 0)
    return total if base is None or not len(base) else total + np.asarray(base, weights.dtype)


def _spread(
    count: int, targets: int, places: Any, ids: Any, weights: Any, dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of leaves by node and target, and where there are any."""
    if not 0 < targets <= _MOST_WEIGHTS // max(count, 1):
        raise OnnxError(f"n_targets {targets} is none, or too large for {count} nodes")
    table, given = np.zeros((count, targets), dtype), np.zeros((count, targets), bool)
    ids = np.asarray(ids)
    if len(ids) and not (ids.min() >= 0 and ids.max() < targets):
        raise OnnxError(f"targets of its leaves must be in [0, {targets})")
    np.add.at(table, (places, ids), np.asarray(weights, dtype))
    given[places, ids] = True
    return table, given


def _parts(attributes: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Attributes of a prefix; those given as tensors stand for those given as lists."""
    found = {k.removeprefix(prefix): v for k, v in attributes.items() if k.startswith(prefix)}
    for name in [n for n in found if n.endswith("_as_tensor")]:
        found[name.removesuffix("_as_tensor")] = found.pop(name)
    return found


def _run_legacy(
    x: Any, attributes: dict[str, Any], kind: str, targets: int, aggregate: str
) -> tuple[Any, dict[str, Any]]:
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    x = jnp.asarray(x).astype(dtype)
    trees, places = _legacy_trees(x, dtype, _parts(attributes, "nodes_"))
    leaf = _parts(attributes, kind)
    names = zip(*(np.asarray(leaf[k]).tolist() for k in ("treeids", "nodeids")))
    try:
        at = np.array([places[name] for name in names], np.int64)
    except KeyError as error:
        raise OnnxError(f"a weight is that of node {error.args[0]}, which is not there") from None
    table, given = _spread(len(places), targets, at, leaf["ids"], leaf["weights"], dtype)
    base = _parts(attributes, "base_").get("values")
    of_one_score = kind == "class_" and targets <= 2 and not any(leaf["ids"])
    if base is not None and len(base) not in (0, targets, *(1,) * of_one_score):
        raise OnnxError(f"base_values must have {targets} numbers, or none, not {len(base)}")
    return _total(trees.leaves(x), table, given, aggregate, base), leaf


@ml("TreeEnsembleRegressor")
def tree_regressor(
    x: Any, *, aggregate_function: str = "SUM", n_targets: int = 1, post_transform: str = "NONE",
    **attributes: Any,
) -> Any:  # fmt: skip
    """What the trees' leaves give, summed or aggregated otherwise."""
    y, _ = _run_legacy(x, attributes, "target_", n_targets, aggregate_function)
    return POST_TRANSFORMS[post_transform](y).astype(np.float32)


@ml("TreeEnsembleClassifier")
def tree_classifier(
    x: Any, *, classlabels_int64s: Any = None, classlabels_strings: Any = None,
    post_transform: str = "NONE", **attributes: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The class with the largest score, and the scores.

    Trees that vote for the first of two classes alone give the score of the second.
    """
    labels: Any = classlabels_int64s
    if classlabels_strings is not None and len(classlabels_strings):
        labels = classlabels_strings
    count = len(labels)
    y, leaf = _run_legacy(x, attributes, "class_", count, "SUM")
    if count > 2 or any(leaf["ids"]):
        scores = POST_TRANSFORMS[post_transform](y)
        places = jnp.argmax(y, -1)
        return labeled(places, classlabels_int64s, classlabels_strings), scores.astype(np.float32)
    is_chance = post_transform == "NONE" and min(leaf["weights"]) >= 0
    places, scores = _of_two(y[:, 0], is_chance, post_transform)
    if count == 1:
        labels = np.array([0, labels[0]], np.int64)
        return jnp.asarray(labels)[places], scores.astype(np.float32)
    return labeled(places, classlabels_int64s, classlabels_strings), scores.astype(np.float32)


def _of_two(score: Any, is_chance: bool, post_transform: str) -> tuple[Any, Any]:
    """The class and the scores of two classes, from a probability or a margin of the second."""
    if is_chance:
        return (score > 0.5).astype(np.int32), jnp.stack([1 - score, score], -1)
    scores = jnp.stack([-score, score], -1)
    return (score > 0).astype(np.int32), POST_TRANSFORMS[post_transform](scores)


@ml("TreeEnsemble", since=5)
def tree_ensemble(
    x: Any, *, leaf_targetids: Sequence[int], leaf_weights: Any, n_targets: int = 1,
    nodes_falseleafs: Any, nodes_falsenodeids: Any, nodes_featureids: Any, nodes_modes: Any,
    nodes_splits: Any, nodes_trueleafs: Any, nodes_truenodeids: Any, tree_roots: Any,
    aggregate_function: int = 1, membership_values: Any = None, nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None, post_transform: int = 0, node: Any,
) -> Any:  # fmt: skip
    """What the trees' leaves give; leaves stand behind the nodes."""
    modes = np.asarray(nodes_modes, np.int32)
    splits, weights = np.asarray(nodes_splits), np.asarray(leaf_weights)
    n, leaves = len(modes), len(weights)
    if len(modes) and not (modes.min() >= 0 and modes.max() < len(_MODES)):
        raise node.error(f"nodes_modes must be in [0, {len(_MODES)})")
    grown = lambda values, fill, dtype: np.concatenate(
        [np.asarray(values, dtype), np.full(leaves, fill, dtype)]
    )
    own = np.arange(n, n + leaves, dtype=np.int32)
    children = [
        np.concatenate([np.asarray(ids, np.int32) + n * np.asarray(is_leaf, np.int32), own])
        for ids, is_leaf in (
            (nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs),
        )
    ]  # fmt: skip
    missing = nodes_missing_value_tracks_true
    trees = _Trees(
        np.asarray(tree_roots, np.int32), grown(nodes_featureids, 0, np.int32),
        grown(splits, 0, splits.dtype), grown(modes, 0, np.int32), children[0],
        children[1],
        grown(np.zeros(n) if missing is None or not len(missing) else missing, 0, bool),
        _members(modes, membership_values, n + leaves, splits.dtype),
    )  # fmt: skip
    table, given = _spread(n + leaves, n_targets, own, leaf_targetids, weights, weights.dtype)
    is_leaf = np.arange(n + leaves) >= n
    found = _checked(trees, is_leaf, x.shape[-1]).leaves(jnp.asarray(x))
    y = _total(found, table, given, _AGGREGATES[aggregate_function], None)
    return list(POST_TRANSFORMS.values())[post_transform](y)


def _members(modes: np.ndarray, values: Any, count: int, dtype: Any) -> np.ndarray:
    """The sets of nodes, which are given one behind another with NaN between them."""
    if values is None or not np.size(values):
        return np.zeros((0, 0), dtype)
    flat = np.asarray(values)
    sets = np.split(flat, np.flatnonzero(np.isnan(flat)) + 1)
    widest = max(map(len, sets))
    table = np.full((count, widest), np.nan, dtype)
    for at, found in zip(np.flatnonzero(modes == _MODES.index("MEMBER")), sets):
        table[at, : len(found)] = found
    return table
