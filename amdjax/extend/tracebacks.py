"""Whose frames tracebacks leave out."""

from __future__ import annotations

import traceback
import types

from amdjax.core.boundaries import api_boundary as api_boundary
from amdjax.core.tracebacks import (
    exclude_paths as _exclude_paths,
    register_exclusion as register_exclusion,
)

__all__ = ["_exclude_paths", "api_boundary", "include_frame", "register_exclusion"]


def include_frame(frame: types.FrameType | traceback.FrameSummary) -> bool:
    """Whether tracebacks show a frame.

    Args:
      frame: the frame.

    Returns:
      Whether they do.

        >>> import sys
        >>> include_frame(sys._getframe())
        True
    """
    name = frame.filename if isinstance(frame, traceback.FrameSummary) else frame.f_code.co_filename
    return not name.startswith(tuple(_exclude_paths))
