"""Commands that look at a model, and the one that runs it."""

import importlib.util

import numpy as np
import pytest

from amdjax import onnx
from tests.support.tf_graphs import Builder, saved_model


def images(layout="NHWC"):
    """A graph of TensorFlow: a convolution of images `x` and a mean, of any batch."""
    b = Builder()
    x = b.input("x", (None, 6, 6, 2))
    w = b.const(np.linspace(-1, 1, 3 * 3 * 2 * 4).reshape(3, 3, 2, 4), "w")
    y = b.op("Conv2D", x, w, padding="SAME", strides=[1, 1, 1, 1], data_format=layout)
    b.op("Relu", y, name="y")
    return b


@pytest.fixture
def frozen(tmp_path):
    path = tmp_path / "graph.pb"
    path.write_bytes(images().bytes())
    return path


def test_read_prints_nodes(network, amdjax_command, ok):
    text = amdjax_command("read", network).out
    assert "c1 = Conv(x, stem.w, stem.b" in text
    assert ok("read", network)["text"] + "\n" == text


def test_read_prints_programs(network, ok, tmp_path):
    jaxpr = ok("read", network, "--jaxpr", "--batch", 2)["text"]
    assert "f32[2,8,8,8] = conv_general_dilated" in jaxpr
    jaxpr = ok("read", network, "--jaxpr", "--dyn-input-dim", "@x", "b", 3, 8, 8)["text"]
    assert "f32[b,8,8,8] = conv_general_dilated" in jaxpr
    jaxpr = ok("read", network, "--jaxpr", "--dyn-input-dim", "@x", "2..9", 3, 8, 8)["text"]
    assert "f32[n0,8,8,8]" in jaxpr
    jaxpr = ok("read", network, "--jaxpr", "--dyn-input-dim", "@x", "m:2..9", 3, 8, 8)["text"]
    assert "f32[m,8,8,8]" in jaxpr
    done = ok("read", network, "-o", tmp_path / "graph.txt")
    assert "text" not in done
    assert "Conv" in (tmp_path / "graph.txt").read_text()


def test_read_writes_python(network, ok, frozen, tmp_path, amdjax_command):
    path = tmp_path / "net.py"
    text = ok("read", network, "--python")["text"]
    ok("read", network, "--python", "-o", path)
    assert path.read_text().strip() == text.strip()
    spec = importlib.util.spec_from_file_location("net", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    params = module.load_params(path.with_suffix(".safetensors"))
    x = np.random.default_rng(5).standard_normal((2, 3, 8, 8), np.float32)
    found, wanted = module.model(params, x)["probs"], onnx.load(network)(x=x)["probs"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    done = amdjax_command("read", frozen, "--python")
    assert done.code == 2
    assert "cannot be written as Python source" in done.err


def test_params(network, ok, amdjax_command):
    found = ok("params", network)
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 3, 8, 8]}]
    assert {w["name"]: w["shape"] for w in found["weights"]}["head.w"] == [10, 8]
    assert found["bytes"] == 4 * found["numbers"]
    assert "head.w" in amdjax_command("params", network).out


def test_run_gives_what_the_model_gives(network, ok, tmp_path):
    x = np.random.default_rng(3).standard_normal((4, 3, 8, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", x=x)
    want = np.asarray(onnx.load(network)(x=x)["probs"])
    for given in (["@x", tmp_path / "x.npy"], [tmp_path / "all.npz"]):
        found = ok("run", network, "--load-arg", *given, "-o", tmp_path / "out.npz")
        assert found["outputs"][0]["shape"] == [4, 10]
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["probs"], want)


def test_inputs_from_files_must_fit(network, tmp_path, amdjax_command):
    for array, said in (
        (np.zeros((1, 3, 8, 8), np.float64), "must be float32"),
        (np.zeros((1, 3, 8), np.float32), "the file has shape [1, 3, 8]"),
        (np.zeros((1, 3, 9, 8), np.float32), "the file has shape [1, 3, 9, 8]"),
    ):
        np.save(tmp_path / "x.npy", array)
        done = amdjax_command("run", network, "--load-arg", "@x", tmp_path / "x.npy")
        assert done.code == 2
        assert said in done.err
    np.savez(tmp_path / "x.npz", a=np.zeros(1), b=np.zeros(1))
    done = amdjax_command("run", network, "--load-arg", "@x", tmp_path / "x.npz")
    assert "x.npz has a, b" in done.err
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:80])
    for words in (["@x", tmp_path / "x.npz"], [tmp_path / "x.npz"]):
        done = amdjax_command("run", network, "--load-arg", *words)
        assert done.code == 2
        assert done.err.count("\n") == 1


def test_files_of_numpy_run_no_code(affine, tmp_path, amdjax_command):
    np.save(tmp_path / "x.npy", np.array([print], object), allow_pickle=True)
    done = amdjax_command("run", affine, "--load-arg", "@x", tmp_path / "x.npy")
    assert done.code == 2


def test_random_inputs_depend_on_the_seed_alone(affine, ok):
    runs = [ok("run", affine, "--batch", 3, "--seed", seed)["outputs"] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_run_on_an_emulated_gpu(affine, ok):
    found = ok("run", affine, "--fill1", "x", "--target", "gfx1100")
    assert found["device"] == "emulated:0"
    here = ok("run", affine, "--fill1", "x", "--cpu")
    np.testing.assert_allclose(
        found["outputs"][0]["values"], here["outputs"][0]["values"], rtol=1e-6
    )


def test_graphs_of_tensorflow(frozen, ok):
    assert "Conv2D" in ok("read", frozen)["text"]
    found = ok("params", frozen)
    assert found["kind"] == "tf"
    assert found["inputs"][0]["shape"] == ["batch", 6, 6, 2]
    assert ok("params", frozen, "--nchw")["inputs"][0]["shape"] == ["batch", 2, 6, 6]
    run = ok("run", frozen, "--batch", 2)
    assert run["outputs"][0]["shape"] == [2, 6, 6, 4]
    other = ok("run", frozen, "--output-names", "Conv2D_2", "--batch", 2)
    assert other["outputs"][0]["name"] == "Conv2D_2"


def test_output_names_that_are_none(frozen, amdjax_command):
    done = amdjax_command("run", frozen, "--output-names", "Conv")
    assert done.code == 2
    assert "Conv" in done.err


def test_saved_models_are_folders(tmp_path, ok):
    values = {"image": ("x:0", np.float32, (None, 6, 6, 2))}
    made = {"features": ("y:0", np.float32, (None, 6, 6, 4))}
    (tmp_path / "saved_model.pb").write_bytes(saved_model(images(), values, made))
    assert ok("run", tmp_path, "--batch", 2)["outputs"][0]["name"] == "features"


def test_operators(ok):
    found = ok("ops")
    assert {"domain": "ai.onnx", "name": "And", "since": [1, 7]} in found["onnx"]
    assert "Conv2D" in found["tf"]
    assert set(ok("ops", "--tf")) == {"tf"}


def test_targets(ok):
    found = {t["name"]: t for t in ok("targets")["targets"]}
    assert found["cpu"]["devices"] == ["cpu:0"]
    assert found["gfx942"]["emulated"]
    assert not found["sm_90"]["emulated"]
