"""Times workloads in a process of its own, so that a crash costs one cell and not the run.

Reads ``{"workload": name, "libs": [...]}`` lines from stdin, answers with JSON lines.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

from .lib import SkipWorkload, difference, leaves, load, to_host
from .workload import Prepared, Workload


class Sampler:
    """Takes samples of one library's work, each long enough to be measured."""

    def __init__(self, lib: Any, prepared: Prepared, target: float, clock: Any = time.perf_counter):
        self.lib, self.prepared, self.clock = lib, prepared, clock
        self.samples: list[float] = []
        self.repeats = 1
        if prepared.sample is None:
            once = min(self._run(1) for _ in range(3))
            # A call that takes microseconds is also measured through its tenth and hundredth.
            if once < target:
                once = self._run(max(1, min(100, int(target / once))))
            self.repeats = max(1, min(20_000, int(target / once)))

    def _run(self, repeats: int) -> float:
        run, block, each = self.prepared.run, self.lib.block, self.prepared.block_each
        start = self.clock()
        for _ in range(repeats):
            result = run()
            if each:
                block(result)
        block(result)
        return (self.clock() - start) / repeats

    def take(self) -> None:
        if self.prepared.sample is not None:
            self.samples.append(self.prepared.sample())
            return
        # The neighbor's thread pool and data are still warm; ours come back with one call.
        self._run(1)
        self.samples.append(self._run(self.repeats))


def short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def measure(workload: Workload, libs: list[str], options: dict[str, Any], tell: Any) -> dict:
    """Samples of every library in turn: A B C, A B C, ... so that the machine's drift cancels."""
    errors: dict[str, str] = {}
    samplers: dict[str, Sampler] = {}
    reference: list[np.ndarray] | None = None
    # JAX is the reference wherever it takes part, so it is prepared first.
    for name in sorted(libs, key=lambda n: n != "jax"):
        tell(stage="prepare", lib=name)
        try:
            lib = load(name, options["quick"], options["device"])
            prepared = workload.prepare(lib)
            if prepared.sample is None:
                result = prepared.run()
                lib.block(result)
                host = [to_host(x) for x in leaves(prepared.canonical(result))]
                del result
                compared = workload.tolerance is not None and (
                    workload.torch_comparable or not name.startswith("torch")
                )
                if compared and reference is None:
                    reference = host
                elif compared and reference is not None:
                    off = difference(host, reference)
                    if off > workload.tolerance:
                        errors[name] = f"results differ by {off:.1e} of the greatest magnitude"
                        continue
            samplers[name] = Sampler(lib, prepared, options["target"])
        except SkipWorkload:
            continue
        except Exception as error:
            errors[name] = short(error)
    reference = None
    order = [name for name in libs if name in samplers]
    start = time.perf_counter()
    for turn in range(options["rounds"]):
        for name in list(order):
            tell(stage="time", lib=name)
            try:
                samplers[name].take()
            except SkipWorkload:
                order.remove(name)
                samplers.pop(name)
            except Exception as error:
                errors[name] = short(error)
                order.remove(name)
                samplers.pop(name)
        if turn + 1 >= options["min_rounds"] and time.perf_counter() - start > options["budget"]:
            break
    figures = {}
    for name in order:
        if samplers[name].prepared.figures is not None:
            tell(stage="figures", lib=name)
            try:
                figures[name] = samplers[name].prepared.figures()
            except Exception as error:
                errors[name] = short(error)
    return {
        "figures": figures,
        "seconds": {name: statistics.median(samplers[name].samples) for name in order},
        "samples": {name: samplers[name].samples for name in order},
        "errors": errors,
    }


def main() -> None:
    options = json.loads(sys.argv[1])
    # Libraries print as they please; the answers go through a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if options["threads"] and "torch" in options["libs"]:
        import torch

        torch.set_num_threads(options["threads"])
    from .families import workloads

    known = {w.name: w for w in workloads()}

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    tell(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        result = measure(known[request["workload"]], request["libs"], options, tell)
        tell(done=result)
        gc.collect()


if __name__ == "__main__":
    main()
