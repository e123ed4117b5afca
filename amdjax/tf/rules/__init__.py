"""Rules of operators, a family a file; importing this registers them."""

from __future__ import annotations

from . import (
    activations as activations,
    arithmetic as arithmetic,
    control as control,
    convolutions as convolutions,
    detection as detection,
    fused as fused,
    gathering as gathering,
    images as images,
    joining as joining,
    lists as lists,
    loops as loops,
    normalization as normalization,
    products as products,
    quantization as quantization,
    reductions as reductions,
    shapes as shapes,
    slicing as slicing,
)
