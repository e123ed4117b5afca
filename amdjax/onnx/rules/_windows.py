"""Windows of convolutions and pools as the standard describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from amdjax import lax

from ..errors import OnnxError


class Windows(NamedTuple):
    """Windows over spatial axes; each entry has one value an axis."""

    size: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]


def windows(
    space: Sequence[Any],
    size: Sequence[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: str,
) -> Windows:
    """The windows that a node's attributes describe."""
    rank = len(space)
    if len(size) != rank:
        raise OnnxError(f"kernel_shape {list(size)} does not have {rank} axes, as its input has")
    steps = list(strides or [1] * rank)
    apart = list(dilations or [1] * rank)
    reach = [d * (k - 1) + 1 for k, d in zip(size, apart)]
    if auto_pad in ("NOTSET", ""):
        flat = list(pads or [0] * 2 * rank)
        margins = list(zip(flat[:rank], flat[rank:]))
    elif auto_pad == "VALID":
        margins = [(0, 0)] * rank
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        margins = lax.padtype_to_pads(space, reach, steps, auto_pad.removesuffix("_UPPER"))
    else:
        raise OnnxError(
            f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {auto_pad!r}"
        )
    return Windows(list(size), steps, apart, margins)


def rounded_up(space: Sequence[int], w: Windows) -> Windows:
    """The windows with one more at the end of each axis where some elements are left over.

    It begins before the end of the input, or in the padding before it.
    """
    pads = []
    for n, k, s, d, (low, high) in zip(space, w.size, w.strides, w.dilations, w.pads):
        reach = d * (k - 1) + 1
        count = -(-(n + low + high - reach) // s) + 1
        if (count - 1) * s >= n + low:
            count -= 1
        pads.append((low, max((count - 1) * s + reach - n - low, high)))
    return w._replace(pads=pads)
