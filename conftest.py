"""Names that doctests of the NumPy-shaped modules take for granted."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run an example once, though packages offer functions under names of their own too."""
    seen = set()
    for item in list(items):
        if isinstance(item, pytest.DoctestItem):
            if item.dtest.docstring in seen:
                items.remove(item)
            seen.add(item.dtest.docstring)


@pytest.fixture(autouse=True)
def _doctest_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import amdjax
    import amdjax.numpy as jnp
    from amdjax import nn
    from amdjax.scipy import special
    from amdjax.scipy.stats import norm

    doctest_namespace.update(amdjax=amdjax, jnp=jnp, nn=nn, special=special, norm=norm)
