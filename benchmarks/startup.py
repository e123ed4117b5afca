"""What a person waits for before the first result, each time in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache

from .lib import Lib, SkipWorkload
from .workload import Prepared, Workload

IMPORT = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
IMPORTS = {
    "amdjax": "import amdjax, amdjax.numpy, amdjax.lax",
    "jax": "import jax, jax.numpy, jax.lax",
    "torch": "import torch",
}
# First calls at the small sizes of a quick run, so that the time is the compiler's.
COLD = ("gelu, 16M", "MLP 784-512-512-10 step", "GPT training step", "ResNet-18 training step")


@cache
def _byte_code() -> tempfile.TemporaryDirectory[str]:
    """Where children keep byte code: what is installed has it, a checkout need not."""
    return tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARKS_SCRATCH"))


def _child(command: list[str]) -> float:
    """Seconds that a fresh process prints, its kernel caches empty."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARKS_SCRATCH")) as scratch:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPYCACHEPREFIX": _byte_code().name,
            "AMDJAX_ENABLE_COMPILATION_CACHE": "false",
            "AMDJAX_CACHE_DIR": os.path.join(scratch, "amdjax"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor"),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise RuntimeError(last)
    return float(done.stdout.split()[-1])


def _sampled(sample: Callable[[], float]) -> Prepared:
    return Prepared(run=lambda: None, sample=sample)


def _import(lib: Lib) -> Prepared:
    if lib.name not in IMPORTS:
        raise SkipWorkload
    code = IMPORT.format(IMPORTS[lib.name])
    # The first import writes byte code; that is not waited for twice.
    _child([sys.executable, "-c", code])
    return _sampled(lambda: _child([sys.executable, "-c", code]))


def _cold(name: str) -> Workload:
    def prepare(lib: Lib) -> Prepared:
        if lib.name == "torch":
            raise SkipWorkload
        command = [sys.executable, "-m", "benchmarks.cold", lib.name, name]
        if lib.name != "torch.compile":
            _child(command)  # writes byte code, as in `_import`
            return _sampled(lambda: _child(command))
        # Tens of seconds each: once is enough.
        once = _child(command)
        return _sampled(lambda: once)

    return Workload(f"cold compile, {name.partition(',')[0]}", prepare, prepare)


WORKLOADS = [Workload("import", _import, _import), *(_cold(name) for name in COLD)]
