"""What eager operations and compiled calls run on: the compiler behind core's `Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray
from amdjax.core.config import config
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive
from amdjax.jit.executable import Runner, compile_jaxpr
from amdjax.runtime.memory import Buffer, buffer_pool

EAGER_CACHE = 8192


class CompilerBackend:
    """Compiles programs of one operation for eager use, and keeps them by signature."""

    def __init__(self) -> None:
        self._eager: dict[Any, Runner] = {}

    def put(self, value: np.ndarray) -> Buffer:
        """A buffer of our own with the contents of `value`."""
        value = np.asarray(value)
        buffer = buffer_pool().alloc(value.nbytes)
        if value.nbytes:
            buffer.as_numpy(value.shape, value.dtype, writable=True)[...] = value
        return buffer

    def evaluate(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any]
    ) -> Any:
        """Run one primitive."""
        key: Any = (primitive, *[a.aval for a in args], *params.items())
        try:
            run = self._eager.get(key)
        except TypeError:  # a parameter that cannot be hashed
            key, run = None, None
        if run is None:
            run = compile_jaxpr(one_equation(primitive, [a.aval for a in args], params)).run
            if key is not None:
                if len(self._eager) >= EAGER_CACHE:
                    self._eager.clear()
                self._eager[key] = run
        outs = run(args)
        if config.debug_nans or config.debug_infs:
            from amdjax.jit.debugging import check_results

            check_results(primitive, outs)
        return outs if primitive.multiple_results else outs[0]

    def call_jaxpr(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[ConcreteArray]:
        """Run a whole program."""
        run = closed.memo.get("executable")
        if run is None:
            run = closed.memo["executable"] = compile_jaxpr(closed).run
        return run(args)

    def clear(self) -> None:
        self._eager.clear()


def one_equation(
    primitive: Primitive, avals: Sequence[ShapedArray], params: dict[str, Any]
) -> ClosedJaxpr:
    """The program that applies one primitive to its arguments."""
    rule = primitive.abstract_eval
    if rule is None:
        raise NotImplementedError(f"primitive {primitive.name} has no abstract_eval rule")
    out = rule(*avals, **params)
    invars = [Var(a) for a in avals]
    outvars = [Var(a) for a in (out if primitive.multiple_results else [out])]
    effects = primitive.effects(*avals, **params) if primitive.effects else frozenset()
    eqn = JaxprEqn(primitive, invars, outvars, params, effects)
    return ClosedJaxpr(Jaxpr([], invars, outvars, [eqn]), [])


def load() -> CompilerBackend:
    """The backend; registered with `core.array.set_backend`."""
    return CompilerBackend()


__all__ = ["CompilerBackend", "config", "load"]
