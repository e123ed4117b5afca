"""The operations of the tile IR, by family."""

from amdjax.tile.ops.combine import Cumulative, Reduce, ReduceBy
from amdjax.tile.ops.control import For, If, Once, Shift, While
from amdjax.tile.ops.elementwise import (
    COMPARISONS,
    ELEMENTWISE,
    NARROW,
    RELAXED,
    Add,
    And,
    Bitcast,
    Comparison,
    Const,
    Convert,
    ConvertClamped,
    Div,
    Elementwise,
    Ge,
    Gt,
    Le,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Neg,
    Not,
    Or,
    Rem,
    Select,
    Shl,
    ShrArithmetic,
    ShrLogical,
    Sub,
    Xor,
)
from amdjax.tile.ops.memory import (
    Arrive,
    Atomic,
    GridBarrier,
    Load,
    LoadAt,
    LoadRows,
    Prefetch,
    ProgramBarrier,
    Store,
    StoreAt,
)
from amdjax.tile.ops.product import AmxProduct, Collect, Contract, Dot, DotWords, ScratchProduct
from amdjax.tile.ops.shape import (
    Broadcast,
    Compress,
    Expand,
    Extract,
    Interleave,
    Iota,
    ProgramId,
    Reshape,
    Shuffle,
    Size,
    Transpose,
)

__all__ = [
    "COMPARISONS", "ELEMENTWISE", "NARROW", "RELAXED", "Add", "AmxProduct", "And", "Arrive",
    "Atomic", "Bitcast", "Broadcast", "Collect", "Comparison", "Compress", "Const", "Contract",
    "Convert", "ConvertClamped", "Cumulative", "Div", "Dot", "DotWords", "Elementwise", "Expand",
    "Extract", "For", "Ge", "GridBarrier", "Gt", "If", "Interleave", "Iota", "Le", "Load", "LoadAt",
    "LoadRows", "Lt", "Max", "Min", "Mul", "Ne", "Neg", "Not", "Once", "Or", "Prefetch",
    "ProgramBarrier", "ProgramId", "Reduce", "ReduceBy", "Rem", "Reshape", "ScratchProduct",
    "Select", "Shift", "Shl", "ShrArithmetic", "ShrLogical", "Shuffle", "Size", "Store", "StoreAt",
    "Sub", "Transpose", "While", "Xor",
]  # fmt: skip
