"""What a workload is, and the helper that makes one out of an array function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .lib import JaxLike, Lib, SkipWorkload, Torch

Inputs = Callable[[np.random.Generator, bool], tuple]


@dataclass
class Prepared:
    """Work that is ready to be timed."""

    run: Callable[[], Any]
    # Brings the result into the form that is compared between libraries.
    canonical: Callable[[Any], Any] = lambda result: result
    # False: calls are timed back to back and only the last is waited for.
    block_each: bool = True
    # Where the work is not a call in this process: one sample in seconds.
    sample: Callable[[], float] | None = None
    # What else there is to tell of it, by name; asked when all has been timed.
    figures: Callable[[], dict[str, str]] | None = None


@dataclass
class Workload:
    """One row of the table.

    ``tolerance`` is the greatest difference between two libraries' results that passes, as a
    fraction of the greatest magnitude in the result; None where results cannot be compared.
    """

    name: str
    jaxlike: Callable[[JaxLike], Prepared]
    torch: Callable[[Torch], Prepared] | None = None
    tolerance: float | None = 2e-5
    torch_comparable: bool = True
    family: str = field(default="", init=False)

    def prepare(self, lib: Lib) -> Prepared:
        if isinstance(lib, JaxLike):
            return self.jaxlike(lib)
        if self.torch is None:
            raise SkipWorkload
        return self.torch(lib)


def normal(*shape: int, quick: tuple[int, ...] | None = None, scale: float = 1.0) -> Inputs:
    """One standard normal float32 array; a smaller one for quick runs."""

    def make(rng: np.random.Generator, is_quick: bool) -> tuple:
        size = quick if is_quick and quick else shape
        return (scale * rng.standard_normal(size, dtype=np.float32),)

    return make


def together(*parts: Inputs) -> Inputs:
    """The inputs of several makers as one argument list."""
    return lambda rng, quick: tuple(x for part in parts for x in part(rng, quick))


def array_function(
    name: str,
    inputs: Inputs,
    jaxlike: Callable[..., Any],
    torch: Callable[..., Any] | None = None,
    *,
    argnums: tuple[int, ...] = (),
    tolerance: float | None = 2e-5,
    torch_layout: Callable[[Torch, tuple], tuple] | None = None,
    torch_canonical: Callable[[Any], Any] | None = None,
    in_jax: bool = True,
) -> Workload:
    """A workload that is one function of arrays, jitted.

    Args:
      name: the row's name.
      inputs: makes the NumPy inputs; every library gets the same ones.
      jaxlike: ``(lib, *arrays) -> result`` written with JAX's names.
      torch: ``(torch, *tensors) -> result``.
      argnums: with any, the work is forward pass and gradient with respect to these arguments,
        pulled back from a fixed cotangent.
      tolerance: see `Workload`.
      torch_layout: turns the inputs into the form that PyTorch's users would have them in.
      torch_canonical: turns PyTorch's result back into JAX's layout before the comparison.
      in_jax: whether JAX has what `jaxlike` calls.
    """

    def draw(lib: Lib) -> tuple[tuple, np.random.Generator]:
        rng = np.random.default_rng(0)
        return inputs(rng, lib.quick), rng

    def cotangent(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    def prepare(lib: JaxLike) -> Prepared:
        if lib.name == "jax" and not in_jax:
            raise SkipWorkload
        drawn, rng = draw(lib)
        args = lib.arrays(drawn)
        function = partial(jaxlike, lib)
        if not argnums:
            compiled = lib.jit(function)
            return Prepared(lambda: compiled(*args))
        ct = lib.np.asarray(cotangent(rng, lib.eval_shape(function, *args).shape))

        def pullback(*args_and_ct: Any) -> Any:
            *args, ct = args_and_ct

            def of_wanted(*wanted: Any) -> Any:
                full = list(args)
                for i, x in zip(argnums, wanted, strict=True):
                    full[i] = x
                return function(*full)

            return lib.vjp(of_wanted, *(args[i] for i in argnums))[1](ct)

        compiled = lib.jit(pullback)
        return Prepared(lambda: compiled(*args, ct))

    def prepare_torch(lib: Torch) -> Prepared:
        assert torch is not None
        canonical = torch_canonical or (lambda result: result)
        drawn, rng = draw(lib)
        args = lib.arrays(drawn)
        if torch_layout:
            args = torch_layout(lib, args)
        function = partial(torch, lib.torch)
        if not argnums:
            compiled = lib.compile(function)

            def run() -> Any:
                with lib.torch.no_grad():
                    return compiled(*args)

            return Prepared(run, canonical)
        with lib.torch.no_grad():
            out = function(*args)
        # The cotangent is drawn in JAX's layout, so that both pull back the same numbers.
        ct = lib.arrays(cotangent(rng, canonical(out).shape))
        if torch_layout:
            (ct,) = torch_layout(lib, (ct,))
        gradients = lib.grad(function, argnums)
        return Prepared(lambda: gradients(*args, ct), canonical)

    return Workload(name, prepare, prepare_torch if torch else None, tolerance)
