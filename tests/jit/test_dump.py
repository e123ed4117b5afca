"""`AMDJAX_DUMP`: every stage of every compile in files."""

import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import jit
from amdjax.core.config import config
from amdjax.jit.cpu import program
from tests.support.jit_helpers import run_python

FILES = {"jaxpr.txt", "simplified.txt", "fusion.txt", "schedule.txt", "tiles.txt", "passes.txt",
         "plan.txt", "llvm.ll", "asm.s"}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    config.update("dump", str(tmp_path))
    yield tmp_path
    config.update("dump", None)


def test_all_stages_are_written(folder):
    @jit
    def my_function(x):
        return jnp.tanh(x) + 1

    my_function(np.zeros(3, np.float32))
    (written,) = [p for p in folder.iterdir() if "my_function" in p.name]
    assert {p.name for p in written.iterdir()} == FILES
    assert all(p.stat().st_size for p in written.iterdir())
    assert "tanh" in (written / "jaxpr.txt").read_text()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    config.update("dump", str(tmp_path / "file"))
    try:
        with pytest.raises(RuntimeError, match=r"AMDJAX_DUMP='.*file': .*cannot be written there"):
            jit(lambda x: x * 5)(np.zeros(3, np.float32))
    finally:
        config.update("dump", None)


def test_each_compile_has_its_folder(folder):
    f = jit(lambda x: x * 3)
    f(np.zeros(3, np.float32)), f(np.zeros(4, np.float32)), f(np.zeros(3, np.float32))
    assert len([p for p in folder.iterdir() if "lambda" in p.name]) == 2


def test_what_was_reached_before_an_error_is_written(folder, monkeypatch):
    def fail(*args):
        raise RuntimeError("no plan")

    monkeypatch.setattr(program, "plan_program", fail)
    with pytest.raises(RuntimeError, match="no plan"):
        jit(lambda x: x - 5)(np.zeros(3, np.float32))
    (written,) = folder.iterdir()
    assert "sub" in (written / "jaxpr.txt").read_text()
    assert not (written / "plan.txt").exists()


def test_by_environment(tmp_path):
    code = "import amdjax, amdjax.numpy as jnp; amdjax.jit(jnp.sin)(1.0)"
    run_python(code, AMDJAX_DUMP=str(tmp_path))
    assert any((p / "asm.s").exists() for p in tmp_path.iterdir())
