"""Fewer garbage collections while much is made that stays: modules, programs, plans."""

from __future__ import annotations

import gc
import threading
from contextlib import ContextDecorator
from typing import Any

INTERVAL = 50_000  # containers made between two collections: some 10 MB if all are garbage


class RareCollections(ContextDecorator):
    """A context in which the collector looks less often for garbage.

    It looks at what is young after every 700 objects, and at all there is when a quarter of it is
    new. While a program is compiled or a module loaded next to nothing of that is garbage, and a
    tenth of the time goes there. Here it runs after every `INTERVAL` objects: it is not switched
    off, so that garbage stays bounded however large a program is.

    One object may be entered by several threads, and again within itself. What the user has set is
    respected: a collector that is off, or runs more rarely still, stays so, and thresholds that
    change meanwhile are not put back.
    """

    def __init__(self) -> None:
        # What is allocated under the lock may set off a collection, which enters again.
        self._lock = threading.RLock()
        self._entered = 0
        self._threshold: tuple[int, int, int] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            before = gc.get_threshold()
            if self._entered == 1 and 0 < before[0] < INTERVAL:
                self._threshold = before
                gc.set_threshold(INTERVAL, *before[1:])

    def __exit__(self, *raised: Any) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered == 0 and self._threshold is not None:
                before, self._threshold = self._threshold, None
                if gc.get_threshold() == (INTERVAL, *before[1:]):
                    gc.set_threshold(*before)


rare_collections = RareCollections()
