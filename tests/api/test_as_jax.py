"""The alias, in processes of its own: `jax` and what is below it mean amdjax there."""

import os
import subprocess
import sys

import pytest


def run(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd,
        env={**os.environ, **environment},
    )  # fmt: skip


def printed(code):
    result = run("-m", "amdjax.as_jax", "-c", code)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_modules_and_classes_are_amdjaxs():
    code = """
import jax, jax.numpy as jnp, jax.nn.initializers, jax.tree_util, jax.extend.core, jax.core
import jax.interpreters.ad as ad, jax.scipy.special, jaxlib
from jax import random, lax, Array
import amdjax, amdjax.numpy
assert jnp is amdjax.numpy and random is amdjax.random and lax is amdjax.lax
assert jax.Array is amdjax.Array is Array and isinstance(jnp.ones(2), jax.Array)
assert jax.extend.core.Primitive is type(lax.sin_p)
assert jax.core.Tracer.__module__.startswith("amdjax.")
versions = jax.__version__, jax.version.__version_info__, jaxlib.__version__
print(*versions, amdjax.__version__ != jax.__version__)
print(jax.jit(jax.grad(jnp.sin))(0.0))
"""
    version = "0.10.2"
    expected = f"{version} {tuple(map(int, version.split('.')))} {version} True\n1.0"
    assert printed(code) == expected


def test_our_own_modules_keep_what_the_import_system_knows_of_them():
    code = """
import importlib, jax.numpy, jax.tree_util, amdjax.tree_util, amdjax.numpy
assert amdjax.numpy.__spec__.name == "amdjax.numpy" and amdjax.numpy.__name__ == "amdjax.numpy"
assert not hasattr(amdjax.tree_util, "__path__")
print(importlib.util.find_spec("jax.no_such_module"), importlib.util.find_spec("jaxlib.pytree"))
"""
    assert printed(code) == "None None"


@pytest.mark.parametrize("name", ["jax.no_such_module", "jax.numpy.no_such", "jax._src.no_such"])
def test_a_module_that_is_not_there_is_not_found(name):
    assert (
        printed(f"try:\n    import {name}\nexcept ModuleNotFoundError as e:\n    print(e.name)")
        == name
    )


def test_private_names_that_libraries_use():
    print_it = """
import jax._src.traceback_util as traceback_util
from jax._src import core, dtypes
from jax._src.core import trace_state_clean
from jax._src.flatten_util import ravel_pytree
from jax._src.ad_util import stop_gradient_p
from jax._src.dtypes import TypePromotionError
from jax._src.tree_util import flatten_one_level, _registry
traceback_util.register_exclusion("/nowhere/")
print(trace_state_clean(), core.ShapedArray((2,), "float32"), dict in _registry)
"""
    assert printed(print_it) == "True float32[2] True"


@pytest.mark.turns(3)
def test_running_scripts_modules_and_code(tmp_path):
    (tmp_path / "beside.py").write_text("value = 3\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, beside, jax\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], beside.value, jax.__name__, jax.numpy.__name__)\n"
    )
    expected = "['--flag', 'x'] 3 jax amdjax.numpy\n"
    by_path = run("-m", "amdjax.as_jax", str(script), "--flag", "x")
    assert by_path.stdout == expected, by_path.stderr
    by_name = run("-m", "amdjax.as_jax", "-m", "program", "--flag", "x", cwd=tmp_path)
    assert by_name.stdout == expected, by_name.stderr
    assert run("-m", "amdjax.as_jax").returncode == 2
    assert "usage" in run("-m", "amdjax.as_jax", "-m").stderr
    failed = run("-m", "amdjax.as_jax", "-c", "raise SystemExit(7)")
    assert failed.returncode == 7


def test_it_refuses_when_jax_was_imported_already(tmp_path):
    (tmp_path / "jax.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import jax, amdjax.as_jax"
    result = run("-c", code)
    assert result.returncode == 1
    assert "'jax' was imported already" in result.stderr and "jax.py" in result.stderr


def test_importing_amdjax_alone_changes_nothing():
    code = "import sys, amdjax; print([n for n in sys.modules if n.split('.')[0] == 'jax'])"
    assert run("-c", code).stdout.strip() == "[]"


def test_jaxs_variables_set_flags():
    code = "import jax; print(jax.config.jax_enable_x64, jax.config.jax_debug_nans)"
    variables = {"JAX_ENABLE_X64": "1", "JAX_DEBUG_NANS": "1", "AMDJAX_DEBUG_NANS": "0"}
    result = run("-m", "amdjax.as_jax", "-c", code, **variables, JAX_SCAN3="1", JAX_NO_SUCH="x")
    assert result.stdout.split() == ["True", "False"], result.stderr
    result = run("-m", "amdjax.as_jax", "-c", code, JAX_ENABLE_X64="maybe")
    assert "JAX_ENABLE_X64='maybe' is not a boolean" in result.stderr
