"""Models and compiled functions in files: one file for all sizes."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import amdjax
import amdjax.numpy as jnp
from amdjax import onnx
from amdjax.core.config import State
from amdjax.export.model import FileModel
from amdjax.export.values import Value
from amdjax.jit.cpu import program
from amdjax.passes.flatten import flatten_calls

RNG = np.random.default_rng(0)
W = RNG.normal(size=(8, 4)).astype(np.float32)


def perceptron(batch="batch size", wide="x"):
    """`tanh(x @ w) + b` and the sum over rows, whose first dimension has a name of its own."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", [wide, "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Add", ["t", "i"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info(wide, TensorProto.FLOAT, [batch, 8]), info("i", TensorProto.FLOAT, [4])],
        [info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(W, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.metadata_props.add(key="by", value="me")
    return onnx.load(model)


def test_a_model_stays_what_it_is(tmp_path):
    model, path = perceptron(), tmp_path / "m.amdjax"
    model.save(path, targets=["cpu", "gfx942"])
    for artifact in (amdjax.load_artifact(path), amdjax.load_artifact(path, trust=True)):
        assert [str(v) for v in artifact.inputs] == ["x: float32[batch_size,8]", "i: float32[4]"]
        assert str(artifact.outputs[0]) == "y: float32[batch_size,4]"
        assert artifact.metadata["by"] == "me" and artifact.targets == ("cpu", "gfx942")
        np.testing.assert_array_equal(artifact.params["w"], W)
        for size in (1, 2, 5):
            x, i = RNG.normal(size=(size, 8)).astype(np.float32), np.ones(4, np.float32)
            expected = np.tanh(x @ W) + 1
            np.testing.assert_allclose(artifact(x, i)["y"], expected, rtol=1e-5, atol=3e-7)
            np.testing.assert_allclose(artifact(i=i, x=x)["y"], expected, rtol=1e-5, atol=3e-7)
        f = lambda w: artifact.function({"w": w}, x, i=i)["y"].sum()
        np.testing.assert_allclose(
            amdjax.grad(f)(W), x.T @ (1 - np.tanh(x @ W) ** 2), rtol=1e-4, atol=1e-5
        )
        double = {"w": 2 * W}
        made = amdjax.jit(artifact.function)(double, x, i)["y"]
        np.testing.assert_allclose(made, np.tanh(2 * x @ W) + 1, rtol=1e-5, atol=3e-7)


@pytest.mark.parametrize("batch", [3, "batch"])
@pytest.mark.parametrize("trust", [False, True])
def test_calls_have_the_parameters_that_were_saved(tmp_path, monkeypatch, batch, trust):
    """As constants of what is compiled, until they are replaced."""
    planned, plan = [], program.plan_program
    monkeypatch.setattr(
        program, "plan_program", lambda *args: planned.append(args[0]) or plan(*args)
    )
    x, i = RNG.normal(size=(3, 8)).astype(np.float32), np.ones(4, np.float32)
    with State("keep_plans")(True), State("check")(False), State("cache_dir")(str(tmp_path / "c")):
        perceptron(batch).save(tmp_path / "m", example={"x": x})
        planned.clear()
        artifact = amdjax.load_artifact(tmp_path / "m", trust=trust)
        for _ in range(2):
            expected = np.tanh(x @ W) + 1
            np.testing.assert_allclose(artifact(x, i)["y"], expected, rtol=1e-5, atol=3e-7)
        assert bool(planned) == (not trust)
        assert all(len(closed.in_avals) == 2 for closed in planned)
        artifact.params["w"] = 2 * W
        expected = np.tanh(2 * x @ W) + 1
        np.testing.assert_allclose(artifact(x, i)["y"], expected, rtol=1e-5, atol=3e-7)


def test_models_without_parameters(tmp_path):
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    values = [info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.load(helper.make_model(graph)).save(tmp_path / "m")
    x = np.ones((2, 3), np.float32)
    for trust in (False, True):
        made = amdjax.load_artifact(tmp_path / "m", trust=trust)(x)["y"]
        np.testing.assert_allclose(made, np.tanh(x), rtol=1e-6)


@pytest.mark.parametrize("batch", [2, "batch"])
def test_nodes_have_their_names(tmp_path, batch):
    """As the driver asks for them: of the program of a call, whether or not sizes are open."""
    perceptron(batch).save(tmp_path / "m")
    artifact = amdjax.load_artifact(tmp_path / "m", trust=True)
    f = lambda p, x, i: artifact.function(p, x, i)
    traced = amdjax.jit(f).trace(artifact.params, np.ones((2, 8), np.float32), np.ones(4, "f4"))
    names = [str(e.source.name_stack) for e in flatten_calls(traced.jaxpr).eqns]
    expected = [str(e.source.name_stack) for e in flatten_calls(
        amdjax.jit(lambda p, x, i: perceptron(batch).function(p, x, i)).trace(
            artifact.params, np.ones((2, 8), np.float32), np.ones(4, "f4")
        ).jaxpr
    ).eqns]  # fmt: skip
    assert [n for n in names if n] == [n for n in expected if n] != []


@pytest.mark.parametrize("constraints", [(), ("length <= 16",), ("length >= 2",)])
def test_sizes_within_constraints(tmp_path, constraints):
    """As BERT's graph has it: tables of positions are cut at the length, and added.

    What they are cut at is found where nothing is said of it.
    """
    info, path = helper.make_tensor_value_info, tmp_path / "m.amdjax"
    table = RNG.normal(size=(16, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "n"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["z"]),
        helper.make_node("Slice", ["longer", "zero", "n"], ["more"]),
        helper.make_node("Add", ["z", "more"], ["y"]),
    ]
    tables = {"table": table, "longer": np.ones((20, 4), np.float32), "zero": np.int64([0])}
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["batch", "length", 4])],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(x, name) for name, x in tables.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    model = onnx.load(helper.make_model(graph, opset_imports=opsets))
    model.save(path, constraints=constraints)
    artifact = amdjax.load_artifact(path)
    for batch, length in ((2, 5), (1, 16), (3, 2)):
        x = RNG.normal(size=(batch, length, 4)).astype(np.float32)
        np.testing.assert_allclose(artifact(x)["y"], x + table[:length] + 1, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"(?s)length <= 16.*length = 17\n.*axis 1 of 'x' is 17"):
        artifact(np.zeros((1, 17, 4), np.float32))


@pytest.mark.parametrize("others", [False, True])
def test_sizes_that_are_multiples(tmp_path, others):
    """A model of even sizes is saved as such, unless there are others that it can be traced for."""

    class Halves(FileModel):
        def _computed(self, params, given):
            x = given["x"]
            half = x.shape[0] // 2
            if others and isinstance(half, int) and x.shape[0] % 2:
                return {"y": x}
            try:
                return {"y": x + jnp.concatenate([x[half:], x[:half]])[: 2 * half]}
            except TypeError as e:
                raise self.error(str(e)) from e

    model = Halves({}, [Value("x", np.dtype("float32"), ("n",))], [Value("y")], {}, ())
    if others:
        with pytest.raises(ValueError, match="give constraints"):
            model.save(tmp_path / "m", example={"x": np.zeros(6, np.float32)})
        model.save(tmp_path / "m", constraints=["mod(n, 2) == 0"])
    else:
        model.save(tmp_path / "m")
    artifact = amdjax.load_artifact(tmp_path / "m")
    for n in (2, 6, 8):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(artifact(x)["y"], x + np.roll(x, n // 2))
    with pytest.raises(ValueError, match=r"mod\(n, 2\) == 0"):
        artifact(np.zeros(7, np.float32))


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"i": np.ones(4, np.float32)}, "input 'x' is missing"),
        ({"x": np.ones((2, 8)), "i": np.ones(4, np.float32)}, "must be float32, got float64"),
        ({"x": np.ones((2, 7), np.float32), "i": np.ones(4, np.float32)}, "must have 8 elements"),
        ({"z": 1}, "the artifact has no input 'z'"),
    ],
)
def test_inputs_are_checked(tmp_path, inputs, told):
    perceptron().save(tmp_path / "m", targets=[])
    with pytest.raises(ValueError, match=told):
        amdjax.load_artifact(tmp_path / "m")(**inputs)


def test_an_example_tells_sizes(tmp_path):
    x = np.ones((3, 8), np.float32)
    perceptron().save(tmp_path / "m", example={"x": x})
    artifact = amdjax.load_artifact(tmp_path / "m")
    assert artifact.manifest["targets"]["cpu"]["sizes"] == [{"batch_size": 3}]
    artifact.save(tmp_path / "n", targets=["gfx1100"], example=[{"x": x}, {"x": x[:1]}])
    again = amdjax.load_artifact(tmp_path / "n")
    assert again.targets == ("gfx1100",) and again.metadata == artifact.metadata
    sizes = again.manifest["targets"]["gfx1100"]["sizes"]
    assert sizes == [{"batch_size": 3}, {"batch_size": 1}]
    np.testing.assert_array_equal(
        again(x, np.zeros(4, np.float32))["y"], artifact(x, np.zeros(4, np.float32))["y"]
    )


def test_what_cannot_be_saved(tmp_path):
    class Sized(FileModel):
        def _computed(self, params, given):
            return {"y": jnp.zeros(3)[: given["x"].shape[0]] if given["x"].shape[0] < 2 else 1}

    f32 = np.dtype("float32")
    with pytest.raises(ValueError, match="is no tensor"):
        Sized({}, [Value("x", f32, (), "sequence(tensor)")], [], {}, ()).save(tmp_path / "m")
    with pytest.raises(ValueError, match="nothing is said of the shape"):
        Sized({}, [Value("x", f32)], [], {}, ()).save(tmp_path / "m")
    with pytest.raises(ValueError, match="targets must be a list"):
        perceptron().save(tmp_path / "m", targets="cpu")


def test_integers_of_64_bits(tmp_path):
    class Table(FileModel):
        def _computed(self, params, given):
            return {"y": jnp.asarray(params["t"])[given["at"]], "n": given["at"] + (1 << 40)}

    values = [Value("at", np.dtype("int64"), ("n",))]
    table = Table({"t": np.arange(5, dtype=np.float32)}, values, [Value("y"), Value("n")], {}, ())
    table.save(tmp_path / "m")
    artifact = amdjax.load_artifact(tmp_path / "m", trust=True)
    for at in (np.array([4, 0]), np.array([4, 0], np.int32), [4, 0]):
        made = artifact(at)
        assert made["y"].tolist() == [4, 0] and made["n"].tolist() == [4 + (1 << 40), 1 << 40]
    assert artifact.function(artifact.params, jnp.array([1]))["n"].dtype == np.int32


@pytest.mark.parametrize("shape", ["n, 8", "3, 8"])
@pytest.mark.parametrize("target", [None, "gfx1100"])
def test_compiled_functions(tmp_path, shape, target):
    spec = amdjax.ShapeDtypeStruct(amdjax.export.symbolic_shape(shape), np.float32)
    compiled = amdjax.jit(lambda x, *, y: (x @ W) * y).lower(spec, y=2.0).compile(target)
    compiled.save(tmp_path / "f")
    artifact = amdjax.load_artifact(tmp_path / "f", trust=True)
    assert artifact.targets == (target or "cpu",)
    for n in (3,) if shape == "3, 8" else (3, 1):
        x = np.ones((n, 8), np.float32)
        np.testing.assert_allclose(artifact(x, y=3.0), 3 * x @ W, rtol=1e-5)
