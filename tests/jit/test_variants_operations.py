"""Operations compiled once for many sizes, edges of tiles among them, against single programs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import amdjax
from amdjax.core.dims import Dim, SymbolicScope
from amdjax.export import symbolic_shape
from amdjax.jit.variants import FIXED_UP_TO, MOST_CHOSEN
from tests.support.symbolic_functions import CONSTRAINTS, FUNCTIONS
from tests.support.turns import in_turn

#: Sizes of `a`, `b` and `t`: alike and not, around the widths of vectors and tiles.
SIZES = [
    (33, 17, 65), (16, 33, 5), (3, 2, 16), (2, 15, 33), (1, 3, 17), (15, 1, 4), (17, 16, 64),
    (64, 65, 15), (65, 64, 8), (16, 16, 16), (0, 3, 9), (2, 0, 15), (1, 1, 4),
]  # fmt: skip

#: What is compiled for each size, and why.
SINGLE: dict[str, str] = {}

#: How many variants more there are of what differs for more than one choice's sake, so that not
#: all of them are right for a size. Networks that sort, and factors of transforms, have steps for
#: each power of two; padding of windows depends on remainders.
MORE = {"window": 4, "sort": 2, "argsort": 4, "lexsort": 2, "topk": 6, "fft": 2}


def most_variants(specs):
    """How many variants there may be for `SIZES`.

    Sizes up to `FIXED_UP_TO` are fixed in a variant: of each pattern of them there are as many as
    are chosen among, and no more than sizes.
    """
    shapes = [symbolic_shape(spec, scope=SymbolicScope()) for spec in specs]
    names = {name for s in shapes for n in s if isinstance(n, Dim) for name in n.variables()}
    patterns = Counter(
        tuple(n if n <= FIXED_UP_TO else None for n in sizes)
        for sizes in {tuple(n for x, n in zip("abt", s) if x in names) for s in SIZES}
    )
    return sum(min(count, MOST_CHOSEN) for count in patterns.values())


def shapes_at(specs, sizes):
    shapes = [symbolic_shape(spec, scope=SymbolicScope()) for spec in specs]
    return [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]


@pytest.mark.parametrize("name", in_turn(FUNCTIONS, 8, "variants"))
def test_operations_at_all_sizes(name):
    function, *specs = FUNCTIONS[name]
    constraints = CONSTRAINTS if any("t" in spec for spec in specs) else ()
    many = amdjax.jit(function, symbolic=tuple(specs), constraints=constraints)
    rng = np.random.default_rng(0)
    for a, b, t in SIZES:
        shapes = shapes_at(specs, {"a": a, "b": b, "t": t})
        xs = [rng.uniform(0.5, 3.5, shape).astype("float32") for shape in shapes]
        if specs == ["a, a"]:
            xs = [x @ x.T + np.eye(a, dtype="float32") for x in xs]
        try:
            wanted = amdjax.tree.leaves(amdjax.jit(function)(*xs))
        except Exception as error:
            with pytest.raises(type(error)):
                many(*xs)
            continue
        for got, want in zip(amdjax.tree.leaves(many(*xs)), wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            scale = max(1.0, float(np.abs(want).max(initial=0)))
            message = f"{shapes}"
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * scale, err_msg=message)
    # Sizes that are 0, 1 or equal in a call are traced apart, the others symbolic.
    for variants in many._programs.variants.values():
        assert (variants.reason is None) == (name not in SINGLE), variants.reason
        assert len(variants.known) <= most_variants(specs) + MORE.get(name, 0), str(variants)
