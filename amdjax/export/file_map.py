"""Files that are mapped into memory, so that weights are used where they lie."""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Iterable
from functools import cached_property
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
    """

    path: Path
    status: os.stat_result

    def is_changed(self) -> bool:
        """Whether the file was written to since."""
        try:
            now, then = os.stat(self.path), self.status
        except OSError:
            return False  # it is gone, but its contents stay
        if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
            return False  # another one is in its place
        return (now.st_mtime_ns, now.st_size) != (then.st_mtime_ns, then.st_size)

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
    made.path, made.status = path.absolute(), status
    return made


def contents(array: np.ndarray) -> bytes | None:
    """What tells an array from all others, without reading all of a large one.

    It is made of the state of the file that it is in, of its place and type, and of samples. None
    for an array of another order than that of its bytes, and for a large one in no file, or in one
    that was changed lately.
    """
    if not array.flags.c_contiguous or array.dtype.hasobject:
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
