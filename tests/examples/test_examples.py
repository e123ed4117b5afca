"""Examples as a user starts them, with few steps."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import optim, random
from amdjax.jit.variants import MOST_COMPILED
from tests.support.turns import in_turn

ROOT = Path(__file__).resolve().parents[2]


def run(script, *args, cwd=None, fails=False, **environment):
    """Output of an example; its errors go to the same place."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, str(ROOT / "examples" / script), *map(str, args)]
    done = subprocess.run(
        command, cwd=cwd or ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    output = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, output
    return output


def test_digits(tmp_path):
    pytest.importorskip("sklearn")
    output = run("digits.py", "--epochs", 2, "--output", "matrix.png", cwd=tmp_path)
    found = re.search(r"([\d.]+)% of the test images recognized", output)
    assert found and float(found[1]) > 90, output
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.turns(3)
def test_flax_on_digits():
    pytest.importorskip("sklearn")
    pytest.importorskip("flax")
    output = run("flax_mnist_like.py", "--epochs", 4)
    found = re.search(r"([\d.]+)% of the test images recognized", output)
    assert found and float(found[1]) > 85, output


@pytest.mark.turns(3)
def test_optax_on_digits():
    pytest.importorskip("sklearn")
    pytest.importorskip("optax")
    output = run("optax_digits.py", "--steps", 120)
    found = re.findall(r"([\d.]+)% of the test images recognized", output)
    assert len(found) == 3 and min(map(float, found)) > 70, output


@pytest.mark.parametrize("script", ["flax_mnist_like.py", "optax_digits.py"])
def test_missing_packages_are_named(script, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['optax'] = None")
    output = run(script, fails=True, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "pip install --no-deps" in output and "Traceback" not in output


def test_char_lstm():
    options = {"steps": 5, "hidden": 32, "batch": 8, "length": 16, "characters": 20_000}
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    output = run("char_lstm.py", *flags, "--sample", 40, "--prompt", "The ", "--layers", 2)
    assert "5 steps, loss" in output
    assert output.split("\n\n", 1)[1].startswith("The ")


@pytest.mark.turns(3)
def test_char_gpt_learns_and_writes():
    options = {"steps": 5, "features": 16, "batch": 4, "length": 16, "characters": 20_000}
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    output = run("char_gpt.py", *flags, "--sample", 20, "--prompt", "The ")
    assert "5 steps, loss" in output
    assert output.split("\n\n", 1)[1].startswith("The ")


@pytest.mark.turns(3)
def test_char_gpt_is_compiled_once_for_texts_of_all_lengths(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import char_gpt  # late: examples are on the path here alone

    traced, loss_fn = [], char_gpt.loss_fn
    loss_of = lambda model, ids: (traced.append(ids.shape), loss_fn(model, ids))[1]
    monkeypatch.setattr(char_gpt, "loss_fn", loss_of)
    model = char_gpt.CharGPT(30, 16, heads=2, layers=1, key=random.key(0))
    optimizer = optim.adamw(3e-3)
    step, rng = char_gpt.make_train_step(optimizer), np.random.default_rng(0)
    for length in (40, 18, 66, 130, 33, 4, 65, 91, 12, 40):
        ids = rng.integers(0, 30, (4, length)).astype(np.int32)
        want = float(amdjax.jit(loss_fn)(model, ids))
        # Parameters are donated: each step begins with the same ones.
        copied = amdjax.tree.map(jnp.copy, (model, optimizer.init(model)))
        after, _, loss = step(*copied, ids)
        assert float(loss) == pytest.approx(want, rel=1e-5)
        assert float(loss_fn(after, ids)) < want
    assert [str(shape) for shape in traced] == ["(b, t)"]
    (variants,) = step._programs.variants.values()
    assert variants.reason is None and len(variants.known) <= MOST_COMPILED, str(variants)


@pytest.mark.turns(3)
def test_emulated_gpus_learn_what_the_cpu_learns(tmp_path):
    """The losses agree as printed, but for the last digit; of the digits see below."""
    flags = "--steps 3 --hidden 16 --batch 4 --length 8 --characters 20000 --sample 10 --layers 2"
    found = []
    for target in ("", *in_turn(["gfx942", "gfx1100"], 2)):
        output = run("char_lstm.py", *flags.split(), cwd=tmp_path, AMDJAX_EMULATE=target)
        match = re.search(r"steps, loss ([\d.]+) \(([\d.]+) bits", output)
        found.append([float(x) for x in match.groups()])
    for loss, bits in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=1.01e-3)
        assert bits == pytest.approx(found[0][1], abs=1.01e-2)


PATTERN = r"loss ([\d.]+)  test accuracy +([\d.]+)%"


def learned(cwd, **where):
    """Loss and accuracy of the digits after three steps."""
    output = run("digits.py", "--steps", 3, "--no-plot", cwd=cwd, **where)
    assert "3 steps" in output and "epoch  2" not in output and not list(cwd.iterdir())
    loss, accuracy = re.search(PATTERN, output).groups()
    return float(loss), accuracy


@pytest.fixture(scope="module")
def usually_learned(tmp_path_factory):
    pytest.importorskip("sklearn")
    where = {"AMDJAX_EMULATE": "", "AMDJAX_NUM_THREADS": "2"}
    return learned(tmp_path_factory.mktemp("usual"), **where)


ELSEWHERE = [{"AMDJAX_EMULATE": "gfx942"}, {"AMDJAX_NUM_THREADS": "1"}, {"AMDJAX_NUM_THREADS": "3"}]


@pytest.mark.turns(3)
@pytest.mark.parametrize("device", in_turn(ELSEWHERE, 3), ids=str)
def test_digits_learn_the_same_everywhere(device, usually_learned, tmp_path):
    """Sums are in another order; nothing that is trained may hang on their last bits."""
    loss, accuracy = learned(tmp_path, **device)
    assert accuracy == usually_learned[1]
    assert loss == pytest.approx(usually_learned[0], abs=1.01e-4)


@pytest.mark.parametrize(
    ("script", "args", "words"),
    [
        ("digits.py", ["--epochs", 0], "argument --epochs: must be at least 1, got 0"),
        ("digits.py", ["--batch", 100_000], "--batch must be at most 1437"),
        ("digits.py", ["--output", "no/such/folder.png"], "argument --output: there is no folder"),
        ("char_lstm.py", ["--steps", -1], "argument --steps: must be positive"),
        ("char_lstm.py", ["--prompt", "\u00e9"], "--prompt: the text the network learned from"),
        ("char_lstm.py", ["--characters", 500], "--characters: "),
        ("char_lstm.py", ["--temperature", -1], "argument --temperature"),
        ("char_gpt.py", ["--prompt", ""], "argument --prompt: must not be empty"),
        ("char_gpt.py", ["--features", 20], "argument --features: must be a multiple of"),
        ("char_gpt.py", ["--characters", 100, "--length", 200], "--characters: 100 are too few"),
    ],
)
def test_bad_arguments_are_named(script, args, words):
    if script == "digits.py":
        pytest.importorskip("sklearn")
    output = run(script, *args, fails=True)
    assert words in output
    assert "Traceback" not in output


@pytest.mark.parametrize("package", ["sklearn", "tqdm", "matplotlib"])
def test_a_missing_package_is_named(package, tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(ROOT / "examples" / "digits.py"), "--steps", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert 'pip install "amdjax[examples]"' in done.stderr


def test_classify(tmp_path):
    from tests.support.model_files import network

    model = network(tmp_path / "network.onnx")
    rows = np.random.default_rng(0).integers(0, 256, (12, 16, 3)).astype(np.uint8)
    np.save(tmp_path / "image.npy", rows)
    (tmp_path / "image.ppm").write_bytes(b"P6\n# made by hand\n16 12\n255\n" + rows.tobytes())
    (tmp_path / "labels.txt").write_text("\n".join(f"thing {i}" for i in range(10)))
    outputs = [
        run("classify.py", model, tmp_path / f"image.{kind}", "--labels", tmp_path / "labels.txt")
        for kind in ("npy", "ppm")
    ]
    found = [re.findall(r"([\d.]+)%  thing (\d)", output) for output in outputs]
    assert found[0] == found[1]
    assert len(found[0]) == 5
    shares = [float(share) for share, _ in found[0]]
    assert shares == sorted(shares, reverse=True)
    (tmp_path / "image.ppm").write_bytes(b"P6\n16 12\n255\n" + rows.tobytes()[:50])
    assert "cut off" in run("classify.py", model, tmp_path / "image.ppm", fails=True)
    assert "no file" in run("classify.py", model, tmp_path / "none.npy", fails=True)
    (tmp_path / "text.npy").write_text("no image")
    assert "read as no image" in run("classify.py", model, tmp_path / "text.npy", fails=True)
