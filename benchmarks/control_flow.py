"""Loops whose steps are too small to pay for a call each, and transforms of transforms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .lib import JaxLike, SkipWorkload, Torch
from .workload import Prepared, Workload, array_function, normal, together


def _steps(quick: bool) -> int:
    return 1000 if quick else 100_000


def _while(lib: JaxLike) -> Prepared:
    steps = _steps(lib.quick)

    def loop(x):
        return lib.lax.while_loop(
            lambda state: state[0] < steps,
            lambda state: (state[0] + 1, state[1] * 0.999 + 0.5),
            (0, x),
        )[1]

    compiled = lib.jit(loop)
    (x,) = lib.arrays((np.float32(1.0),))
    return Prepared(lambda: compiled(x))


def _unrolled(work: Workload) -> Workload:
    """The work without PyTorch's compiler, which would unroll Python's loop for minutes."""
    eager = work.torch
    assert eager is not None

    def prepare(lib: Torch) -> Prepared:
        if lib.compiled:
            raise SkipWorkload
        return eager(lib)

    return replace(work, torch=prepare)


def _while_torch(lib: Torch) -> Prepared:
    steps, x = _steps(lib.quick), lib.tensor(1.0)

    def loop():
        value = x
        for _ in range(steps):
            value = value * 0.999 + 0.5
        return value

    return Prepared(loop)


def _power_iteration(l, matrix, x):
    def step(_, x):
        y = matrix @ x
        return y / l.np.sqrt(l.np.sum(y * y))

    return l.lax.fori_loop(0, 200, step, x)


def _power_iteration_torch(t, matrix, x):
    for _ in range(200):
        y = matrix @ x
        x = y / t.sqrt(t.sum(y * y))
    return x


def _symmetric(rng: np.random.Generator, quick: bool) -> tuple:
    size = 32 if quick else 256
    half = rng.standard_normal((size, size), dtype=np.float32)
    # A clear greatest eigenvalue, so that the iteration converges and can be compared.
    direction = rng.standard_normal(size, dtype=np.float32)
    return half @ half.T / size + np.outer(direction, direction), direction + 1


def _cube_roots(l, x):
    step = lambda _, y: y - (y * y * y - x) / (3 * y * y + 1)
    return l.lax.fori_loop(0, 20, step, x)


def _cube_roots_torch(t, x):
    y = x
    for _ in range(20):
        y = y - (y * y * y - x) / (3 * y * y + 1)
    return y


def _recurrence(l, xs):
    return l.lax.scan(lambda h, x: (0.9 * h + x,) * 2, l.np.zeros(xs.shape[1:]), xs)[1]


def _recurrence_torch(t, xs):
    h, hs = xs.new_zeros(xs.shape[1:]), []
    for x in xs:
        h = 0.9 * h + x
        hs.append(h)
    return t.stack(hs)


def _network(l, x, w1, w2):
    return l.np.sum(l.np.tanh(l.np.tanh(x @ w1) @ w2))


def _hessians(l, x, w1, w2):
    return l.vmap(l.hessian(lambda x: _network(l, x, w1, w2)))(x)


def _hessians_torch(t, x, w1, w2):
    def network(x):
        return t.sum(t.tanh(t.tanh(x @ w1) @ w2))

    return t.func.vmap(t.func.hessian(network))(x)


WORKLOADS = [
    _unrolled(
        Workload("while loop of 10⁵ scalar steps", _while, _while_torch, tolerance=1e-3),
    ),
    array_function(
        "fori loop, power iteration 200×256²",
        _symmetric,
        _power_iteration,
        _power_iteration_torch,
        tolerance=1e-3,
    ),
    _unrolled(
        array_function(
            "fori loop, Newton 20×1M",
            normal(1 << 20, quick=(1 << 12,)),
            _cube_roots,
            _cube_roots_torch,
            tolerance=1e-4,
        )
    ),
    _unrolled(
        array_function(
            "scan, linear recurrence 1000×16k",
            normal(1000, 1 << 14, quick=(50, 64)),
            _recurrence,
            _recurrence_torch,
            tolerance=1e-4,
        )
    ),
    array_function(
        "vmap of hessian, 256 of 16→64→32",
        together(
            normal(256, 16, quick=(16, 16)),
            normal(16, 64, scale=0.25),
            normal(64, 32, scale=0.125),
        ),
        _hessians,
        _hessians_torch,
        tolerance=1e-4,
    ),
]
