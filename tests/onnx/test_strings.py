"""Regular expressions in linear time, and operators on strings."""

import random
import re

import numpy as np
import pytest

from amdjax.onnx import OnnxError
from amdjax.onnx.rules._regular import full_match
from tests.support.onnx_nodes import run_node

ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "(a|b)", "(?:ab)", "(a*)", "(b+c?)", r"\.",
         "[a-c]", "(?i:A)", "()", "^", "$", r"\b"]  # fmt: skip
COUNTS = ["", "*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"]


def test_matches_are_those_of_a_backtracking_matcher():
    choose = random.Random(0)
    for _ in range(1500):
        parts = [choose.choice(ATOMS) for _ in range(choose.randint(1, 5))]
        counted = [p + (choose.choice(COUNTS) if p not in ("^", "$", r"\b") else "") for p in parts]
        pattern = "".join(counted) + ("|" + choose.choice(ATOMS) if choose.random() < 0.3 else "")
        other, ours = re.compile(pattern, re.ASCII), full_match(pattern)
        for _ in range(15):
            text = "".join(choose.choice("abc1.A ") for _ in range(choose.randint(0, 7)))
            assert ours(text) == (other.fullmatch(text) is not None), (pattern, text)


@pytest.mark.parametrize("pattern, text", [
    (r"[[:alpha:]]+\d", "ab1"), (r"\Qa.b\E", "a.b"), ("(?i)ABC", "abc"), (r"\x41\x{42}\t", "AB\t"),
    (r"[]a]+", "]a"), (r"[^]]", "a"), (r"(?P<n>a)\z", "a"), (r"[a\]]{2}", "]a"), ("(?s).", "\n"),
])  # fmt: skip
def test_syntax_of_its_own(pattern, text):
    assert full_match(pattern)(text)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "(.*)(.*)(.*)(.*)x"])
def test_patterns_on_which_others_hang(pattern):
    """A backtracking matcher would not return for as long as anyone waits."""
    assert not full_match(pattern)("a" * 500)


@pytest.mark.parametrize("pattern, message", [
    ("(", "missing"), ("a)", "unbalanced"), ("*a", "nothing to repeat"), ("[a", "missing"),
    ("(((a{1000}){1000}){1000})", "too large"), ("(" * 200, "too deep"), ("a{5,2}", "repetition"),
    ("a{1001}", "repetition"), (r"\p", "unknown escape"), ("(?<=a)b", "unknown kind"),
    ("a\\", "escape"),
])  # fmt: skip
def test_patterns_that_are_none(pattern, message):
    with pytest.raises(ValueError, match=message):
        full_match(pattern)
    with pytest.raises(OnnxError, match="'RegexFullMatch_0'"):
        run_node("RegexFullMatch", [np.array(["a"], object)], pattern=pattern)


def test_strings_are_split_and_filled_up():
    texts = np.array([["a,b", ""], ["c", "d,e,f"]], object)
    parts, counts = run_node("StringSplit", [texts], 2, delimiter=",")
    assert parts[1, 1].tolist() == ["d", "e", "f"] and parts[0, 1].tolist() == ["", "", ""]
    assert counts.tolist() == [[2, 1], [1, 3]]


def test_stop_words_go_in_any_case():
    texts = np.array(["Monday", "TUESDAY", "Café"], object)
    got = run_node("StringNormalizer", [texts], stopwords=["tuesday"], case_change_action="UPPER")
    assert got.tolist() == ["MONDAY", "CAFE"]


def test_grams_with_skips():
    x = np.array([[1, 2, 3], [3, 1, 2]])
    got = run_node(
        "TfIdfVectorizer", [x], mode="TFIDF", min_gram_length=1, max_gram_length=2,
        max_skip_count=1,
        ngram_counts=[0, 1], ngram_indexes=[0, 2, 1], pool_int64s=[3, 1, 2, 1, 3],
        weights=[1.0, 2.0, 4.0],
    )  # fmt: skip
    assert got.tolist() == [[1, 4, 2], [1, 0, 2]]


@pytest.mark.parametrize("place", [-1, 10**12])
def test_places_of_grams_are_bounded(place):
    form = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    with pytest.raises(OnnxError, match="ngram_indexes must be in"):
        run_node(
            "TfIdfVectorizer", [np.array([1])], ngram_counts=[0], ngram_indexes=[place],
            pool_int64s=[1], **form,
        )  # fmt: skip
