"""Files that are there as a whole or as they were."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replaced"]


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path`; what is written there is on disk and in its place when this is left.

    After an exception, or without power, `path` is what it was.

    Args:
      path: the file, which need not be there.

    Raises:
      OSError: it cannot be written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     with replaced(folder + "/text") as aside:
      ...         _ = aside.write_text("whole")
      ...     Path(folder, "text").read_text(), os.listdir(folder)
      ('whole', ['text'])
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield aside
        _sync(aside)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    with contextlib.suppress(OSError):  # the name too is to last; not all systems can
        _sync(path.parent)


def _sync(path: Path) -> None:
    """Wait until a file's contents, or a folder's entries, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
