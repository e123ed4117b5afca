"""What exporters write out in small operators becomes the kernels that docs/models.md tells."""

import re
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper

from amdjax.onnx import load
from tests.onnx.test_models import model, value
from tests.support.written_forms import FORMS

KINDS = {bool: TensorProto.BOOL, np.int64: TensorProto.INT64, np.float32: TensorProto.FLOAT}
#: What steps of the compiled program are called, by the words of the schedule.
STEPS = {"attention": "attention", "dot_general": "product", "conv_general_dilated": "convolution"}


def steps(compiled):
    """What each step of a program does."""
    found = re.findall(
        r"^v\d+\S*(?:, v\d+\S*)* = (\w+)", compiled.as_text("schedule"), re.MULTILINE
    )
    return tuple(STEPS.get(name, "region") for name in found if name != "reshape")  # a view


@pytest.mark.parametrize("form", FORMS, ids=[f.name for f in FORMS])
def test_forms(form):
    nodes = [helper.make_node(op, i, o, **attributes) for o, op, i, attributes in form.parsed()]
    inputs = form.inputs
    typed = [value(n, list(x.shape), KINDS[x.dtype.type if x.dtype != bool else bool])
             for n, x in inputs.items()]  # fmt: skip
    exact = form.want({
        n: x.astype(np.float64) if x.dtype == np.float32 else x
        for n, x in {**form.constants, **inputs}.items()
    })  # fmt: skip
    made = load(model(nodes, typed, list(map(value, exact)), form.constants, opset=17))
    found = made(**inputs)
    for name, want in exact.items():
        near = 1e-5 * abs(want).max()
        np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=near + form.rounds)
    lowered, _ = made.lower(**inputs)
    compiled = lowered.compile()
    assert steps(compiled) == form.becomes, compiled.as_text("schedule")


def test_docs_tell_what_forms_become():
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    told = dict(re.findall(r"^\| ([^|]+?) +\| [^|]+\| ([^|]+?) +\|$", text, re.MULTILINE))
    for form in FORMS:
        assert told.get(form.name) == ", ".join(form.becomes)
