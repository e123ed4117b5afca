"""What `import amdjax` loads, seen from a fresh process."""

import subprocess
import sys

import pytest

HEAVY = (
    "llvmlite", "scipy", "hip", "opt_einsum", "logging", "matplotlib", "sklearn", "decimal",
    "difflib", "sqlite3", "google.protobuf", "amdjax.tf", "amdjax.find", "amdjax.jit.report",
    "amdjax.codegen.elf", "amdjax.kernels.sorting.gpu",
)  # fmt: skip


def loaded_by(code: str) -> set[str]:
    """Which of `HEAVY` a fresh interpreter has loaded after `code`."""
    program = f"{code}\nimport sys\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import amdjax",
        "import amdjax, amdjax.lax, amdjax.tree_util, amdjax.api",
        "import amdjax\nprint(end=str(amdjax.make_jaxpr(lambda x: amdjax.lax.sin(x))(1.0))[:0])",
    ],
)
def test_no_compiler_is_loaded_before_it_is_needed(code):
    assert not loaded_by(code)


def test_numpy_and_nn_load_no_compiler():
    assert not loaded_by("import amdjax.numpy, amdjax.nn, amdjax.random")


def test_functions_of_nn_load_no_random_numbers():
    run = "import amdjax, sys\nassert amdjax.nn.relu and 'amdjax.random' not in sys.modules"
    subprocess.run([sys.executable, "-c", run], check=True)


def test_the_first_array_loads_llvm():
    loaded = loaded_by("import amdjax.numpy as jnp\njnp.ones(2) + 1")
    assert "llvmlite" in loaded
    assert loaded <= {"llvmlite", "difflib"}


def test_functions_of_nn_load_no_layers():
    run = """import sys
from amdjax import nn
assert nn.gelu and "amdjax.nn.layers" not in sys.modules
assert nn.Dense and "Conv" in dir(nn)"""
    subprocess.run([sys.executable, "-c", run], check=True)


def test_onnx_models_load_no_layers():
    run = """import sys
import amdjax.onnx
from onnx import helper, TensorProto
x, s, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in
           (("x", [2, 3]), ("s", [3]), ("y", [2, 3])))
node = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
opset = [helper.make_opsetid("", 17)]
model = helper.make_model(helper.make_graph([node], "g", [x, s], [y]), opset_imports=opset)
assert amdjax.onnx.load(model)(x=[[1.0, 2.0, 3.0]] * 2, s=[1.0] * 3)["y"].shape == (2, 3)
assert "amdjax.nn.layers" not in sys.modules"""
    subprocess.run([sys.executable, "-c", run], check=True)


def test_threads_may_ask_for_layers_at_once():
    run = """from concurrent.futures import ThreadPoolExecutor
from amdjax import nn
with ThreadPoolExecutor(8) as pool:
    assert len({*pool.map(lambda _: nn.Dense, range(8))}) == 1"""
    subprocess.run([sys.executable, "-c", run], check=True)


#: Prints where each class is said to be defined, having collected garbage at each line of a module.
CLASSES = """import gc, importlib, sys
def collect(frame, event, arg):
    if event == "line":
        gc.collect(0)
    return collect if frame.f_code.co_name == "<module>" else None
def trace(frame, event, arg):
    module = frame.f_code.co_name == "<module>"
    return collect if module and "amdjax" in frame.f_code.co_filename else None
sys.settrace(trace if {traced} else None)
for name in ("nn", "rnn", "optim", "random", "scipy.stats", "experimental.sparse", "export"):
    importlib.import_module("amdjax." + name)
sys.settrace(None)
for name, module in sorted(sys.modules.items()):
    if name.startswith("amdjax"):
        for key, value in sorted(vars(module).items()):
            if isinstance(value, type):
                print(name, key, value.__module__)
"""


def test_classes_are_the_same_whenever_garbage_is_collected():
    said = [
        subprocess.run(
            [sys.executable, "-c", CLASSES.replace("{traced}", str(traced))],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for traced in (False, True)
    ]  # fmt: skip
    assert said[0] == said[1] and any("BCOO" in line for line in said[0])
