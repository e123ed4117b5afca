"""The libraries under test, each behind one small record."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

NAMES = ("amdjax", "jax", "torch", "torch.compile")


class SkipWorkload(Exception):
    """The library has no way to say this work; the cell stays empty."""


class JaxLike:
    """amdjax or JAX: ``lib.np``, ``lib.lax``, ``lib.nn``, ``lib.random``, ``lib.jit`` and co."""

    def __init__(self, name: str, quick: bool = False, device: str = "cpu"):
        self.name, self.quick, self.device = name, quick, device
        self.module = importlib.import_module(name)
        if name == "jax" and device != "cpu":  # full precision, as the others compute
            self.module.config.update("jax_default_matmul_precision", "highest")

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.module, attribute)

    def _part(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.name}.{name}")

    @cached_property
    def np(self) -> ModuleType:
        return self._part("numpy")

    @cached_property
    def lax(self) -> ModuleType:
        return self._part("lax")

    @cached_property
    def nn(self) -> ModuleType:
        return self._part("nn")

    @cached_property
    def random(self) -> ModuleType:
        return self._part("random")

    def arrays(self, tree: Any) -> Any:
        """NumPy arrays of nested tuples, lists and dicts as arrays of this library."""
        if self.device == "cpu":
            return map_leaves(self.np.asarray, tree)
        device = self.module.devices(self.device)[0]
        return map_leaves(lambda x: self.module.device_put(self.np.asarray(x), device), tree)

    def block(self, result: Any) -> None:
        self.module.block_until_ready(result)

    def bfloat16(self, x: np.ndarray) -> Any:
        return self.np.asarray(x).astype(self.np.bfloat16)


class Torch:
    """PyTorch, eager or with ``torch.compile`` around every function."""

    def __init__(self, name: str, quick: bool = False, device: str = "cpu"):
        import torch

        self.name, self.quick, self.device = name, quick, device
        self.torch = torch
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.compiled = name == "torch.compile"
        if self.compiled:
            torch._dynamo.reset()

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.torch, attribute)

    @property
    def F(self) -> ModuleType:
        return self.torch.nn.functional

    def compile(self, function: Callable, dynamic: bool = False) -> Callable:
        return self.torch.compile(function, dynamic=dynamic) if self.compiled else function

    def arrays(self, tree: Any) -> Any:
        return map_leaves(lambda x: self.torch.from_numpy(np.array(x)).to(self.device), tree)

    def block(self, result: Any) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def bfloat16(self, x: np.ndarray) -> Any:
        return self.torch.from_numpy(x).to(self.device, self.torch.bfloat16)

    def grad(self, function: Callable, argnums: tuple[int, ...], dynamic: bool = False) -> Callable:
        """``(*args, cotangent) -> gradients``, forward pass included."""
        forward = self.compile(function, dynamic)

        def gradients(*args: Any) -> Any:
            *args, cotangent = args
            wanted = tuple(args[i].detach().requires_grad_() for i in argnums)
            for i, leaf in zip(argnums, wanted, strict=True):
                args[i] = leaf
            return self.torch.autograd.grad(forward(*args), wanted, cotangent)

        return gradients


Lib = JaxLike | Torch


def load(name: str, quick: bool, device: str = "cpu") -> Lib:
    """A library whose arrays are on a device, "cpu" or "cuda"."""
    return (Torch if name.startswith("torch") else JaxLike)(name, quick, device)


def map_leaves(function: Callable, tree: Any) -> Any:
    if isinstance(tree, dict):
        return {k: map_leaves(function, v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map_leaves(function, v) for v in tree)
    return function(tree)


def leaves(tree: Any) -> list[Any]:
    """Leaves in a fixed order; dicts by sorted key, as JAX's pytrees have them."""
    if isinstance(tree, dict):
        return [leaf for k in sorted(tree) for leaf in leaves(tree[k])]
    if isinstance(tree, list | tuple):
        return [leaf for v in tree for leaf in leaves(v)]
    return [tree]


def to_host(x: Any) -> np.ndarray:
    """A leaf of any library as a NumPy array, half precisions widened."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = (x.float() if x.is_floating_point() and x.element_size() < 4 else x).cpu().numpy()
    host = np.asarray(x)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def difference(result: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """The greatest difference as a fraction of the greatest magnitude, over all leaves."""
    if len(result) != len(reference):
        return float("inf")
    worst = 0.0
    for got, want in zip(result, reference, strict=True):
        if got.shape != want.shape:
            return float("inf")
        if not want.size:
            continue
        scale = max(float(np.max(np.abs(want))), 1e-30)
        error = float(np.max(np.abs(got.astype(np.float64) - want.astype(np.float64)))) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
