"""Batches of arrays: shuffled by key, and on the device before they are asked for."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.config import config, default_device, enable_x64
from amdjax.core.pytree import keystr, tree_flatten_with_path, tree_map
from amdjax.nn import _random as random
from amdjax.nn._arguments import check_integer

__all__ = ["batches"]

T = TypeVar("T")
_END = object()


def batches(
    arrays: T, batch_size: int, *, key: Any = None, drop_remainder: bool = False, prefetch: int = 2,
) -> Iterator[T]:  # fmt: skip
    """The examples of a data set once, in batches.

    Args:
      arrays: a pytree of arrays whose first axis is that of the examples; NumPy's, also mapped
        from a file, or ours.
      batch_size: examples in a batch.
      key: key of the order; None for the order that there is.
      drop_remainder: whether to leave out the examples at the end that do not fill a batch, so that
        all batches have one shape and a compiled step is compiled once.
      prefetch: how many batches another thread gathers and puts on the device in advance; 0 for
        none.

    Returns:
      An iterator over trees of the form of `arrays`, whose first axes have `batch_size` elements.

    Raises:
      TypeError: a leaf is no array.
      ValueError: there are no arrays, their first axes differ, or a number is out of range.

        >>> for batch in nn.data.batches({"x": jnp.arange(5)}, 2):
        ...     print(batch["x"])
        [0 1]
        [2 3]
        [4]
    """
    check_integer("batches", "batch_size", batch_size)
    check_integer("batches", "prefetch", prefetch)
    if batch_size < 1 or prefetch < 0:
        raise ValueError(
            "batches: batch_size must be at least 1 and prefetch at least 0, got "
            f"{batch_size=}, {prefetch=}."
        )
    examples = _examples(arrays)
    order = None
    if key is not None:
        order = np.asarray(random.permutation(random.checked_key("batches", key), examples))
    host = tree_map(np.asarray, arrays)
    ends = range(batch_size, examples + (0 if drop_remainder else batch_size - 1) + 1, batch_size)

    def gather(end: int) -> T:
        chosen = slice(end - batch_size, end)
        rows = chosen if order is None else order[chosen]
        # A slice is a view of what may change; rows in some order are a copy already.
        return tree_map(lambda x: (jnp.array if order is None else jnp.asarray)(x[rows]), host)

    made = map(gather, ends)
    return _prefetched(made, prefetch) if prefetch else made


def _examples(arrays: Any) -> int:
    """The size that all first axes have."""
    sizes: dict[str, int] = {}
    for path, x in tree_flatten_with_path(arrays)[0]:
        shape = getattr(x, "shape", None)
        if not shape:
            raise TypeError(
                f"batches: arrays{keystr(path)} must be an array with an axis of examples, got "
                f"{x!r}."
            )
        sizes[keystr(path)] = shape[0]
    if len(set(sizes.values())) != 1:
        raise ValueError(
            f"batches: arrays must have first axes of one size, got {sizes or 'no arrays'}."
        )
    return next(iter(sizes.values()))


def _prefetched(made: Iterator[T], count: int) -> Iterator[T]:
    """What an iterator gives, made `count` items ahead by another thread."""
    ready: queue.Queue[Any] = queue.Queue(count)
    stopped = threading.Event()
    # Settings are those of a thread: batches are to be as if they were made in this one.
    wide, device = config.enable_x64, config.default_device

    def put(item: Any) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            with enable_x64(wide), default_device(device):
                for item in made:
                    if not put((item, None)):
                        return
            put((_END, None))
        except BaseException as error:
            put((_END, error))

    return _taken(ready, stopped, work)


def _taken(
    ready: queue.Queue[Any], stopped: threading.Event, work: Callable[[], None]
) -> Iterator[Any]:
    """What `work`, in another thread, puts in a queue; the thread ends with the iteration."""
    thread = threading.Thread(target=work, name="amdjax-batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
