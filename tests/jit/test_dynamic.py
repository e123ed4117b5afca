"""`jit(f, dynamic="auto")`: sizes become symbolic once calls differ in them; what was compiled."""

import logging
import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.config import State
from amdjax.jit.backend import CompilerBackend
from amdjax.jit.variants import MOST_CHOSEN
from tests.support.jit_helpers import run_python


def shapes_traced(f, arrays, **options):
    """The shapes a function is traced with, and its results."""
    traced = []

    def traced_f(*args):
        traced.append(str(tuple(x.shape for x in args)))
        return f(*args)

    jitted = amdjax.jit(traced_f, **options)
    for args in arrays:
        expected = f(*args)
        np.testing.assert_allclose(jitted(*args), expected, rtol=1e-5)
    return traced


def array(*shape):
    return np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_the_second_of_two_sizes_serves_all():
    calls = [(array(3, 4),), (array(5, 4),), (array(7, 4),), (array(9, 4),), (array(7, 4),)]
    sums = lambda x: jnp.tanh(x).sum(0)
    assert shapes_traced(sums, calls, dynamic="auto") == ["((3, 4),)", "((d0, 4),)"]
    assert len(shapes_traced(sums, calls)) == 4
    assert len(shapes_traced(sums, calls, dynamic="off")) == 4


def test_sizes_that_were_equal_share_a_variable_until_they_differ():
    pairs = [(3, 3), (5, 5), (7, 7), (8, 6), (9, 11)]
    calls = [(array(m), array(n)) for m, n in pairs]
    traced = shapes_traced(lambda x, y: x.sum() + y.sum(), calls, dynamic="auto")
    assert traced == ["((3,), (3,))", "((d0,), (d0,))", "((d0,), (d1,))"]
    traced = shapes_traced(lambda x, y: x + y, [c for c in calls[:3]], dynamic="auto")
    assert traced == ["((3,), (3,))", "((d0,), (d0,))"]


def test_further_axes_become_symbolic_when_they_differ():
    calls = [(array(*s),) for s in [(3, 4), (5, 4), (5, 6), (8, 9), (2, 3)]]
    traced = shapes_traced(lambda x: x.sum(1), calls, dynamic="auto")
    assert traced == ["((3, 4),)", "((d0, 4),)", "((d0, d1),)"]


def test_sizes_that_tracing_took_for_unequal():
    def f(x, y):
        return x * 2 if x.shape == y.shape else x * 3

    pairs = [(3, 4), (5, 6), (6, 6), (1, 1), (7, 8)]
    traced = shapes_traced(f, [(array(m), array(n)) for m, n in pairs], dynamic="auto")
    assert traced == ["((3,), (4,))", "((d0,), (d1,))", "((d1,), (d1,))", "((1,), (1,))"]


def test_functions_that_need_sizes_are_traced_for_each(caplog):
    f = lambda x: sum(x[i] * i for i in range(x.shape[0]))
    with caplog.at_level(logging.INFO, "amdjax.jit"):
        traced = shapes_traced(f, [(array(n),) for n in (2, 3, 4)], dynamic="auto")
    assert traced == ["((2,),)", "((d0,),)", "((3,),)", "((4,),)"]
    reasons = [r.getMessage() for r in caplog.records if "traces each size anew" in r.getMessage()]
    assert len(reasons) == 1 and "requires a constant" in reasons[0]


def test_errors_of_the_function_are_those_of_the_call():
    f = amdjax.jit(lambda x, y: x + y, dynamic="auto")
    f(array(3), array(3))
    with pytest.raises(TypeError, match="incompatible shapes"):
        f(array(4), array(5))
    np.testing.assert_array_equal(f(array(6), array(6)), 2 * array(6))


def test_a_call_that_fails_does_not_make_sizes_be_traced_apart():
    traces = []

    @amdjax.jit(dynamic="auto")
    def f(x):
        traces.append(str(x.shape))
        return x + jnp.arange(8.0)[: x.shape[0]]

    f(array(3))
    with pytest.raises(TypeError, match="incompatible shapes"):
        f(array(9))
    for n in (4, 5, 6):
        np.testing.assert_allclose(f(array(n)), array(n) + np.arange(n), rtol=1e-6)
    assert traces == ["(3,)", "(d0,)", "(9,)", "(d0_to_8,)"]


def test_the_setting():
    sums = lambda x: x.sum()
    calls = [(array(n),) for n in (3, 4, 5)]
    with State("dynamic")("auto"):
        assert len(shapes_traced(sums, calls)) == 2
        assert len(shapes_traced(sums, calls, dynamic="off")) == 3
    text = "import amdjax; print(amdjax.config.dynamic)"
    assert "auto" in run_python(text, AMDJAX_DYNAMIC="auto")


def test_bad_settings():
    with pytest.raises(ValueError, match="dynamic must be"):
        amdjax.jit(array, dynamic="yes")
    with pytest.raises(ValueError, match="either symbolic or dynamic"):
        amdjax.jit(array, dynamic="auto", symbolic="b")


def test_what_was_compiled_and_why(caplog):
    amdjax.clear_caches()
    f = amdjax.jit(lambda x, w: (x["a"] * w).sum(), static_argnums=())
    with caplog.at_level(logging.DEBUG, "amdjax.jit"):
        f({"a": array(3, 2)}, 1.0)
        f({"a": array(5, 2)}, 1.0)
        f({"a": array(5, 2)}, 1)
        f({"a": array(5, 2), "b": 1.0}, 1)
    report = amdjax.explain_recompiles()
    assert re.search(r"<lambda> \(.*test_dynamic\.py:\d+\) was compiled 4 times, in \d", report)
    for text in [
        "s  traced, compiled: first call",
        "axis 0 of 'x['a']' is 5, was 3", "'w' is i32[], was f32[]",
        "arguments of another structure", "Sizes differ: axis 0 of 'x['a']' (3, 5). Name them",
    ]:  # fmt: skip
        assert text in report
    assert any("is 5, was 3" in r.getMessage() for r in caplog.records)
    amdjax.clear_caches()
    assert amdjax.explain_recompiles() == "No function was compiled more than once."


def compiled_programs(monkeypatch):
    """Counts what is compiled: programs of single sizes, and for many."""
    made = []
    for method in ("compile", "compile_sized"):
        original = getattr(CompilerBackend, method)
        monkeypatch.setattr(
            CompilerBackend,
            method,
            lambda *args, original=original: (made.append(0), original(*args))[1],
        )
    return made


#: Functions, and what they are called with at a size.
ANYTHING = {
    "an argument": (lambda x: jnp.tanh(x).sum(0), lambda n: (array(n, 4),)),
    "NumPy arrays": (lambda x: (x * 2).sum(), lambda n: (np.asarray(array(n, 3)),)),
    "several": (lambda x, y: x @ y, lambda n: (array(n, 4), array(4, n + 9))),
    "a pytree": (
        lambda p: {"z": p["a"][0] + p["a"][1].sum(0), "n": p["b"].mean()},
        lambda n: ({"a": [array(n), array(5, n)], "b": array(n + 3)},),
    ),
    "weak types": (lambda x, y: x * y + 1, lambda n: (array(n), 2.0)),
    "integers": (lambda x, i: x[i], lambda n: (array(n), np.arange(n + 7) % n)),
    "a gradient": (
        amdjax.grad(lambda w, x: jnp.tanh(x @ w).sum()), lambda n: (array(4, 3), array(n, 4)),
    ),
    "of no size": (lambda x, y: x.sum() + y, lambda n: (array(n, n + 2), array())),
}  # fmt: skip


@pytest.mark.parametrize("keywords", [False, True])
@pytest.mark.parametrize("name", ANYTHING)
def test_no_third_program_is_traced(name, keywords, monkeypatch):
    """From the second on all sizes are those of one trace, and of few variants that are told."""
    function, arguments = ANYTHING[name]
    amdjax.clear_caches()
    made, traced = compiled_programs(monkeypatch), []

    def f(*args, **kwargs):
        traced.append(0)
        return function(*args, *kwargs.values())

    f = amdjax.jit(f, dynamic="auto")
    counts = []
    for n in (11, 6, 13, 6, 17, 24, 35, 14, 15, 16, 100):
        args = arguments(n)
        got = f(args[0], **{f"k{i}": x for i, x in enumerate(args[1:])}) if keywords else f(*args)
        counts.append(len(made))
        for x, y in zip(amdjax.tree.leaves(got), amdjax.tree.leaves(function(*args)), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5)
    assert len(traced) == 2 and counts[0] == 1
    told = amdjax.explain_recompiles()
    pattern = r"compiled (\d+) times.*traced (\d+) times, planned (\d+) times; (\d+) more"
    compiled, tracings, planned, rest = map(int, re.search(pattern, told).groups())
    # The first size alone, then as many variants as are chosen among: no size is fixed in them.
    assert tracings == 2 and planned == len(made) and compiled <= 1 + MOST_CHOSEN
    assert rest + len(re.findall(r" s  (?:traced|compiled|planned)", told)) == 10


def test_donated_arguments_of_dynamic_functions():
    f = amdjax.jit(lambda x, y: x + y, dynamic="auto", donate_argnums=0)
    for n in (3, 5, 9, 20):
        x, y = jnp.ones(n), jnp.arange(float(n))
        np.testing.assert_array_equal(f(x, y), 1 + np.arange(n))
        assert x.is_deleted() and not y.is_deleted()


def test_what_serves_many_sizes_is_told():
    amdjax.clear_caches()
    f = amdjax.jit(lambda x: x * 2, dynamic="auto")
    g = amdjax.jit(lambda x: sum(x[i] for i in range(x.shape[0])), dynamic="auto")
    for n in (2, 3, 4):
        f(array(n)), g(array(n))
    told = amdjax.explain_recompiles()
    assert "(serves x: f32[d0])" in told and "Sizes cannot be symbolic: Inconclusive" in told
    assert "Sizes differ" not in told


class _Incomparable:
    """Hashable; compared with others than itself it raises."""

    def __eq__(self, other):
        if other is not self:
            raise ValueError("no such comparison")
        return True

    def __hash__(self):
        return 7


@pytest.mark.parametrize("values", [((), np.int64(0)), (np.int64(0), ()), (_Incomparable(), 1)])
def test_static_arguments_that_cannot_be_compared(values):
    """Why a function is compiled again is told of arguments that only a table compares."""
    run = amdjax.jit(lambda x, value: x + 1, static_argnums=1)
    for value in values:
        assert run(jnp.zeros(()), value) == 1
    assert "other static arguments" in amdjax.explain_recompiles()
