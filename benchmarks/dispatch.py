"""What a call costs when the work is next to nothing."""

from __future__ import annotations

import numpy as np

from .lib import JaxLike, Torch
from .workload import Prepared, Workload


def _tree() -> dict[str, np.ndarray]:
    return {f"leaf{i:02d}": np.full(8, i, np.float32) for i in range(32)}


def _scalar(lib: JaxLike) -> Prepared:
    x = lib.np.zeros((), lib.np.float32)
    add_one = lib.jit(lambda x: x + 1)
    return Prepared(lambda: add_one(x), block_each=False)


def _scalar_torch(lib: Torch) -> Prepared:
    x = lib.tensor(0.0)
    add_one = lib.compile(lambda x: x + 1)
    return Prepared(lambda: add_one(x), block_each=False)


def _dict(lib: JaxLike) -> Prepared:
    tree = lib.arrays(_tree())
    add_one = lib.jit(lambda tree: {k: v + 1 for k, v in tree.items()})
    return Prepared(lambda: add_one(tree), block_each=False)


def _dict_torch(lib: Torch) -> Prepared:
    tree = lib.arrays(_tree())
    add_one = lib.compile(lambda tree: {k: v + 1 for k, v in tree.items()})
    return Prepared(lambda: add_one(tree), block_each=False)


def _eager_add(lib: JaxLike) -> Prepared:
    x, y = lib.arrays((np.arange(16, dtype=np.float32), np.ones(16, np.float32)))
    return Prepared(lambda: x + y, block_each=False)


def _eager_add_torch(lib: Torch) -> Prepared:
    x, y = lib.arrays((np.arange(16, dtype=np.float32), np.ones(16, np.float32)))
    add = lib.compile(lambda x, y: x + y) if lib.compiled else lambda x, y: x + y
    return Prepared(lambda: add(x, y), block_each=False)


def _eager_chain(lib: JaxLike) -> Prepared:
    x = lib.np.linspace(0.0, 1.0, 1024, dtype=lib.np.float32)

    def run():
        return lib.np.sum(lib.np.sin(x) * x + 1.0)

    return Prepared(run, block_each=False)


def _eager_chain_torch(lib: Torch) -> Prepared:
    x = lib.linspace(0.0, 1.0, 1024)
    run = lib.compile(lambda x: lib.torch.sum(lib.torch.sin(x) * x + 1.0))
    return Prepared(lambda: run(x), block_each=False)


WORKLOADS = [
    Workload("jit call, scalar", _scalar, _scalar_torch),
    Workload("jit call, dict of 32 leaves", _dict, _dict_torch),
    Workload("eager add of 16 numbers", _eager_add, _eager_add_torch),
    Workload("eager sum(sin(x) * x + 1), 1024", _eager_chain, _eager_chain_torch),
]
