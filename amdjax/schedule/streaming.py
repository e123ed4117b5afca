"""Results that are written past the caches."""

from __future__ import annotations

from amdjax import tile
from amdjax.core.dims import fits, is_natural, size_hint

#: Results of this size leave the caches before anybody reads them; writing past the caches saves
#: reading the memory first.
STREAM_FROM = 16 << 20


def streams(k: tile.Builder, nbytes: int) -> bool | tile.Value:
    """Whether a result of so many bytes is written past the caches; told as it runs if need be.

    Not of small ones at hand, for which code that is written twice would take long to compile.
    """
    known = is_natural(nbytes - STREAM_FROM)
    if known is not None:
        return known
    return may_stream(nbytes) and k.const("index", nbytes) >= STREAM_FROM


def may_stream(nbytes: int) -> bool:
    """Whether results of about as many bytes as at hand may be written past the caches.

    If not, those of other sizes preferably may not either.
    """
    if size_hint(nbytes) >= STREAM_FROM // 2:
        return True
    fits(nbytes, STREAM_FROM - 1)
    return False
