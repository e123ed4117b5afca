"""Lets the parser of printed programs read the structured parameters of primitives."""

from amdjax.core.jaxpr import register_param_type
from amdjax.core.precision import DotAlgorithm, DotAlgorithmPreset, Precision
from amdjax.core.sharding import ArrayCopySemantics, Space
from amdjax.lax.conv import ConvDimensionNumbers
from amdjax.lax.fft import FftType
from amdjax.lax.index_vectors import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from amdjax.lax.ragged_dot import RaggedDotDimensionNumbers
from amdjax.lax.rng import RandomAlgorithm
from amdjax.lax.rounding import RoundingMethod
from amdjax.lax.windows import Window

for _cls in (
    ArrayCopySemantics,
    ConvDimensionNumbers,
    DotAlgorithm,
    DotAlgorithmPreset,
    FftType,
    GatherDimensionNumbers,
    GatherScatterMode,
    Precision,
    RaggedDotDimensionNumbers,
    RandomAlgorithm,
    RoundingMethod,
    ScatterDimensionNumbers,
    Space,
    Window,
):
    register_param_type(_cls)
