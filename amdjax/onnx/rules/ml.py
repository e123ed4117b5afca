"""Classical models of ai.onnx.ml: tables of values, linear models, support vectors; trees apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import nn, numpy as jnp
from amdjax.scipy.special import erfinv

from ..registry import rule, static

ml = functools.partial(rule, domain="ai.onnx.ml")


def _floats(x: Any) -> Any:
    """A value in float32, or float64 where it is of that dtype."""
    x = jnp.asarray(x)
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _softmax_zero(x: Any) -> Any:
    """A softmax over elements that are not 0; those stay 0."""
    used = abs(x) > 1e-7
    return jnp.where(used, nn.softmax(x, -1, where=used), 0)


#: What is done to scores, by name, and by number in TreeEnsemble.
POST_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: nn.softmax(x, -1),
    "LOGISTIC": nn.sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": lambda x: np.sqrt(2).astype(np.float32) * erfinv(2 * x - 1),
}


def labeled(places: Any, ints: Any, strings: Any) -> Any:
    """The labels of classes; strings are known only where the classes are."""
    if strings is not None and len(strings):
        return np.array(list(strings), object)[static(places, "the class")]
    if ints is None:
        return places.astype(np.int64)
    return jnp.asarray(np.asarray(ints, np.int64))[places]


# Features


@ml("ArrayFeatureExtractor")
def array_feature_extractor(x: Any, places: Any) -> Any:
    """Columns of an array."""
    places = places.reshape(-1)
    if isinstance(x, np.ndarray):
        return np.take(x.reshape(-1, x.shape[-1]), static(places, "Y"), -1)
    return jnp.take(x.reshape(-1, x.shape[-1]), places, -1)


@ml("Binarizer")
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    """1 where an element is larger than a threshold, else 0."""
    return (x > np.asarray(threshold, x.dtype)).astype(x.dtype)


@ml("Scaler")
def scaler(x: Any, *, offset: Sequence[float], scale: Sequence[float]) -> Any:
    """`(x - offset) * scale`, by feature."""
    x = _floats(x)
    return (x - np.asarray(offset, x.dtype)) * np.asarray(scale, x.dtype)


@ml("Normalizer")
def normalizer(x: Any, *, norm: str = "MAX", node: Any) -> Any:
    """Rows, divided by their norm; rows of norm 0 stay."""
    x = _floats(x)
    norms = {
        "MAX": lambda: jnp.max(abs(x), -1, keepdims=True),
        "L1": lambda: jnp.sum(abs(x), -1, keepdims=True),
        "L2": lambda: jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)),
    }
    if norm not in norms:
        raise node.error(f"norm must be of {list(norms)}, got {norm!r}")
    by = norms[norm]()
    return x / jnp.where(by == 0, jnp.ones_like(by), by)


@ml("Imputer")
def imputer(
    x: Any, *, imputed_value_floats: Any = None, imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Any:  # fmt: skip
    """Elements that equal a value, NaN among them, replaced by others."""
    if imputed_value_floats is not None and len(imputed_value_floats):
        new, old = np.asarray(imputed_value_floats, x.dtype), replaced_value_float
        missing = jnp.isnan(x) if np.isnan(old) else x == np.asarray(old, x.dtype)
    else:
        new, missing = np.asarray(imputed_value_int64s, x.dtype), x == replaced_value_int64
    return jnp.where(missing, new, x)


@ml("FeatureVectorizer")
def feature_vectorizer(*xs: Any, inputdimensions: Any = None) -> Any:
    """Arrays, each of a row an example, side by side."""
    return jnp.concatenate([_floats(x).reshape(-1, x.shape[-1]) for x in xs], -1)


@ml("OneHotEncoder")
def one_hot_encoder(
    x: Any, *, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1, node: Any
) -> Any:
    """Categories as vectors of which one element is 1; without `zeros` all must be known."""
    if cats_strings is not None and len(cats_strings):
        hot = np.asarray(static(x, "X")[..., None] == np.array(list(cats_strings), object))
    else:
        hot = jnp.asarray(x)[..., None].astype(np.int64) == np.asarray(cats_int64s, np.int64)
    if not zeros and not np.all(np.any(static(hot, "X"), -1)):
        raise node.error("X holds a category that is not known")
    return hot.astype(np.float32)


@ml("DictVectorizer")
def dict_vectorizer(x: Any, *, int64_vocabulary: Any = None, string_vocabulary: Any = None) -> Any:
    """Values of a dictionary, in the order of a vocabulary; 0 where there is none."""
    known = list(string_vocabulary or ()) or np.asarray(int64_vocabulary).tolist()
    values = [x.get(key, "" if _holds_text(x) else 0) for key in known]
    return np.array([values], object if _holds_text(x) else None)


def _holds_text(x: Any) -> bool:
    return any(isinstance(v, str) for v in x.values())


@ml("CategoryMapper")
def category_mapper(
    x: Any, *, cats_int64s: Any, cats_strings: Any, default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:  # fmt: skip
    """Strings to integers, or the other way."""
    values, numbers = static(x, "X"), np.asarray(cats_int64s).tolist()
    if values.dtype.kind in "OSU":
        return _mapped(values, dict(zip(cats_strings, numbers)), default_int64, np.int64)
    return _mapped(values, dict(zip(numbers, cats_strings)), default_string, object)


def _mapped(values: np.ndarray, table: dict[Any, Any], default: Any, dtype: Any) -> np.ndarray:
    found = [table.get(v, default) for v in values.ravel().tolist()]
    return np.array(found, dtype).reshape(values.shape)


@ml("LabelEncoder")
def label_encoder(
    x: Any, *, classes_strings: Any = None, default_float: float = -0.0, default_int64: int = -1,
    default_string: str = "_Unused", default_tensor: Any = None, keys_floats: Any = None,
    keys_int64s: Any = None, keys_strings: Any = None, keys_tensor: Any = None,
    values_floats: Any = None, values_int64s: Any = None, values_strings: Any = None,
    values_tensor: Any = None, node: Any,
) -> Any:  # fmt: skip
    """Each element, replaced by what a table says."""
    if classes_strings is not None:  # before version 2
        return category_mapper(
            x, cats_int64s=np.arange(len(classes_strings)), cats_strings=classes_strings,
            default_int64=default_int64, default_string=default_string,
        )  # fmt: skip
    keys = _first(keys_tensor, keys_strings, keys_int64s, keys_floats)
    choices = (
        (values_tensor, None if default_tensor is None else np.ravel(default_tensor)[0]),
        (values_strings, default_string), (values_int64s, default_int64),
        (values_floats, default_float),
    )  # fmt: skip
    chosen = [(v, d) for v, d in choices if v is not None and len(v)]
    if keys is None or not chosen:
        raise node.error("keys and values must be given")
    values, default = chosen[0]
    kinds = {id(values_floats): np.float32, id(values_int64s): np.int64, id(values_strings): object}
    dtype = np.dtype(values.dtype if values is values_tensor else kinds[id(values)])
    if default is None:
        default = {"O": "_Unused", "i": -1}.get(dtype.kind, -0.0)
    given = static(x, "X")
    table = {_key(k): v for k, v in zip(_plain(keys, given.dtype), _plain(values, dtype))}
    found = [table.get(_key(v), default) for v in given.ravel().tolist()]
    return np.array(found, dtype).reshape(given.shape)


def _first(*lists: Any) -> Any:
    return next((v for v in lists if v is not None and len(v)), None)


def _plain(values: Any, dtype: Any) -> list[Any]:
    return list(np.asarray(values).astype(dtype).ravel().tolist())


def _key(value: Any) -> Any:
    """What a value is looked up by: all NaN are one."""
    return "NaN of a table" if isinstance(value, float) and value != value else value


@ml("ZipMap")
def zip_map(x: Any, *, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> Any:
    """Rows as dictionaries by label."""
    labels = list(classlabels_strings or ()) or np.asarray(classlabels_int64s).tolist()
    rows = static(x, "X")
    return [dict(zip(labels, row)) for row in rows.reshape(-1, rows.shape[-1])]


# Linear models


@ml("LinearRegressor")
def linear_regressor(
    x: Any, *, coefficients: Any, intercepts: Any = None, post_transform: str = "NONE",
    targets: int = 1,
) -> Any:  # fmt: skip
    """`x @ coefficients + intercepts`."""
    return POST_TRANSFORMS[post_transform](_linear(x, coefficients, intercepts, targets))


def _linear(x: Any, coefficients: Any, intercepts: Any, count: int) -> Any:
    x = _floats(x).reshape(-1, x.shape[-1])
    y = x @ np.asarray(coefficients, x.dtype).reshape(count, -1).T
    return y if intercepts is None else y + np.asarray(intercepts, x.dtype)


@ml("LinearClassifier")
def linear_classifier(
    x: Any, *, coefficients: Any, classlabels_ints: Any = None, classlabels_strings: Any = None,
    intercepts: Any = None, multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Any, Any]:  # fmt: skip
    """The class with the largest score, and the scores."""
    count = np.size(coefficients) // x.shape[-1]
    scores = _linear(x, coefficients, intercepts, count)
    labels = _first(classlabels_strings, classlabels_ints)
    if count == 1 and labels is not None and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], -1)
    scores = POST_TRANSFORMS[post_transform](scores)
    return labeled(jnp.argmax(scores, -1), classlabels_ints, classlabels_strings), scores


# Support vectors


def _kernel(kind: str, numbers: Any, x: Any, vectors: Any) -> Any:
    """The products of rows with vectors that a kernel defines."""
    gamma, offset, degree = (float(v) for v in np.ravel((0, 0, 0) if numbers is None else numbers))
    if kind == "RBF":
        return jnp.exp(-gamma * jnp.sum((x[:, None] - vectors) ** 2, -1))
    products = x @ vectors.T
    return {
        "LINEAR": lambda: products,
        "POLY": lambda: (gamma * products + offset) ** int(degree),
        "SIGMOID": lambda: jnp.tanh(gamma * products + offset),
    }[kind]()


@ml("SVMRegressor")
def svm_regressor(
    x: Any, *, coefficients: Any, kernel_params: Any = None, kernel_type: str = "LINEAR",
    n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE", rho: Any,
    support_vectors: Any = None,
) -> Any:  # fmt: skip
    """A sum over support vectors; of one class, on which side of it a row lies."""
    x = _floats(x)
    weights = np.asarray(coefficients, x.dtype)
    if n_supports:
        vectors = np.asarray(support_vectors, x.dtype).reshape(n_supports, -1)
        y = _kernel(kernel_type, kernel_params, x, vectors) @ weights
    else:
        y = x @ weights
    y = (y + np.asarray(rho, x.dtype)[0])[:, None]
    if one_class:
        y = jnp.where(y > 0, jnp.ones_like(y), -1)
    return POST_TRANSFORMS[post_transform](y)


@ml("SVMClassifier")
def svm_classifier(
    x: Any, *, coefficients: Any, classlabels_ints: Any = None, classlabels_strings: Any = None,
    kernel_params: Any = None, kernel_type: str = "LINEAR", post_transform: str = "NONE",
    prob_a: Any = None, prob_b: Any = None, rho: Any, support_vectors: Any = None,
    vectors_per_class: Any = None, node: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """A vote of all pairs of classes, and the scores of the pairs."""
    x = _floats(x)
    labels = _first(classlabels_strings, classlabels_ints)
    shown: Any
    if vectors_per_class is None or not len(vectors_per_class):
        weights = np.asarray(coefficients, x.dtype).reshape(len(labels), -1)
        scores = _kernel(kernel_type, kernel_params, x, weights) + np.asarray(rho, x.dtype)[0]
        scores = POST_TRANSFORMS[post_transform](scores)
        return labeled(jnp.argmax(scores, -1), classlabels_ints, classlabels_strings), scores
    counts = np.asarray(vectors_per_class)
    vectors = np.asarray(support_vectors, x.dtype).reshape(int(counts.sum()), -1)
    products = _kernel(kernel_type, kernel_params, x, vectors)
    weights = np.asarray(coefficients, x.dtype).reshape(len(counts) - 1, -1)
    scores = _pair_scores(products, weights, counts) + np.asarray(rho, x.dtype)
    if prob_a is not None and len(prob_a):
        shown = _class_chances(static(scores, "the score"), prob_a, prob_b, len(counts))
    else:
        shown = scores if len(counts) > 2 else jnp.concatenate([-scores, scores], -1)
    places = jnp.argmax(_votes(scores, len(counts)), -1)
    shown = POST_TRANSFORMS[post_transform](shown)
    return labeled(places, classlabels_ints, classlabels_strings), shown


def _pair_scores(products: Any, weights: np.ndarray, counts: np.ndarray) -> Any:
    """How far a row lies on the side of the first class, for each pair of classes."""
    ends = np.cumsum(counts)
    parts = [slice(int(end - n), int(end)) for end, n in zip(ends, counts)]
    scores = []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            mine = products[:, parts[i]] @ weights[j - 1, parts[i]]
            scores.append(mine + products[:, parts[j]] @ weights[i, parts[j]])
    return jnp.stack(scores, -1)


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _votes(scores: Any, classes: int) -> Any:
    """How many pairs each class wins."""
    first, second = np.zeros((2, len(_pairs(classes)), classes), np.float32)
    for row, (i, j) in enumerate(_pairs(classes)):
        first[row, i] = second[row, j] = 1
    won = (scores > 0).astype(np.float32)
    return won @ first + (1 - won) @ second


def _class_chances(scores: np.ndarray, a: Any, b: Any, classes: int) -> np.ndarray:
    """Probabilities of classes from those of pairs (Wu et al., 2004, second method)."""
    wins = 1 / (1 + np.exp(scores * np.asarray(a) + np.asarray(b)))
    wins = np.clip(wins, 1e-7, 1 - 1e-7)
    made = np.empty((len(scores), classes), np.float32)
    for row, chances in zip(wins, made):
        r = np.zeros((classes, classes))
        for p, (i, j) in zip(row, _pairs(classes)):
            r[i, j], r[j, i] = p, 1 - p
        q = np.diag((r**2).sum(0)) - r * r.T
        p = np.full(classes, 1 / classes)
        for _ in range(max(100, classes)):
            of = q @ p
            total = p @ of
            if np.abs(of - total).max() < 0.005 / classes:
                break
            for t in range(classes):
                step = (total - of[t]) / q[t, t]
                p[t] += step
                total = (total + step * (step * q[t, t] + 2 * of[t])) / (1 + step) ** 2
                of = (of + step * q[t]) / (1 + step)
                p /= 1 + step
        chances[:] = p
    return made
