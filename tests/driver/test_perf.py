"""`perf`: what it counts and finds, not how long anything takes."""

import argparse
import json

import numpy as np
import pytest

from amdjax.driver.parsing import parse
from amdjax.driver.timing import best_of, search


def test_layers_are_the_nodes(network, ok, amdjax_command, tmp_path):
    trace = tmp_path / "trace.json"
    found = ok("perf", network, "--batch", 2, "-n", 3, "--trace", trace)
    assert found["runs"] == 3
    assert found["batch"] == 2
    assert found["least"] <= found["median"] <= found["p99"]
    assert {n for r in found["layers"] for n in r["nodes"]} >= {"stem", "body", "head", "softmax"}
    assert abs(sum(r["share"] for r in found["layers"]) - 1) < 1e-6
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(e["name"].startswith("run ") for e in events) == 3
    assert len([e for e in events if e.get("tid") == 2 and e["ph"] == "X"]) == len(found["layers"])
    said = amdjax_command("perf", network, "-n", 1, "--detailed").out
    assert "conv_general_dilated" in said
    assert "p99" in said


@pytest.mark.parametrize("flag", ["--int8", "--bf16", "--int4-weights"])
def test_quantized_models(network, ok, flag):
    found = ok("perf", network, flag, "-n", 1)
    assert found["precision"] == flag[2:].replace("-", "_")
    run = ok("run", network, flag)["outputs"][0]["values"]
    want = ok("run", network)["outputs"][0]["values"]
    assert np.abs(np.subtract(run, want)).max() < (0.2 if "int4" in flag else 0.05)
    assert run != want


def test_emulated_gpus_count(affine, ok):
    found = ok("perf", affine, "--target", "gfx942", "-n", 1)
    assert sum(r["instructions"] for r in found["launches"]) > 0


def test_best_batch(network, affine, ok, amdjax_command, monkeypatch):
    monkeypatch.setattr("amdjax.driver.timing.LARGEST", 4)
    found = ok("perf", network, "--best-batch", "-n", 2)
    assert {r["batch"] for r in found["batches"]} >= {1, 2}
    assert found["best"] in found["batches"]
    done = amdjax_command("perf", network, "--best-batch", "--max-latency", "0.001us", "-n", 1)
    assert done.code == 1
    assert "no batch is within 1 ns: a batch of 1 takes" in done.err


@pytest.mark.parametrize(
    "fixed, share, limit, best",
    [(1e-3, 1e-5, None, 1024), (1e-3, 1e-4, 5.05e-3, 40), (1e-5, 1e-3, None, 1), (0, 1, 0.5, None)],
)
def test_search(fixed, share, limit, best):
    seen = {}

    def measure(batch):
        seconds = fixed + share * batch + (batch > 1024)
        seen[batch] = {"batch": batch, "p99": seconds, "throughput": batch / seconds}
        return seen[batch]

    search(measure, limit)
    within = [s for s in seen.values() if limit is None or s["p99"] <= limit]
    assert (best_of(within)["batch"] if within else None) == best
    assert len(seen) < 16


def test_batches_of_fixed_models(tmp_path, amdjax_command):
    from tests.support import model_files

    path = model_files.network(tmp_path / "fixed.onnx", batch=2)
    done = amdjax_command("perf", path, "--best-batch")
    assert done.code == 2
    assert "no input has an open first axis" in done.err
    assert "fixed to 2" in amdjax_command("perf", path, "--batch", 3).err


def test_times():
    limit = lambda text: parse(["perf", "m.onnx", "--max-latency", text]).max_latency
    assert limit("20ms") == 0.02
    assert limit("1.5s") == 1.5
    assert limit("500us") == limit("500µs") == pytest.approx(5e-4)
    assert isinstance(parse(["perf", "m.onnx"]), argparse.Namespace)


def test_calibration_files(network, tmp_path, ok, amdjax_command):
    for n in range(2):
        x = np.random.default_rng(n).standard_normal((2, 3, 8, 8), np.float32)
        np.savez(tmp_path / f"{n}.npz", x=x)
    found = ok("run", network, "--int8", "--calibrate", tmp_path)
    assert found["outputs"]
    assert ok("run", network, "--int8", "--calibrate", tmp_path / "1.npz")["outputs"]
    for words, said in (
        (["--int8", "--fp16"], "exclude each other"),
        (["--calibrate", tmp_path], "is for --int8 and --fp8"),
        (["--int8", "--calibrate", tmp_path / "none.npz"], "no file"),
        (["--int8", "--calibrate", network.parent], "has no .npy or .npz"),
    ):
        done = amdjax_command("run", network, *words)
        assert done.code == 2
        assert said in done.err
    np.savez(tmp_path / "0.npz", a=x, b=x)
    assert "no input 'x'" in amdjax_command("run", network, "--int8", "--calibrate", tmp_path).err
