"""How primitives are compiled, as far as that can be told in terms of other operations.

The compiler reads no MLIR. `lower_fun` covers what most libraries do: a primitive is compiled as
the function that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive

__all__ = ["lower_fun", "register_lowering"]


class _LowerFun:
    """What `lower_fun` returns: a function to compile in a primitive's place."""

    def __init__(self, fun: Callable[..., Any], multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def __call__(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        raise NotImplementedError(
            "what mlir.lower_fun returns can be registered, but not called: "
            "the compiler reads no MLIR"
        )

    def decompose(self, primitive: Primitive) -> Callable[..., Any]:
        """The function with results in the form that the primitive's have."""
        if self.multiple_results == primitive.multiple_results:
            return self.fun

        def adapted(*operands: Any, **params: Any) -> Any:
            out = self.fun(*operands, **params)
            return [out] if primitive.multiple_results else out[0]

        return adapted


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Any:
    """A lowering rule that compiles `fun` in a primitive's place.

    Args:
      fun: `fun(*operands, **params)`, traceable.
      multiple_results: whether it returns a sequence of results.

    Returns:
      Something to hand to `register_lowering`.

        >>> from amdjax.extend.core import Primitive
        >>> cube_p = Primitive("cube")
        >>> _ = cube_p.def_abstract_eval(lambda x: x)
        >>> _ = register_lowering(cube_p, lower_fun(lambda x: x * x * x, multiple_results=False))
        >>> print(amdjax.jit(cube_p.bind)(2.0))
        8.0
    """
    return _LowerFun(fun, multiple_results)


def register_lowering(
    prim: Primitive,
    rule: Callable[..., Any],
    platform: str | None = None,
    inline: bool = True,
    cacheable: bool = True,
) -> Callable[..., Any]:
    """Say how a primitive is compiled.

    Args:
      prim: the primitive.
      rule: what `lower_fun` returned. A rule that writes MLIR is kept for the error it means: the
        primitive can be registered, traced and transformed, but not compiled.
      platform: a platform's name, if the rule is for that one; a rule for one platform is taken
        only where there is none for all.
      inline: accepted.
      cacheable: accepted.

    Returns:
      `rule`.

    Raises:
      NotImplementedError: there is no platform of that name.

        >>> from amdjax.extend.core import Primitive
        >>> twice_p = Primitive("twice")
        >>> _ = twice_p.def_abstract_eval(lambda x: x)
        >>> _ = register_lowering(twice_p, lower_fun(lambda x: 2 * x, multiple_results=False))
        >>> print(amdjax.jit(twice_p.bind)(3.0))
        6.0
    """
    if platform is not None and platform not in _PLATFORMS:
        raise NotImplementedError(
            f"Registering an MLIR lowering rule for primitive {prim} for an unknown platform "
            f"{platform}. Known platforms are: {', '.join(_PLATFORMS)}."
        )
    if platform is not None and isinstance(prim.lowering, Decompose):
        return rule
    if isinstance(rule, _LowerFun):
        prim.lowering = Decompose(rule.decompose(prim))
    elif prim.lowering is None:
        prim.lowering = Decompose(_written_in_mlir(prim))
    return rule


_PLATFORMS = ("cpu", "cuda", "gpu", "oneapi", "rocm", "tpu")


def _written_in_mlir(prim: Primitive) -> Callable[..., Any]:
    def refuse(*operands: Any, **params: Any) -> Any:
        raise NotImplementedError(
            f"primitive '{prim}' is lowered by a rule that writes MLIR (StableHLO), which "
            "amdjax's compiler does not read. Register a function of other operations: "
            "mlir.register_lowering(p, mlir.lower_fun(f)), "
            "or call Python with amdjax.pure_callback."
        )

    return refuse


_NAMES = "aval_to_ir_type dense_int_elements emit_python_callback ir ir_constant i32_attr i64_attr"


def __getattr__(name: str) -> Any:
    if name in _NAMES.split():
        raise AttributeError(f"interpreters.mlir has no {name!r}: amdjax's compiler reads no MLIR")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
