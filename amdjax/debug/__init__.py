"""Looking at values, and where they lie, while a compiled program runs."""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.effects import DebugEffect as DebugEffect, OrderedDebugEffect as OrderedDebugEffect
from amdjax.debug.printing import print as print
from amdjax.debug.prompt import breakpoint as breakpoint
from amdjax.debug.shardings import (
    inspect_array_sharding as inspect_array_sharding,
    visualize_array_sharding as visualize_array_sharding,
    visualize_sharding as visualize_sharding,
)
from amdjax.transforms.callbacks import debug_callback as callback

__all__ = [
    "DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "inspect_array_sharding",
    "print", "visualize_array_sharding", "visualize_sharding",
]  # fmt: skip

_public_surface(globals())
