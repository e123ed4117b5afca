"""How native loops stay interruptible: every tenth of a second they let Python look for signals.

A native call gives up the interpreter lock and may run for hours, and Python handles a signal, such
as that of Ctrl-C, between two of its own instructions only. So the thread that made the call takes
the lock now and then and calls a Python function of no content: on the way handlers run as the
program has set them, and if one raises, the call ends with its exception. No handler is installed
here, and other threads are interrupted as Python interrupts them.

A call keeps a *watch* of three words, which it hands on to what it runs:

| word | holds |
|---|---|
| `STOP` | not 0 when the call is to end; all of its threads read it |
| `LOOKED` | the time of the last look, in ticks; 0 before the first |
| `THREAD` | the thread state that giving up the lock returned |

Asking costs a look at the clock. Loops of a few instructions ask every few thousand rounds.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable

STOP, LOOKED, THREAD = range(3)
WATCH_WORDS = 3
LOOK_SECONDS = 0.1

# What native code may call. The worker index says who asks: the thread that made the call, 0, has
# the clock looked at; others learn what it has found.
DECLARATIONS = {"amdjax_poll": "declare i64 @amdjax_poll(ptr, i64)"}

#: Part of the thread pool's source, which says what a tick is.
POLL = """
def amdjax_poll_configure(function, ticks: i64):
    store(look_ticks, ticks, "i64")
    store(look, function, "ptr monotonic")

def amdjax_poll(watch, worker: i64) -> i64:
    "Whether the call is to end."
    if not watch:
        return 0
    stop = load(watch + STOP, "i64 monotonic")
    if stop != 0 or worker != 0:
        return stop
    now = ticks()
    if number(watch, LOOKED) == 0:
        watch[LOOKED] = now
        return 0
    if below(now - number(watch, LOOKED), load(look_ticks, "i64")):
        return 0
    watch[LOOKED] = now
    function = load(look, "ptr monotonic")
    if not function:
        return 0
    PyEval_RestoreThread(watch[THREAD])
    result = PyObject_CallFunctionObjArgs(function, None)
    if result:
        Py_DecRef(result)
    else:
        store(watch + STOP, 1, "i64 monotonic")
    watch[THREAD] = PyEval_SaveThread()
    return 0 if result else 1
"""
POLL_CONSTANTS = {"STOP": STOP, "LOOKED": LOOKED, "THREAD": THREAD, "WATCH_WORDS": WATCH_WORDS}
POLL_GLOBALS = (
    "@look = internal global ptr null  ; the Python function",
    "@look_ticks = internal global i64 0",
)
#: Functions of Python that it calls.
POLL_DECLARED = {
    "PyEval_SaveThread": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)",
    "PyObject_CallFunctionObjArgs": "ptr (ptr, ...)",
    "Py_DecRef": "void (ptr)",
}


def python_symbols() -> dict[str, int]:
    """Addresses of the functions of Python that native code calls."""
    found = {
        name: getattr(ctypes.pythonapi, name) for name in (*POLL_DECLARED, "PyLong_FromVoidPtr")
    }
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in found.items()}


def _look() -> None:
    """What is called for Python's own work in front of it."""


def start_looking(configure: Callable[[int, int], None], ticks_per_second: float) -> None:
    """Let native loops call Python until it shuts down: a thread it has given up must not enter."""
    configure(id(_look), max(int(ticks_per_second * LOOK_SECONDS), 1))
    atexit.register(configure, 0, 0)
