"""Writes tests/optim/recorded.npz: the updates that optax's optimizers make of given gradients.

    python tools/record_optax.py [NAME ...]    # these again; without, all

Twenty steps on a tree of odd shapes, in float32 and bfloat16. `tests/optim/trajectories.py` says
which optimizers, in words that both libraries understand.
"""

from __future__ import annotations

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "optim"))
import trajectories  # noqa: E402


def main() -> None:
    """Record all optimizers."""
    target = ROOT / "tests" / "optim" / "recorded.npz"
    names = sys.argv[1:] or trajectories.OPTIMIZERS
    found: dict[str, np.ndarray] = dict(np.load(target)) if sys.argv[1:] else {}
    for name in names:
        make = trajectories.OPTIMIZERS[name]
        for dtype in trajectories.DTYPES:
            optimizer = make(optax, jax.tree)
            rounds = trajectories.run(
                optimizer,
                optax,
                jax.tree.map,
                jnp.asarray,
                jax.jit,
                dtype,
                name in trajectories.NOT_FINITE,
            )
            for leaf, values in rounds.items():
                found[f"{name}/{dtype}/{leaf}"] = values
    np.savez_compressed(target, **found)
    print(
        f"{len(found)} arrays of {len(trajectories.OPTIMIZERS)} optimizers of {optax.__version__}"
    )


if __name__ == "__main__":
    main()
