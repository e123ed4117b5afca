"""Checkpoints: what is read is what was written, or an error that says what differs."""

import json
import os
import threading

import numpy as np
import pytest
from safetensors import numpy as safetensors, safe_open

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim, random
from amdjax.core import files
from amdjax.nn import checkpoints

KEY = random.key(0)
DTYPES = [
    "bool", "int8", "uint16", "int32", "float16", "float32", "bfloat16", "complex64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4",
]  # fmt: skip


def network(features=3):
    return nn.Sequential([nn.Dense(2, features, key=KEY), nn.BatchNorm(features), nn.relu])


def assert_same(a, b):
    """Bit for bit, leaf by leaf."""
    (a, tree), (b, other) = amdjax.tree.flatten(a), amdjax.tree.flatten(b)
    assert tree == other
    for x, y in zip(a, b):
        assert type(x) is type(y) or isinstance(x, amdjax.Array)
        if hasattr(x, "dtype"):
            assert x.dtype == y.dtype and x.shape == y.shape
        raw = lambda z: np.asarray(
            random.key_data(z) if "key" in str(getattr(z, "dtype", "")) else z
        )
        assert raw(x).tobytes() == raw(y).tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.safetensors"


def test_a_network_and_its_optimizer(path):
    model = network()
    state = optim.adam(1e-3).init(nn.partition(model)[0])
    tree = {"model": model, "optimizer": state, "step": 7, "key": random.split(KEY, 3)}
    handle = nn.save(path, tree)
    assert handle.done and "done" in repr(handle)
    assert_same(nn.load(path, like=tree), tree)
    abstract = amdjax.eval_shape(lambda: {k: v for k, v in tree.items() if k != "step"})
    assert_same(nn.load(path, like={**abstract, "step": 0}), tree)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_dtypes(path, dtype, shape):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    tree = [jnp.asarray(values.astype(dtype)), values.astype(dtype)]
    nn.save(path, tree)
    again = nn.load(path, like=tree)
    assert_same(again, tree)
    assert isinstance(again[0], amdjax.Array) and isinstance(again[1], np.ndarray)


def test_numbers_and_wide_dtypes(path):
    tree = [True, 10**30, -0.0, float("inf"), 1e-323, complex(1, -0.0),
            np.array([1e300, 2]), np.array(1e300 + 2j)]  # fmt: skip
    nn.save(path, tree)
    again = nn.load(path, like=tree)
    assert list(map(repr, again)) == list(map(repr, tree))
    nn.save(path, float("nan"))
    assert np.isnan(nn.load(path, like=0.0))
    with amdjax.enable_x64(True):
        nn.save(path, jnp.arange(3.0))
        wide = amdjax.ShapeDtypeStruct((3,), np.float64)
    with pytest.raises(nn.CheckpointError, match="needs enable_x64"):
        nn.load(path, like=wide)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_keep_their_generator(path, impl):
    keys = random.split(random.key(3, impl=impl), 2)
    nn.save(path, keys)
    again = nn.load(path, like=amdjax.ShapeDtypeStruct(keys.shape, keys.dtype))
    assert random.key_impl(again) == impl
    np.testing.assert_array_equal(random.bits(again[1], (3,)), random.bits(keys[1], (3,)))


def test_other_programs_read_the_arrays(path):
    nn.save(path, network())
    with safe_open(path, framework="np") as file:
        assert file.get_tensor(".layers[0].kernel").shape == (2, 3)
        described = json.loads(file.metadata()["amdjax"])
    assert described["leaves"][".layers[1].mean"]["shape"] == [3]


@pytest.mark.parametrize(
    ("like", "words"),
    [
        ({"a": jnp.zeros(3), "b": 1}, r"\['a'\]: float32\[2\] in the file, float32\[3\] in like"),
        ({"a": jnp.zeros(2, int), "b": 1}, r"\['a'\]: float32\[2\] .* int32\[2\] in like"),
        ({"a": jnp.zeros(2), "b": 1.0}, r"\['b'\]: a Python int in the file, a Python float"),
        (
            {"a": jnp.zeros(2), "b": 1, "c": 2},
            r"\['c'\]: nothing in the file, a Python int in like",
        ),
        ({"a": jnp.zeros(2)}, r"\['b'\]: a Python int in the file, nothing in like"),
        (jnp.zeros(2), r"\(the tree itself\): nothing in the file, float32\[2\] in like"),
        ([jnp.zeros(2)] * 20, "and 14 more"),
    ],
)
def test_another_tree_is_named(path, like, words):
    nn.save(path, {"a": jnp.zeros(2), "b": 1})
    with pytest.raises(nn.CheckpointError, match=words):
        nn.load(path, like=like)


def test_leaves_that_are_no_data(path):
    with pytest.raises(TypeError, match=r"save: \['f'\] must be an array or a number"):
        nn.save(path, {"f": abs})
    with pytest.raises(TypeError, match=r"load: \['f'\] must be"):
        nn.load(path, like={"f": abs})
    assert not path.exists()


@pytest.mark.parametrize(
    "damage", ["cut", "start", "empty", "text", "byte", "shape", "entry", "form"]
)
def test_damaged_files(path, damage):
    tree = {"a": jnp.arange(1000.0), "b": jnp.ones(3)}
    nn.save(path, tree)
    whole = path.read_bytes()
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    arrays = safetensors.load_file(path)
    if damage == "shape":
        safetensors.save_file({**arrays, "['a']": arrays["['a']"].reshape(10, 100)}, path, metadata)
    elif damage == "entry":
        safetensors.save_file({"['a']": arrays["['a']"]}, path, metadata)
    elif damage == "form":
        safetensors.save_file(arrays, path, {"amdjax": metadata["amdjax"][:50]})
    else:
        path.write_bytes({
            "cut": whole[:-5], "start": whole[:30], "empty": b"", "text": b"no checkpoint " * 9,
            "byte": whole[:-2000] + bytes([whole[-2000] ^ 1]) + whole[-1999:],
        }[damage])  # fmt: skip
    with pytest.raises(nn.CheckpointError, match="damaged"):
        nn.load(path, like=tree)


def test_files_of_others(path):
    with pytest.raises(FileNotFoundError, match="no file"):
        nn.load(path, like=0)
    safetensors.save_file({"a": np.zeros(2)}, path)
    with pytest.raises(nn.CheckpointError, match=r"nn\.save did not write it"):
        nn.load(path, like=[np.zeros(2)])
    nn.save(path, 3)
    with safe_open(path, framework="np") as file:
        described = json.loads(file.metadata()["amdjax"])
    safetensors.save_file({}, path, {"amdjax": json.dumps({**described, "part": [0, 4]})})
    with pytest.raises(nn.CheckpointError, match=r"part \[0, 4\]"):
        nn.load(path, like=3)


@pytest.mark.parametrize("step", ["_sync", "replace"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_write_that_fails_leaves_the_old_file(path, monkeypatch, step, asynchronous):
    nn.save(path, {"a": jnp.zeros(2)})
    before = path.read_bytes()

    def fail(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr(files.os if step == "replace" else files, step, fail)
    with pytest.raises(OSError, match="full"):
        nn.save(path, {"a": jnp.ones(2)}, asynchronous=asynchronous).wait(60)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="cannot be written"):
        nn.save(tmp_path / "none" / "x.safetensors", jnp.zeros(2))


def test_saving_in_another_thread(path, monkeypatch):
    release, write = threading.Event(), checkpoints._write
    monkeypatch.setattr(checkpoints, "_write", lambda *args: (release.wait(60), write(*args))[1])
    tree = {"a": jnp.arange(5.0), "n": np.arange(3)}
    expected = amdjax.tree.map(np.array, tree)
    first = nn.save(path, tree, asynchronous=True)
    assert not first.done and not path.exists()
    amdjax.jit(lambda x: x * 2, donate_argnums=0)(tree["a"]).block_until_ready()
    tree["n"][:] = 9
    with pytest.raises(TimeoutError):
        first.wait(0.01)
    last = nn.save(path, {"a": jnp.zeros(5), "n": np.arange(3)}, asynchronous=True)
    release.set()
    first.wait(60)
    last.wait(60)  # in the order of saves: the last one stays
    assert not nn.load(path, like=expected)["a"].any()
    nn.save(path, expected, asynchronous=True).wait(60)
    np.testing.assert_array_equal(nn.load(path, like=expected)["a"], np.arange(5.0))


def test_a_snapshot_is_taken_before_donation(path, monkeypatch):
    release, write = threading.Event(), checkpoints._write
    monkeypatch.setattr(checkpoints, "_write", lambda *args: (release.wait(60), write(*args))[1])
    x = jnp.arange(1000.0)
    handle = nn.save(path, x, asynchronous=True)
    amdjax.jit(lambda x: x * 0 - 1, donate_argnums=0)(x).block_until_ready()
    release.set()
    handle.wait(60)
    np.testing.assert_array_equal(nn.load(path, like=np.zeros(1000, np.float32)), np.arange(1000.0))


def test_arrays_of_the_other_byte_order(tmp_path):
    path = tmp_path / "x.safetensors"
    for dtype in ("f4", "i8", "c8", "c16", "u2"):
        x = np.arange(3).astype(f">{dtype}")
        nn.save(path, {"x": x})
        (found,) = nn.load(path, {"x": np.zeros(3, dtype)}).values()
        np.testing.assert_array_equal(found, x)
