"""Constants of frozen graphs are taken out of their files before these are parsed."""

import mmap
import random

import numpy as np

from amdjax import tf
from amdjax.tf import TensorFlowError, reading
from amdjax.tf.messages import messages
from tests.support.tf_graphs import Builder

W = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)


def graph():
    made = Builder()
    x = made.op("MatMul", made.input("x", (None, 40)), made.const(W))
    x = made.op("AddV2", x, made.const(W[0] + 1))
    y = made.op("MatMul", x, made.const((W * 7).astype(np.float16).astype(np.float32)))
    made.op(
        "GatherV2",
        y,
        made.const(np.arange(1500, dtype=np.int64) % 40),
        made.const(np.int32(1)),
        name="y",
    )
    return made


def test_constants_are_in_memory_of_their_own(tmp_path):
    """Not in a message; and the file may be written anew once it was read."""
    path, data = tmp_path / "frozen.pb", graph().bytes()
    path.write_bytes(data)
    model = tf.load(path)
    with open(path, "r+b") as file:
        file.write(bytes(len(data)))
    large = [v for v in model.params.values() if v.nbytes > 4096]
    assert len(large) == 2
    for value in large:
        assert value.flags.aligned and not value.flags.writeable
        root = value
        while isinstance(root, np.ndarray):
            root = root.base
        assert isinstance(getattr(root, "obj", root), mmap.mmap)
    x = np.random.default_rng(1).standard_normal((2, 40)).astype(np.float32)
    want = (x.astype(np.float64) @ W + W[0] + 1) @ (W * 7).astype(np.float16)
    np.testing.assert_allclose(model(x=x)["y"], want[:, np.arange(1500) % 40], rtol=1e-4, atol=1e-3)


def outcome(data):
    """What the parameters of a graph are, or why it is refused."""
    try:
        model = tf.load(data)
    except TensorFlowError as e:
        return str(e).split(" (")[0]  # without what protobuf found first
    return {n: (v.dtype, v.shape, v.tobytes()) for n, v in model.params.items()}


def test_unusual_messages_say_the_same(monkeypatch):
    """Messages that merge, repeat or break off are read as where protobuf reads all of them."""
    m, generator = messages(), random.Random(0)
    data = graph().bytes()
    parsed = m.Graph.FromString(data)
    const = next(
        n
        for n in parsed.node
        if n.op == "Const" and len(n.attr["value"].tensor.tensor_content) > 4096
    )
    other = m.Node(
        name=const.name, attr={"value": m.AttrValue(tensor=m.Tensor(tensor_content=bytes(6400)))}
    )
    texts = m.Node(attr={"value": m.AttrValue(s=bytes(5000))})
    node = const.SerializeToString()
    assert framed(node) in data
    second, text = other.SerializeToString(), texts.SerializeToString()
    pairs = [
        (node, second),
        (second, node),
        (node, text),
        (node, b"\x0a\x01z"),
        (node, b"\x0a\x01\xff"),
    ]

    def with_node(changed):
        return data.replace(framed(node), framed(changed))

    cases = [
        data + data, data[:-1], data[:5000], b"\x3b" + data,
        data + framed(second), data + framed(text),
        *(with_node(a + b) for a, b in pairs),
    ]  # fmt: skip
    contents = [n.attr["value"].tensor.tensor_content for n in parsed.node if n.op == "Const"]
    spans = [(data.index(c), len(c)) for c in contents if len(c) > 100]
    heads = [i for i in range(len(data)) if not any(at <= i < at + n for at, n in spans)]
    for _ in range(300):
        changed = bytearray(data)
        for at in generator.sample(heads, generator.randint(1, 2)):
            changed[at] = generator.randrange(256)
        cases.append(bytes(changed))
    found = [outcome(case) for case in cases]
    monkeypatch.setattr(reading, "split_constants", lambda data: (bytes(data), {}))
    for case, got in zip(cases, found, strict=True):
        assert got == outcome(case)
    assert sum(isinstance(got, dict) for got in found) > 5


def framed(node):
    """A node as a field of its graph."""
    size, length = len(node), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return b"\x0a" + length + bytes([size]) + node
