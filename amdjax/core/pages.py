"""Memory from the system, page by page."""

from __future__ import annotations

import mmap

__all__ = ["private_pages"]


def private_pages(size: int) -> mmap.mmap:
    """Memory of this process alone.

    Pages that processes share take half as long again to come, and huge ones many times as long
    where the memory of a virtual machine is not there yet.
    """
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)
