"""Recompute instead of store."""

from amdjax import checkpoint_policies
from amdjax.transforms.remat import checkpoint, checkpoint_name, remat

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]
