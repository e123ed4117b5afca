"""Variables of SavedModels, in checkpoints that are written here byte by byte."""

import numpy as np
import pytest
from numpy import float32 as f32

from amdjax import tf
from amdjax.tf.checkpoint import masked_crc, read_table, uncompressed
from tests.support.tf_graphs import (
    NUMBERS,
    Builder,
    Func,
    messages,
    saved_model,
    shape_message,
    tensor,
)

MAGIC = 0xDB4775248B80FB57


def varint(n):
    found = b""
    while n > 127:
        found += bytes([n & 127 | 128])
        n >>= 7
    return found + bytes([n])


def literal(data):
    """Bytes that Snappy left as they are."""
    return bytes([61 << 2]) + (len(data) - 1).to_bytes(2, "little") + data


def block(entries, compression=0):
    """A block of sorted keys; each is written from where it differs from the one before."""
    data, last = b"", b""
    for key, value in entries:
        shared = next(
            (i for i, (a, b) in enumerate(zip(key, last)) if a != b), min(len(key), len(last))
        )
        data += varint(shared) + varint(len(key) - shared) + varint(len(value))
        data += key[shared:] + value
        last = key
    data += bytes(4) + (1).to_bytes(4, "little")  # one restart, at the beginning
    data = (varint(len(data)) + literal(data) if compression == 1 else data) + bytes([compression])
    return data + masked_crc(data).to_bytes(4, "little")


def table(entries, **options):
    """A table of two blocks."""
    half = len(entries) // 2
    data, places = b"", []
    for part in (entries[:half], entries[half:]):
        if part:
            made = block(part, **options)
            places.append((part[-1][0], varint(len(data)) + varint(len(made) - 5)))
            data += made
    meta, index = block([]), block(places)
    footer = varint(len(data)) + varint(len(meta) - 5)
    footer += varint(len(data) + len(meta)) + varint(len(index) - 5)
    return data + meta + index + footer.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


def checkpoint(folder, arrays, **changed):
    """Write the files of a checkpoint."""
    m = messages()
    data, entries = b"", [(b"", m.BundleHeader(num_shards=1).SerializeToString())]
    for key, value in sorted(arrays.items()):
        entry = {
            "dtype": NUMBERS[value.dtype], "shape": shape_message(value.shape),
            "offset": len(data), "size": value.nbytes, **changed,
        }  # fmt: skip
        entries.append((key.encode(), m.BundleEntry(**entry).SerializeToString()))
        data += value.tobytes()
    folder.mkdir(exist_ok=True)
    (folder / "variables.index").write_bytes(table(entries))
    (folder / "variables.data-00000-of-00001").write_bytes(data)


def network(style):
    """A dense layer whose variables are restored by a function, or by nodes that one waits for."""
    m = messages()
    graph = Builder()
    keys = {"kernel": "layer/kernel/.VALUE", "bias": "layer/bias/.VALUE"}
    handles = {name: graph.op("VarHandleOp", name=f"h_{name}", shared_name=name) for name in keys}
    target = graph
    if style == "function":
        target = Builder()
    target.nodes.append(
        m.Node(
            name="names",
            op="Const",
            attr={"value": m.AttrValue(tensor=tensor(list(keys.values())))},
        )
    )
    restored = target.op("RestoreV2", "names", "names", "names", name="restored")
    for i, name in enumerate(keys):
        output = f"{restored}:tensors:{i}" if style == "function" else f"{restored}:{i}"
        value = target.op("Identity", output, name=f"value_{name}")
        value = f"{value}:output:0" if style == "function" else value
        handle = name if style == "function" else handles[name]
        target.op("AssignVariableOp", handle, value, name=f"assign_{name}")
    if style == "function":
        graph.function("restore", target, list(keys), {})
        graph.op("StatefulPartitionedCall", *handles.values(), name="load", f=Func("restore"))
    else:
        graph.op("NoOp", *(f"^assign_{name}" for name in keys), name="load")
    x = graph.input("x", (None, 2))
    body = Builder()
    for name in keys:
        body.op("ReadVariableOp", name, name=f"read_{name}", dtype=f32)
    body.op("MatMul", "x", "read_kernel:value:0", name="product")
    body.op("BiasAdd", "product:product:0", "read_bias:value:0", name="sum")
    graph.function("dense", body, ["x", *keys], {"y": "sum:output:0"})
    graph.op("PartitionedCall", x, *handles.values(), name="y", f=Func("dense"))
    outputs = {"y": ("y:0", f32, (None, 2))}
    return saved_model(graph, {"x": ("x:0", f32, (None, 2))}, outputs, restore="load")


KERNEL, BIAS = f32([[1, 2], [3, 4]]), f32([10, 20])
ARRAYS = {"layer/kernel/.VALUE": KERNEL, "layer/bias/.VALUE": BIAS}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(network("function"))
    checkpoint(tmp_path / "variables", ARRAYS)
    return tmp_path


@pytest.mark.parametrize("style", ["function", "nodes"])
def test_variables_are_parameters(folder, style):
    (folder / "saved_model.pb").write_bytes(network(style))
    model = tf.load(folder)
    assert set(model.params) == {"kernel", "bias"}
    np.testing.assert_array_equal(model.params["kernel"], KERNEL)
    assert model(x=f32([[1, 1]]))["y"].tolist() == [[14, 26]]
    made = model.function({"kernel": 2 * KERNEL, "bias": 0 * BIAS}, x=f32([[1, 1]]))
    assert made["y"].tolist() == [[8, 12]]


def test_tables_are_read():
    entries = [(f"key{i:03d}".encode(), bytes([i]) * i) for i in range(200)]
    assert [(k.encode(), v) for k, v in read_table(table(entries))] == entries


def test_compressed_tables_are_read():
    entries = [(f"key{i:03d}".encode(), bytes([i]) * i) for i in range(200)]
    assert [(k.encode(), v) for k, v in read_table(table(entries, compression=1))] == entries


SNAPPY = {
    b"\x03\x08abc": b"abc",  # a literal
    b"\x04" + literal(b"abcd"): b"abcd",  # with its length in two bytes
    b"\x0a\x08abc\x0d\x03": b"abcabcabca",  # a copy of 7 bytes from 3 before, of which 4 are new
    b"\x06\x08abc\x0a\x03\x00": b"abcabc",  # of 3 bytes, the distance in two
    b"\x05\x08abc\x07\x02\x00\x00\x00": b"abcbc",  # in four
}


@pytest.mark.parametrize("data", SNAPPY)
def test_snappy(data):
    assert uncompressed(data) == SNAPPY[data]
    for damaged in (data[:-1], data + b"\0", b"\x07" + data[1:]):
        with pytest.raises(tf.TensorFlowError, match="damaged"):
            uncompressed(damaged)


@pytest.mark.parametrize(
    "data", [b"\x04\x08abc\x0d\x09", b"\xff\xff\xff\xff\x0f", b"", b"\x02\x01\x01"]
)
def test_snappy_that_claims_too_much(data):
    with pytest.raises(tf.TensorFlowError, match=r"damaged|too long"):
        uncompressed(data)


def test_checksums_are_those_of_the_standard():
    """CRC-32C of 32 zeros, from RFC 3720, rotated by 15 bits and with a constant added."""
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def failing(folder):
    with pytest.raises(tf.TensorFlowError) as caught:
        tf.load(folder)
    return str(caught.value)


def test_entries_are_checked(folder):
    variables = folder / "variables"
    checkpoint(variables, ARRAYS, size=4)
    assert "4 bytes cannot be [2] of float32, 8 bytes" in failing(folder)
    checkpoint(variables, ARRAYS, offset=1 << 40)
    assert "lies beyond the end of its file" in failing(folder)
    checkpoint(variables, ARRAYS, offset=-8)
    assert "lies beyond the end of its file" in failing(folder)
    checkpoint(variables, ARRAYS, shard_id=3)
    assert "it is in file 3 of 1" in failing(folder)
    checkpoint(variables, {"layer/kernel/.VALUE": KERNEL})
    assert "it has no variable 'layer/bias/.VALUE'" in failing(folder)
    (variables / "variables.index").write_bytes(table([(b"", b"")], compression=2))
    assert "its compression is not known; freeze the graph" in failing(folder)
    (variables / "variables.index").unlink()
    assert "freeze the graph" in failing(folder)


def test_damaged_tables_are_refused(folder):
    """Checksums find each changed byte of blocks; what is said of places is checked."""
    index = folder / "variables" / "variables.index"
    data = index.read_bytes()
    good = dict(read_table(data))
    for at in range(len(data)):
        for changed in (data[at] ^ 1, data[at] ^ 0x80, 0xFF):
            damaged = data[:at] + bytes([changed]) + data[at + 1 :]
            try:
                found = dict(read_table(damaged))
            except tf.TensorFlowError:
                continue
            assert found == good
    for end in range(len(data)):
        with pytest.raises(tf.TensorFlowError):
            list(read_table(data[:end]))
