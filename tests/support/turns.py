"""What of many alike cases a commit tries; the next commits try the others."""

import os
import zlib
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turn(cases: Iterable[T], one_in: int, offset: int | str = 0) -> list[T]:
    """One in so many of a list.

    Args:
      cases: what there is to try.
      one_in: how many commits it takes, about, until all have been tried.
      offset: tests that share a list give different ones, so that together they try most of it.

    Returns:
      Every `one_in`-th case, from a place that `AMDJAX_TEST_ROTATION` and `offset` say; never none.
    """
    cases = list(cases)
    turn = int(os.environ.get("AMDJAX_TEST_ROTATION", 0))
    turn += offset if isinstance(offset, int) else zlib.crc32(offset.encode())
    return cases[turn % min(one_in, len(cases)) :: one_in]
