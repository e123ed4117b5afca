"""Tracebacks show the user's frames only, in whatever way an error leaves amdjax."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import traceback

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, optim, random
from amdjax.core.tracebacks import PACKAGE_DIR
from amdjax.scipy import special

X, V = jnp.ones((2, 3)), jnp.arange(4.0)


def user(x):
    return x + V


CASES = {
    "operator": lambda: X + V,
    "reflected operator": lambda: np.ones((2, 3)) + V,
    "comparison": lambda: X < V,
    "matmul": lambda: X @ X,
    "method": lambda: X.sum(axis=5),
    "property": lambda: V.mT,
    "index": lambda: X[1.5],
    "update": lambda: X.at[0].set(V),
    "attribute": lambda: X.nothing,
    "conversion": lambda: float(X),
    "iteration": lambda: iter(jnp.float32(1)),
    "ufunc": lambda: jnp.add(X, V),
    "ufunc method": lambda: jnp.add.reduce(X, axis=9),
    "function": lambda: jnp.concatenate([X, V]),
    "scalar type": lambda: jnp.float32("a"),
    "submodule": lambda: jnp.linalg.inv(X),
    "primitive": lambda: lax.add(X, V),
    "library below": lambda: jnp.einsum("ij->ii", X),
    "custom_jvp": lambda: nn.relu("a"),
    "layer": lambda: nn.Dense(3, 4, key=random.key(0))(V),
    "initializer": lambda: nn.initializers.he_normal()(random.key(0), (3,)),
    "optimizer": lambda: optim.adam(1e-3).update({"a": V}, 3, None),
    "device": lambda: amdjax.device.device_put(object()),
    "special": lambda: special.gamma("a"),
    "random": lambda: random.normal(3.5),
    "jit": lambda: amdjax.jit(user)(X),
    "grad": lambda: amdjax.grad(lambda x: user(x).sum())(X),
    "vmap": lambda: amdjax.vmap(user)(jnp.ones((3, 2))),
    "scan": lambda: lax.scan(lambda c, x: (user(c), x), X, None, length=2),
    "pull-back": lambda: amdjax.vjp(lambda x: x, V)[1](X),
    "vectorize": lambda: jnp.vectorize(lambda a: a, signature="(n)->(n)")(3.0),
    "trees": lambda: amdjax.tree.map(lambda a, b: a, [1], [2, 3]),
    "config": lambda: amdjax.config.update("nothing", 1),
    "module attribute": lambda: amdjax.nothing,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_the_users_frames(case):
    with pytest.raises(Exception) as caught:
        CASES[case]()
    error = caught.value
    while error is not None:
        files = {f.filename for f in traceback.extract_tb(error.__traceback__)}
        assert files <= {__file__}
        error = error.__cause__ or error.__context__


def test_the_users_function_is_shown_inside_a_transform():
    with pytest.raises(ValueError) as caught:
        amdjax.jit(amdjax.grad(lambda x: user(x).sum()))(X)
    assert "user" in {f.name for f in traceback.extract_tb(caught.value.__traceback__)}


PROGRAM = "import amdjax.numpy as jnp\njnp.ones((2, 3)) + jnp.ones(4)\n"


@pytest.mark.parametrize("mode,shown", [("filtered", False), ("full", True)])
def test_first_operation_of_a_process(mode, shown):
    """Operators are installed at their first use; and all frames appear on request."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "AMDJAX_TRACEBACK": mode},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Incompatible shapes" in run.stderr
    assert (PACKAGE_DIR in run.stderr) == shown


def test_functions_keep_name_signature_and_pickle():
    for fun in (jnp.concatenate, lax.add, nn.gelu, random.normal, special.gamma, amdjax.grad):
        assert inspect.signature(fun) == inspect.signature(inspect.unwrap(fun))
        assert pickle.loads(pickle.dumps(fun)) is fun
        assert fun.__doc__
    assert jnp.divide is jnp.true_divide
