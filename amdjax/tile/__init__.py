"""The tile language: small typed SSA programs over blocks.

A kernel is a program for one point of its grid. Its values are tiles: blocks of rank 0, 1 or 2 with
a static shape. On a CPU a tile becomes vector registers, on a GPU it is spread over a workgroup; a
kernel says neither. Memory is reached through parameters (flat buffers of one dtype) and an offset
plus a stride for each axis of the tile. Control flow is structured: `for`, `while`, `if`.

`Builder` writes kernels; `str(kernel)` prints them.
"""

from amdjax.tile import ops, passes
from amdjax.tile.attributes import TOLD, Side
from amdjax.tile.builder import Builder, Places, Visible
from amdjax.tile.inlining import inline
from amdjax.tile.ir import (
    Block,
    Op,
    TileError,
    Trait,
    Value,
    highest_number,
    lowest_number,
    nested_ops,
)
from amdjax.tile.kernel import Kernel, listing, origins
from amdjax.tile.ops.elementwise import COMPARISONS, NARROW
from amdjax.tile.schedule import MatrixTiling, Schedule
from amdjax.tile.types import FLOATS, SIGNED, UNSIGNED, Buffer, Number, TileType, itemsize
from amdjax.tile.verify import verify

__all__ = [
    "COMPARISONS", "FLOATS", "NARROW", "SIGNED", "TOLD", "UNSIGNED", "Block", "Buffer", "Builder",
    "Kernel", "MatrixTiling", "Number", "Op", "Places", "Schedule", "Side", "TileError", "TileType",
    "Trait", "Value", "Visible", "highest_number", "inline", "itemsize", "listing",
    "lowest_number", "nested_ops", "ops", "origins", "passes", "verify",
]  # fmt: skip
