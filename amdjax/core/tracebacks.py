"""The user's place in the code, and tracebacks without amdjax's own frames."""

from __future__ import annotations

import os
import sys
import types
import warnings

import numpy as np

from amdjax.core.config import config

PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


exclude_paths = [PACKAGE_DIR, "<frozen "]
"""Beginnings of the names of files whose frames are no user's."""
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.path.dirname(os.path.dirname(np.__file__))
_LIBRARIES = tuple(
    os.path.join(_PACKAGES, name, "")
    for name in ("numpy", "scipy", "opt_einsum", "ml_dtypes", "llvmlite")
)
# What the standard library's folder holds besides the standard library.
_INSTALLED = tuple(os.path.join(_STANDARD, d, "") for d in ("site-packages", "dist-packages"))


def is_internal(filename: str) -> bool:
    """Whether a file is amdjax's, or one that `register_exclusion` left out."""
    return filename.startswith(tuple(exclude_paths))


def is_standard(filename: str) -> bool:
    """Whether a file is one of Python's own library, installed packages left out."""
    return filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)


def register_exclusion(path: str) -> None:
    """Leave a library's frames out of tracebacks, as amdjax's own are.

    Args:
      path: a file of the library, or the folder of its files.

        >>> register_exclusion("/opt/library/")
    """
    if path not in exclude_paths:
        exclude_paths.append(path)


def user_frame() -> types.FrameType | None:
    """The nearest frame on the stack outside amdjax, or None when there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    internal = tuple(exclude_paths)
    while frame is not None and frame.f_code.co_filename.startswith(internal):
        frame = frame.f_back
    return frame


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning which points at the user's line, however deep in amdjax it arises."""
    level = 2
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    # The level counts from this function: 1 is here, 2 is the caller.
    warnings.warn(message, category, stacklevel=level if frame is not None else 2)


def is_hidden(frame: types.FrameType, inside: bool) -> bool:
    """Whether a traceback leaves `frame` out.

    Args:
        frame: a frame of it.
        inside: whether the last frame before it that was not of a library is amdjax's.
    """
    filename = frame.f_code.co_filename
    if filename.startswith("<"):  # code made by exec, such as the __init__ of a dataclass
        return str(frame.f_globals.get("__name__", "")).startswith("amdjax.")
    if not inside:
        return False
    if filename.startswith(_STANDARD):
        return not filename.startswith(_INSTALLED) or filename.startswith(_LIBRARIES)
    return filename.startswith(_LIBRARIES)


def filtered_traceback(tb: types.TracebackType | None) -> types.TracebackType | None:
    """`tb` without amdjax's frames; None if that leaves nothing below the caller's own frame.

    Frames of libraries which amdjax called are left out too: the user did not write the call.
    """
    kept = []
    inside = False
    entry = tb
    while entry is not None:
        if is_internal(entry.tb_frame.f_code.co_filename):
            inside = True
        elif not is_hidden(entry.tb_frame, inside):
            inside = False
            kept.append(entry)
        entry = entry.tb_next
    out: types.TracebackType | None = None
    for entry in reversed(kept):
        out = types.TracebackType(out, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return out


def hide_internal_frames(exc: BaseException) -> None:
    """Drop amdjax's frames from `exc` and its causes unless AMDJAX_TRACEBACK=full.

    For callers which cannot afford `api_boundary`'s extra call::

        try:
            ...
        except Exception as e:
            hide_internal_frames(e)
            raise  # a bare raise, which does not record this frame again
    """
    if config.traceback == "full":
        return
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = filtered_traceback(link.__traceback__)
        link = link.__cause__ or link.__context__
    if config.traceback == "noted" and _FILTERED not in getattr(exc, "__notes__", ()):
        exc.add_note(_FILTERED)


_FILTERED = (
    "For simplicity, frames inside amdjax are left out of this traceback; "
    "AMDJAX_TRACEBACK=full shows them."
)
