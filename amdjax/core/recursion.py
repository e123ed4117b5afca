"""Room on Python's stack for what nests deeply: pytrees, programs within programs.

Python ends recursion after 1000 frames. Frames of ours do not belong to what a user may spend, and
traversals of finite data need as many as the data is deep; since Python 3.11 calls from Python to
Python take no room on the machine's stack.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["Room", "deep"]

P = ParamSpec("P")
R = TypeVar("R")

#: Enough for whatever fits in memory and is traversed by a few frames a level.
PLENTY = 50_000

_lock = threading.Lock()


class Room:
    """A context with room for more frames than outside; contexts and threads may overlap."""

    def __init__(self, frames: int = PLENTY):
        self.frames = frames

    def __enter__(self) -> None:
        _reach(4)
        with _lock:
            sys.setrecursionlimit(sys.getrecursionlimit() + self.frames)

    def __exit__(self, *exc_info: object) -> None:
        with _lock:
            sys.setrecursionlimit(sys.getrecursionlimit() - self.frames)


def _reach(frames: int) -> None:
    """Raises here what lowering the limit would raise, so that what is entered can be left."""
    if frames:
        _reach(frames - 1)


def deep(fn: Callable[P, R]) -> Callable[P, R]:
    """A function without effects that traverses data: it is called again if that is deep."""

    @functools.wraps(fn)
    def traverse(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except RecursionError:
            with Room():
                return fn(*args, **kwargs)

    return traverse
