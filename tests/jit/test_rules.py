"""The rewrite rules one by one: what each makes of a tiny program, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdjax
from amdjax import lax, make_jaxpr
from amdjax.core.check import check_jaxpr
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.flatten import flatten_calls
from amdjax.passes.rules import COMPLEX_RULES, RELAXED_RULES, RULES
from amdjax.passes.simplify import _Rewriter
from amdjax.transforms.zero import add_any_p
from tests.support.jit_helpers import primitives, run_jaxpr

BY_NAME = {rule.name: rule for rule in (*COMPLEX_RULES, *RULES, *RELAXED_RULES)}

F = np.array([[0.5, -2.0, 3.25], [np.inf, -0.0, 1e-40]], np.float32)
X = np.array([1.5, -2.0, 0.0, np.inf], np.float32)
I = np.array([-5, 0, 7, 2**31 - 1], np.int32)
B = np.array([True, False, True])
#: What becomes of the sum of an array and of additions to zeros.
ADDED_TO = (
    "a:f32[3,4] b:i32[3,1] c:f32[3,1] -> d:i32[3,1,1] = broadcast_in_dim[broadcast_dimensions="
    "(0, 1) shape=(3, 1, 1) sharding=None] b; e:f32[3,4] = scatter-add[dimension_numbers="
    "ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(1,), "
    "scatter_dims_to_operand_dims=(1,), operand_batching_dims=(0,), "
    "scatter_indices_batching_dims=(0,)) indices_are_sorted=False "
    "mode=GatherScatterMode.FILL_OR_DROP unique_indices=False update_consts=() "
    "update_jaxpr=None] a d c; e"
)
A = np.arange(6, dtype=np.float32).reshape(2, 3)
C = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
CUBE = C.reshape(3, 2, 2)
HALVES = CUBE.astype(np.float16)
ONE = np.ones((3, 1, 4), np.float32) * 2.5
PLACES = np.array([[2], [-1], [7]], np.int32)
SATURATED = np.array([0.0, 30.0, np.inf, -np.inf], np.float32)
PLACED = np.array([[np.inf], [3.0], [1.5]], np.float32)


def rewritten(name: str, fun: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """A program before and after one rule, without what is dead then."""
    before = flatten_calls(make_jaxpr(fun)(*args))
    after = eliminate_dead_code(_Rewriter([BY_NAME[name]]).run(before))
    check_jaxpr(after.jaxpr)
    return before, after


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@dataclass
class Case:
    rule: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    text: str
    bits: bool = True  # whether even the sign of a zero stays


def product(x, y, contract=((1,), (0,)), batch=((), ())):
    return lax.dot_general(x, y, (contract, batch))


def update(how, constant, places, updates, mode="drop", columns=4):
    numbers = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
    rows = places.shape[0]
    array = lax.full((rows, columns), constant, updates.dtype)
    return how(array, places[..., None], updates, numbers, mode=mode)


def choice(places, x, axis=1):
    shape = (places.shape[0], 4) if axis == 1 else (4, places.shape[0])
    here = lax.eq(lax.broadcasted_iota("int32", shape, axis), broadcast(places, shape, (1 - axis,)))
    return lax.select_n(here, lax.full(shape, 0.0), broadcast(x, shape, (1 - axis,)))


def windows_of_padding(x):
    """As in the gradient of a sum over windows two apart."""
    padded = lax.pad(x, 0.0, ((1, 0, 1), (0, 2, 0)))
    return lax.reduce_window(padded, 0.0, lax.add, (2, 3), (1, 2), ((0, 1), (0, 0)))


def added_to(of, x):
    return lax.add(x, of(np.float32(5), np.float32(3)))


APPLIES = [
    Case("add zero", lambda x: lax.add(x, 0.0), (X,), "a:f32[4] -> a", bits=False),
    Case("add zero", lambda x: lax.add(x, lax.full((4,), 0, "int32")), (I,), "a:i32[4] -> a"),
    Case("zero add", lambda x: lax.add(0.0, x), (X,), "a:f32[4] -> a", bits=False),
    Case("add_any zero", lambda x: add_any(x, lax.full((4,), 0.0)), (X,), "a:f32[4] -> a", False),
    Case("zero add_any", lambda x: add_any(lax.full((4,), 0.0), x), (X,), "a:f32[4] -> a", False),
    Case("subtract zero", lambda x: lax.sub(x, 0.0), (X,), "a:f32[4] -> a"),
    Case("times one", lambda x: lax.mul(x, 1.0), (X,), "a:f32[4] -> a"),
    Case("one times", lambda x: lax.mul(np.int32(1), x), (I,), "a:i32[4] -> a"),
    Case("divide by one", lambda x: lax.div(x, 1.0), (X,), "a:f32[4] -> a"),
    Case("divide by a power of two", lambda x: lax.div(x, 8.0), (X,),
         "a:f32[4] -> b:f32[4] = mul a 0.125:f32[]; b"),
    Case("divide by a power of two", lambda x: lax.div(x, np.float16(2**-14)), (X.astype("e"),),
         "a:f16[4] -> b:f16[4] = mul a 16384.0:f16[]; b"),
    *(Case(f"{name} in one function", fun, (SATURATED,),
           "a:f32[4] -> b:f32[4] = mul a 2.0:f32[]; c:f32[4] = logistic b; "
           "d:f32[4] = mul c 2.0:f32[]; d")
      for name, fun in (("one plus tanh", lambda x: lax.add(1.0, lax.tanh(x))),
                        ("tanh plus one", lambda x: lax.add(lax.tanh(x), 1.0)))),
    *(Case(f"{name} of numbers", partial(added_to, getattr(lax, name)), (X,),
           f"a:f32[4] -> b:f32[4] = add a {number}:f32[]; b")
      for name, number in (("add", 8.0), ("sub", 2.0), ("mul", 15.0), ("div", np.float32(5 / 3)))),
    Case("negate twice", lambda x: lax.neg(lax.neg(x)), (X,), "a:f32[4] -> a"),
    Case("subtract a negative", lambda x, y: lax.sub(x, lax.neg(y)), (I, I[::-1]),
         "a:i32[4] b:i32[4] -> c:i32[4] = add a b; c"),
    Case("add a negative", lambda x, y: lax.add(x, lax.neg(y)), (X, X[::-1].copy()),
         "a:f32[4] b:f32[4] -> c:f32[4] = sub a b; c"),
    Case("not twice", lambda x: lax.bitwise_not(lax.bitwise_not(x)), (B,), "a:bool[3] -> a"),
    Case("and itself", lambda x: lax.bitwise_and(x, x), (I,), "a:i32[4] -> a"),
    Case("or itself", lambda x: lax.bitwise_or(x, x), (B,), "a:bool[3] -> a"),
    Case("max of one", lambda x: lax.max(x, x), (X,), "a:f32[4] -> a"),
    Case("min of one", lambda x: lax.min(x, x), (I,), "a:i32[4] -> a"),
    Case("square", lambda x: lax.integer_pow(x, 2), (X,),
         "a:f32[4] -> b:f32[4] = mul a a; b"),
    Case("same choice", lambda c, x: lax.select_n(c, x, x), (B, X[:3]),
         "a:bool[3] b:f32[3] -> b"),
    Case("copy", lambda x: copy(x), (X,), "a:f32[4] -> a"),
    Case("no derivatives are left", lax.stop_gradient, (X,), "a:f32[4] -> a"),
    Case("same dtype", lambda x: convert(x, np.dtype("float32")), (X,), "a:f32[4] -> a"),
    Case("widen and back", lambda x: lax.convert_element_type(
        lax.convert_element_type(x, "float32"), "float16"), (X.astype("e"),), "a:f16[4] -> a"),
    Case("widen and back", lambda x: lax.convert_element_type(
        lax.convert_element_type(x, "int32"), "int8"), (np.array([-128, 5], "b"),),
         "a:i8[2] -> a"),
    Case("transpose twice", lambda x: lax.transpose(lax.transpose(x, (1, 0)), (1, 0)), (F,),
         "a:f32[2,3] -> a"),
    Case("transpose twice", lambda x: lax.transpose(lax.transpose(x, (1, 2, 0)), (0, 2, 1)),
         (np.arange(24, dtype="f").reshape(2, 3, 4),),
         "a:f32[2,3,4] -> b:f32[3,2,4] = transpose[permutation=(1, 0, 2)] a; b"),
    Case("transposes around a reshape",
         lambda x: lax.transpose(reshape(lax.transpose(x, (1, 0)), (2, 2, 3)), (2, 0, 1)),
         (C,), "a:f32[3,4] -> b:f32[3,2,2] = "
         "reshape[dimensions=None new_sizes=(3, 2, 2) sharding=None] a; b"),
    Case("transpose of unit axes", lambda x: lax.transpose(x, (1, 0, 2)), (ONE,),
         "a:f32[3,1,4] -> b:f32[1,3,4] = "
         "reshape[dimensions=None new_sizes=(1, 3, 4) sharding=None] a; b"),
    Case("reshape to itself", lambda x: reshape(x, (4,)), (X,), "a:f32[4] -> a"),
    Case("reshape twice", lambda x: lax.reshape(lax.reshape(x, (6,)), (3, 2)), (F,),
         "a:f32[2,3] -> b:f32[3,2] = "
         "reshape[dimensions=None new_sizes=(3, 2) sharding=None] a; b"),
    Case("reshape twice", lambda x: lax.reshape(lax.reshape(x, (6,)), (2, 3)), (F,),
         "a:f32[2,3] -> a"),
    Case("reshape of squeeze", lambda x: lax.reshape(lax.squeeze(x, (1,)), (12,)), (ONE,),
         "a:f32[3,1,4] -> b:f32[12] = "
         "reshape[dimensions=None new_sizes=(12,) sharding=None] a; b"),
    Case("squeeze is a reshape", lambda x: lax.squeeze(x, (1,)), (ONE,),
         "a:f32[3,1,4] -> b:f32[3,4] = "
         "reshape[dimensions=None new_sizes=(3, 4) sharding=None] a; b"),
    Case("broadcast to itself", lambda x: broadcast(x, (4,), (0,)), (X,), "a:f32[4] -> a"),
    Case("broadcast twice",
         lambda x: broadcast(broadcast(x, (3, 4), (1,)), (2, 3, 4), (1, 2)), (X,),
         "a:f32[4] -> b:f32[2,3,4] = "
         "broadcast_in_dim[broadcast_dimensions=(2,) shape=(2, 3, 4) sharding=None] a; b"),
    *(Case(f"{p} of unit axes", lambda x, p=p: reduction(p, x, (1,)), (x,),
           f"a:{t}[3,1,4] -> b:{t}[3,4] = "
           "reshape[dimensions=None new_sizes=(3, 4) sharding=None] a; b")
      for p, x, t in [("reduce_sum", ONE, "f32"), ("reduce_max", ONE, "f32"),
                      ("reduce_min", ONE, "f32"), ("reduce_prod", ONE, "f32"),
                      ("reduce_and", ONE > 0, "bool"), ("reduce_or", ONE > 0, "bool")]),
    *(Case(f"{p} twice", lambda x, p=p: reduction(p, reduction(p, x, (1,)), (1,)), (x,),
           f"a:{t}[3,2,2] -> b:{t}[3] = {p}[axes=(1, 2){more}] a; b")
      for p, x, t, more in [
          ("reduce_sum", CUBE, "f32", " out_sharding=None"), ("reduce_max", CUBE, "f32", ""),
          ("reduce_min", CUBE, "f32", ""), ("reduce_prod", CUBE, "f32", ""),
          ("reduce_and", CUBE > 0, "bool", ""), ("reduce_or", CUBE > 0, "bool", "")]),
    Case("update of a constant",
         lambda i, y: update(lax.scatter, 2.5, i, y), (PLACES, PLACED),
         "a:i32[3,1] b:f32[3,1] -> c:f32[3,4] = broadcast_in_dim[broadcast_dimensions=() "
         "shape=(3, 4) sharding=None] 2.5:f32[]; d:i32[3,1,1] = "
         "broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(3, 1, 1) sharding=None] a; "
         "e:i32[3,4] = iota[dimension=1 dtype=int32 shape=(3, 4) sharding=None] ; f:i32[3] = "
         "reshape[dimensions=None new_sizes=(3,) sharding=None] d; g:i32[3,4] = "
         "broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, 4) sharding=None] f; "
         "h:bool[3,4] = eq e g; i:f32[3] = reshape[dimensions=None new_sizes=(3,) "
         "sharding=None] b; j:f32[3,4] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, "
         "4) sharding=None] i; k:f32[3,4] = select_n h c j; k"),
    Case("addition to zeros",
         lambda i, y: update(lax.scatter_add, 0.0, i, y), (PLACES, PLACED),
         "a:i32[3,1] b:f32[3,1] -> c:f32[3,4] = broadcast_in_dim[broadcast_dimensions=() "
         "shape=(3, 4) sharding=None] 0.0:f32[]; d:i32[3,1,1] = "
         "broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(3, 1, 1) sharding=None] a; "
         "e:i32[3,4] = iota[dimension=1 dtype=int32 shape=(3, 4) sharding=None] ; f:i32[3] = "
         "reshape[dimensions=None new_sizes=(3,) sharding=None] d; g:i32[3,4] = "
         "broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, 4) sharding=None] f; "
         "h:bool[3,4] = eq e g; i:f32[3] = reshape[dimensions=None new_sizes=(3,) "
         "sharding=None] b; j:f32[3,4] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(3, "
         "4) sharding=None] i; k:f32[3,4] = select_n h c j; k", bits=False),
    Case("add of additions to zeros",
         lambda x, i, y: lax.add(update(lax.scatter_add, 0.0, i, y), x), (C, PLACES, PLACED),
         ADDED_TO),
    Case("add_any of additions to zeros",
         lambda x, i, y: add_any_p.bind(x, update(lax.scatter_add, 0.0, i, y)),
         (C, PLACES, PLACED), ADDED_TO),
    Case("sum of negatives", lambda x: reduction("reduce_sum", lax.neg(x), (1,)), (C,),
         "a:f32[3,4] -> b:f32[3] = reduce_sum[axes=(1,) out_sharding=None] a; c:f32[3] = neg "
         "b; c"),
    Case("window sum of padding", windows_of_padding, (C,),
         "a:f32[3,4] -> b:f32[6,2] = reduce_window_sum[base_dilation=(2, 1) padding=((1, 1), (0, "
         "2)) window_dilation=(1, 1) window_dimensions=(2, 3) window_strides=(1, 2)] a; b"),
    Case("padding to itself", lambda x: lax.pad(x, np.float32(3), ((0, 0, 0),)), (X,),
         "a:f32[4] -> a"),
    Case("sum of one choice", lambda i, y: choice(i, y).sum(1), (PLACES[:, 0], PLACED[:, 0]),
         "a:i32[3] b:f32[3] -> c:bool[3] = ge a 0:i32[]; d:bool[3] = lt a 4:i32[]; e:bool[3] "
         "= and c d; f:f32[3] = broadcast_in_dim[broadcast_dimensions=() shape=(3,) "
         "sharding=None] 0.0:f32[]; g:f32[3] = select_n e f b; g"),
    Case("product of a transpose",
         lambda x, y: product(lax.transpose(x, (1, 0)), y), (A.T.copy(), C),
         "a:f32[3,2] b:f32[3,4] -> c:f32[2,4] = "
         "dot_general[dimension_numbers=(([0], [0]), ([], []))] a b; c"),
    Case("product with a transpose",
         lambda x, y: product(x, lax.transpose(y, (1, 0))), (A, C.T.copy()),
         "a:f32[2,3] b:f32[4,3] -> c:f32[2,4] = "
         "dot_general[dimension_numbers=(([1], [1]), ([], []))] a b; c"),
    Case("transpose of a product", lambda x, y: lax.transpose(product(x, y), (1, 0)), (A, C),
         "a:f32[2,3] b:f32[3,4] -> c:f32[4,2] = "
         "dot_general[dimension_numbers=(([0], [1]), ([], []))] b a; c"),
    Case("dot_general in one complex dtype", product, (A, C * (1 - 2j)),
         "a:f32[2,3] b:c64[3,4] -> c:c64[2,3] = convert_element_type[new_dtype=complex64 "
         "sharding=None weak_type=False] a; d:c64[2,4] = "
         "dot_general[dimension_numbers=(([1], [0]), ([], []))] c b; d"),
    Case("conv_general_dilated in one complex dtype",
         lambda x, y: lax.conv(x, y, (1,), "VALID", preferred_element_type=np.complex64),
         (A[None], A[None]),
         "a:f32[1,2,3] b:f32[1,2,3] -> c:c64[1,2,3] = convert_element_type[new_dtype=complex64 "
         "sharding=None weak_type=False] a; d:c64[1,2,3] = convert_element_type["
         "new_dtype=complex64 sharding=None weak_type=False] b; e:c64[1,1,1] = "
         "conv_general_dilated[dimension_numbers=ConvDimensionNumbers(lhs_spec=(0, 1, 2), "
         "rhs_spec=(0, 1, 2), out_spec=(0, 1, 2))] c d; e"),
]  # fmt: skip


def bind(name: str, *args: Any, **params: Any) -> Any:
    """An equation as it is, without what `lax` would simplify."""
    from amdjax.core.primitive import Primitive

    return Primitive.by_name[name].bind(*map(amdjax.numpy.asarray, args), **params)


def add_any(x, y):
    return bind("add_any", x, y)


def copy(x):
    return bind("copy", x)


def convert(x, dtype):
    return bind("convert_element_type", x, new_dtype=dtype, weak_type=False, sharding=None)


def reshape(x, shape):
    return bind("reshape", x, new_sizes=shape, dimensions=None, sharding=None)


def broadcast(x, shape, dims):
    return bind("broadcast_in_dim", x, shape=shape, broadcast_dimensions=dims, sharding=None)


def reduction(name, x, axes):
    called = {"reduce_and": "all", "reduce_or": "any"}.get(name, name.removeprefix("reduce_"))
    closed = flatten_calls(make_jaxpr(getattr(amdjax.numpy, called))(x))
    (params,) = [e.params for e in closed.jaxpr.eqns if e.primitive.name == name]
    return bind(name, x, **{**params, "axes": axes})


def text(closed: ClosedJaxpr) -> str:
    """A program on one line: `arguments -> equations; results`."""
    import re

    from amdjax.core.jaxpr import Literal

    names: dict[Any, str] = {}

    def name(v: Any, typed: bool = False) -> str:
        if isinstance(v, Literal):
            return f"{v.val}:{v.aval.str_short()}"
        known = names.setdefault(v, "abcdefghijkl"[len(names)])
        return f"{known}:{v.aval.str_short()}" if typed else known

    head = " ".join(name(v, True) for v in closed.jaxpr.invars)
    parts = []
    for e in closed.jaxpr.eqns:
        product = e.primitive.name in ("dot_general", "conv_general_dilated")
        shown = sorted(
            (k, v) for k, v in e.params.items() if not product or k == "dimension_numbers"
        )
        options = " ".join(f"{k}={listed(v)}" for k, v in shown)
        operands = " ".join(name(x) for x in e.invars)
        results = " ".join(name(v, True) for v in e.outvars)
        options = f"[{options}]" if options else ""
        parts.append(f"{results} = {e.primitive.name}{options} {operands}")
    parts.append(" ".join(name(v) for v in closed.jaxpr.outvars))
    return re.sub(r"\s+", " ", f"{head} -> {'; '.join(parts)}")


def listed(x: Any) -> Any:
    """Dimension numbers, whose pairs may be lists or tuples, in one form."""
    pairs = isinstance(x, tuple) and len(x) == 2 and all(isinstance(p, (tuple, list)) for p in x)
    if pairs and all(isinstance(q, (tuple, list)) for p in x for q in p):
        return "((" + "), (".join(", ".join(str(list(q)) for q in p) for p in x) + "))"
    return x


@pytest.mark.parametrize("case", APPLIES, ids=lambda c: c.rule)
def test_applies_and_keeps_values(case):
    before, after = rewritten(case.rule, case.fun, *case.args)
    assert text(after) == case.text
    for want, got in zip(run_jaxpr(before, *case.args), run_jaxpr(after, *case.args), strict=True):
        if case.bits:
            assert same_bits(want, got)
        else:
            np.testing.assert_array_equal(want, got)


def test_every_rule_has_a_case():
    assert {case.rule for case in APPLIES} == set(BY_NAME)


def test_rule_names_are_unique():
    assert len(BY_NAME) == len(COMPLEX_RULES) + len(RULES) + len(RELAXED_RULES)


def narrow(dtype):
    return lambda x: lax.convert_element_type(lax.convert_element_type(x, dtype), x.dtype)


BIG = np.array([2**53 + 1, -(2**62) - 1])
DECLINES = [
    ("add zero", lambda x: lax.add(x, 1.0), (X,)),
    ("tanh plus one in one function", lambda x: lax.mul(t := lax.tanh(x), lax.add(t, 1.0)), (X,)),
    ("one plus tanh in one function", lambda x: lax.add(2.0, lax.tanh(x)), (X,)),
    ("add zero", lambda x: lax.add(x, lax.full((4,), 1e-45)), (X,)),
    ("times one", lambda x: lax.mul(x, 0.0), (X,)),
    ("divide by a power of two", lambda x: lax.div(x, 3.0), (X,)),
    ("divide by a power of two", lambda x: lax.div(x, np.float32(2**-120)), (X,)),
    ("divide by a power of two", lambda x: lax.div(x, np.float16(2**-20)), (X.astype("e"),)),
    ("divide by a power of two", lambda x: lax.div(x, np.int32(4)), (I,)),
    ("divide by a power of two", lambda x: lax.div(x, 0.0), (X,)),
    ("subtract a negative", lambda x, y: lax.sub(lax.neg(x), y), (X, X)),
    ("max of one", lambda x, y: lax.max(x, y), (X, X)),
    ("div of numbers", lambda x: lax.add(x, lax.div(np.float32(5), np.float32(0))), (X,)),
    ("mul of numbers", lambda x: lax.add(x, lax.mul(np.float32(1e30), np.float32(1e30))), (X,)),
    ("padding to itself", lambda x: lax.pad(x, np.float32(3), ((0, 0, 1),)), (X,)),
    ("square", lambda x: lax.integer_pow(x, 3), (X,)),
    ("square", lambda x: lax.integer_pow(x, -1), (X,)),
    ("same choice", lambda c, x, y: lax.select_n(c, x, y), (B, X[:3], X[1:])),
    ("same dtype", lambda x: lax.convert_element_type(x, "float16"), (X,)),
    ("widen and back", narrow("float16"), (X,)),
    ("widen and back", narrow("float32"), (np.array([2**24 + 1], np.int32),)),
    ("widen and back", narrow("uint32"), (np.array([-1], np.int16),)),
    ("widen and back", narrow("bfloat16"), (X.astype("e"),)),
    ("widen and back", narrow("float16"), (X.astype(ml_dtypes.bfloat16),)),
    ("transpose of unit axes", lambda x: lax.transpose(x, (1, 0)), (F,)),
    ("broadcast to itself", lambda x: broadcast(x, (2, 4), (1,)), (X,)),
    ("reduce_sum of unit axes", lambda x: reduction("reduce_sum", x, (0,)), (ONE,)),
    ("reduce_max of unit axes", lambda x: reduction("reduce_max", x, (1, 2)), (ONE,)),
    ("reduce_sum twice",  # others lie between
     lambda x: reduction("reduce_sum", reduction("reduce_sum", x, (0,)), (1,)), (CUBE,)),
    ("reduce_sum twice",  # rounded in between
     lambda x: reduction("reduce_sum", reduction("reduce_sum", x, (1,)), (1,)), (HALVES,)),
    ("reduce_sum twice",  # which is read elsewhere
     lambda x: lax.add(reduction("reduce_sum", y := reduction("reduce_sum", x, (1,)), (1,)),
                       reduction("reduce_max", y, (1,))), (CUBE,)),
    ("update of a constant", lambda i, y: update(lax.scatter, 1.0, i, y, "clip"), (PLACES, PLACED)),
    ("update of a constant",  # bytes may not count so far
     lambda i, y: update(lax.scatter, 1.0, i, y, columns=300), (PLACES.astype("b"), PLACED)),
    ("update of a constant", lambda x, i, y: lax.scatter(
        x, i, y, lax.ScatterDimensionNumbers((), (0,), (0,))), (X, PLACES[:1], PLACED[0])),
    ("addition to zeros",  # two updates a row
     lambda i, y: update(lax.scatter_add, 0.0, i, y),
     (np.hstack([PLACES, PLACES]), np.hstack([PLACED, PLACED]))),
    ("addition to zeros", lambda i, y: update(lax.scatter_add, 1.0, i, y), (PLACES, PLACED)),
    ("add of additions to zeros",  # which are read twice
     lambda i, y: lax.add(*[update(lax.scatter_add, 0.0, i, y)] * 2), (PLACES, PLACED)),
    ("add of additions to zeros",
     lambda x, i, y: lax.add(update(lax.scatter_add, 1.0, i, y), x), (C, PLACES, PLACED)),
    ("add of additions to zeros",  # each addition would be rounded
     lambda x, i, y: lax.add(update(lax.scatter_add, 0.0, i, y), x),
     (C.astype("e"), PLACES, PLACED.astype("e"))),
    ("sum of one choice", lambda i, y: choice(i, y).sum(0), (PLACES[:, 0], PLACED[:, 0])),
    ("sum of one choice", lambda i, y: choice(i, y).sum(), (PLACES[:, 0], PLACED[:, 0])),
    ("sum of one choice", lambda i, y: choice(i, y).max(1), (PLACES[:, 0], PLACED[:, 0])),
    ("product of a transpose",  # its free axes would change places
     lambda x, y: product(lax.transpose(x, (2, 1, 0)), y, ((0,), (0,))),
     (np.arange(24, dtype="f").reshape(2, 3, 4), np.arange(8, dtype="f").reshape(4, 2))),
    ("transpose of a product",  # the batch axis moves
     lambda x, y: lax.transpose(product(x, y, ((2,), (1,)), ((0,), (0,))), (1, 0, 2)),
     (np.ones((2, 3, 4), "f"), np.ones((2, 4, 5), "f"))),
]  # fmt: skip


@pytest.mark.parametrize(
    "name,fun,args", DECLINES, ids=[f"{d[0]}-{i}" for i, d in enumerate(DECLINES)]
)
def test_leaves_alone(name, fun, args):
    before, after = rewritten(name, fun, *args)
    assert primitives(after) == primitives(before)


@pytest.mark.parametrize(
    "dtype,middle", [("int64", "float64"), ("uint64", "float64"), ("int64", "float32")]
)
def test_a_double_does_not_hold_long_integers(dtype, middle):
    with amdjax.enable_x64(True):
        x = BIG.astype(dtype) if dtype == "int64" else np.array([2**53 + 1], dtype)
        before, after = rewritten("widen and back", narrow(middle), x)
        assert primitives(after) == primitives(before)


def test_batched_products_of_transposes():
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    y = np.arange(40, dtype=np.float32).reshape(2, 4, 5)
    numbers = ((2,), (1,)), ((0,), (0,))

    def f(x, y):
        return product(lax.transpose(x, (1, 2, 0)), y, *numbers)

    before, after = rewritten("product of a transpose", f, x, y)
    assert primitives(after) == ["dot_general"]
    (want,), (got,) = run_jaxpr(before, x, y), run_jaxpr(after, x, y)
    np.testing.assert_array_equal(want, got)


def test_a_product_that_is_also_read_as_it_is_is_not_computed_twice():
    def f(x, y):
        z = product(x, y)
        return z, lax.transpose(z, (1, 0))

    _, after = rewritten("transpose of a product", f, A, C)
    assert primitives(after) == ["dot_general", "transpose"]


def test_effects_are_not_rewritten():
    def f(x):
        amdjax.debug.callback(lambda v: None, x)
        return lax.add(x, 0.0)

    _, after = rewritten("add zero", f, X)
    assert primitives(after) == ["debug_callback"]
