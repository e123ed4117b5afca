"""Saved programs are files like others: read, run, timed, compared."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp


@pytest.fixture(scope="module")
def saved(network, tmp_path_factory):
    from amdjax.driver import main

    path = tmp_path_factory.mktemp("saved") / "network.amdjax"
    assert main(["compile", str(network), "--targets", "cpu", "gfx1100", "-o", str(path)]) == 0
    return path


def test_saved_programs_give_what_models_give(network, saved, ok):
    want = ok("run", network, "--batch", 3)["outputs"][0]["values"]
    for words in ([], ["--trust"]):
        found = ok("run", saved, "--batch", 3, *words)["outputs"][0]["values"]
        np.testing.assert_allclose(found, want, rtol=1e-5)
    assert ok("params", saved)["kind"] == "amdjax"
    assert "# for cpu, gfx1100" in ok("read", saved)["text"]


def test_saved_programs_are_timed_compared_and_drawn(saved, ok):
    assert ok("perf", saved, "-n", 1)["layers"]
    assert ok("verify", saved, "--bisect")["first"] is None
    assert "conv_general_dilated" in ok("read", saved, "--graphviz")["text"]


def test_quantized_programs_are_saved(network, ok, amdjax_command, tmp_path):
    path = tmp_path / "quantized.amdjax"
    ok("quantize", network, "-o", path)
    found = ok("run", path, "--batch", 2)["outputs"][0]["values"]
    want = ok("run", network, "--batch", 2)["outputs"][0]["values"]
    assert 0 < np.abs(np.subtract(found, want)).max() < 0.05
    done = amdjax_command("run", path, "--int8")
    assert done.code == 2
    assert "compiled already" in done.err


def test_files_that_are_no_models(saved, tmp_path, amdjax_command):
    path = tmp_path / "function.amdjax"
    exported = amdjax.export.export(amdjax.jit(lambda x: x * 2))(jnp.zeros(2))
    exported.save(path)
    done = amdjax_command("run", path)
    assert done.code == 2
    assert "holds a function" in done.err
    for content in (b"", b"PK\x03\x04", saved.read_bytes()[:-200]):
        path.write_bytes(content)
        done = amdjax_command("params", path)
        assert done.code == 2
        assert done.err.count("\n") == 1
