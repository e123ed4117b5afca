"""What of many alike cases a commit tries; the next commits try the others."""

import hashlib
import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turn(cases: Iterable[T], one_in: int, offset: int | str = 0) -> list[T]:
    """One in so many of a list.

    Args:
      cases: what there is to try.
      one_in: how many commits it takes, about, until all have been tried.
      offset: tests that share a list give different ones, so that together they try most of it;
        so do lists within lists that are as long.

    Returns:
      Every `one_in`-th case, from a place that `AMDJAX_TEST_ROTATION` and `offset` say; never none.
    """
    cases = list(cases)
    least = min(one_in, len(cases))
    # Turns of lists within lists, and of their tests, must not follow one another: where one in
    # three of a third were taken by the same remainder, most cases would have no turn at all.
    rotation, ahead = os.environ.get("AMDJAX_TEST_ROTATION", "0"), 0
    if isinstance(offset, int):
        offset, ahead = "", offset
    text = f"{rotation} {one_in} {len(cases)} {offset}"
    turn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    return cases[(turn + ahead) % least :: one_in]
