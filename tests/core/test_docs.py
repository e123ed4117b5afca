"""Docstrings completed from tables."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import pytest

from amdjax import lax
from amdjax.core.docs import Family, Irregular, Phrases, complete
from amdjax.lax import _docs as lax_docs

Pair = tuple[int, int]
PHRASES = Phrases(
    {"x": "array.", "axis": "axis."},
    {"x": "TypeError: for no array.", "axis": "ValueError: for no axis."},
    {"Pair": "Two arrays."},
)


def first(x: Any, *rest: Any, axis: int = 0, **options: int) -> Pair:
    """The first of all.

    More about it.

    Args:
      rest: others,
        which are ignored.

    Raises:
      ValueError: on Sundays.

    Source: a book.

        >>> 1 + 1

        2
    """


def completed(function, *families):
    copy = type(function)(function.__code__, {}, function.__name__)
    copy.__doc__, copy.__annotations__ = function.__doc__, function.__annotations__
    namespace = {"__name__": __name__, "__all__": ["first"], "first": copy}
    complete(namespace, families, PHRASES)
    return copy.__doc__


FIRST = """\
    The first of all.

    More about it.

    Source: a book.

    Args:
      x: array.
      rest: others,
        which are ignored.
      axis: axis of reading.
      options: more.

    Returns:
      Two arrays.

    Raises:
      ValueError: on Sundays.
      KeyError: for an unknown option.
      TypeError: for no array.
      ValueError: for no axis.

    Example:
      >>> 1 + 1

      2
    """


def test_a_table_and_the_functions_own_words():
    family = Family(
        "first", "", "KeyError: for an unknown option.", axis="axis of reading.", options="more."
    )
    assert completed(first, family) == textwrap.dedent(FIRST)


def test_twice_is_once():
    family = Family("first", axis="axis of reading.", options="more.")
    once = completed(first, family)
    namespace = {"__name__": __name__, "__all__": ["first"], "first": first}
    kept, first.__doc__ = first.__doc__, once
    try:
        complete(namespace, [family], PHRASES)
        assert first.__doc__ == once
    finally:
        first.__doc__ = kept


def test_an_irregular_family_lists_its_errors_itself():
    text = completed(first, Irregular("first", "One array.", rest="others."))
    assert "TypeError" not in text and "ValueError: on Sundays." in text
    assert "One array." in text and "Two arrays." not in text


def test_without_docstrings():
    """As under `python -OO`."""
    bare = lambda x: x
    complete({"__name__": __name__, "__all__": ["bare"], "bare": bare}, (), PHRASES)
    assert bare.__doc__ is None


LAX = [(name, family) for family in lax_docs.FAMILIES for name in family.names]


@pytest.mark.parametrize(("name", "family"), LAX, ids=[name for name, _ in LAX])
def test_lax_describes_what_its_functions_take(name, family):
    doc = inspect.getdoc(getattr(lax, name))
    for parameter in inspect.signature(getattr(lax, name)).parameters:
        assert re.search(rf"^  (\w+, )*\**{parameter}(, \w+)*: ", doc, re.MULTILINE), parameter
    assert not family.returns or f"Returns:\n  {family.returns}" in doc
    assert all(f"\n  {line}" in doc for line in family.raises)


def test_lax_has_no_family_twice():
    assert len({name for name, _ in LAX}) == len(LAX)
