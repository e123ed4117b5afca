"""What accumulators start from: the identity of each combiner."""

from __future__ import annotations

from amdjax.tile.types import FLOATS


def identity(combine: str, dtype: str, bits: int = 0) -> float | int | bool:
    """The number that changes nothing.

    Args:
      combine: `add mul min max and or xor`.
      dtype: of the elements.
      bits: of an element, where its dtype does not say how many it is computed in.
    """
    if combine in ("add", "or", "xor"):
        return -0.0 if dtype in FLOATS else 0  # so that a sum of minus zeros keeps its sign
    if combine == "mul":
        return 1
    if combine == "and":
        return -1
    if dtype in FLOATS:
        return float("inf" if combine == "min" else "-inf")
    if dtype == "bool":
        return combine == "min"
    bits = bits or int(dtype[1:])
    if dtype.startswith("i"):
        return (1 << (bits - 1)) - 1 if combine == "min" else -(1 << (bits - 1))
    return (1 << bits) - 1 if combine == "min" else 0
