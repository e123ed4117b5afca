"""Programs that the doctor runs on a device and on the CPU, and compares.

They run in processes of their own: a fault on a GPU ends the process that caused it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, random
from amdjax.core.config import config
from amdjax.runtime.devices import devices

__all__ = ["CHECKS", "COPY", "Check", "Outcome", "outcomes", "run_here"]

# A kernel that hangs must not hang the doctor.
_SECONDS_PER_CHECK = 180
_F16, _F32 = np.float16, np.float32


@dataclass(frozen=True)
class Check:
    """A program and what it runs on.

    Args:
      name: what it tries.
      function: of arrays, to an array or several.
      arguments: makes the arrays.
      tolerance: how far results may be from the CPU's, relative to the largest of them; 0 for
        equality.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], Sequence[np.ndarray]]
    tolerance: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """How a check went.

    Args:
      name: the check's.
      passed: whether the results agree.
      text: the largest difference and the time, or what went wrong.
    """

    name: str
    passed: bool
    text: str


def _floats(*shapes: tuple[int, ...], dtype: Any = _F32) -> Callable[..., list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def _select(x: Any, y: Any) -> Any:
    return jnp.where(x > y, x * y + 1, x / (jnp.abs(y) + 1))


def _mathematics(x: Any) -> Any:
    return jnp.exp(x) + jnp.log(jnp.abs(x)) + jnp.sin(x) * lax.erf(x)


def _integers(x: Any) -> Any:
    return (x * 7919) % 1013 ^ (x >> 3)


def _layer_norm_gradient(x: Any) -> Any:
    def loss(x: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return (jnp.tanh(centered * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)) ** 2).sum()

    return amdjax.grad(loss)(x)


def _reductions(x: Any) -> Any:
    return x.sum(0), x.max(1), x.argmax(1), x.min()


def _lookup(x: Any, i: Any) -> Any:
    return x[i], jnp.zeros_like(x).at[i].add(1.0)


def _convolution(x: Any, kernel: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def _random_bits(key: Any) -> Any:
    # Whatever generator is the user's default.
    return random.bits(random.wrap_key_data(key, impl="threefry2x32"), (333,))


def _loop(x: Any) -> Any:
    return lax.fori_loop(0, 10, lambda i, v: v * 0.5 + i, x)


CHECKS = (
    Check("elementwise", _select, _floats((1001,), (1001,)), 1e-6),
    Check("exp, log, sin, erf", _mathematics, _floats((1001,)), 1e-6),
    Check("integers", _integers, lambda rng: [rng.integers(0, 1 << 18, 777, np.int32)]),
    Check("transpose, broadcast", lambda x, y: x.T + y[:, None], _floats((37, 65), (65,))),
    Check("reductions", _reductions, _floats((129, 70)), 1e-5),
    Check("softmax", nn.softmax, _floats((17, 1000)), 1e-5),
    Check("layer norm, gradient", _layer_norm_gradient, _floats((9, 257)), 1e-4),
    Check("running sum", lambda x: jnp.cumsum(x, 1), _floats((5, 700)), 1e-5),
    Check("sort", lambda x: jnp.sort(x, axis=1), _floats((3, 500))),
    Check(
        "gather, scatter",
        _lookup,
        lambda rng: [rng.standard_normal(50).astype(_F32), rng.integers(0, 50, 333, np.int32)],
    ),
    Check("matrix product, f32", jnp.matmul, _floats((65, 70), (70, 129)), 1e-5),
    Check("matrix product, f16", jnp.matmul, _floats((64, 96), (96, 80), dtype=_F16), 2e-3),
    Check("convolution", _convolution, _floats((2, 9, 9, 8), (3, 3, 8, 16)), 1e-5),
    Check("random bits", _random_bits, lambda rng: [rng.integers(0, 1 << 32, 2, np.uint32)]),
    Check("loop", _loop, _floats((100,)), 1e-6),
)


#: Not compared with anything: how fast the device copies within its memory.
COPY = "copy within memory"


def _run(check: Check, device: Any, cpu: Any) -> Outcome:
    values = list(check.arguments(np.random.default_rng(0)))
    start = time.perf_counter()
    found, expected = (
        [np.asarray(x) for x in amdjax.tree.leaves(
            amdjax.jit(check.function)(*amdjax.device_put(values, where)))]
        for where in (device, cpu)
    )  # fmt: skip
    seconds = time.perf_counter() - start
    worst = max(map(_difference, found, expected))
    text = f"largest difference {worst:.1e}" if worst else "equal"
    passed = worst <= check.tolerance
    if not passed:
        text = f"WRONG: {text}, allowed {check.tolerance:.1e}"
    return Outcome(check.name, passed, f"{text}, {seconds:.2f} s")


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Relative to the largest value; infinite where one has NaN or another shape."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        worst = float(np.max(np.abs(a - b), initial=0.0))
    scale = float(np.max(np.abs(b), initial=0.0))
    if not np.isfinite(worst):
        return float("inf")
    return worst / scale if scale else worst


def _copy_speed(device: Any) -> Outcome:
    most = 256 << 20 if device.platform == "hip" else 1 << 20
    nbytes = min(most, device.memory_stats()["bytes_limit"] // 8)
    source, to = device.alloc(nbytes), device.alloc(nbytes)
    seconds = min(
        device.elapsed(lambda: device.copy(to.address, source.address, nbytes)) for _ in range(5)
    )
    return Outcome(COPY, True, f"{2 * nbytes / seconds / 1e9:.1f} GB/s read and written")


def run_here(platform: str, number: int, names: Sequence[str]) -> None:
    """Run checks in this process; writes a line of JSON for each.

    Args:
      platform: the device's.
      number: its `id`.
      names: of the checks; `COPY` is one.
    """
    device = next(d for d in devices(platform) if d.id == number)
    cpu = devices("cpu")[0]
    checks = {check.name: check for check in CHECKS}
    for name in names:
        try:
            outcome = _copy_speed(device) if name == COPY else _run(checks[name], device, cpu)
        except Exception as error:
            text = " ".join(str(error).split())
            outcome = Outcome(name, False, f"FAILED: {type(error).__name__}: {text}")
        print(json.dumps([outcome.name, outcome.passed, outcome.text]), flush=True)


def outcomes(platform: str, number: int, names: Sequence[str]) -> Iterator[Outcome]:
    """Run checks in processes of their own; one that dies costs only the check it was at.

    Args:
      platform: the device's.
      number: its `id`.
      names: of the checks.
    """
    left = list(names)
    while left:
        with tempfile.TemporaryFile("w+") as errors:
            process = _start(f"{platform}:{number}", left, errors)
            for outcome in _read(process):
                left.remove(outcome.name)
                yield outcome
            if left:
                errors.seek(0)
                yield Outcome(left.pop(0), False, _death(process.returncode, errors.read()))


def _start(device: str, names: Sequence[str], errors: Any) -> subprocess.Popen[str]:
    # Waiting for each kernel, errors name the one.
    platforms = f"{device.partition(':')[0]},cpu"
    environment = dict(os.environ, AMDJAX_SYNC="1", AMDJAX_PLATFORMS=platforms)
    if config.emulate:
        environment["AMDJAX_EMULATE"] = config.emulate
    command = [sys.executable, "-m", "amdjax.doctor", "--device", device, "--run", *names]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    )


def _read(process: subprocess.Popen[str]) -> Iterator[Outcome]:
    """What a process reports, until it ends or a check takes too long."""
    assert process.stdout is not None
    with process.stdout:
        while True:
            alarm = threading.Timer(_SECONDS_PER_CHECK, process.kill)
            alarm.start()
            line = process.stdout.readline()
            alarm.cancel()
            if not line:
                break
            yield Outcome(*json.loads(line))
    process.wait()


def _death(code: int, errors: str) -> str:
    """Why a process ended without an answer."""
    if code == -signal.SIGKILL:
        how = f"nothing came within {_SECONDS_PER_CHECK} s"
    elif code < 0:
        how = f"the process ended by {signal.Signals(-code).name}"
    else:
        how = f"the process ended with code {code}"
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    return f"FAILED: {how}; {last.strip()}" if last else f"FAILED: {how}"
