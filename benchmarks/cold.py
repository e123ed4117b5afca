"""``python -m benchmarks.cold LIB WORKLOAD``: seconds of the first call in this process."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from .families import workloads
from .lib import JaxLike, load


def main() -> None:
    lib_name, prefix = sys.argv[1:]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lib = load(lib_name, quick=True)
    (workload,) = (w for w in workloads() if (w.family != "startup" and w.name == prefix)
                   or (w.family == "models" and w.name.startswith(prefix)))  # fmt: skip
    # The library's own start (threads, device, first allocation) is not the compiler's time.
    x = lib.arrays(np.ones(4, np.float32))
    lib.block(lib.jit(lambda x: x + 1)(x) if isinstance(lib, JaxLike) else x + 1)
    prepared = workload.prepare(lib)
    start = time.perf_counter()
    lib.block(prepared.run())
    print(time.perf_counter() - start, file=answer)


if __name__ == "__main__":
    main()
