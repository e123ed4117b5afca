"""The parts of compiling, as traces, listeners and the log are told of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from amdjax.core import events
from amdjax.core.config import config

_SILENT = nullcontext()


def phase(name: str, category: str, event: str) -> AbstractContextManager[None]:
    """A part of compiling, in the trace, for listeners and in the log.

    Args:
      name: the function's.
      category: "trace" or "compile".
      event: what listeners know it by.
    """
    return _told(name, category, event) if events.is_heard() or _is_logged() else _SILENT


@contextmanager
def _told(name: str, category: str, event: str) -> Iterator[None]:
    told = events.duration(f"/jax/core/compile/{event}_duration", fun_name=name)
    start = time.perf_counter()
    with told, events.span(name, category):
        yield
    if not _is_logged():
        return
    # late: programs that log have it loaded
    import logging

    logger = logging.getLogger("amdjax.jit")
    level = logging.WARNING if config.log_compiles else logging.DEBUG
    if logger.isEnabledFor(level):
        done = {"trace": "tracing", "compile": "compiling"}[category]
        logger.log(level, "Finished %s %s for jit in %.6f sec", done, name,
                   time.perf_counter() - start)  # fmt: skip


def _is_logged() -> bool:
    """Whether the log takes it."""
    if config.log_compiles:
        return True
    if "logging" not in sys.modules:
        return False  # no logger has been set to this level
    # late: programs that log have it loaded
    import logging

    return logging.getLogger("amdjax.jit").isEnabledFor(logging.DEBUG)
