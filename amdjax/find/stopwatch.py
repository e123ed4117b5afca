"""How long a compiled problem takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from amdjax.find.program import Program
from amdjax.runtime.gpu import GpuDevice

SAMPLE_SECONDS = 2e-3  # at least as long runs are timed together ...
LEAST_RUNS = 3  # ... and as many
MOST_WAITING = 100  # runs; drivers keep some thousand launches waiting, then hold the host up
COPIED = 64 << 20  # bytes of a copy that keeps a device busy ...
MOST_COPIES = 500  # ... of which so many can wait


class Stopwatch:
    """Times runs of a program, as many together as a clock can tell.

    Threads that sleep take long to wake on a busy machine, longer than many a program: that falls
    on the first of several runs, and on all programs that are compared alike. A GPU is timed by
    its own clock, and is given the runs while it is still busy with something else: else what
    would be timed of a short program is how long the host takes to launch it.

    Args:
      program: what is run.
      arrays: its arguments; those of a GPU are there already.

    Attributes:
      samples: seconds of a run, a number for each time that some were timed.
    """

    def __init__(self, program: Program, arrays: Sequence[Any]):
        self._run, self._device, self._arrays = program.run, program.device, arrays
        self.samples: list[float] = []
        self._issue(1)  # which loads what it needs
        self._issuing = self._issue(1)  # seconds that the host needs for a run
        self._least = self._timed(1)

    def sample(self) -> float:
        """Seconds of a run."""
        batch = max(LEAST_RUNS, round(SAMPLE_SECONDS / self._least))
        if self._device is not None:
            batch = min(batch, MOST_WAITING)
        self.samples.append(self._timed(batch) / batch)
        self._least = min(self._least, self.samples[-1])
        return self.samples[-1]

    def _timed(self, runs: int) -> float:
        if self._device is None:
            return self._issue(runs)
        _occupy(self._device, 1.5 * runs * self._issuing)
        return self._device.elapsed(lambda: self._issue(runs, wait=False))

    def _issue(self, runs: int, wait: bool = True) -> float:
        """Seconds until so many runs are issued, or are done."""
        run, arrays = self._run, self._arrays
        start = time.perf_counter()
        for _ in range(runs):
            results = run(arrays)
        if wait:
            for x in results:
                x.block_until_ready()
        return time.perf_counter() - start


def _occupy(device: GpuDevice, seconds: float) -> None:
    """Give a device copies to make that take it so long at least."""
    nbytes = min(COPIED, device.memory_stats()["bytes_limit"] // 16)
    source, to = device.alloc(nbytes), device.alloc(nbytes)
    each = device.elapsed(lambda: device.copy(to.address, source.address, nbytes))
    for _ in range(min(math.ceil(seconds / each), MOST_COPIES)):
        device.copy(to.address, source.address, nbytes)
