"""Files that are damaged, hostile or too large end in clear errors."""

import contextlib
import itertools
import mmap
import os
import random
import tracemalloc

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from amdjax.onnx import OnnxError, load, reading, registry
from amdjax.onnx.registry import find_rule
from amdjax.onnx.standard import version_of
from tests.onnx.test_models import model, value


def external(location, shape=(4,), **options):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **options}.items():
        tensor.external_data.add(key=key, value=str(text))
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y")])
    made.graph.initializer.append(tensor)
    return made


def save(folder, proto):
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path):
    data = np.arange(8, dtype=np.float32)
    (tmp_path / "weights").write_bytes(data.tobytes())
    made = load(save(tmp_path, external("weights", offset=16, length=16)))
    root = made.params["w"]
    while isinstance(root, np.ndarray):
        root = root.base
    assert isinstance(root, mmap.mmap)
    np.testing.assert_array_equal(made(np.zeros(4, np.float32))["y"], data[4:])


def test_mapped_data_takes_no_memory(tmp_path):
    """A weight of a GiB, of whose file there are holes in place of bytes."""
    count = 1 << 28
    with open(tmp_path / "weights", "wb") as file:
        file.truncate(4 * count)
    path = save(tmp_path, external("weights", (count // 4, 4), offset=0, length=4 * count))
    tracemalloc.start()
    try:
        made = load(path)
        assert made.params["w"][-1].sum() == 0
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("location", "options", "told"),
    [
        ("../secret", {}, "does not lie in the folder"),
        ("/etc/hostname", {}, "does not lie in the folder"),
        ("link", {}, "does not lie in the folder"),
        ("absent", {}, "there is no file 'absent'"),
        ("short", {}, "16 bytes from 0 on are asked of 'short', which has 8"),
        ("weights", {"offset": 999}, "from 999 on are asked"),
        ("weights", {"offset": -4}, "from -4 on are asked"),
        ("weights", {"length": 3}, r"length 3"),
        ("weights", {"offset": "x"}, "must be numbers"),
        ("nul\0", {}, "names no file"),
    ],
)
def test_external_data_stays_in_the_folder(tmp_path, location, options, told):
    outside, folder = tmp_path / "secret", tmp_path / "models"
    folder.mkdir()
    outside.write_bytes(bytes(64))
    (folder / "short").write_bytes(bytes(8))
    (folder / "weights").write_bytes(bytes(64))
    os.symlink(outside, folder / "link")
    with pytest.raises(OnnxError, match=told):
        load(save(folder, external(location, **options)))


def test_bytes_have_no_files_beside_them(tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(bytes(16))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OnnxError, match="only a model that is loaded by its path"):
        load(external("weights").SerializeToString())


def chain(count, fan):
    """Functions of which each calls the next several times."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(count):
        names = ["x", *(f"x{j}" for j in range(fan))]
        called = ("f", f"g{i + 1}") if i + 1 < count else ("", "Abs")
        nodes = [
            helper.make_node(called[1], [a], [b], domain=called[0])
            for a, b in itertools.pairwise(names)
        ]
        functions.append(helper.make_function("f", f"g{i}", ["x"], [names[-1]], nodes, opsets))
    node = helper.make_node("g0", ["x"], ["y"], domain="f")
    return model([node], [value("x", [1])], [value("y")], functions=functions, domains=["f"])


def test_functions_that_grow():
    """Ten deep and ten wide they are 10**10 nodes."""
    with pytest.raises(OnnxError, match="10000000000 nodes"):
        load(chain(10, 10))
    with pytest.raises(OnnxError, match="more than 64 deep"):
        load(chain(70, 1))
    assert load(chain(10, 2))(np.float32([-1]))["y"] == 1


def test_functions_that_call_themselves():
    proto = chain(3, 1)
    proto.functions[2].node[0].op_type, proto.functions[2].node[0].domain = "g0", "f"
    with pytest.raises(OnnxError, match="calls itself"):
        load(proto)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.opset_import[0].__setattr__("version", 999), "uses opset 999"),
        (lambda m: m.opset_import.pop(), "imports no opset"),
        (lambda m: m.ClearField("graph"), "has no graph"),
        (
            lambda m: m.graph.node[0].input.__setitem__(0, "?"),
            "nothing before it computes",
        ),
        (lambda m: m.graph.node.append(m.graph.node[0]), "'y' is computed twice"),
        (lambda m: m.graph.output[0].__setattr__("name", "z"), "nothing computes its output 'z'"),
        (lambda m: m.graph.initializer[0].dims.append(1 << 40), "bytes, 16 are there"),
        (lambda m: m.graph.initializer[0].__setattr__("data_type", 99), "names no dtype"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, -4), "negative sizes"),
        (lambda m: m.graph.node[0].__setattr__("op_type", "Ad"), "no rules for Ad"),
        (lambda m: m.graph.input.append(m.graph.input[0]), "'x' is given twice"),
        (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "'w' is given twice"),
        (lambda m: m.graph.node[0].output.__setitem__(0, "x"), "'x' is computed twice"),
        (lambda m: m.graph.node[0].output.__setitem__(0, "w"), "'w' is computed twice"),
    ],
)
def test_damaged_models(change, told):
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y")],
        {"w": np.ones(4, np.float32)},
    )  # fmt: skip
    change(proto)
    with pytest.raises(OnnxError, match=told):
        load(proto)


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (("Abs", ["x"], ["y"], {"_function": "sin"}), "'it'.*takes no attribute '_function'"),
        (("Add", ["x", "x"], ["y"], {"_function": "load"}), "'it'.*takes no attribute '_function'"),
        (("Relu", ["x"], ["t", "y"], {}), "output 'y' was not computed"),
        (("ConstantOfShape", ["many"], ["y"], {}), "'it' .ConstantOfShape.*int64.1099511627776"),
        (("Range", ["zero", "far", "one"], ["y"], {}), "'it' .Range.*given int64.0.*[Aa]llocate"),
        (("Gather", ["x", "many"], ["y"], {}), "'it'.*indices must be at least -4 and below 4"),
        (("GatherElements", ["x", "many"], ["y"], {}), "'it'.*indices must be at least -4"),
        (("ScatterElements", ["x", "many", "w"], ["y"], {}), "'it'.*indices must be at least -4"),
        (("GatherND", ["x", "column"], ["y"], {}), "'it'.*indices must be at least -4"),
        (("ScatterND", ["x", "column", "w"], ["y"], {}), "'it'.*indices must be at least -4"),
    ],
)
def test_nodes_that_cannot_be_computed(node, told):
    op, inputs, outputs, attributes = node
    constants = {
        "many": np.int64([1 << 40]), "zero": np.int64(0), "far": np.int64(1 << 42),
        "one": np.int64(1), "w": np.ones(1, np.float32), "column": np.int64([[-9]]),
    }  # fmt: skip
    nodes = [helper.make_node(op, inputs, outputs, name="it", **attributes)]
    made = load(model(nodes, [value("x", [4])], [value("y")], constants))
    with pytest.raises(OnnxError, match=told):
        made(np.ones(4, np.float32))


def test_functions_compute_their_outputs():
    proto = chain(2, 1)
    proto.functions[1].output[0] = "absent"
    with pytest.raises(OnnxError, match="function 'g1': nothing computes its output 'absent'"):
        load(proto)


def test_what_is_no_model(tmp_path):
    with pytest.raises(OnnxError, match="no ONNX model"):
        load(b"\xff" * 100)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "absent.onnx")
    with pytest.raises(TypeError, match="model must be a path, bytes or a ModelProto"):
        load(3)


def test_mutations():
    """Bytes that are changed, cut off or repeated: a model, or an error that is one of these."""
    rng, generator = np.random.default_rng(0), random.Random(0)
    weights = {"w": rng.standard_normal((4, 4)).astype(np.float32), "s": np.int64([2, 2])}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=-1),
    ]
    data = model(nodes, [value("x", [1, 4])], [value("y")], weights).SerializeToString()
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            kind, at = generator.randint(0, 2), generator.randrange(len(damaged) or 1)
            if kind == 0 and damaged:
                damaged[at] = generator.randrange(256)
            elif kind == 1:
                del damaged[at : at + generator.randint(1, 8)]
            else:
                damaged[at:at] = damaged[at : at + generator.randint(1, 8)]
        with contextlib.suppress(OnnxError):
            load(bytes(damaged))


WEIGHTS = {
    **{t: np.random.default_rng(0).standard_normal(3000).astype(t) for t in ("f2", "f4", "f8")},
    "c8": np.arange(2048, dtype="c8"), "b": np.arange(5001) % 3 == 0,
    "i8": np.arange(1000, dtype="i8"), "u1": np.arange(9000).astype("u1").reshape(90, 100),
    "small": np.float32([1, 2]),
}  # fmt: skip


def of_weights():
    """A model of weights alone, those of which ONNX packs the elements included."""
    made = [numpy_helper.from_array(x, name) for name, x in WEIGHTS.items()]
    for kind in ("BFLOAT16", "FLOAT8E4M3FN", "INT4", "UINT4"):
        values, dtype = [i % 7 for i in range(20_001)], getattr(TensorProto, kind)
        made.append(numpy_helper.from_array(
            numpy_helper.to_array(helper.make_tensor(kind, dtype, (20_001,), values)), kind
        ))  # fmt: skip
    nodes = [helper.make_node("Identity", [t.name], [f"of_{t.name}"]) for t in made]
    proto = model(nodes, [], [value(f"of_{t.name}", kind=t.data_type) for t in made])
    proto.graph.initializer.extend(made)
    return proto


def constants(made):
    return {**made.program.graph.constants, **made.params}


def test_weights_are_the_bytes_of_the_file(tmp_path):
    """And those alone: a file of now may be written anew once it was read."""
    proto = of_weights()
    path = save(tmp_path, proto)
    data = path.read_bytes()
    made = [load(path), load(data), load(memoryview(bytearray(data)))]
    with open(path, "r+b") as file:
        file.write(bytes(len(data)))
        file.truncate(10)
    for found in map(constants, made):
        assert found.keys() == {t.name for t in proto.graph.initializer}
        for tensor in proto.graph.initializer:
            wanted, got = numpy_helper.to_array(tensor), found[tensor.name]
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            assert got.tobytes() == wanted.tobytes(), tensor.name
            assert got.flags.aligned
        assert not found["f4"].flags.writeable


def outcome(data):
    """What a model's constants are, or why it is refused."""
    try:
        found = constants(load(data))
    except OnnxError as e:
        return str(e)
    return {n: (x.dtype, x.shape, x.tobytes()) for n, x in found.items()}


def test_weights_of_unusual_messages(monkeypatch):
    """Messages that merge, repeat or break off say the same as where protobuf reads all of them."""
    generator = random.Random(0)
    w = np.arange(1500, dtype=np.float32)
    node = helper.make_node("Add", ["w", "v"], ["y"])
    proto = model([node], [], [value("y", [1500])], {"w": w, "v": w + 1})
    data = proto.SerializeToString()
    graph, tensor = (x.SerializeToString() for x in (proto.graph, proto.graph.initializer[0]))
    empty = onnx.ModelProto(graph=onnx.GraphProto()).SerializeToString()
    other = onnx.GraphProto(initializer=[onnx.TensorProto(raw_data=bytes(6000))])
    more = other.initializer[0].SerializeToString()  # raw data that replaces what was there
    number = b"\x28\x05"  # which is no initializer, though of its number
    cases = [
        data + empty, empty + data, data + data, data[:-1], data[:5000], b"\x3b" + data,
        data + b"\x3c", number + data, rewritten(data, graph, number + graph),
        rewritten(data, graph, rewritten(graph, tensor, tensor + more)),
        rewritten(data, graph, rewritten(graph, tensor, more + tensor)),
    ]  # fmt: skip
    raw = data.index(w.tobytes()), data.index((w + 1).tobytes())
    heads = [i for i in range(len(data)) if not any(at <= i < at + w.nbytes for at in raw)]
    for _ in range(400):
        damaged = bytearray(data)
        for at in generator.sample(heads, generator.randint(1, 2)):
            damaged[at] = generator.randrange(256)
        cases.append(bytes(damaged))
    refused = 0
    for case in cases:
        found = outcome(case)
        with monkeypatch.context() as patched:
            patched.setattr(reading, "split_tensors", lambda data: (bytes(data), {}))
            wanted = outcome(case)
        assert found == wanted
        refused += not isinstance(wanted, dict)
    assert 10 < refused < len(cases) - 10


def varint(n):
    return bytes([n & 127 | 128, *varint(n >> 7)]) if n > 127 else bytes([n])


def rewritten(data, part, by):
    """A message in which a part, whose length stands before it, is another one."""
    at = data.index(part)
    before = varint(len(part))
    assert data[:at].endswith(before)
    return data[: at - len(before)] + varint(len(by)) + by + data[at + len(part) :]


def test_packed_elements():
    values = np.arange(-8, 8).astype("int8")
    tensor = helper.make_tensor("w", TensorProto.INT4, (16,), values.tolist())
    np.testing.assert_array_equal(reading.read_tensor(tensor, None).astype(np.int8), values)
    assert numpy_helper.to_array(tensor).shape == (16,)


def test_parameters_stay_where_they_are_mapped(tmp_path):
    """Models compute with the bytes of the file, of which there is no second copy."""
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", ["n", 3])], [value("y", ["n", 2])], {"w": w})
    inside = proto.SerializeToString()
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    for made in (load(tmp_path / "m.onnx"), load(inside)):
        np.testing.assert_array_equal(made(np.ones((1, 3), np.float32))["y"], [w.sum(0)])
        used = made._prepared.arrays(made.params)["w"]
        assert np.shares_memory(np.asarray(used), made.params["w"])
    made.params["w"] = given = w.copy()
    assert not np.shares_memory(np.asarray(made._prepared.arrays(made.params)["w"]), given)


def test_rules_begin_with_versions_of_the_standard():
    """So that the opset of a model finds the rule that the operator's version finds."""
    found = list(registry.operators())
    for domain, name, _ in found:
        for opset in range(1, reading.OPSETS.get(domain, 1) + 1):
            version = version_of(domain, name, opset)
            assert find_rule(domain, name, opset) is find_rule(domain, name, version)
    assert len(found) > 200
