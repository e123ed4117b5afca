"""The tile language: small typed SSA programs over blocks.

A kernel is a program for one point of its grid. Its values are tiles: blocks of rank 0, 1 or 2 with
a static shape. On a CPU a tile becomes vector registers, on a GPU it is spread over a workgroup; a
kernel says neither. Memory is reached through parameters (flat buffers of one dtype) and an offset
plus a stride for each axis of the tile. Control flow is structured: `for`, `while`, `if`.

`Builder` writes kernels; `str(kernel)` prints them. Names load when they are first asked for: a
program whose plan is kept has kernels without programs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amdjax.tile import ops as ops, passes as passes
    from amdjax.tile.attributes import TOLD as TOLD, Side as Side
    from amdjax.tile.builder import Builder as Builder, Places as Places, Visible as Visible
    from amdjax.tile.inlining import inline as inline
    from amdjax.tile.ir import (
        Block as Block,
        Op as Op,
        TileError as TileError,
        Trait as Trait,
        Value as Value,
        highest_number as highest_number,
        lowest_number as lowest_number,
        nested_ops as nested_ops,
    )
    from amdjax.tile.kernel import Kernel as Kernel, listing as listing, origins as origins
    from amdjax.tile.ops.elementwise import (
        COMPARISONS as COMPARISONS,
        NARROW as NARROW,
        RELAXED as RELAXED,
    )
    from amdjax.tile.schedule import MatrixTiling as MatrixTiling, Schedule as Schedule
    from amdjax.tile.types import (
        FLOATS as FLOATS,
        SIGNED as SIGNED,
        UNSIGNED as UNSIGNED,
        Buffer as Buffer,
        Number as Number,
        TileType as TileType,
        itemsize as itemsize,
    )
    from amdjax.tile.verifier import verify as verify

__all__ = [
    "COMPARISONS", "FLOATS", "NARROW", "RELAXED", "SIGNED", "TOLD", "UNSIGNED", "Block", "Buffer",
    "Builder", "Kernel", "MatrixTiling", "Number", "Op", "Places", "Schedule", "Side", "TileError",
    "TileType", "Trait", "Value", "Visible", "highest_number", "inline", "itemsize", "listing",
    "lowest_number", "nested_ops", "ops", "origins", "passes", "verify",
]  # fmt: skip

_PLACES = {
    **dict.fromkeys(("TOLD", "Side"), "attributes"),
    **dict.fromkeys(("Builder", "Places", "Visible"), "builder"),
    "inline": "inlining",
    **dict.fromkeys(
        (
            "Block",
            "Op",
            "TileError",
            "Trait",
            "Value",
            "highest_number",
            "lowest_number",
            "nested_ops",
        ),
        "ir",
    ),
    **dict.fromkeys(("Kernel", "listing", "origins"), "kernel"),
    **dict.fromkeys(("COMPARISONS", "NARROW", "RELAXED"), "ops.elementwise"),
    **dict.fromkeys(("MatrixTiling", "Schedule"), "schedule"),
    **dict.fromkeys(
        ("FLOATS", "SIGNED", "UNSIGNED", "Buffer", "Number", "TileType", "itemsize"), "types"
    ),
    "verify": "verifier",
}


def __getattr__(name: str) -> Any:
    if name in ("ops", "passes"):
        return import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
