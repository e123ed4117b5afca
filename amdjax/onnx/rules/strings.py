"""Operators on strings, which are host arrays of dtype `object`."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..registry import rule, static
from ._regular import full_match

#: How many n-grams a vector may count.
_MOST_PLACES = 1 << 24


@rule("StringConcat", since=20)
def concat(x: Any, y: Any) -> Any:
    """Strings, joined element by element."""
    return np.asarray(static(x, "X") + static(y, "Y"), object)


@rule("StringSplit", since=20)
def split(x: Any, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[Any, Any]:
    """Parts of strings, filled up with empty ones, and how many there are."""
    texts = static(x, "X")
    most = -1 if maxsplit is None else maxsplit
    parts = [text.split(delimiter or None, most) for text in texts.ravel().tolist()]
    widest = max(map(len, parts), default=0)
    filled = np.full((len(parts), widest), "", object)
    for row, found in zip(filled, parts):
        row[: len(found)] = found
    counts = np.array([len(found) for found in parts], np.int64)
    return filled.reshape(*texts.shape, widest), counts.reshape(texts.shape)


@rule("StringNormalizer", since=10)
def normalize(
    x: Any, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "",
    stopwords: Sequence[str] = (), node: Any,
) -> Any:  # fmt: skip
    """A vector of strings, or a row of them, without stop words, in one case."""
    change: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    if case_change_action not in change:
        raise node.error(f"case_change_action must be of {list(change)}")
    texts = static(x, "X")
    if texts.ndim not in (1, 2) or (texts.ndim == 2 and texts.shape[0] != 1):
        raise node.error(f"X must have shape (C,) or (1, C), got {texts.shape}")
    key: Callable[[str], str] = str if is_case_sensitive else str.lower
    stopped = {key(word) for word in stopwords}
    kept = [text for text in texts.ravel().tolist() if key(text) not in stopped]
    made = [change[case_change_action](_without_accents(text)) for text in kept] or [""]
    return np.array(made, object).reshape(*[1] * (texts.ndim - 1), -1)


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


@rule("RegexFullMatch", since=20)
def regex_full_match(x: Any, *, pattern: str = "") -> Any:
    """Whether strings match a regular expression, in time that is linear in their length."""
    texts, matches = static(x, "X"), full_match(pattern)
    return np.array([matches(text) for text in texts.ravel().tolist()], bool).reshape(texts.shape)


@rule("TfIdfVectorizer", since=9)
def tf_idf(
    x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (), weights: Sequence[float] | None = None, node: Any,
) -> Any:  # fmt: skip
    """How often sequences contain the n-grams of a pool, weighted."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.error(f"mode must be TF, IDF or TFIDF, got {mode!r}")
    pool = list(pool_strings) or np.asarray(pool_int64s).tolist()
    grams = _grams(pool, np.asarray(ngram_counts).tolist(), min_gram_length, max_gram_length)
    places = np.asarray(ngram_indexes, np.int64)
    if not len(places) or places.min() < 0 or places.max() >= _MOST_PLACES:
        raise node.error(f"ngram_indexes must be in [0, {_MOST_PLACES})")
    items = static(x, "X")
    counts = np.zeros((*items.shape[:-1], int(places.max()) + 1), np.float32)
    scale = np.ones(counts.shape[-1], np.float32)
    if weights is not None and mode != "TF":
        scale[places] = np.asarray(weights, np.float32)
    rows = items.reshape(-1, items.shape[-1])
    for row, out in zip(rows.tolist(), counts.reshape(len(rows), counts.shape[-1])):
        for n, known in grams.items():
            for gram, times in _skip_grams(row, n, max_skip_count).items():
                if gram in known:
                    out[places[known[gram]]] += times
    return (np.minimum(counts, 1) if mode == "IDF" else counts) * scale


def _grams(pool: list[Any], starts: list[int], least: int, most: int) -> dict[int, dict[Any, int]]:
    """Numbers of the n-grams of a pool, by n; the first is that of a gram that is there twice."""
    found: dict[int, dict[Any, int]] = {}
    number = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        for i in range(start, end - n + 1, n):
            if least <= n <= most:
                found.setdefault(n, {}).setdefault(tuple(pool[i : i + n]), number)
            number += 1
    return found


def _skip_grams(row: list[Any], n: int, most: int) -> Counter[Any]:
    """The n-grams whose items lie one, two, ... places apart; those of one item count once."""
    found: Counter[Any] = Counter()
    for step in range(1, (most if n > 1 else 0) + 2):
        for i in range(len(row) - step * (n - 1)):
            found[tuple(row[i : i + step * (n - 1) + 1 : step])] += 1
    return found
