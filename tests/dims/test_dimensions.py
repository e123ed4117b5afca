"""Symbolic dimensions: arithmetic, comparison, constraints, text; against the sizes themselves."""

import itertools
import math
import random

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.dims import Dim, SymbolicScope, compiled, max_dim, min_dim
from amdjax.core.dims.linear import Contradiction, minimum
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.dims.polynomial import Operation, evaluate, of, plus, scale, text as text_of
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.export import symbolic_args_specs, symbolic_shape

CONSTRAINTS = (
    "a >= 0", "a >= 2*b", "mod(a, 4) == 0", "mod(b, 6) == 3", "b <= 9", "c >= a + b", "a <= 40",
    "floordiv(c, 3) >= 2", "c == 2*b + 1", "mod(c, 2) == 1", "max(a, b) <= 12", "a*b <= 50",
    "a < c",
)  # fmt: skip
NAMES = {"mod": lambda a, b: a % b, "floordiv": lambda a, b: a // b, "max": max, "min": min}


def points(rng, constraints):
    """Sizes that satisfy the constraints."""
    found = []
    for _ in range(1500):
        sizes = {name: rng.choice([rng.randint(0, 12), rng.randint(0, 60)]) for name in "abc"}
        least = all(sizes[name] >= (name != "a" or "a >= 0" not in constraints) for name in "abc")
        if least and all(eval(c, NAMES, dict(sizes)) for c in constraints):
            found.append(sizes)
    return found[:40]


def expression(rng, depth):
    if not depth or rng.random() < 0.15:
        return rng.choice("abc") if rng.random() < 0.7 else str(rng.randint(0, 9))
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    kind = rng.choice(["+", "-", "*", "//", "%", "max", "min", "+", "-"])
    if kind in ("max", "min"):
        return f"{kind}({left}, {right})"
    if kind in ("//", "%"):
        right = rng.choice(["1", "2", "3", "4", "6", "8", "(-3)", "b", "c"])
    return f"({left} {kind} {right})"


def value(text, sizes):
    return eval(text, NAMES, dict(sizes))


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(seed):
    """Values, bounds, printed forms and every answer to a comparison hold for the sizes."""
    rng = random.Random(seed)
    decided = 0
    for _ in range(40):
        constraints = rng.sample(CONSTRAINTS, rng.randint(0, 3))
        sizes = points(rng, constraints)
        if not sizes:
            continue
        texts = [expression(rng, rng.randint(1, 3)) for _ in range(2)]
        try:
            scope, dims = _of_texts(texts, constraints)
        except InconclusiveDimensionOperation:
            continue
        for text, dim in zip(texts, dims):
            _check_value(scope, text, dim, sizes)
        for symbol in ("<", "<=", ">", ">=", "==", "!="):
            scope, dims = _of_texts(texts, constraints)
            try:
                answer = eval(f"x {symbol} y", {"x": dims[0], "y": dims[1]})
            except InconclusiveDimensionOperation:
                continue
            decided += 1
            for one in sizes:
                if scope.is_apart(one):
                    continue  # which is noted where it depends on the sizes
                found = {name: value(text, one) for name, text in zip("xy", texts)}
                assert eval(f"x {symbol} y", found) is answer, (constraints, texts, symbol, one)
    assert decided > 40


@pytest.mark.parametrize("seed", range(4))
def test_what_spares_proofs_changes_no_answer(seed, monkeypatch):
    """Sizes that are examples of both answers, and bounds that sizes are known to attain."""
    rng, several = random.Random(seed), 0
    for _ in range(10):
        constraints = rng.sample(CONSTRAINTS, rng.randint(0, 2))
        texts = [expression(rng, rng.randint(1, 3)) for _ in range(2)]
        if not points(rng, constraints):
            continue
        spared = _answers(texts, constraints)
        with monkeypatch.context() as without:
            without.setattr(SymbolicScope, "examples", lambda scope, a: ())
            without.setattr(SymbolicScope, "_is_attained", lambda scope, a, bounds: False)
            assert spared == _answers(texts, constraints), (constraints, texts)
        several += len(spared) > 1
    assert several > 4


def _answers(texts, constraints):
    """All that is told of two dimensions: text, bounds, how they compare, and what was noted."""
    told = []
    for symbol in ("<", "<=", ">", ">=", "==", "!="):
        try:
            scope, dims = _of_texts(texts, constraints)
            told += [(str(x), isinstance(x, Dim) and scope.bounds(x.polynomial)) for x in dims]
            told.append(eval(f"x {symbol} y", {"x": dims[0], "y": dims[1]}))
            told += [*map(text_of, scope.undecided), *map(text_of, scope.assumed)]
        except InconclusiveDimensionOperation:
            told.append("inconclusive")
    return told


def _of_texts(texts, constraints):
    """A new scope, and dimensions in it."""
    a, b, c = symbolic_shape("a, b, c", constraints=constraints)
    names = {"a": a, "b": b, "c": c, "max": max_dim, "min": min_dim}
    scope = next(x.scope for x in (a, b, c) if isinstance(x, Dim))
    return scope, [eval(text, dict(names)) for text in texts]


def _check_value(scope, text, dim, sizes):
    if not isinstance(dim, Dim):
        assert all(value(text, one) == dim for one in sizes), text
        return
    least, most = scope.bounds(dim.polynomial)
    for one in sizes:
        expected = value(text, one)
        assert dim.evaluate(one) == expected, (text, dim, one)
        assert least is None or least <= expected, (text, dim, one)
        assert most is None or expected <= most, (text, dim, one)
    assert parse_dimension(repr(dim), scope) == dim.polynomial


def test_linear_programs():
    rng = random.Random(0)
    outcomes = set()
    for _ in range(300):
        count = rng.randint(1, 5)
        form = lambda: {f"x{i}": c for i in range(count) if (c := rng.randint(-3, 3))}
        rows = [(form(), rng.randint(-6, 6)) for _ in range(rng.randint(1, 9))]
        objective = form()
        matrix = np.array([[-row.get(f"x{i}", 0) for i in range(count)] for row, _ in rows])
        best = scipy.optimize.linprog(
            [objective.get(f"x{i}", 0) for i in range(count)],
            A_ub=matrix, b_ub=[constant for _, constant in rows], bounds=(None, None),
        )  # fmt: skip
        try:
            found = minimum(objective, rows)
        except Contradiction:
            found = "contradiction"
        outcomes.add(best.status)
        if best.status == 0:
            assert found == math.ceil(best.fun - 1e-6)
        else:  # none satisfy them, which an objective without a bound does not show; or no bound
            assert found is None or found == "contradiction"
    assert outcomes == {0, 2, 3}


@pytest.mark.parametrize(
    "text, printed",
    [
        ("a*b + 2*a - 3", "a*b + 2*a - 3"),
        ("(a*b) // b", "a"),
        ("(a*b + a) // a", "b + 1"),
        ("2*a // 2", "a"),
        ("(3*a + 7) // 2", "a + floordiv(a + 1, 2) + 3"),
        ("(a // 2) // 3", "floordiv(a, 6)"),
        ("(4*a + 2) % 2", "0"),
        ("2 - a", "- a + 2"),
        ("a^2 - a**2 + 1", "1"),
        ("max(a, a + 1, b)", "max(a + 1, b)"),
        ("min(a, max(a, b))", "a"),
        ("non_negative(a - 3)", "max(a - 3, 0)"),
        ("(a*a - b*b) // (a + b)", "a - b"),
        ("(a - 1) // a", "0"),
        ("(a*b - 1) % b", "b - 1"),
        ("(2*a - b) // a", "floordiv(- b, a) + 2"),
    ],
)
def test_normal_forms(text, printed):
    assert str(symbolic_shape(text)[0]) == printed


def test_what_follows_is_known():
    a, b, t = symbolic_shape("a, b, t", constraints=["a >= 2*b", "mod(t, 8) == 0", "b <= 10"])
    assert a >= b and a > b and a >= 2 and b < 11
    assert t % 4 == 0 and t // 4 * 4 == t and t >= 8 and t != 12
    assert a * b >= b and (a // 2) * 2 <= a and 2 * (a // 2) + a % 2 == a
    assert b * t // (4 * b) * 4 == t and b * t % (8 * b) == 0 and a * b // (a * t) == b // t
    assert -a % 4 + a == (a + -a % 4) // 4 * 4 and b * a % (t // 4 * b) == a % (t // 4) * b
    assert t // 8 * 2 == t // 4 and a * t % (t // 8) == 0
    assert max_dim(a - 2, 0) == a - min_dim(a, 2) and max_dim(a, t) + min_dim(t, a) == a + t
    assert max_dim(max_dim(a - 2, 0) - min_dim(a, 2), 0) + min_dim(a, 2) <= a
    assert not a.scope.undecided
    assert max_dim(a, t) >= t and min_dim(a, t) - 1 < a
    assert hash(2 * a - a) == hash(a) and (a + b) * (a - b) == a * a - b * b


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda a, b: a > b, ["'a' > 'b'", "constraint 'a > b' or 'a <= b'"]),
        (lambda a, b: max(a, b), ["'b' > 'a'", "max_dim", "Asked at", "test_dimensions.py"]),
        (lambda a, b: a > 300, ["'a' > '300'", "constraint 'a > 300' or 'a <= 300'", "buckets"]),
        (lambda a, b: a // (b - 20), ["'b - 20', which may be zero", "'b - 20 >= 1'"]),
        (lambda a, b: int(a), ["'a' used in a context that requires a constant"]),
        (lambda a, b: range(a), ["requires a constant"]),
        (lambda a, b: a**b, ["'a' to the power", "constant powers"]),
        (lambda a, b: a**-1, ["'a' has no value here", "traced"]),
    ],
)
def test_inconclusive(make, words):
    a, b = symbolic_shape("a, b")
    with pytest.raises(InconclusiveDimensionOperation) as error:
        make(a, b)
    assert all(word in str(error.value) for word in words), error.value


def test_what_the_message_names_is_where_it_says():
    a, b = symbolic_shape("a, b")
    assert str(amdjax.core.max_dim(a, b)) == "max(a, b)"
    assert amdjax.core.min_dim(a, b) == a + b - amdjax.core.max_dim(b, a)


@pytest.mark.parametrize(
    "constraints, words",
    [
        (["a >= 5", "a <= 3"], "no sizes satisfy 'a >= 5', 'a <= 3'"),
        (["mod(a, 2) == 1", "mod(a, 4) == 0"], "no sizes satisfy"),
        (["a == a + 1"], "no sizes satisfy"),
        (["a"], "'a' is none: write two dimensions"),
        (["a >= b >= 2"], "is none"),
        ([3], "3 is none"),
        (["a >= sin(b)"], "is not understood"),
        (["a >= 1.5"], "is not understood"),
        ("a >= 1", "must be a sequence of strings"),
    ],
)
def test_constraints_that_cannot_be(constraints, words):
    with pytest.raises(ValueError) as error:
        SymbolicScope(constraints)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "spec, like, words",
    [
        ("a b", None, "is no expression"),
        ("a, , b", None, "nothing stands between"),
        ("(a, b", None, "parentheses do not match"),
        ("a.x", None, "is not understood"),
        ("__import__('os')", None, "is not understood"),
        ("mod(a)", None, "mod takes 2 arguments, got 1"),
        ("+".join("a" * 400), None, "nested too deep"),
        ("a, _", None, "needs like="),
        ("a, _", (2, None), "needs like="),
        ("a, ...", None, "needs like="),
        ("..., a", (2, 3), "must be the last"),
        ("a", (2, 3), "1 dimensions, like=(2, 3) has 2"),
        (3, None, "must be a string"),
    ],
)
def test_text_that_is_no_shape(spec, like, words):
    with pytest.raises(ValueError) as error:
        symbolic_shape(spec, like=like)
    assert words in str(error.value)


def test_shapes():
    assert symbolic_shape("") == () and symbolic_shape("2, 3") == (2, 3)
    assert str(symbolic_shape("(a, max(a, b), 3)")) == "(a, max(a, b), 3)"
    assert str(symbolic_shape("a, _, ...", like=(None, 7, 8, 9))) == "(a, 7, 8, 9)"
    args = {"x": np.zeros((2, 8)), "w": np.zeros((8, 4), np.int32)}
    specs = symbolic_args_specs(args, {"x": "b, ...", "w": None})
    assert str(specs["x"].shape) == "(b, 8)" and specs["w"].shape == (8, 4)
    assert specs["w"].dtype == np.int32


def test_signs_of_quotients_are_those_of_their_dividends():
    """Also by divisors that are symbolic, of which no linear program knows."""
    (n,) = symbolic_shape("n")
    up = max_dim(n - 2, min_dim(n, 2)) - max_dim(n - 2, 0)  # at least 0, in each case of the maxima
    for q in (up // n, (up - 1) // n + 1, (up - n) // (n // 2 + 1) + 2):
        assert q >= 0 and not q < 0 and not -q > 0 and -q <= 0
        assert 3 * q + 2 >= 0 and -2 * q <= 1 and not 3 * q + 1 < 0
    below = (-1 - up) // n
    assert below < 0 and below <= -1 and not below >= 0 and -2 * below >= 1
    for unknown in (lambda: up // n >= 1, lambda: 2 * (up // n) < 2):
        with pytest.raises(InconclusiveDimensionOperation):
            unknown()


def test_what_is_learned_later_is_known():
    scope = SymbolicScope()
    a, b = symbolic_shape("a, b", scope=scope)
    assert a != b and scope.is_at_least_zero((a - b).polynomial) is None
    scope.assume((a - b).polynomial, ">=")
    assert a >= b and scope.is_at_least_zero((a - b).polynomial)
    scope.assume((b - a).polynomial, ">=")
    assert a == b


def test_a_few_sizes_are_exceptions():
    """What holds of all sizes but the least few is the answer, and those are noted."""
    for make, answer, exceptions in [
        (lambda a, b: a >= 3, True, ["a - 1", "a - 2"]),
        (lambda a, b: a - 1 < 1, False, ["a - 1"]),
        (lambda a, b: a * b > 2, True, ["a*b - 1", "a*b - 2"]),
        (lambda a, b: max(a - 3, 0) == a - 3, True, ["a - 1", "a - 2"]),
        (lambda a, b: bool(a - b), True, ["a - b"]),
        (lambda a, b: bool(a % 8), True, ["mod(a, 8)"]),
        (lambda a, b: max_dim(a, 3) - 3 >= 0, True, []),
    ]:
        a, b = symbolic_shape("a, b")
        assert make(a, b) is answer
        assert sorted(map(text_of, a.scope.undecided)) == exceptions
    (c,) = symbolic_shape("c", constraints=["c <= 7"])
    assert (c < 6) is True and {*map(text_of, c.scope.undecided)} == {"c - 6", "c - 7"}


def test_scopes_do_not_mix():
    (a,), (b,) = symbolic_shape("a"), symbolic_shape("a")
    assert a != b
    with pytest.raises(ValueError, match="different scopes"):
        _ = a + b
    with pytest.raises(ValueError, match="different scopes"):
        _ = a < b


@pytest.mark.parametrize(
    "function, specs, words",
    [
        (lambda x: x.reshape(8, -1), ["a"], "the constraint 'mod(a, 8) == 0'"),
        (
            lambda x: lax.slice(x, (0,), (50,)),
            ["a"],
            "Asked by the primitive 'slice' in 'slice' at ",
        ),
        (lambda x: x.reshape(4, -1), ["a"], "a"),
        (lambda x, y: x + y, ["a", "b"], "(a,)"),
        (lambda x: list(x), ["a"], "requires a constant"),
        (lambda x: jnp.zeros(3)[: x.shape[0]] + jnp.ones(3), ["a"], "min"),
    ],
)
def test_programs_that_depend_on_a_size_are_refused(function, specs, words):
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    args = [amdjax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    with pytest.raises((InconclusiveDimensionOperation, TypeError, ValueError)) as error:
        amdjax.make_jaxpr(function)(*args)
    assert words in str(error.value)


def test_a_size_has_no_value_outside_of_a_trace():
    (a,) = symbolic_shape("a")
    with pytest.raises(InconclusiveDimensionOperation, match="'a' has no value here"):
        jnp.sqrt(a)


def test_sums_of_all_orders_are_one_object():
    a, b, c = symbolic_shape("a, b, c")
    sums = {sum(order) for order in itertools.permutations((a, 2 * b, c, 3))}
    assert len(sums) == 1


def test_operations_on_symbolic_shapes_do_not_run():
    (a,) = symbolic_shape("a")
    with pytest.raises(InconclusiveDimensionOperation, match=r"f32\[a\] is not compiled"):
        jnp.zeros((a,))


@given(st.integers(0, 10_000), st.integers(1, 50), st.integers(1, 50))
def test_compiled_polynomials_have_the_values_of_evaluated_ones(seed, b, t):
    names = symbolic_shape("b, t")
    rng, dims = np.random.default_rng(seed), list(names)
    for _ in range(12):
        x, y = (dims[i] for i in rng.integers(0, len(dims), 2))
        operation = int(rng.integers(6))
        if operation < 2:
            new = x * y if operation else x - 3 * y
        elif operation < 4:
            new = (x // int(rng.integers(1, 9)), x % int(rng.integers(1, 9)))[operation - 2]
        else:
            new = (max_dim(x, y), min_dim(x, 7))[operation - 4]
        dims += [new] if isinstance(new, Dim) else []
    found = compiled([x.polynomial for x in dims])({"b": b, "t": t})
    assert found == tuple(x.evaluate({"b": b, "t": t}) for x in dims)


def test_polynomials_nested_too_deeply_for_a_parser_are_evaluated():
    x = of("b")
    for _ in range(90):
        x = of(Operation("mod", (plus(scale(x, 7), of(1)), of(1001))))
    assert compiled([x])({"b": 9}) == (evaluate(x, {"b": 9}.__getitem__),)


def test_shapes_are_read_as_jax_reads_them():
    assert symbolic_shape(None, like=(2, 3)) == (2, 3)
    (a,) = symbolic_shape("+ a")
    assert str(symbolic_shape("+a - 1 + +2", scope=a.scope)[0]) == "a + 1"
    assert symbolic_shape("2, _, 4", like=(2, 3, None)) == (2, 3, 4)
    for text, like in [("3", (4,)), ("b, 3", (None, 4)), ("b, 2*2", (1, 3))]:
        with pytest.raises(ValueError, match="has the size"):
            symbolic_shape(text, like=like)
    with pytest.raises(ValueError, match=r"leaf 0 of args.*dimension 1 of 'n, 3' is 3"):
        amdjax.export.symbolic_args_specs((np.zeros((2, 4)),), "n, 3")


def test_divisors_that_are_zero_of_few_sizes_leave_those_apart():
    f = amdjax.jit(lambda x: x[1:].reshape(x.shape[0] - 1, -1) / (12 // (x.shape[0] - 1)),
                   symbolic="n, 2")  # fmt: skip
    for n in (5, 3, 12):
        x = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
        np.testing.assert_allclose(f(x), x[1:] / (12 // (n - 1)), rtol=1e-6)
    with pytest.raises(TypeError, match="cannot reshape"):
        f(np.zeros((1, 2), np.float32))


def test_powers_of_numbers():
    """Of integers as long as they fit the dtype, as those of a static shape do."""
    f = amdjax.jit(
        lambda x: (x * 2 ** x.shape[0], x * 1.5 ** x.shape[0], x * x.shape[0] ** -2), symbolic="n"
    )
    for n in (3, 30, 1):
        x = np.ones(n, np.float32)
        for got, want in zip(f(x), (2.0**n, 1.5**n, n**-2.0), strict=True):
            np.testing.assert_allclose(got, np.full(n, want), rtol=3e-6)
    whole = amdjax.jit(lambda x: x * 2 ** x.shape[0], symbolic="n")
    assert whole(np.ones(3, np.int8)).dtype == np.int32  # as in JAX
    with pytest.raises(OverflowError):
        whole(np.ones(40, np.int32))
