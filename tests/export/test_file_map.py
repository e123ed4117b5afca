"""Weights that are used where they lie in files, and what is kept on disk of them."""

import functools
import os
import shutil
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import amdjax
import amdjax.numpy as jnp
from amdjax.core.array import borrowed
from amdjax.core.config import State
from amdjax.export import container, file_map
from amdjax.export.container import ArtifactError
from amdjax.export.file_map import contents, file_of, mapped
from amdjax.jit import kept_constants
from amdjax.jit.cpu.program import LoadedPlan
from amdjax.onnx import OnnxError, load
from amdjax.runtime.memory import LateBuffer

ROWS, COLUMNS, LAYERS = 512, 528, 8


def weights(seed=0):
    generator = np.random.default_rng(seed)
    shapes = [(ROWS, COLUMNS), (COLUMNS, ROWS)] * (LAYERS // 2)
    return [generator.standard_normal(s, dtype=np.float32) / 16 for s in shapes]


def reference(x, ws):
    for w in ws:
        x = np.tanh(x.astype(np.float64) @ w)
    return x


def written(path, ws, shift=0):
    """A chain of products; names are longer by `shift`, so that all bytes lie elsewhere."""
    nodes, at = [], "x"
    for i in range(len(ws)):
        nodes.append(helper.make_node("MatMul", [at, f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Tanh", [f"p{i}"], [f"y{i}"]))
        at = f"y{i}"
    graph = helper.make_graph(
        nodes, "g" * (1 + shift),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, ROWS])],
        [helper.make_tensor_value_info(at, TensorProto.FLOAT, [32, ROWS])],
        [onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(ws)],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(proto.SerializeToString())
    return path


X = np.random.default_rng(9).standard_normal((32, ROWS), dtype=np.float32)


def check(model, ws):
    (got,) = model(X).values()
    np.testing.assert_allclose(np.asarray(got), reference(X, ws), rtol=0, atol=2e-5)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Plans are kept, in a folder of their own, and so is what follows from files of now."""
    monkeypatch.setattr(file_map, "STANDING", -1e9)
    with State("keep_plans")(True), State("check")(False), State("cache_dir")(str(tmp_path / "c")):
        yield


@pytest.fixture
def packed(kept, monkeypatch):
    """Counts how often constants are packed; what is kept is on disk when that is asked for."""
    counts, original, threads = [], LoadedPlan._run, []

    def run(self, *args):
        counts.append(1)
        return original(self, *args)

    def thread(*args, **options):
        threads.append(threading.Thread(*args, **options))
        return threads[-1]

    monkeypatch.setattr(LoadedPlan, "_run", run)
    monkeypatch.setattr(kept_constants, "Thread", thread)

    def so_far():
        for t in threads:
            t.join()
        return len(counts)

    return so_far


def test_packed_weights_are_mapped(packed, tmp_path):
    """The next process reads them; another state of the file, of equal size, gets its own."""
    ws = weights()
    path = written(tmp_path / "m.onnx", ws)
    check(load(path), ws)
    assert packed() == 1
    check(load(path), ws)
    assert packed() == 1
    others = [w.copy() for w in ws]
    others[3][100, 100] += 1  # one number, which no sample sees
    written(tmp_path / "n.onnx", others)
    assert (tmp_path / "n.onnx").stat().st_size == path.stat().st_size
    os.replace(tmp_path / "n.onnx", path)
    check(load(path), others)
    assert packed() == 2
    check(load(path), others)
    assert packed() == 2


def test_packed_weights_are_not_kept_where_no_thread_starts(kept, tmp_path, monkeypatch):
    """Too many threads, or a call while Python ends."""
    asked = []

    class Refused(threading.Thread):
        def start(self):
            asked.append(self)
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kept_constants, "Thread", Refused)
    ws = weights()
    check(load(written(tmp_path / "m.onnx", ws)), ws)
    assert len(asked) == 1


def test_packed_weights_of_what_is_made_of_weights(packed, tmp_path):
    """Values that follow from parameters are told by how they do."""
    ws = weights()
    path = written(tmp_path / "m.onnx", ws)
    proto = onnx.load(path)
    (w,) = (t for t in proto.graph.initializer if t.name == "w5")
    w.name = "raw"
    scale = onnx.numpy_helper.from_array(np.float32(0.5).reshape(1), "scale")
    proto.graph.initializer.append(scale)
    proto.graph.node.insert(0, helper.make_node("Mul", ["raw", "scale"], ["w5"]))
    path.write_bytes(proto.SerializeToString())
    scaled = [w * np.float32(0.5) if i == 5 else w for i, w in enumerate(ws)]
    for count in (1, 1):
        check(load(path), scaled)
        assert packed() == count
    proto.graph.node[0].op_type = "Add"
    path.write_bytes(proto.SerializeToString())
    check(load(path), [w + np.float32(0.5) if i == 5 else w for i, w in enumerate(ws)])
    assert packed() == 2


def test_files_of_now_are_not_told(packed, tmp_path, monkeypatch):
    """What is written may be followed by more within the same instant of the system's clock."""
    monkeypatch.setattr(file_map, "STANDING", 60)
    ws = weights()
    path = written(tmp_path / "m.onnx", ws)
    for count in (1, 2):
        check(load(path), ws)
        assert packed() == count
    os.utime(path, (1, 1))  # which the time of the change tells
    assert mapped(path).state is None


def test_weights_of_any_alignment(tmp_path, monkeypatch):
    """They are read by calls, eager operations and NumPy, and copied once an address is needed."""
    monkeypatch.setattr(file_map, "STANDING", -1e9)
    ws = weights()
    offsets = set()
    for shift in range(4):
        model = load(written(tmp_path / f"{shift}.onnx", ws, shift))
        check(model, ws)
        w = model.params["w0"]
        assert file_of(w) is not None
        offsets.add(w.ctypes.data % 4)
        held = borrowed(w)
        assert isinstance(held.buffer, LateBuffer) == bool(w.ctypes.data % 4)
        double = amdjax.jit(lambda w: w * 2)
        for _ in range(3):  # the later ones in machine code
            np.testing.assert_array_equal(double(held), ws[0] * 2)
        fresh = borrowed(w)
        np.testing.assert_array_equal(fresh[2:5] + jnp.ones(COLUMNS), ws[0][2:5] + 1)
        np.testing.assert_array_equal(np.asarray(borrowed(w)), ws[0])
        assert np.asarray(borrowed(w)).flags.aligned
    assert len(offsets) == 4


def test_late_copies_are_one(tmp_path):
    """Threads that ask at the same time get one address."""
    data = np.arange(1 << 18, dtype=np.uint8)
    late = LateBuffer(data[1:-3].view(np.uint32))
    found, barrier = [], threading.Barrier(4)

    def ask():
        barrier.wait()
        found.append(late.address)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 1 and not found[0] % 4
    with pytest.raises(AttributeError):
        _ = late.other


def test_a_file_that_is_written_over_is_refused(tmp_path, monkeypatch):
    """Its map has changed; one that another file replaces has not."""
    monkeypatch.setattr(file_map, "STANDING", -1e9)
    ws, others = weights(), weights(1)
    path = written(tmp_path / "m.onnx", ws)
    model = load(path)
    check(model, ws)
    written(tmp_path / "n.onnx", others)
    os.replace(tmp_path / "n.onnx", path)
    check(model, ws)
    model = load(path)
    check(model, others)
    with open(path, "r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(1, 1))
    with pytest.raises(OnnxError, match="written over"):
        model(X)


def renamed(path):
    """The name of a file that had another when it was loaded."""
    os.rename(path, other := path.with_suffix(".old"))
    return other


def replaced(path):
    """The other name of a file in whose place there is another."""
    os.link(path, other := path.with_suffix(".old"))
    os.replace(shutil.copy(path, path.with_suffix(".new")), path)
    return other


@pytest.mark.parametrize("kind", ["onnx", "artifact"])
@pytest.mark.parametrize("name_of", [None, renamed, replaced])
def test_a_file_is_written_over_whatever_its_name_and_times_are(
    name_of, kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(file_map, "STANDING", -1e9)
    ws, path = weights(), tmp_path / "m"
    if kind == "onnx":
        written(path, ws)
    else:
        constants = list(map(jnp.asarray, ws))
        product = amdjax.jit(lambda x: functools.reduce(lambda x, w: jnp.tanh(x @ w), constants, x))
        amdjax.export.export(product)(X).save(path)
    os.utime(path, (1, 1))
    model = load(path) if kind == "onnx" else amdjax.load_artifact(path)
    name = name_of(path) if name_of else path
    found = model(X)  # other names are no changes
    (found,) = found.values() if kind == "onnx" else (found,)
    np.testing.assert_allclose(found, reference(X, ws), rtol=0, atol=2e-5)
    with open(name, "r+b") as file:
        file.write(b"x")
    if name_of is None:
        os.utime(path, (1, 1))  # as copies have the times of their originals
    with pytest.raises(ValueError, match="written over"):
        model(X)


def test_permissions_and_links_are_no_change(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 16))
    file = mapped(path)
    os.chmod(path, 0o400)
    assert not file.is_changed()
    os.chmod(path, 0o600)
    os.link(path, tmp_path / "other")
    assert not file.is_changed()
    os.unlink(path)
    assert not file.is_changed()


def test_contents_of_what_may_change_are_not_told():
    array = np.arange(10)
    assert contents(array) is None
    array.flags.writeable = False
    assert contents(array) is not None


def test_contents_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(file_map, "STANDING", -1e9)
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    file = mapped(path)
    whole = np.ndarray(1 << 18, np.float32, file)
    parts = [
        whole, whole[1:], whole[:-1], whole.reshape(2, -1), whole.view(np.int32), whole[::2][:1],
    ]  # fmt: skip
    found = [contents(p) for p in parts]
    assert len(set(found)) == len(found)
    assert contents(whole[::2]) is None
    assert contents(np.ndarray(1 << 18, np.float32, mapped(path))) == found[0]
    with open(path, "r+b") as changed:
        changed.write(b"x")
    assert contents(np.ndarray(1 << 18, np.float32, mapped(path))) != found[0]


def test_artifacts_are_hashed_once(kept, tmp_path, monkeypatch):
    """A damaged one is another one."""
    ws = [np.ones((1 << 11, 1 << 10), np.float32)] * 2 + weights()
    exported = amdjax.export.export(amdjax.jit(lambda x: x @ jnp.asarray(ws[0]).sum(0)))
    path = tmp_path / "a.amdjax"
    exported(jnp.ones((2, 1 << 10))).save(path)
    hashed, original = [], container.Members._hash_one

    def hash_one(self, name, data, told):
        hashed.append(len(data))
        return original(self, name, data, told)

    monkeypatch.setattr(container.Members, "_hash_one", hash_one)
    for is_new in (True, False):
        del hashed[:]
        np.testing.assert_array_equal(
            amdjax.load_artifact(path)(jnp.ones((2, 1 << 10))), [2.0**21] * 2
        )
        assert (sum(hashed) > 4 << 20) == is_new
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        amdjax.load_artifact(path)
