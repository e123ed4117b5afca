"""Scaled dot-product attention: its primitives, and their definition by other operations."""

from amdjax.lax.attention.definition import (
    composed_attention as composed_attention,
    composed_gradient as composed_gradient,
    composed_tangent as composed_tangent,
    dropped as dropped,
)
from amdjax.lax.attention.operands import Extents as Extents
from amdjax.lax.attention.primitives import (
    attention as attention,
    attention_gradient_p as attention_gradient_p,
    attention_p as attention_p,
    attention_tangent_p as attention_tangent_p,
)

__all__: list[str] = []
