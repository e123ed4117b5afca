"""What scans combine elements by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdjax.kernels.loops import precedes
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.arithmetic import Arithmetic
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.tile import Builder
from amdjax.tile.identities import identity


@dataclass(frozen=True)
class Combiner:
    """An associative operation on elements and its neutral element.

    Args:
      op: `add mul min max`, by the tile op or, for complex numbers, of both parts; or `logaddexp`.
      dtype: of the elements.
    """

    op: str
    dtype: str

    @staticmethod
    def of(ctx: ShapedContext) -> Combiner:
        """What the equation combines by."""
        return Combiner(ctx.rule.op, short_dtype(ctx.inputs[0].aval.dtype))

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("c")

    @property
    def tile_op(self) -> str | None:
        """The combiner of the tile language that does the same, if there is one."""
        return None if self.is_complex or self.op == "logaddexp" else self.op

    def identity(self, k: Builder) -> El:
        """The element that changes nothing."""
        part = part_dtype(self.dtype)
        computed = compute_dtype(part)
        if self.op == "logaddexp":
            x, imaginary = -math.inf, 0.0
        else:  # in the dtype that is computed in: narrower ones may have no infinity
            x = identity(self.op, part if part[0] in "iu" else computed)
            imaginary = 0 if self.op == "mul" else x
        parts = (x, imaginary) if self.is_complex else (x,)
        return El(self.dtype, *(k.const(computed, x) for x in parts))

    def __call__(self, k: Builder, left: El, right: El) -> El:
        b = Arithmetic(k)
        if self.op == "logaddexp":
            return _log_add_exp(b, left, right)
        if self.is_complex and self.op in ("min", "max"):
            first = precedes(b, left, right)
            return (
                b.select(first, right, left) if self.op == "max" else b.select(first, left, right)
            )
        return b.op(self.op, left, right)


def _log_add_exp(b: Arithmetic, x: El, y: El) -> El:
    """`log(exp(x) + exp(y))`; equal infinities stay what they are."""
    if not x.is_complex:
        delta = b.sub(x, y)
        same = b.eq(x, y)
        far = b.select(same, b.const(0, x.dtype), b.neg(b.abs(delta)))
        return b.add(b.max(x, y), b.log1p(b.exp(far)))
    greater = b.compare("ge", b.real(x), b.real(y))
    high, low = b.select(greater, x, y), b.select(greater, y, x)
    total = b.add(high, b.log1p(b.exp(b.sub(low, high))))
    empty = b.compare("eq", b.real(high), b.const(-math.inf, part_dtype(x.dtype)))
    return b.select(empty, high, _wrapped(b, total))


def _wrapped(b: Arithmetic, x: El) -> El:
    """The same logarithm with its imaginary part within half a turn."""
    part = part_dtype(x.dtype)
    turns = b.floor(b.add(b.mul(b.imag(x), b.const(0.5 / math.pi, part)), b.const(0.5, part)))
    return b.complex(b.real(x), b.sub(b.imag(x), b.mul(turns, b.const(2 * math.pi, part))))
