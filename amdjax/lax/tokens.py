"""Tokens: arrays without elements, which say by what they depend on that something comes later."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Decompose
from amdjax.core.primitive import Primitive
from amdjax.lax.filling import full

__all__ = ["after_all", "after_all_p", "create_token", "create_token_p"]

_TOKEN = ShapedArray((0,), np.dtype(bool))

create_token_p = Primitive("create_token")
create_token_p.abstract_eval = lambda: _TOKEN
create_token_p.lowering = Decompose(lambda: full((0,), False))

after_all_p = Primitive("after_all")
after_all_p.lowering = Decompose(lambda *tokens: full((0,), False))


@after_all_p.def_abstract_eval
def _after_all_type(*tokens: Any) -> ShapedArray:
    if wrong := [t for t in tokens if (t.shape, t.dtype) != (_TOKEN.shape, _TOKEN.dtype)]:
        raise TypeError(f"Arguments to after_all must be tokens, got {wrong[0].str_short()}")
    return _TOKEN


@after_all_p.def_batch
def _after_all_batch(axis: Any, args: Any, dims: Any) -> tuple[Any, Any]:
    # Members of a batch run together, so that one token stands for all.
    return create_token_p.bind(), None


def create_token(_: Any = None) -> Array:
    """A token that depends on nothing.

    Programs order their effects by themselves; tokens are for code that passes its own along.

    Args:
      _: ignored.

    Returns:
      An array without elements.

        >>> create_token().shape
        (0,)
    """
    return create_token_p.bind()


def after_all(*operands: Array) -> Array:
    """A token that depends on others.

    Args:
      operands: tokens.

    Returns:
      A token.

    Raises:
      TypeError: an argument is no token.

        >>> after_all(create_token(), create_token()).shape
        (0,)
    """
    return after_all_p.bind(*operands)
