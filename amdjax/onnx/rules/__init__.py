"""Rules of operators, a file a family; `amdjax.onnx.registry` tells what a rule is."""

from amdjax.onnx.rules import (
    activations as activations,
    arithmetic as arithmetic,
    contrib as contrib,
    contrib_attention as contrib_attention,
    control as control,
    convolutions as convolutions,
    data as data,
    images as images,
    indexing as indexing,
    language as language,
    norms as norms,
    pooling as pooling,
    quantization as quantization,
    randomness as randomness,
    recurrent as recurrent,
    reductions as reductions,
    sequences as sequences,
    shapes as shapes,
    signal as signal,
)
