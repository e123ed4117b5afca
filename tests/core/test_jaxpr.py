"""Programs: printing, reading back, checking, evaluating, removing dead code."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
from amdjax import lax
from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.check import check_jaxpr
from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.errors import JaxprTypeError
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    eval_jaxpr,
    hoist_consts,
    jaxpr_as_fun,
    jaxprs_equal,
    last_uses,
    subjaxprs,
    subjaxprs_of_value,
)
from amdjax.core.parse import JaxprSyntaxError, parse_jaxpr
from amdjax.core.pprint import var_name

X = np.arange(3.0, dtype=np.float32)


def total(x):
    return lax.reduce_sum(x, tuple(range(x.ndim)))


def program(fun, *args):
    return amdjax.make_jaxpr(fun)(*args)


def test_prints_in_jax_form():
    closed = program(lambda x, n: (lax.mul(lax.sin(x), np.float32(2)), n), X, 1)
    assert str(closed) == (
        "{ lambda ; a:f32[3] b:i32[]. let\n"
        "    c:f32[3] = sin a\n"
        "    d:f32[3] = mul c 2.0:f32[]\n"
        "  in (d, b) }"
    )


def test_one_equation_fits_one_line():
    assert str(program(lax.sin, X)) == "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"


def test_constants_are_bound_in_front():
    closed = program(lambda x: lax.add(x, X), X)
    assert str(closed).startswith("{ lambda a:f32[3]; b:f32[3]. let")
    np.testing.assert_array_equal(closed.consts[0], X)


def test_nested_programs_and_unused_results():
    def f(x):
        lax.cos(x)
        return amdjax.jit(lambda y: lax.sin(lax.sin(y)))(x)

    assert str(program(f, X)) == (
        "{ lambda ; a:f32[3]. let\n"
        "    _:f32[3] = cos a\n"
        "    b:f32[3] = jit[\n"
        "      name=<lambda>\n"
        "      jaxpr={ lambda ; c:f32[3]. let\n"
        "          d:f32[3] = sin c\n"
        "          e:f32[3] = sin d\n"
        "        in (e,) }\n"
        "    ] a\n"
        "  in (b,) }"
    ).replace("name=<lambda>", "name='<lambda>'")


def test_a_shared_program_is_printed_once():
    @amdjax.jit
    def twice(x):
        return lax.mul(lax.add(x, x), x)

    text = str(program(lambda x: twice(twice(x)), X))
    assert text.startswith("let twice = { lambda ;")
    assert text.count("add") == 1
    assert text.count("jaxpr=twice") == 2


def test_names_of_variables():
    assert [var_name(i) for i in (0, 25, 26, 27, 26 * 26)] == ["a", "z", "ba", "bb", "baa"]


def test_long_programs_do_not_use_keywords_as_names():
    def f(x):
        for _ in range(240):
            x = lax.sin(x)
        return x

    closed = program(f, X)
    assert jaxprs_equal(closed, parse_jaxpr(str(closed)))


def conv(x):
    return lax.conv_general_dilated(x, x, (1, 1), "SAME")


def pick(x):
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    return lax.gather(x, np.zeros((1, 1), np.int32), numbers, (1,))


def branch(c, y):
    return lax.cond(lax.gt(y, np.float32(0)), lax.sin, lax.cos, c), y


def double_until_nine(x):
    return lax.while_loop(lambda c: lax.lt(total(c), np.float32(9)), lambda c: lax.add(c, c), x)


def twice_sin(x):
    return lax.sin(lax.sin(x))


ROUND_TRIPS = {
    "elementwise": (lambda x: lax.exp(lax.mul(x, np.float32(0.1))), X),
    "special literals": (lambda x: lax.clamp(np.float32(-np.inf), x, np.float32(np.nan)), X),
    "weak": (lambda x: lax.mul(x, 2.0), 1.0),
    "bool": (lambda x: lax.bitwise_and(lax.eq(x, x), True), X),
    "complex": (lambda x: lax.mul(lax.complex(x, x), np.complex64(1 - 2j)), 1.0),
    "dtypes": (
        lambda x: [lax.convert_element_type(x, d) for d in ("bfloat16", "int8", "float8_e4m3fn")],
        X,
    ),
    "gather": (pick, X),
    "convolution": (conv, np.ones((2, 2, 2, 2), np.float32)),
    "constants": (lambda x: lax.add(x, X), X),
    "scan and cond": (lambda x: lax.scan(branch, np.float32(0), x), X),
    "while": (double_until_nine, X + 1),
    "gradient of jit": (amdjax.grad(lambda x: total(amdjax.jit(lax.sin)(x))), X),
    "checkpoint": (amdjax.grad(lambda x: total(amdjax.checkpoint(twice_sin)(x))), X),
    "callback": (lambda x: amdjax.debug.print("x {}", x), X),
    "no arguments": (lambda: lax.iota(np.int32, 3),),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_print_and_parse(name):
    fun, *args = ROUND_TRIPS[name]
    closed = program(fun, *args)
    check_jaxpr(closed)
    text = closed.pretty_print(exact=True)
    again = parse_jaxpr(text, closed.consts)
    check_jaxpr(again)
    assert jaxprs_equal(closed, again)
    assert again.pretty_print(exact=True) == text


def test_parsed_programs_run():
    closed = program(lambda x: total(lax.mul(lax.sin(x), x)), X)
    again = parse_jaxpr(str(closed))
    np.testing.assert_allclose(jaxpr_as_fun(again)(X)[0], np.sum(np.sin(X) * X), rtol=1e-6)


@given(st.lists(st.sampled_from(["sin", "cos", "neg", "exp", "tanh"]), max_size=12), st.booleans())
def test_round_trip_of_chains(names, weak):
    def f(x):
        for name in names:
            x = getattr(lax, name)(x)
        return x

    closed = program(f, 1.0 if weak else X)
    text = closed.pretty_print(exact=True)
    assert jaxprs_equal(closed, parse_jaxpr(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ lambda ; a:f32[3]. let b:f32[3] = sin c in (b,) }", "a variable that is bound"),
        ("{ lambda ; a:f32[3]. let b:f32[3] = no_such a in (b,) }", "a primitive that exists"),
        ("{ lambda ; a:f33[3]. let in (a,) }", "not 'f33'"),
        ("{ lambda ; a:f32[3]. let in (a,)", "expected '}'"),
        ("{ lambda ; a:f32[3]. let in (a,) } }", "expected the end"),
        ("{ lambda ; a:f32[3]; let in (a,) }", "expected a variable, found ';'"),
        ("import os", "expected '{'"),
        ("{ lambda ; a:f32[3] $", "unexpected '$'"),
    ],
)
def test_syntax_errors_name_the_place(text, message):
    with pytest.raises(JaxprSyntaxError) as e:
        parse_jaxpr(text)
    assert message in str(e.value)
    assert "line 1" in str(e.value)


def var(shape=(3,), dtype="float32"):
    return Var(ShapedArray(shape, dtype))


SIN = program(lax.sin, X).eqns[0]


def sin(x, y):
    return JaxprEqn(SIN.primitive, [x], [y], SIN.params)


def test_checker_finds_unbound_variables():
    a, b, c = var(), var(), var()
    with pytest.raises(JaxprTypeError, match=r"operand 0 .* not bound before\nin the equation"):
        check_jaxpr(Jaxpr([], [a], [b], [sin(c, b)]))
    with pytest.raises(JaxprTypeError, match="result 0 of the program"):
        check_jaxpr(Jaxpr([], [a], [c], [sin(a, b)]))


def test_checker_finds_variables_bound_twice():
    a, b = var(), var()
    with pytest.raises(JaxprTypeError, match="bound again"):
        check_jaxpr(Jaxpr([], [a], [b], [sin(a, b), sin(a, b)]))


def test_checker_finds_wrong_types():
    a, b = var(), var((2,))
    with pytest.raises(JaxprTypeError, match=r"f32\[2\].*f32\[3\]"):
        check_jaxpr(Jaxpr([], [a], [b], [sin(a, b)]))


def test_checker_looks_into_calls():
    inner = program(lambda x: amdjax.jit(lax.sin)(x), X)
    (call,) = inner.eqns
    a, b = var((4,)), var()
    wrong = call.replace(invars=[a], outvars=[b])
    with pytest.raises(JaxprTypeError, match="the program takes"):
        check_jaxpr(Jaxpr([], [a], [b], [wrong]))


def test_checker_compares_constants():
    closed = program(lambda x: lax.add(x, X), X)
    with pytest.raises(JaxprTypeError, match="constant"):
        check_jaxpr(ClosedJaxpr(closed.jaxpr, [np.ones(2, np.float32)]))


def test_eval_and_number_of_arguments():
    closed = program(lambda x: lax.add(x, x), X)
    np.testing.assert_array_equal(eval_jaxpr(closed.jaxpr, closed.consts, X)[0], 2 * X)
    with pytest.raises(TypeError, match="takes 1 arguments"):
        eval_jaxpr(closed.jaxpr, closed.consts)


def test_last_uses_cover_every_variable_once():
    closed = program(lambda x: lax.mul(lax.sin(x), lax.cos(x)), X)
    dying = [v for eqn in last_uses(closed.jaxpr) for v in eqn]
    assert len(dying) == len(set(dying)) == 3
    assert closed.jaxpr.outvars[0] not in dying


def test_dead_code_is_removed_and_effects_stay():
    def f(x, y):
        amdjax.debug.callback(lambda v: None, y)
        return lax.sin(x), lax.cos(y)

    closed = program(f, X, X)
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True, False])
    assert [e.primitive.name for e in jaxpr.eqns] == ["debug_callback", "sin"]
    assert used == [True, True]
    pure = program(lambda x, y: (lax.sin(x), lax.cos(y)), X, X)
    jaxpr, used = dce_jaxpr(pure.jaxpr, [False, True])
    assert [e.primitive.name for e in jaxpr.eqns] == ["cos"]
    assert used == [False, True]


def test_dead_code_inside_calls():
    closed = program(lambda x, y: amdjax.jit(lambda x, y: (lax.sin(x), lax.cos(y)))(x, y), X, X)
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True, False])
    check_jaxpr(jaxpr)
    assert used == [True, False]
    (call,) = jaxpr.eqns
    assert [e.primitive.name for e in call.params["jaxpr"].eqns] == ["sin"]


def test_subjaxprs_and_hoisting():
    closed = program(lambda x: lax.cond(lax.gt(x, 0.0), lax.sin, lax.cos, x), 1.0)
    assert len(list(subjaxprs(closed))) == 2
    closed = program(lambda x: lax.add(x, X), X)
    hoisted, consts = hoist_consts(closed)
    assert not hoisted.consts
    assert len(hoisted.in_avals) == 2
    np.testing.assert_array_equal(jaxpr_as_fun(hoisted)(*consts, X)[0], 2 * X)


def test_equality_is_up_to_names():
    f = program(lambda x: lax.sin(lax.cos(x)), X)
    g = program(lambda x: lax.sin(lax.cos(x)), X)
    h = program(lambda x: lax.cos(lax.sin(x)), X)
    assert jaxprs_equal(f, g)
    assert not jaxprs_equal(f, h)


def test_equations_remember_the_line():
    closed = program(lambda x: lax.sin(x), X)
    assert closed.eqns[0].source.file == __file__
    assert "test_jaxpr.py" in closed.pretty_print(source_info=True)
    derived = program(amdjax.grad(lambda x: total(lax.sin(x))), X)
    assert all(e.source.file == __file__ for e in derived.eqns)


def layered(x):
    with amdjax.named_scope("net"), amdjax.named_scope("layer"):
        return lax.sin(x)


def stacks(fun, *args):
    return [str(e.source_info.name_stack) for e in amdjax.make_jaxpr(fun)(*args).eqns]


@pytest.mark.parametrize(
    "fun, expected",
    [
        (layered, {"net/layer"}),
        (amdjax.vmap(layered), {"vmap(net)/layer"}),
        (amdjax.named_scope("out")(amdjax.vmap(layered)), {"out/vmap(net)/layer"}),
        (amdjax.vmap(amdjax.jit(layered)), {"vmap()"}),
        (lambda x: amdjax.jvp(layered, (x,), (x,)), {"jvp(net)/layer"}),
        (
            amdjax.vmap(amdjax.grad(layered)),
            {"vmap(jvp(net))/layer", "vmap(transpose(jvp(net)))/layer"},
        ),
        (amdjax.vmap(lambda x: amdjax.linearize(layered, x)[1](x)), {"vmap(jvp(net))/layer"}),
    ],
)
def test_scopes_stand_inside_the_names_of_transforms(fun, expected):
    found = stacks(fun, np.ones(3, np.float32))
    assert expected <= set(found)


@pytest.mark.parametrize("transform", [amdjax.jit, amdjax.checkpoint])
def test_programs_inside_do_not_know_the_scopes_around_them(transform):
    closed = amdjax.make_jaxpr(amdjax.named_scope("out")(transform(layered)))(1.0)
    assert [str(e.source.name_stack) for e in closed.eqns] == ["out"]
    (sub,) = [j for v in closed.eqns[0].params.values() for j in subjaxprs_of_value(v)]
    assert {str(e.source.name_stack) for e in sub.eqns} == {"net/layer"}
    inlined = amdjax.make_jaxpr(amdjax.named_scope("out")(jaxpr_as_fun(closed)))(1.0)
    assert [str(e.source.name_stack) for e in inlined.eqns] == ["out/out"]


@pytest.mark.parametrize(
    "transform, expected",
    [
        (amdjax.jit, "JitTracer(float32[3])"),
        (amdjax.vmap, "VmapTracer(aval=float32[], batched=float32[3])"),
        (amdjax.jacrev, "GradTracer(primal=[0. 1. 2.], typeof(tangent)=f32[3])"),
        (lambda f: lambda x: amdjax.jvp(f, (x,), (x,)),
         "JVPTracer(primal=[0. 1. 2.], tangent=[0. 1. 2.])"),
    ],
)  # fmt: skip
def test_tracers_show_what_is_known(transform, expected):
    seen = []
    transform(lambda x: (seen.append(repr(x)), lax.sin(x))[1])(X)
    assert seen == [expected]


def test_scopes_are_printed():
    text = amdjax.make_jaxpr(amdjax.grad(layered))(1.0).pretty_print(name_stack=True)
    assert "cos a  # [jvp(net)/layer]" in text
    assert "  # [transpose(jvp(net))/layer]" in text


def test_avals_are_interned():
    assert ShapedArray((3,), "float32") is ShapedArray([3], np.float32)
    assert ShapedArray((), "float32", True) is get_aval(1.0)
    assert ShapedArray((np.int64(3),), "float32").shape == (3,)
    assert type(ShapedArray((np.int64(7),), "float32").shape[0]) is int
    assert repr(get_aval(1)) == "ShapedArray(int32[], weak_type=True)"
    assert get_aval(True).weak_type is False
    with pytest.raises(TypeError, match="not a valid JAX type"):
        get_aval("text")
    with pytest.raises(TypeError, match="concrete values of integer type"):
        ShapedArray((1.5,), "float32")
