"""What the docstrings of `amdjax.random` say alike."""

from __future__ import annotations

from amdjax.core.docs import Phrases

PHRASES = Phrases(
    {
        "key": "a key.",
        "shape": "the shape of the result.",
        "dtype": "a float dtype; float32 by default, float64 under x64.",
        "out_sharding": "accepted for JAX's sake; of no effect.",
    }
)
