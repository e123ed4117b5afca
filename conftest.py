"""Names that examples take for granted: amdjax, its packages, NumPy and `jnp`."""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

# What was measured on a machine is none of the tests' business.
os.environ["AMDJAX_DB_PATH"] = "off"

# Importing it would make every later `import jax` of the process mean amdjax.
collect_ignore = ["amdjax/as_jax.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run an example where it is written, not again where another module offers it."""
    items[:] = [i for i in items if not isinstance(i, pytest.DoctestItem) or _written_here(i)]


def _written_here(item: pytest.DoctestItem) -> bool:
    module = item.dtest.globs["__name__"]
    value = item.dtest.globs.get(item.name.removeprefix(f"{module}."))
    return not inspect.isfunction(value) or inspect.unwrap(value).__module__ == module


@pytest.fixture(autouse=True)
def _doctest_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import numpy as np

    import amdjax
    import amdjax.numpy as jnp
    from amdjax import lax, nn, optim, random, rnn
    from amdjax.example_libraries import optimizers, stax
    from amdjax.experimental import sparse
    from amdjax.scipy import special
    from amdjax.scipy.stats import norm

    doctest_namespace.update(amdjax=amdjax, jnp=jnp, np=np, lax=lax, nn=nn, optim=optim)
    doctest_namespace.update(random=random, rnn=rnn, special=special, norm=norm)
    doctest_namespace.update(sparse=sparse, stax=stax, optimizers=optimizers)
