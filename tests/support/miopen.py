"""MIOpen's entry points by name, and what tests of those that are mapped here share.

Those of `miopen.txt` are what MIOpen's public header exports, without their `miopen`.
"""

import fnmatch
import re
from pathlib import Path

import numpy as np

import amdjax
import amdjax.numpy as jnp

PAGE = Path(__file__).parents[2] / "docs" / "miopen.md"
ROWS = [line.split("|")[1:3] for line in PAGE.read_text().splitlines() if line.startswith("| `")]

NAMES = Path(__file__).with_name("miopen.txt").read_text().split()

STEP = 1e-5


def rows_of(entry):
    """What the rows of the page say that name an entry."""
    patterns = ((re.findall(r"`([^`]*)`", left), right) for left, right in ROWS)
    return [right for left, right in patterns if any(fnmatch.fnmatchcase(entry, p) for p in left)]


def table():
    """A list of cases, and what adds a function to it as the test of entries of MIOpen.

    `by` holds names that the rows of these entries have, and that the function calls.
    """
    cases = []

    def covers(*entries, by=()):
        def mark(function):
            cases.append((function, entries, by))
            return function

        return mark

    return cases, covers


def check_names(cases):
    """Whether the page names what cases call."""
    for function, entries, names in cases:
        rows = [rows_of(entry) for entry in entries]
        assert all(rows), f"{function.__name__}: {entries}"
        text = " ".join(row for found in rows for row in found)
        assert not [n for n in names if n not in text], function.__name__


def draw(*shape, dtype="float32", seed=0):
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.dtype(dtype))


def wide(x):
    x = np.asarray(x)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def close(found, expected, tolerance=2e-5):
    """Whether a result is what is expected, by its largest element."""
    found, expected = wide(found), np.asarray(expected)
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def check(f, define, *args, tolerance=2e-5):
    """Values, also under `jit` and `vmap`, and gradients of all floating arguments.

    Gradients are compared with differences of the definition, in a direction of each argument.
    """
    expected = define(*map(wide, args))
    close(f(*args), expected, tolerance)
    both = amdjax.jit(amdjax.vmap(f))(*(jnp.stack([x, x]) for x in map(jnp.asarray, args)))
    for row in both:
        close(row, expected, tolerance)
    out, pull = amdjax.vjp(f, *args)
    ct = draw(*out.shape, dtype=out.dtype, seed=7)
    for i, (x, gradient) in enumerate(zip(args, pull(jnp.asarray(ct)), strict=True)):
        if np.asarray(x).dtype.kind in "biu":
            continue
        assert gradient.dtype == x.dtype and gradient.shape == np.shape(x)
        d = wide(draw(*np.shape(x), seed=9))
        moved = [
            define(*(wide(y) + s * STEP * d if j == i else wide(y) for j, y in enumerate(args)))
            for s in (1, -1)
        ]
        terms = wide(ct) * (moved[0] - moved[1]) / (2 * STEP)
        scale = max(1.0, float(np.abs(terms).sum()))
        found = float((wide(gradient) * d).sum())
        assert abs(found - terms.sum()) < 5 * tolerance * scale, (i, found, terms.sum())
