"""Kinds of memory that `device_put` takes."""

from amdjax.core.sharding import Space as Space

__all__ = ["Space"]
