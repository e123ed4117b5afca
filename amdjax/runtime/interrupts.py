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

__all__ = ["DECLARATIONS", "LOOK_SECONDS", "POLL", "WATCH_WORDS", "python_symbols", "start_looking"]

STOP, LOOKED, THREAD = range(3)
WATCH_WORDS = 3
LOOK_SECONDS = 0.1

# What native code may call. The worker index says who asks: the thread that made the call, 0, has
# the clock looked at; others learn what it has found.
DECLARATIONS = {"amdjax_poll": "declare i64 @amdjax_poll(ptr, i64)"}

_PYTHON = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyObject_CallFunctionObjArgs", "Py_DecRef")

#: Part of the thread pool's module, which says what a tick is.
POLL = r"""
@look = internal global ptr null              ; the Python function
@look_ticks = internal global i64 0

define void @amdjax_poll_configure(ptr %look, i64 %ticks) ATTRS {
  store i64 %ticks, ptr @look_ticks
  store atomic ptr %look, ptr @look monotonic, align 8
  ret void
}

; Whether the call is to end.
define i64 @amdjax_poll(ptr %watch, i64 %worker) ATTRS {
entry:
  %none = icmp eq ptr %watch, null
  br i1 %none, label %no, label %read
read:
  %stop = load atomic i64, ptr %watch monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  %helper = icmp ne i64 %worker, 0
  %known = or i1 %stopped, %helper
  br i1 %known, label %answer, label %clock
answer:
  ret i64 %stop
clock:
  %looked.p = getelementptr i64, ptr %watch, i64 1
  %looked = load i64, ptr %looked.p
  %now = TICKS
  %first = icmp eq i64 %looked, 0
  br i1 %first, label %begin, label %elapsed
begin:
  store i64 %now, ptr %looked.p
  br label %no
elapsed:
  %dt = sub i64 %now, %looked
  %ticks = load i64, ptr @look_ticks
  %due = icmp uge i64 %dt, %ticks
  br i1 %due, label %ready, label %no
ready:
  store i64 %now, ptr %looked.p
  %look = load atomic ptr, ptr @look monotonic, align 8
  %off = icmp eq ptr %look, null
  br i1 %off, label %no, label %python
python:
  %thread.p = getelementptr i64, ptr %watch, i64 2
  %thread = load ptr, ptr %thread.p
  call void @PyEval_RestoreThread(ptr %thread)
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %look, ptr null)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %end, label %drop
end:
  store atomic i64 1, ptr %watch monotonic, align 8
  br label %release
drop:
  call void @Py_DecRef(ptr %result)
  br label %release
release:
  %verdict = phi i64 [1, %end], [0, %drop]
  %again = call ptr @PyEval_SaveThread()
  store ptr %again, ptr %thread.p
  ret i64 %verdict
no:
  ret i64 0
}

declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_DecRef(ptr)
"""


def python_symbols() -> dict[str, int]:
    """Addresses of the functions of Python that native code calls."""
    found = {name: getattr(ctypes.pythonapi, name) for name in (*_PYTHON, "PyLong_FromVoidPtr")}
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in found.items()}


def _look() -> None:
    """What is called for Python's own work in front of it."""


def start_looking(configure: Callable[[int, int], None], ticks_per_second: float) -> None:
    """Let native loops call Python until it shuts down: a thread it has given up must not enter."""
    configure(id(_look), max(int(ticks_per_second * LOOK_SECONDS), 1))
    atexit.register(configure, 0, 0)
