"""Requests for accuracy of elementary functions; all are met, as results are within 2 ulp."""

from __future__ import annotations

import enum

__all__ = ["AccuracyMode", "Tolerance"]


class AccuracyMode(enum.Enum):
    """How accurate an elementary function should be."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """Bounds on the error of an elementary function.

    Args:
      atol: absolute error.
      rtol: relative error.
      ulps: error in units in the last place.

    Raises:
      ValueError: if a bound is negative or all are zero.
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0):
        if min(atol, rtol, ulps) < 0:
            raise ValueError(f"tolerances must not be negative, got {atol}, {rtol}, {ulps}.")
        if max(atol, rtol, ulps) == 0:
            raise ValueError("one of atol, rtol and ulps must be positive.")
        self.atol, self.rtol, self.ulps = atol, rtol, ulps
