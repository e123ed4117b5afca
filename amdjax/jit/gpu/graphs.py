"""Which programs are recorded as graphs of launches, and when.

A program that reads nothing back from the device makes the same launches at each call. Only the
addresses differ, and those repeat: the pool gives a loop the memory that it has just left. So a
program is recorded when addresses come for the second time, and replayed from then on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from amdjax.jit.gpu.code import decides
from amdjax.jit.instructions import Plan
from amdjax.jit.offloading import is_issue
from amdjax.runtime import vm
from amdjax.runtime.gpu import GpuDevice, Graph

MOST_LAUNCHES = 4096  # more make a large graph
GRAPHS = 8  # kept for each program: the addresses of a loop's values alternate
GIVE_UP = 32  # calls with new addresses in a row


def is_capturable(plan: Plan, device: GpuDevice) -> bool:
    """Whether a program is the same sequence of launches at each call, and of a useful length."""
    if not device.can_capture or decides(plan):
        return False
    if not device.captures_cooperative and any(k.cooperative for k in plan.kernels()):
        return False
    return device.graphs_from <= _launches(plan) <= MOST_LAUNCHES


def _launches(plan: Plan) -> int:
    """How many launches and copies a program without decisions makes."""
    times = np.array([is_issue(i) for i in plan.instructions], np.int64)
    for n, i in enumerate(plan.instructions):
        if i.opcode == vm.REPEAT:
            _, count, label = i.words
            times[label.position : n] *= count
    return int(times.sum())


class Replays:
    """The graphs of a program, by the addresses it was called with."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[bytes, Graph] = OrderedDict()
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._misses = 0
        self._lock = threading.Lock()

    def find(self, key: bytes) -> Graph | None:
        """The graph for these addresses."""
        with self._lock:
            graph = self._graphs.get(key)
            if graph is not None:
                self._graphs.move_to_end(key)
                self._misses = 0
            return graph

    def wants(self, key: bytes) -> bool:
        """Whether addresses that have no graph yet should get one: they have come before."""
        with self._lock:
            if self._misses >= GIVE_UP:
                return False
            if key in self._seen:
                return True
            self._misses += 1
            self._seen[key] = None
            if len(self._seen) > GRAPHS:
                self._seen.popitem(last=False)
            return False

    def keep(self, key: bytes, graph: Graph) -> None:
        """Remember a graph; the one not used for longest goes."""
        with self._lock:
            self._graphs[key] = graph
            if len(self._graphs) > GRAPHS:
                self._graphs.popitem(last=False)
