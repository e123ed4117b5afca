"""A native thread pool, in restricted Python, which LLVM makes machine code of.

Generated code calls `amdjax_parallel_for(fn, ctx, n)`; the pool calls
`fn(ctx, begin, end, worker)` on parts of `range(n)` until all is done.

Each participant owns an equal share of the range, takes chunks of it through an atomic counter,
then helps the others with theirs: equal work stays on the same core from call to call, unequal
work is balanced. One call at a time uses the pool. A call that finds it taken, because it is
nested or because another Python thread is in a call, does its tasks alone.

How a call and the workers meet: the caller fills in the job, sets `open` and bumps `epoch`,
which workers watch. A worker first adds itself to `active`, then looks at `open`. The caller
first clears `open`, then waits for `active` to become zero. Whatever the order, either the
worker sees a closed job or the caller waits for it; a worker that sleeps through a job is not
waited for.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

from amdjax.codegen.engine import Library, engine
from amdjax.codegen.restricted import Source
from amdjax.core.config import config
from amdjax.runtime import environment, interrupts
from amdjax.runtime.cache import compile_cached
from amdjax.runtime.pool_ir import MAX_THREADS, pool_source

# What generated code may call; the worker index is below amdjax_num_threads().
DECLARATIONS = {
    "amdjax_parallel_for": "declare void @amdjax_parallel_for(ptr, ptr, i64)",
    "amdjax_alone_for": "declare void @amdjax_alone_for(ptr, ptr, i64)",
    "amdjax_watched_for": "declare void @amdjax_watched_for(ptr, ptr, i64, ptr)",
    "amdjax_num_threads": "declare i64 @amdjax_num_threads()",
    **interrupts.DECLARATIONS,
}
SYMBOLS = tuple(DECLARATIONS)

_CONTROL = (
    "amdjax_pool_configure",
    "amdjax_pool_scatter",
    "amdjax_pool_stop",
    "amdjax_pool_reset",
    "amdjax_poll_configure",
    "amdjax_ticks",
)


def pool_text() -> Source:
    """The pool for this computer."""
    return pool_source(sys.platform, platform.machine())


class _Pool:
    """The loaded pool and its control functions."""

    def __init__(self) -> None:
        text = pool_text()
        engine().define(interrupts.python_symbols())
        # Kept for the life of the process: threads run in this code.
        self.code: Library = engine().load(compile_cached([text])[0], (*SYMBOLS, *_CONTROL))
        prototype = ctypes.CFUNCTYPE
        i64, ptr = ctypes.c_int64, ctypes.c_void_p
        self.parallel_for = prototype(None, ptr, ptr, i64)(self.code["amdjax_parallel_for"])
        self.alone_for = prototype(None, ptr, ptr, i64)(self.code["amdjax_alone_for"])
        self.stop = prototype(ctypes.c_int)(self.code["amdjax_pool_stop"])
        self.reset = prototype(None)(self.code["amdjax_pool_reset"])
        self.scatter = prototype(None, i64)(self.code["amdjax_pool_scatter"])
        self._configure = prototype(None, i64, i64)(self.code["amdjax_pool_configure"])
        self._ticks_per_us = _ticks_per_microsecond(prototype(i64)(self.code["amdjax_ticks"]))
        self.configure(environment.requested_threads())
        look = prototype(None, ptr, i64)(self.code["amdjax_poll_configure"])
        interrupts.start_looking(look, self._ticks_per_us * 1e6)

    def configure(self, threads: int) -> None:
        self.threads = min(threads, MAX_THREADS)
        self._configure(self.threads, int(environment.spin_microseconds() * self._ticks_per_us))

    def resize(self, threads: int, patience: float = 10.0) -> None:
        """End the workers; the next parallel call starts as many as are wanted now."""
        deadline = time.monotonic() + patience
        while not self.stop():
            if time.monotonic() > deadline:
                raise RuntimeError("the thread pool is busy: set its size between computations")
            time.sleep(1e-4)
        self.configure(threads)


def _ticks_per_microsecond(ticks: Callable[[], int]) -> float:
    """Rate of the counter that spinning threads read; 100 µs are enough for a per cent or two."""
    t0, c0 = time.perf_counter_ns(), ticks()
    while (elapsed := time.perf_counter_ns() - t0) < 100_000:
        pass
    return max((ticks() - c0) * 1e3 / elapsed, 1e-3)


_pool_lock = threading.Lock()


@cache
def _load_pool() -> _Pool:
    pool = _Pool()
    engine().define({name: pool.code[name] for name in SYMBOLS})
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.reset)
    atexit.register(pool.stop)
    config.on_update("num_threads", lambda _: set_num_threads(environment.requested_threads()))
    return pool


def initialize() -> None:
    """Make the pool's functions known to the engine; threads start with the first parallel call.

    Cheap to call again. Must come before objects that use `DECLARATIONS` are loaded.
    """
    with _pool_lock:
        _load_pool()


def _pool() -> _Pool:
    initialize()
    return _load_pool()


def num_threads() -> int:
    """Threads that a parallel call uses, the calling one included."""
    return _pool().threads


def set_num_threads(threads: int) -> None:
    """Change the size of the pool.

    Raises:
        ValueError: `threads` is below 1.
        RuntimeError: a computation has been using the pool for seconds.
    """
    if threads < 1:
        raise ValueError(f"set_num_threads: threads must be at least 1, got {threads}")
    pool = _pool()
    if min(threads, MAX_THREADS) != pool.threads:
        pool.resize(threads)


def scatter_tasks(scattered: bool) -> None:
    """Whether parallel calls do their tasks on one thread in an order that no neighbors follow.

    For tests: what a task reads of a neighbor's results, or writes into them, is right in ascending
    order more often than not, and wrong only now and then on several threads.
    """
    _pool().scatter(int(scattered))


def parallel_for(fn: int, ctx: int, tasks: int) -> None:
    """Call native `fn(ctx, begin, end, worker)` on parts of `range(tasks)` from many threads."""
    _pool().parallel_for(fn, ctx, tasks)


def alone_for(fn: int, ctx: int, tasks: int) -> None:
    """Call native `fn(ctx, begin, end, 0)` for all tasks on this thread, as for little work."""
    _pool().alone_for(fn, ctx, tasks)
