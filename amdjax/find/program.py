"""A compiled problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdjax.core.array import asarray_concrete
from amdjax.runtime.gpu import GpuDevice


@dataclass(frozen=True)
class Program:
    """A compiled problem.

    Args:
      run: gives its results of arrays.
      workspace: bytes that it needs besides arguments and results.
      device: the GPU of this computer that it runs on, whose clock tells how long it takes; None
        if there is none.
    """

    run: Callable[[Sequence[Any]], list[Any]]
    workspace: int
    device: GpuDevice | None = None

    def results(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Results of one run."""
        return [np.asarray(x) for x in self.run([asarray_concrete(x) for x in arguments])]
