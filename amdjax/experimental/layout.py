"""Layouts: how an array's elements follow each other in memory; and formats, with their shardings.

Arrays lie in row-major order here, whatever layout they are given.
"""

from amdjax.core.sharding import Format as Format, Layout as Layout

__all__ = ["Format", "Layout"]
