"""Small native functions for the tests, and a way to run Python in a fresh process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from amdjax.codegen.engine import FUNCTION_ATTRIBUTES
from amdjax.runtime import native

ROOT = Path(__file__).parents[2]

# add_one: ctx is an i64 array; every task adds one to its element.
# repeat: add_one over n elements, reps times. nested: every task runs a parallel loop of its own,
# over the eight elements that belong to it.
TASKS = """
define void @add_one(ptr %ctx, i64 %begin, i64 %end, i64 %worker) ATTRS {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %p = getelementptr i64, ptr %ctx, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @repeat(ptr %ctx, i64 %n, i64 %reps) ATTRS {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  call void @amdjax_parallel_for(ptr @add_one, ptr %ctx, i64 %n)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %reps
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @outer(ptr %ctx, i64 %begin, i64 %end, i64 %worker) ATTRS {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %first = mul i64 %i, 8
  %p = getelementptr i64, ptr %ctx, i64 %first
  call void @amdjax_parallel_for(ptr @add_one, ptr %p, i64 8)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @nested(ptr %ctx, i64 %n) ATTRS {
  call void @amdjax_parallel_for(ptr @outer, ptr %ctx, i64 %n)
  ret void
}
define void @mark(ptr %ctx, i64 %begin, i64 %end, i64 %worker) ATTRS {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %p = getelementptr i64, ptr %ctx, i64 %i
  store i64 %worker, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
declare void @amdjax_parallel_for(ptr, ptr, i64)
""".replace("ATTRS", FUNCTION_ATTRIBUTES)


@cache
def library():
    return native.build([(TASKS, ["add_one", "repeat", "nested", "mark"])])[0]


def repeat(array, reps: int) -> None:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    code = library()  # threads that come first at once have one each
    function(code["repeat"])(array.ctypes.data, array.size, reps)


def nested(array) -> None:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    code = library()
    function(code["nested"])(array.ctypes.data, array.size // 8)


def run_python(code: str, timeout: float = 60, **environment: str) -> str:
    """Output of `code` in a new interpreter; fails if that fails."""
    path = str(ROOT)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
