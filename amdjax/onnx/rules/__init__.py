"""Rules of operators, a file a family; `amdjax.onnx.registry` tells what a rule is."""

from amdjax.onnx.rules import (
    activations as activations,
    arithmetic as arithmetic,
    convolutions as convolutions,
    data as data,
    images as images,
    indexing as indexing,
    norms as norms,
    pooling as pooling,
    randomness as randomness,
    reductions as reductions,
    shapes as shapes,
    signal as signal,
)
