"""Times of programs: by the clock of the device that runs them."""

import numpy as np
import pytest

from amdjax.core.array import asarray_concrete
from amdjax.find.program import Program
from amdjax.find.stopwatch import Stopwatch
from amdjax.runtime.gpu import GpuDevice

RUN, COPY = 5e-6, 40e-6  # seconds of the device


class Device:
    """A device whose work takes known times, of which its clock tells; the host's would not."""

    def __init__(self):
        self.queued = 0.0  # what it was given and was not waited for
        self.ahead = 0.0  # of it, what its time was taken behind

    def memory_stats(self):
        return {"bytes_limit": 1 << 30}

    def alloc(self, nbytes):
        return type("Buffer", (), {"address": 0, "nbytes": nbytes})

    def copy(self, to, source, nbytes):
        self.queued += COPY

    def run(self, arrays):
        self.queued += RUN
        return [asarray_concrete(np.zeros(1, np.float32))]

    def elapsed(self, issue):
        self.ahead = self.queued
        issue()
        seconds, self.queued = self.queued - self.ahead, 0.0
        return seconds


def test_runs_of_a_gpu_are_timed_by_its_clock_while_it_is_busy():
    device = Device()
    watch = Stopwatch(Program(device.run, 0, device), [])
    assert watch.sample() == pytest.approx(RUN)
    assert watch.samples == [pytest.approx(RUN)]
    assert device.ahead >= COPY
    assert {"memory_stats", "alloc", "copy", "elapsed"} <= set(dir(GpuDevice))
