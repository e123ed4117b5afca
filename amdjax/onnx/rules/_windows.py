"""Windows of convolutions and pools as the standard describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
        margins = [_same(n, s, r, auto_pad) for n, s, r in zip(space, steps, reach)]
    else:
        raise OnnxError(
            f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {auto_pad!r}"
        )
    return Windows(list(size), steps, apart, margins)


def _same(n: int, stride: int, reach: int, auto_pad: str) -> tuple[int, int]:
    total = max((-(-n // stride) - 1) * stride + reach - n, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


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
