"""``python -m benchmarks.tuned``: whole networks before and after `find.tune`, beside PyTorch.

Everything runs in this process, in turns, on the CPU. Choices go to a database of the run's own.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import vision
from .lib import JaxLike, Torch

ROUNDS = 7


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuned", description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, metavar="S", help="of each network")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of networks")
    parser.add_argument("--quick", action="store_true", help="small sizes; a check, not figures")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    return parser.parse_args()


def _best(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The least seconds of each, taken in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS + 1):  # the first warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _function(row: Any, lib: JaxLike) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of a network's row, not jitted, and its arguments."""
    _, network, sizes, train = row
    args = lib.arrays(vision._model(network, *sizes, np.random.default_rng(0), lib.quick))
    if train:
        return lib.value_and_grad(partial(vision._loss, network, lib)), args
    return lambda params, x, _: network(vision.Jax(lib, params, False), x), args


def main() -> None:
    """Tune each network and print a table."""
    options = _arguments()
    os.environ["AMDJAX_NUM_THREADS"] = str(options.threads)
    os.environ["AMDJAX_DB_PATH"] = os.path.join(tempfile.mkdtemp(), "find.db")
    from amdjax import find

    lib, torch = JaxLike("amdjax", options.quick), _torch(options)
    header = ("network", "untuned", "tuned", "PyTorch", "gain", "vs torch", "problems")
    print("{:36} {:>9} {:>9} {:>9} {:>6} {:>8} {:>9}".format(*header))
    for row in vision.NETWORKS:
        if not fnmatch.fnmatch(row[0], f"*{options.only}*"):
            continue
        function, args = _function(row, lib)
        tuning = find.tune(function, *args, budget=options.budget, quiet=not sys.stderr.isatty())
        tuned = lib.jit(function)
        runs = {"tuned": lambda: lib.block(tuned(*args))}
        if torch is not None:
            workload = vision.WORKLOADS[vision.NETWORKS.index(row)]
            runs["torch"] = workload.prepare(torch).run
        best = _best(runs)
        ours, other = best["tuned"], best.get("torch", float("nan"))
        before = ours * tuning.speedup
        print(
            f"{row[0]:36} {before * 1e3:6.1f} ms {ours * 1e3:6.1f} ms {other * 1e3:6.1f} ms "
            f"{tuning.speedup:5.2f}× {other / ours:7.2f}× {len(tuning.solutions):9}"
        )


def _torch(options: argparse.Namespace) -> Torch | None:
    try:
        torch = Torch("torch", options.quick)
    except ImportError:
        return None
    torch.torch.set_num_threads(options.threads)
    return torch


if __name__ == "__main__":
    main()
