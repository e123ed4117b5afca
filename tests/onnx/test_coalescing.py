"""What exporters write out in small operators is one kernel, without a pattern for each form."""

import math

import numpy as np
import pytest

import amdjax

onnx = pytest.importorskip("onnx")
from onnx import helper

from amdjax.onnx import load
from tests.onnx.test_models import model, value

ERF = np.vectorize(math.erf)

#: For each form its nodes, `output = operator(inputs)`, and what it computes.
FORMS = {
    "layer norm": (
        "m=ReduceMean(x,last) d=Sub(x,m) q=Mul(d,d) v=ReduceMean(q,last) e=Add(v,small) s=Sqrt(e) "
        "n=Div(d,s) g=Mul(n,scale) y=Add(g,shift)",
        lambda x, g, b: (x - x.mean(-1, keepdims=True))
        / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b,
    ),
    "RMS norm": (
        "q=Pow(x,two) v=ReduceMean(q,last) e=Add(v,small) s=Sqrt(e) r=Reciprocal(s) n=Mul(x,r) "
        "y=Mul(n,scale)",
        lambda x, g, b: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
    ),
    "GELU": (
        "d=Div(x,root) e=Erf(d) p=Add(e,one) m=Mul(x,p) y=Mul(m,half)",
        lambda x, g, b: x * (1 + ERF(x / np.sqrt(2))) / 2,
    ),
    "quick GELU": (
        "m=Mul(x,factor) s=Sigmoid(m) y=Mul(x,s)", lambda x, g, b: x / (1 + np.exp(-1.702 * x)),
    ),
    "SiLU": ("s=Sigmoid(x) y=Mul(x,s)", lambda x, g, b: x / (1 + np.exp(-x))),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_one_kernel(form):
    text, want = FORMS[form]
    nodes = []
    for part in text.split():
        output, call = part.split("=")
        op, inputs = call.rstrip(")").split("(")
        nodes.append(helper.make_node(op, inputs.split(","), [output]))
    rng = np.random.default_rng(0)
    constants = {
        "last": np.int64([-1]), "small": np.float32(1e-5), "two": np.float32(2),
        "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
        "factor": np.float32(1.702), "scale": rng.standard_normal(64).astype(np.float32),
        "shift": rng.standard_normal(64).astype(np.float32),
    }  # fmt: skip
    read = {i for node in nodes for i in node.input}
    held = {n: v for n, v in constants.items() if n in read}
    made = load(model(nodes, [value("x", [4, 16, 64])], [value("y")], held))
    x = rng.standard_normal((4, 16, 64)).astype(np.float32)
    exact = want(x.astype(np.float64), constants["scale"], constants["shift"])
    np.testing.assert_allclose(made(x)["y"], exact, rtol=1e-5, atol=2e-6)
    run = amdjax.jit(lambda params, x: made.function(params, x=x)["y"])
    plan = run.lower(made.params, x).compile().as_text("plan")
    assert sum(line.strip().startswith("CALL") for line in plan.splitlines()) == 1
