"""No attention holds an element for each pair, whatever the machine, the dtype and the options."""

import math

import numpy as np
import pytest

import amdjax
from amdjax import targets
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr
from amdjax.kernels.attention.gpu import block_plans
from amdjax.kernels.attention.gpu_bias import bias_part
from amdjax.kernels.attention.gpu_gradient import gradient_plans
from amdjax.kernels.attention.problem import Attention
from amdjax.lax.attention import composed_attention, composed_gradient, composed_tangent
from tests.support.turns import in_turn

LENGTH = 4096
PAIRS = (LENGTH * LENGTH, LENGTH * LENGTH, LENGTH, 1)
BIAS = {"given": ("bias",), "bias": PAIRS, "bias_dtype": "f32"}
OPTIONS = {
    "none": {},
    "causal": {"is_causal": True},
    "bias": BIAS,
    "mask": {"given": ("mask",), "mask": PAIRS},
    "lengths": {"given": ("query_lengths", "key_value_lengths")},
    "window": {"window": (64, 64)},
    "dropping": {"given": ("seeds",), "rate": 0.1},
    "everything": BIAS | {
        "given": ("bias", "mask", "query_lengths", "key_value_lengths", "seeds"), "mask": PAIRS,
        "rate": 0.1, "is_causal": True, "window": (64, 0),
    },
}  # fmt: skip
FEATURES = [(32, 32), (64, 64), (96, 96), (128, 128), (256, 256), (64, 128), (40, 250), (250, 60)]
TARGETS = [
    "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1102", "gfx1201", "sm_80",
    "sm_90", "sm_90a",
]  # fmt: skip


def problem(dtype, features, length, options):
    usual = {
        "given": (), "bias": (), "mask": (), "bias_dtype": "", "is_causal": False, "window": None,
        "rate": 0.0, "out_dtype": dtype,
    }  # fmt: skip
    sizes = 2, length, length, 4, 2, *features
    return Attention(*sizes, dtype, scale=0.1, **usual | options)


def pairs(p):
    return p.batch * p.heads * p.queries * p.keys


def workspace(plan):
    """Elements that programs which share keys leave for the last of them."""
    if plan.splits == 1:
        return 0
    each = plan.cut.rows * (plan.cut.made(plan.problem)[1] + 2)
    return plan.programs * plan.splits * each


@pytest.mark.parametrize("gfx", TARGETS)
@pytest.mark.parametrize("length", [LENGTH, 1001])
def test_there_are_kernels_for_all_of_them(gfx, length):
    target = targets.get(gfx)
    for features in in_turn(FEATURES, 3, gfx):
        for dtype in ("f32", "f16", "bf16", "f8_e4m3fn"):
            for name, options in OPTIONS.items():
                p = problem(dtype, features, length, options)
                plans = block_plans(p, target)
                assert plans, (dtype, features, name)
                assert length < LENGTH or max(map(workspace, plans)) < pairs(p) / 4
                if dtype != "f8_e4m3fn":
                    assert gradient_plans(p, target), (dtype, features, name)
                    assert not p.bias or bias_part(p, target), (dtype, features, name)


def largest(jaxpr):
    """Elements of the largest value that a program computes, and of those inside."""
    found = 0
    for eqn in jaxpr.eqns:
        inner = [x for p in eqn.params.values() for x in (p if isinstance(p, tuple) else (p,))]
        inner = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in inner]
        found = max([found, *(largest(x) for x in inner if isinstance(x, Jaxpr))])
        found = max([found, *(math.prod(v.aval.shape) for v in eqn.outvars)])
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("which", ["result", "tangent", "gradient"])
@pytest.mark.parametrize("name", OPTIONS)
def test_definitions_take_queries_by_blocks(which, name, dtype):
    options = OPTIONS[name]
    batch, heads, features = 1, 2, 32
    array = lambda *shape, of=dtype: amdjax.ShapeDtypeStruct(shape, np.dtype(of))
    rows, statistics = array(batch, LENGTH, heads, features), array(batch, heads, LENGTH)
    whole = (1, 1, LENGTH, LENGTH)
    optional = {
        "bias": array(*whole), "mask": array(*whole, of=bool),
        "query_lengths": array(batch, of="int32"), "key_value_lengths": array(batch, of="int32"),
        "seeds": array(batch, 2, of="uint32"),
    }  # fmt: skip
    given = options.get("given", ())
    params = {
        "given": given, "scale": 0.1, "is_causal": options.get("is_causal", False),
        "window": options.get("window"), "rate": options.get("rate", 0.0),
    }  # fmt: skip
    args = [rows] * 3 + [optional[x] for x in given]
    composed = composed_attention
    if which == "tangent":
        args += [rows, statistics, statistics, rows, rows, rows]
        composed, params = composed_tangent, params | {"directions": ("query", "key", "value")}
    if which == "gradient":
        args += [statistics, statistics, statistics, rows]
        composed, params = composed_gradient, params | {"bias_gradient": "bias" in given}
    with amdjax.enable_x64(dtype == "float64"):
        closed = amdjax.make_jaxpr(lambda *a: composed(*a, **params))(*args)
    # A bias or a mask of one head has half as many elements, and may be cut into blocks.
    is_given = {"bias", "mask"} & set(given)
    assert largest(closed.jaxpr) <= (LENGTH**2 if is_given else 1 << 20)
