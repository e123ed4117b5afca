"""Kept for libraries that import it; sharding is in `amdjax.sharding`."""
