"""Models as source: what is executed gives what the model gives, and no text of a file gets in."""

import ast
import importlib.util

import numpy as np
import pytest

import amdjax

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from amdjax.onnx import OnnxError, load

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, value = helper.make_node, helper.make_tensor_value_info
RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def model(nodes, inputs, outputs, constants=None, functions=(), domains=(), opset=20):
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def perceptron():
    nodes = [
        node("Gemm", ["x", "w", "b"], ["/fc/Gemm_output_0"], name="/fc/Gemm", transB=1),
        node("Relu", ["/fc/Gemm_output_0"], ["/fc/act/Relu_output_0"], name="/fc/act/Relu"),
        node("Add", ["/fc/act/Relu_output_0", "one"], ["/fc/Add"], name="/fc/Add"),
        node("MatMul", ["/fc/Add", "v"], ["y"], name="/head/MatMul"),
    ]
    constants = {"w": floats(5, 4), "b": floats(5), "one": np.float32(1), "v": floats(5, 2)}
    return model(nodes, [value("x", F, ["n", 4])], [value("y", F, None)], constants), floats(3, 4)


def convolution():
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("HardSwish", ["c"], ["h"]),
        node("GlobalAveragePool", ["h"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Softmax", ["f"], ["y"]),
    ]
    constants = {"w": floats(4, 3, 3, 3), "b": floats(4)}
    return model(nodes, [value("x", F, [1, 3, 8, 8])], [value("y", F, None)], constants), floats(
        1, 3, 8, 8
    )


def shapes():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Slice", ["r", "low", "high", "axes"], ["part"]),
        node("Split", ["part"], ["a", "b"], axis=1, num_outputs=2),
        node("Sub", ["a", "b"], ["y"]),
    ]
    constants = {
        "zero": np.int64([0]), "rest": np.int64([2, 3]), "low": np.int64([0]),
        "high": np.int64([2]), "axes": np.int64([2]),
    }  # fmt: skip
    return model(nodes, [value("x", F, ["n", 6])], [value("y", F, None)], constants), floats(3, 6)


def branches():
    """A branch that reads around itself, a loop, and a scan."""
    inner = lambda op: helper.make_graph(
        [node(op, ["x"], ["r"])], "branch", [], [value("r", F, ["n"])]
    )
    body = helper.make_graph(
        [
            node("Identity", ["going"], ["on"]),
            node("Add", ["carried", "x"], ["next"]),
            node("Mul", ["next", "next"], ["row"]),
        ],
        "body", [value("i", I, []), value("going", B, []), value("carried", F, ["n"])],
        [value("on", B, []), value("next", F, ["n"]), value("row", F, ["n"])],
    )  # fmt: skip
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "limit"], ["is_large"]),
        node("If", ["is_large"], ["h"], then_branch=inner("Exp"), else_branch=inner("Neg")),
        node("Loop", ["count", "", "h"], ["last", "rows"], body=body),
        node("Add", ["last", "rows"], ["y"]),
    ]
    constants = {"limit": np.float32(0), "count": np.int64(3)}
    return model(nodes, [value("x", F, ["n"])], [value("y", F, None)], constants), floats(4)


def functions():
    inner = node("Elu", ["a"], ["e"])
    inner.attribute.add(name="alpha", ref_attr_name="k", type=onnx.AttributeProto.FLOAT)
    made = helper.make_function(
        "mine", "Layer", ["a"], ["z"], [inner, node("Add", ["e", "a"], ["z"])],
        [helper.make_opsetid("", 20)], attributes=["k"],
    )  # fmt: skip
    nodes = [
        node("Layer", ["x"], ["h"], domain="mine", k=0.5),
        node("Layer", ["h"], ["y"], domain="mine", k=2.0),
    ]
    proto = model(nodes, [value("x", F, ["n"])], [value("y", F, None)], None, [made], ["mine"])
    return proto, floats(5)


def recurrent():
    constants = {"w": floats(2, 12, 4), "r": floats(2, 12, 3), "b": floats(2, 24)}
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["a", "h", "c"], direction="bidirectional"),
        node("Concat", ["h", "c"], ["y"], axis=0),
    ]  # fmt: skip
    return model(nodes, [value("x", F, [5, 2, 4])], [value("y", F, None)], constants), floats(
        5, 2, 4
    )


@pytest.mark.parametrize(
    "build", [perceptron, convolution, shapes, branches, functions, recurrent]
)  # fmt: skip
def test_source_gives_what_the_model_gives(build, tmp_path):
    proto, x = build()
    made = load(proto)
    path = tmp_path / "net.py"
    text = made.to_python(path)
    assert path.read_text() == text
    spec = importlib.util.spec_from_file_location("net", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    params = module.load_params(tmp_path / "net.safetensors") if made.params else {}
    assert set(params) == set(made.params) == set(module.PARAMS)
    with amdjax.enable_x64(True):
        got = [run(params, x)["y"] for run in (module.model, amdjax.jit(module.model))]
    want = np.asarray(made(x)["y"])
    for y in got:
        assert y.shape == want.shape
        bound = 8 * np.finfo(np.float32).eps * np.abs(want).max()
        assert np.abs(np.asarray(y) - want).max() <= bound


def test_source_is_readable():
    """Functions of amdjax where there are such, modules as functions, shapes as numbers."""
    text = load(perceptron()[0]).to_python()
    assert "def fc(params, x):\n    gemm = x @ params['w'].T + params['b']\n" in text
    assert "relu = nn.relu(gemm)" in text
    assert "operator(" not in text


def test_inputs_with_defaults():
    proto, x = perceptron()
    proto.graph.input.append(value("b", F, [5]))
    made = load(proto)
    scope = {}
    exec(made.to_python(), scope)
    other = floats(5)
    for more in ({}, {"b": other}):
        np.testing.assert_allclose(
            scope["model"](made.params, x, **more)["y"], made(x=x, **more)["y"], rtol=1e-6
        )


def test_what_has_no_source():
    proto = model(
        [node("Mine", ["x"], ["y"], domain="m")], [value("x", F, [2])], [value("y", F, [2])],
        domains=["m"],
    )  # fmt: skip
    made = load(proto, custom_ops={("m", "Mine"): lambda x: x})
    with pytest.raises(OnnxError, match="Mine is a function that was given to load"):
        made.to_python()


#: Texts that would run if they were written as they are.
HOSTILE = [
    "x'] ; boom() #", 'y"""\nboom()\n"""', "a\nboom()", "__import__('os')", "boom()", "class", "np",
    "params", "model", "{boom()}", "\\", "'", '"', "a\u2028boom()", "\uff42\uff4f\uff4f\uff4d", "",
    "None", "print", "/a'/boom()/x", "#", "é", "load_params", "_outputs", "lambda: boom()",
]  # fmt: skip


def test_texts_of_files_are_never_code():
    """Names of all kinds from hostile texts: only known names are called, and results are right."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        pick = lambda: HOSTILE[rng.integers(len(HOSTILE))] + HOSTILE[rng.integers(len(HOSTILE))]
        names = [f"{pick()}{i}" for i in range(6)]  # which a graph needs to be different
        x, w, h, s, p, y = names
        nodes = [
            node("MatMul", [x, w], [h], name=pick()),
            node("Softplus", [h], [s], name=f"/{pick()}/{pick()}/n"),
            node("Selu", [s], [p], name=f"/{pick()}/m"),
            node("Constant", [], ["text"], value_string=pick()),
            node("Add", [p, s], [y], name=pick()),
        ]
        proto = model(
            nodes, [value(x, F, [f"{pick()}n", 4])], [value(y, F, None)], {w: floats(4, 3)}
        )
        proto.doc_string = proto.producer_name = proto.graph.doc_string = pick()
        made = load(proto)
        text = made.to_python()
        tree = ast.parse(text)
        called = {c.func.id for c in ast.walk(tree)
                  if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}  # fmt: skip
        defined = {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
        defined |= {t.id for a in tree.body if isinstance(a, ast.Assign) for t in a.targets}
        assert called <= defined | {"operator", "to_device"}
        assert text.isascii()
        scope = {"boom": pytest.fail}
        exec(text, scope)
        given = floats(2, 4)
        (got,) = scope["model"](made.params, given).values()
        np.testing.assert_allclose(got, made(given)[y], rtol=1e-5)
