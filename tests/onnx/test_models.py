"""Models as functions: transformed, called with other sizes, refused where they do not fit."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from amdjax.jit import recompiles
from amdjax.onnx import NotTraceable, OnnxError, UnsupportedOperator, load

F = TensorProto.FLOAT


def value(name, shape=None, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, constants=(), opset=20, functions=(), domains=()):
    constants = [numpy_helper.from_array(v, n) for n, v in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


@pytest.fixture
def perceptron():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 16)).astype(np.float32),
        "b": rng.standard_normal(16).astype(np.float32),
        "v": rng.standard_normal((16, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
    ]
    return model(nodes, [value("x", ["n", 8])], [value("y", ["n", 3])], weights), weights


def forward(weights, x):
    return np.tanh(x @ weights["w"] + weights["b"]) @ weights["v"]


def test_a_model_is_a_pure_function(perceptron):
    proto, weights = perceptron
    made = load(proto)
    assert set(made.params) == set(weights)
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    want = forward({k: v.astype(np.float64) for k, v in weights.items()}, x)
    np.testing.assert_allclose(made(x)["y"], want, atol=1e-5)
    run = amdjax.jit(made.function)
    np.testing.assert_allclose(run(made.params, x=x)["y"], want, atol=1e-5)
    each = amdjax.vmap(lambda row: made.function(made.params, x=row[None])["y"][0])(jnp.asarray(x))
    np.testing.assert_allclose(each, want, atol=1e-5)


def test_gradients_by_parameters(perceptron):
    proto, _ = perceptron
    made = load(proto)
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    loss = lambda params: (made.function(params, x=x)["y"] ** 2).sum()
    amdjax.test_util.check_grads(loss, (amdjax.tree.map(jnp.asarray, made.params),), 1, modes="rev")


def test_parameters_that_are_replaced(perceptron):
    """Calls compute with the parameters as they are now: one, or all."""
    made = load(perceptron[0])
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    made(x)
    made.params["b"] = made.params["b"] + 1
    np.testing.assert_allclose(made(x)["y"], forward(made.params, x), atol=1e-5)
    made.params = {name: 2 * value for name, value in made.params.items()}
    np.testing.assert_allclose(made(x)["y"], forward(made.params, x), atol=1e-5)


def test_one_compile_serves_all_batches(perceptron):
    proto, weights = perceptron
    made = load(proto)
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 17, 64):
        x = rng.standard_normal((n, 8)).astype(np.float32)
        np.testing.assert_allclose(made(x)["y"], forward(weights, x), atol=1e-5)
    symbolic = amdjax.jit(lambda x: made.function(made.params, x=x)["y"], symbolic="n, 8")
    for n in (2, 5, 33):
        x = rng.standard_normal((n, 8)).astype(np.float32)
        np.testing.assert_allclose(symbolic(x), forward(weights, x), atol=1e-5)


def test_shapes_are_computed_while_tracing():
    """Reshape to what Shape, Gather, Concat and arithmetic make of sizes, symbolic ones too."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {
        "zero": np.int64([0]), "two": np.int64([2]), "rest": np.int64([-1]),
    }  # fmt: skip
    made = load(model(nodes, [value("x", ["n", 6])], [value("y")], constants))
    assert not made.params
    run = amdjax.jit(lambda x: made.function({}, x=x)["y"], symbolic="n, 6")
    for n in (2, 3, 7):
        x = np.arange(6 * n, dtype=np.float32).reshape(n, 6)
        np.testing.assert_array_equal(run(x), x.reshape(2 * n, 3))


def encoder(names):
    """A small BERT: positions up to 64, a mask of tokens, one layer of attention.

    Inputs have the dimensions of these names.
    """
    rng = np.random.default_rng(0)
    draw = lambda *shape: (0.3 * rng.standard_normal(shape)).astype(np.float32)
    constants = {
        "tokens": draw(50, 16), "places": draw(1, 64, 16), "ones": np.ones(16, np.float32),
        "zeros": np.zeros(16, np.float32), "half": np.float32(0.5), "least": np.float32(-1e9),
        "one": np.float32(1), "i0": np.int64([0]), "i1": np.int64([1]),
        "heads": np.int64([0, 0, 2, 8]),
        "joined": np.int64([0, 0, 16]), **{f"w{n}": draw(16, 16) for n in "qkvo"},
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Gather", ["tokens", "ids"], ["words"]), node("Shape", ["ids"], ["sizes"]),
        node("Gather", ["sizes", "i1"], ["length"]),
        node("Slice", ["places", "i0", "length", "i1"], ["cut"]),
        node("Add", ["words", "cut"], ["sum"]),
        node("LayerNormalization", ["sum", "ones", "zeros"], ["x"]),
        node("Cast", ["mask"], ["there"], to=F), node("Sub", ["one", "there"], ["absent"]),
        node("Mul", ["absent", "least"], ["far"]), node("Unsqueeze", ["far", "i12"], ["bias"]),
    ]  # fmt: skip
    constants["i12"] = np.int64([1, 2])
    for n in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{n}"], [f"{n}0"]),
            node("Reshape", [f"{n}0", "heads"], [f"{n}1"]),
            node("Transpose", [f"{n}1"], [n], perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3]),
        ]  # fmt: skip
    nodes += [
        node("MatMul", ["q", "k"], ["logits"]), node("Mul", ["logits", "half"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["masked"]), node("Softmax", ["masked"], ["weights"]),
        node("MatMul", ["weights", "v"], ["read"]),
        node("Transpose", ["read"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["h"]), node("MatMul", ["h", "wo"], ["o"]),
        node("Add", ["o", "x"], ["y"]),
    ]  # fmt: skip
    given = [value(n, d, TensorProto.INT64) for n, d in zip(("ids", "mask"), names)]
    return model(nodes, given, [value("y")], constants)


@pytest.mark.turns(2)
def test_a_transformer_is_traced_once_for_all_batches_and_lengths():
    """Also where each input has names of its own, and positions are cut at a length."""
    proto = encoder([("s0", "s1"), ("s2", "s3")])
    made, exact = load(proto), ReferenceEvaluator(proto)
    rng = np.random.default_rng(1)
    amdjax.clear_caches()
    for _ in range(20):
        b, t = int(rng.integers(1, 9)), int(rng.integers(1, 65))
        ids, mask = rng.integers(0, 50, (b, t)), np.ones((b, t), np.int64)
        mask[0, t // 2 + 1 :] = 0
        want = exact.run(None, {"ids": ids, "mask": mask})[0]
        np.testing.assert_allclose(made(ids, mask)["y"], want, atol=2e-5)
    # Of the first sizes, of all, of all up to the table's length, of one sequence, of equal sizes.
    assert len(made._prepared._divisions) <= 6
    compiled = sum(c.work.compiled for c in recompiles._compilations if "prepared" in c.function)
    assert compiled <= 14  # six variants of either program at most, and two of the first size


def test_names_that_are_told_to_be_equal():
    proto = encoder([("s0", "s1"), ("s2", "s3")])
    made = load(proto, dims={"s2": "s0", "s3": "s1"})
    assert [v.shape for v in made.inputs] == [("s0", "s1")] * 2
    with pytest.raises(OnnxError, match=r"mask.*axis 1 must have 5 elements"):
        made(np.ones((2, 5), np.int64), np.ones((2, 6), np.int64))
    with pytest.raises(OnnxError, match=r"dims: .s1. must be a positive integer or a name, got 0"):
        load(proto, dims={"s1": 0})


def test_positions_and_tables_of_symbolic_sizes():
    """Positions behind a cache, a table as long as the input, a size as a number: one program."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Add", ["r", "n"], ["places"]),
        helper.make_node("Cast", ["places"], ["floats"], to=F),
        helper.make_node("Cast", ["n"], ["count"], to=F),
        helper.make_node("Unsqueeze", ["n", "axis"], ["end"]),
        helper.make_node("Slice", ["table", "axis", "end"], ["part"]),
        helper.make_node("Cast", ["part"], ["own"], to=F),
        helper.make_node("Where", ["is", "floats", "own"], ["chosen"]),
        helper.make_node("Mul", ["chosen", "count"], ["y"]),
    ]
    constants = {
        "first": np.int64(0), "zero": np.int64(0), "one": np.int64(1), "axis": np.int64([0]),
        "table": np.arange(64), "is": np.array([False]),
    }  # fmt: skip
    made = load(model(nodes, [value("x", ["n"])], [value("y")], constants))
    with amdjax.enable_x64(True):
        shape = amdjax.export.symbolic_shape("n", constraints=["n <= 64"])
        x = amdjax.ShapeDtypeStruct(shape, np.float32)
        run = amdjax.jit(lambda x: made.function({}, x=x)["y"]).lower(x).compile()
        for n in (2, 5, 64):
            want = np.float32(n) * np.arange(n, dtype=np.float32)
            np.testing.assert_array_equal(run(np.zeros(n, np.float32)), want)


def test_values_that_shapes_depend_on():
    """Outside of `jit` a model may have as many outputs as there are nonzero elements."""
    made = load(model([helper.make_node("NonZero", ["x"], ["y"])], [value("x", [4])], [value("y")]))
    x = np.float32([0, 1, 0, 2])
    np.testing.assert_array_equal(made(x)["y"], [[1, 3]])
    with pytest.raises(NotTraceable, match=r"NonZero.*x must be known as the function is traced"):
        amdjax.jit(made.function)({}, x=x)


@pytest.fixture
def detector():
    """Boxes and scores of products, suppression, and what follows from what is kept."""
    rng = np.random.default_rng(1)
    constants = {
        "wt": rng.standard_normal((8, 6)).astype(np.float32), "axis": np.int64([2]),
        "most": np.int64([4]), "overlap": np.float32([0.3]), "least": np.float32([0.1]),
        "boxes_at": np.int64([0, 2]), "four": np.int64([4]), "six": np.int64([6]),
        "none": np.int64([0]),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wt"], ["h"]), node("Sigmoid", ["h"], ["s"]),
        node("Slice", ["s", "none", "four", "axis"], ["boxes"]),
        node("Slice", ["s", "four", "six", "axis"], ["columns"]),
        node("Transpose", ["columns"], ["scores"], perm=[0, 2, 1]),
        node("Shape", ["boxes"], ["sizes"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["found"]),
        node("Gather", ["found", "boxes_at"], ["places"], axis=1),
        node("GatherND", ["boxes", "places"], ["kept"]),
        node("NonZero", ["kept"], ["there"]),
        node("Cast", ["sizes"], ["count"], to=F),
        node("ReduceSum", ["count"], ["total"], keepdims=0),
        node("Mul", ["kept", "total"], ["scaled"]),
    ]  # fmt: skip
    outputs = [value("scores"), value("found", None, TensorProto.INT64), value("scaled"),
               value("there", None, TensorProto.INT64)]  # fmt: skip
    return model(nodes, [value("x", ["b", "n", 8])], outputs, constants), constants


def test_what_comes_before_values_is_compiled(detector):
    """All sizes by one program, up to the node whose results have no size that is known."""
    proto, held = detector
    made, exact = load(proto), ReferenceEvaluator(proto)
    rng = np.random.default_rng(2)
    for sizes in ((2, 20), (3, 12), (2, 30)):
        x = rng.standard_normal((*sizes, 8)).astype(np.float32)
        got = made(x)
        for (name, found), want in zip(got.items(), exact.run(None, {"x": x})):
            np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=name)
    assert len(made._parts.front._divisions) == 2  # as traced first, and for all sizes
    assert "boxes" in made._parts.names and "sizes" in made._parts.names
    assert "found" not in made._parts.names and "scaled" not in made._parts.names
    run = amdjax.jit(lambda x: made._parts.front(made.params, {"x": x})["boxes"])
    assert run.lower(x).compile().as_text("plan").count("CALL") <= 2
    made.params["wt"] = -made.params["wt"]
    changed = held | {"wt": -held["wt"]}
    for each in proto.graph.initializer:
        each.CopyFrom(numpy_helper.from_array(changed[each.name], each.name))
    want = ReferenceEvaluator(proto).run(None, {"x": x})
    for found, exact in zip(made(x).values(), want):
        np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_padded_selections_are_compiled(detector):
    """As many rows as there may be, of which those counted are what the reference keeps."""
    proto, _ = detector
    del proto.graph.node[-4], proto.graph.output[-1]  # NonZero, which mixes rows
    made, exact = load(proto, padded=True), ReferenceEvaluator(proto)
    run = amdjax.jit(lambda x: made.function(made.params, x=x), symbolic="b, n, 8")
    rng = np.random.default_rng(2)
    for b, n in ((2, 20), (4, 3)):
        x = rng.standard_normal((b, n, 8)).astype(np.float32)
        want = dict(zip([o.name for o in proto.graph.output], exact.run(None, {"x": x})))
        for got in (run(x), made(x) if n > 3 else run(x)):
            count = int(got["found.count"])
            assert got["found"].shape == (b * 2 * min(4, n), 3)
            np.testing.assert_array_equal(got["found"][:count], want["found"])
            assert (np.asarray(got["found"][count:]) == -1).all()
            np.testing.assert_allclose(got["scaled"][:count], want["scaled"], rtol=1e-5)
    assert made._traceable


@pytest.mark.parametrize("seed", range(3))
def test_suppression_in_a_program_keeps_the_same_boxes(seed):
    """Random boxes on a grid, whose overlaps and scores are often equal, also empty ones."""
    rng = np.random.default_rng(seed)
    node = helper.make_node
    names = ["boxes", "scores", "most", "overlap", "least"]
    info = [value(n) for n in names[:2]]
    for center in (0, 1):
        constants = {
            "most": np.int64([rng.integers(0, 9)]), "least": np.float32([0.25]),
            "overlap": np.float32([rng.choice([0, 0.25, 1 / 3, 0.5, 1])]),
        }  # fmt: skip
        nodes = [node("NonMaxSuppression", names, ["found"], center_point_box=center)]
        proto = model(nodes, info, [value("found", None, TensorProto.INT64)], constants)
        known, padded = load(proto), load(proto, padded=True)
        boxes = rng.integers(0, 5, (2, 24, 4)).astype(np.float32)
        scores = (rng.integers(0, 8, (2, 3, 24)) / 8).astype(np.float32)
        want = known(boxes, scores)["found"]
        got = padded(boxes, scores)
        assert len(want) == int(got["found.count"])
        np.testing.assert_array_equal(got["found"][: len(want)], want)


def test_several_nodes_that_depend_on_values():
    """One after another is left out, also such as follow from none before."""
    node = helper.make_node
    nodes = [
        node("Abs", ["x"], ["a"]), node("NonZero", ["a"], ["first"]),
        node("Neg", ["y"], ["b"]), node("NonZero", ["b"], ["second"]),
        node("Add", ["a", "b"], ["sum"]),
    ]  # fmt: skip
    outputs = [value(n) for n in ("first", "second", "sum")]
    made = load(model(nodes, [value("x", ["n"]), value("y", ["n"])], outputs))
    x, y = np.float32([0, -1, 2]), np.float32([0, 0, 3])
    got = made(x, y)
    assert got["first"].tolist() == [[1, 2]] and got["second"].tolist() == [[2]]
    assert got["sum"].tolist() == [0, 1, -1] and made._parts.names == {"a", "b", "sum"}


def test_sizes_for_names_of_dimensions(perceptron):
    proto, _ = perceptron
    made = load(proto, dims={"n": 4})
    assert made.inputs[0].shape == (4, 8)
    with pytest.raises(OnnxError, match=r"axis 0 must have 4 elements, got shape \(5, 8\)"):
        made(np.zeros((5, 8), np.float32))
    with pytest.raises(OnnxError, match="no input has a dimension 'm'"):
        load(proto, dims={"m": 4})


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({}, "input 'x' is missing"),
        ({"z": 1}, r"no input 'z'\. Its inputs are x: float32"),
        ({"x": np.zeros((5, 8))}, r"input x: float32\[n?.*\] must be float32, got float64"),
        ({"x": np.zeros((5, 9), np.float32)}, "axis 1 must have 8 elements"),
        ({"x": np.zeros(8, np.float32)}, "has 2 axes"),
        ({"x": [[1, 2], [1]]}, r"input x: float32.* cannot be list: "),
        ({"x": "abc"}, "input x: float32.* cannot be str: could not convert"),
        ({"x": None}, "input x: float32.* cannot be NoneType: it must be an array"),
        ({"x": {"x": 1}}, "input x: float32.* cannot be dict: "),
        ({"x": np.zeros((5, 8), object)}, r"must be float32, got object"),
        ({"xx": np.zeros((5, 8), np.float32)}, r"no input 'xx'\. Did you mean 'x'\?"),
    ],
)
def test_inputs_that_do_not_fit(perceptron, inputs, told):
    made = load(perceptron[0])
    with pytest.raises(OnnxError, match=told):
        made(**inputs)


def test_operators_of_users():
    node = helper.make_node("Twice", ["x"], ["y"], domain="mine", by=2.0)
    proto = model([node], [value("x", [3])], [value("y", [3])], domains=["mine"])
    with pytest.raises(UnsupportedOperator, match=r"mine\.Twice of version 1, node 'Twice_0'"):
        load(proto)
    made = load(proto, custom_ops={("mine", "Twice"): lambda x, by: x * by})
    np.testing.assert_array_equal(made(np.ones(3, np.float32))["y"], [2, 2, 2])
    with pytest.raises(TypeError, match="custom_ops must be functions"):
        load(proto, custom_ops={"Twice": None})


def test_functions_with_attributes():
    body = [helper.make_node("Elu", ["a"], ["b"])]
    body[0].attribute.add(name="alpha", ref_attr_name="k", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function(
        "mine", "Bend", ["a"], ["b"], body, [helper.make_opsetid("", 20)], ["k"]
    )
    node = helper.make_node("Bend", ["x"], ["y"], domain="mine", k=2.0)
    proto = model([node], [value("x", [2])], [value("y")], functions=[function], domains=["mine"])
    x = np.float32([-1, 1])
    np.testing.assert_allclose(load(proto)(x)["y"], [2 * np.expm1(-1), 1], rtol=1e-6)


def test_errors_name_the_node(perceptron):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="head")]
    made = load(model(nodes, [value("x")], [value("y")], {"w": np.ones((3, 2), np.float32)}))
    with pytest.raises(
        OnnxError, match=r"node 'head' \(MatMul\), given float32\[5,4\], float32\[3,2\]"
    ):
        made(np.ones((5, 4), np.float32))
    with pytest.raises(OnnxError, match="params lacks 'w'"):
        made.function({}, x=np.ones((5, 3), np.float32))


def test_printing(perceptron):
    text = str(load(perceptron[0]))
    assert "h = Gemm(x, w, b)" in text and "3 parameters, 192 numbers" in text
    assert "x: float32[n,8]" in repr(load(perceptron[0]))


def test_arrays_of_others_are_inputs(perceptron):
    """Of PyTorch, and of another order of bytes."""
    torch = pytest.importorskip("torch")
    proto, weights = perceptron
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    for given in (torch.from_numpy(x), x.astype(">f4"), x.tolist()):
        np.testing.assert_allclose(load(proto)(given)["y"], forward(weights, x), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"dims": "n"}, TypeError, "dims must be sizes by names of dimensions, got 'n'"),
        ({"dims": {"n": -2}}, OnnxError, "dims: 'n' must be a positive integer or a name, got -2"),
        ({"dims": {"n": 2.5}}, OnnxError, "dims: 'n' must be a positive integer or a name"),
        ({"padded": "no"}, TypeError, "padded must be True or False, got 'no'"),
        ({"custom_ops": [1]}, TypeError, r"custom_ops must be functions by \(domain, name\)"),
    ],
)
def test_options_that_are_none(perceptron, options, error, told):
    with pytest.raises(error, match=told):
        load(perceptron[0], **options)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="is a folder, not a file"):
        load(tmp_path)
    with pytest.raises(OnnxError, match="pointer of Git LFS"):
        load(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")


def test_what_a_saved_model_is_told(perceptron, tmp_path):
    made, path = load(perceptron[0]), tmp_path / "m.amdjax"
    with pytest.raises(OnnxError, match="constraints: there is no dimension 'm'; there are n"):
        made.save(path, constraints=["m < 3"])
    with pytest.raises(OnnxError, match="example has 'z', which is no input"):
        made.save(path, example={"z": np.zeros((2, 8), np.float32)})
