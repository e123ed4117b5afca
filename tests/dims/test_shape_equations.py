"""What is made ready for many calls says of sizes what solving the equations anew does."""

import random

import pytest

from amdjax.core.dims import Dim, ShapeEquations, SymbolicScope, Unsolvable, max_dim, solve
from amdjax.core.dims.departures import Departures
from amdjax.core.dims.polynomial import evaluate, variables
from amdjax.export import symbolic_shape

SHAPES = [
    ["b, t"], ["b, 2*t + 1", "t"], ["b*t, b, t"], ["3, b", "b + 1"], ["5 - b, b"],
    ["b, floordiv(t, 2)", "t, mod(t, 4)"], ["max(b, t), b", "t"], ["3*b, 2*b"],
    ["b", "8 - 3*b, 4"], ["", "b"], ["2"],
]  # fmt: skip
#: No axis tells a variable by itself.
ENTANGLED = [["2*t + b, b"], ["b*t", "b"], ["b*t", "b + t"]]
CONSTRAINTS = [[], ["b >= 2"], ["mod(t, 4) == 0", "t <= 12"], ["t >= b"], ["t == 2*b"]]


def solved(shapes, given, scope):
    """By the equations one by one."""
    axes = [pair for dims, sizes in zip(shapes, given) for pair in zip(dims, sizes)]
    if any(dim != size for dim, size in axes if not isinstance(dim, Dim)):
        return None
    try:
        sizes = solve([pair for pair in axes if isinstance(pair[0], Dim)])
        return None if scope.violated(sizes) else sizes
    except (Unsolvable, KeyError):
        return None


@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("texts", SHAPES + ENTANGLED, ids=str)
def test_sizes_that_shapes_tell(texts, constraints):
    scope = SymbolicScope(constraints)
    shapes = [symbolic_shape(text, scope=scope) for text in texts]
    equations = ShapeEquations(shapes, scope)
    rng = random.Random(str(texts))
    ready = texts not in ENTANGLED and not constraints
    for _ in range(150):
        b, t = rng.randint(0, 5), rng.randint(0, 13)
        at = [tuple(_at(n, {"b": b, "t": t}) for n in shape) for shape in shapes]
        other = [tuple(n + rng.choice((0, 0, 0, 1, -1)) for n in shape) for shape in at]
        for given in (at, other):
            found, expected = equations.solved(given), solved(shapes, given, scope)
            assert found == expected or (found is None and not ready), (given, found, expected)


def _at(n, sizes):
    return n.evaluate(sizes) if isinstance(n, Dim) else n


def test_sizes_of_which_nothing_is_said():
    scope = SymbolicScope()
    (b,) = symbolic_shape("b", scope=scope)
    equations = ShapeEquations([(None, b), (None,), ()], scope)
    assert equations.solved([(7, 3), (9,), ()]) == {"b": 3}
    assert equations.solved([(7, b), (9,), ()]) is None  # no number: `solve` knows more
    assert ShapeEquations([(None,)], scope).solved([(4,)]) == {}
    with pytest.raises(TypeError):
        equations.solved(None)


def test_what_is_apart_is_found_as_one_by_one():
    rng = random.Random(3)
    for _ in range(60):
        b, t = symbolic_shape("b, t", constraints=rng.choice(CONSTRAINTS[:4]))
        scope = next(n.scope for n in (b, t) if isinstance(n, Dim))
        known = rng.sample(
            [
                lambda: b == t,
                lambda: b == 1,
                lambda: b + t == 7,
                lambda: t > 3,
                lambda: b * t == 12,
                lambda: max_dim(b, t) == 4,
                lambda: t // 3 == 2,
            ],
            3,
        )
        for compare in known:
            compare()
            if rng.random() < 0.3:
                scope.assume((b - t + 2).polynomial, ">=")
            for sizes in ({"b": b, "t": t} for b in range(5) for t in range(6)):
                assert scope.is_apart(sizes) == (_first(scope, sizes) is not None), sizes
    assert Departures((), (), {}).first({}) is None


def _first(scope, sizes):
    ranges = ((name, *scope.range(name)) for name in sizes)
    if any(not least <= sizes[name] <= most for name, least, most in ranges):
        return True
    facts = [(a, lambda n: n < 0) for a in scope.assumed]
    facts += [(a, lambda n: n == 0) for a in scope.undecided]
    return next(
        (a for a, broken in facts
         if variables(a) <= sizes.keys() and broken(evaluate(a, sizes.__getitem__))),
        None,
    )  # fmt: skip


def test_divisors_that_an_assumption_keeps_from_zero():
    """Where sizes break what was assumed, that is found before anything is divided."""
    (t,) = symbolic_shape("t")
    t.scope.assume((t - 2).polynomial, ">=")
    assert (12 // (t - 1)) != 3
    assert t.scope.is_apart({"t": 1}) and t.scope.is_apart({"t": 5})
    assert not t.scope.is_apart({"t": 3})
