"""What programs compute of their constants once, such as packed weights, kept on disk.

It lies beside the plans and is mapped into memory, where the next process uses it. Its key has the
plan's, and what tells constants whose numbers plans do not depend on: of weights in files that is
known without reading them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from threading import Thread

import numpy as np

from amdjax.core.contents import contents_of
from amdjax.core.jaxpr import ClosedJaxpr, LateJaxpr
from amdjax.jit.plan_keys import PlanKey, is_told
from amdjax.runtime.cache import object_cache
from amdjax.runtime.memory import Buffer

#: Bytes below which it is made as fast.
LEAST = 1 << 18


def kept_key(key: PlanKey | None, closed: ClosedJaxpr) -> bytes | None:
    """Under what a program's computed constants are kept; None where nothing would tell them."""
    if key is None:
        return None
    digest = hashlib.sha256(b"constants" + key.local)
    for value in () if isinstance(closed, LateJaxpr) else closed.consts:
        if not is_told(value):
            if (contents := contents_of(value)) is None:
                return None
            digest.update(contents)
    return digest.digest()


def kept_constants(key: bytes, sizes: Sequence[int]) -> list[np.ndarray] | None:
    """What was kept, each of so many bytes; None if it was not."""
    return object_cache().mapped(key, sizes) if sum(sizes) >= LEAST else None


def keep_constants(key: bytes, made: Sequence[Buffer]) -> None:
    """Keep what was computed, while other work goes on."""
    if sum(b.nbytes for b in made) >= LEAST and object_cache().maps:
        parts = [b.as_numpy((b.nbytes,), np.uint8) for b in made]
        with contextlib.suppress(RuntimeError):  # no thread can be started, as while Python ends
            Thread(target=object_cache().put_mapped, args=(key, parts)).start()
