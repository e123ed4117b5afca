"""Files that are mapped into memory, so that weights are used where they lie."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FileMap", "contents", "file_of", "files_of", "mapped", "root_of"]

#: Seconds for which a file has to stand before its state tells its contents: a change may be too
#: soon after another one for the system's clock, and pages that are written to later.
STANDING = 60
#: Bytes that are read, or else of a sample, and how far samples lie apart.
_SMALL, _SAMPLE, _STEP = 1 << 15, 32, 1 << 16


class FileMap(mmap.mmap):
    """A file, mapped to be read.

    Files of weights are replaced as a rule, which leaves the map as it was. One that is written
    over changes it, which `is_changed` tells.

    Attributes:
      path: the file.
      status: its state when it was mapped.
      handle: of the file, whatever is at `path`; closed with the map.
    """

    path: Path
    status: os.stat_result
    handle: int | None = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.handle is not None:
            close(self.handle)

    def is_changed(self) -> bool:
        """Whether the file was written to since, under whatever name it has now."""
        assert self.handle is not None
        now, then = os.fstat(self.handle), self.status
        if (now.st_mtime_ns, now.st_size) != (then.st_mtime_ns, then.st_size):
            return True
        # The time of its last change may have been set, as copying with times does. That of its
        # state cannot be, but it changes with links, names, owners and permissions as well.
        others = attrgetter("st_nlink", "st_uid", "st_gid", "st_mode")
        if now.st_ctime_ns == then.st_ctime_ns or others(now) != others(then):
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), now)
        return False

    @cached_property
    def state(self) -> str | None:
        """What changes whenever the file does; None for one that was changed lately."""
        s = self.status
        if max(s.st_mtime, s.st_ctime) > time.time() - STANDING:
            return None
        return f"{s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}"

    def place(self, array: np.ndarray) -> int:
        """How many bytes of the file an array in it is behind."""
        return int(array.ctypes.data - np.ndarray(1, np.uint8, self).ctypes.data)


def mapped(path: Path) -> bytes | FileMap:
    """The bytes of a file, which is not read yet."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not status.st_size:
            return b""  # which cannot be mapped
        made = FileMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        made.handle = os.dup(file.fileno())
    made.path, made.status = path.absolute(), status
    return made


def contents(array: np.ndarray) -> bytes | None:
    """What tells an array from all others, without reading all of a large one.

    It is made of the state of the file that it is in, of its place and type, and of samples. None
    for an array of another order than that of its bytes, for one that may be written to, and for a
    large one in no file, or in one that was changed lately.
    """
    if array.flags.writeable or not array.flags.c_contiguous or array.dtype.hasobject:
        return None
    data = array.reshape(-1).view(np.uint8)
    told, whole = f"{array.dtype.str} {array.dtype.name} {array.shape}", 0
    if data.size > _SMALL:
        file = file_of(array)
        if file is None or file.state is None:
            return None
        told, whole = f"{told} {file.state} {file.place(array)}", data.size // _STEP * _STEP
    digest = hashlib.sha256(told.encode())
    digest.update(data[:whole].reshape(-1, _STEP)[:, :_SAMPLE].tobytes())
    digest.update(data[whole:].tobytes())
    return digest.digest()


def root_of(array: Any) -> Any:
    """What has the memory of an array of NumPy, or of a view of memory."""
    while isinstance(array, (np.ndarray, memoryview)):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array


def file_of(array: Any) -> FileMap | None:
    """The file that an array of NumPy is a part of."""
    root = root_of(array)
    return root if isinstance(root, FileMap) else None


def files_of(arrays: Iterable[Any]) -> list[FileMap]:
    """The files that arrays are parts of."""
    return list({id(f): f for f in map(file_of, arrays) if f is not None}.values())
