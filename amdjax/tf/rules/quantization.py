"""Values rounded as integers of few bits hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax

from ..nodes import Node
from ..registry import rule


@rule("FakeQuantWithMinMaxArgs", only_device=True)
def fake_quant_of_attributes(node: Node, inputs: Any) -> Any:
    low, high = (np.float32(node.real(n, v)) for n, v in (("min", -6.0), ("max", 6.0)))
    return _rounded(node, inputs, jnp.asarray(low), jnp.asarray(high))


@rule("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", only_device=True)
def fake_quant(node: Node, inputs: Any, min: Any, max: Any) -> Any:
    expected = inputs.shape[-1:] if node.op.endswith("PerChannel") else ()
    if min.shape != expected or max.shape != expected:
        raise node.error(f"min has shape {min.shape}, max {max.shape}, expected {expected}")
    return _rounded(node, inputs, min, max)


def _rounded(node: Node, x: Any, low: Any, high: Any) -> Any:
    """Values on a grid of which 0 is a point; the gradient is that of clipping."""
    bits = node.integer("num_bits", 8)
    if not 2 <= bits <= 16:
        raise node.error(f"num_bits must be 2 to 16, got {bits}")
    least, most = np.float32(node.flag("narrow_range")), np.float32(2**bits - 1)
    is_empty = (low == 0) & (high == 0)
    scale = jnp.where(is_empty, np.float32(1), (high - low) / (most - least))
    zero = jnp.clip(jnp.floor(least - low / scale + np.float32(0.5)), least, most)
    start, end = (least - zero) * scale, (most - zero) * scale
    clipped = jnp.clip(x, start, end)
    made = jnp.floor((clipped - start) / scale + np.float32(0.5)) * scale + start
    made = clipped + lax.stop_gradient(made - clipped)
    return jnp.where(is_empty, np.float32(0), made)
