"""What quantization is said to cost, against the same measured from outside."""

import importlib
import json
import math

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.quantize import Report, Row, quantize, report as report_module, sqnr


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


PARAMS = {"a": normal(16, 12), "b": normal(12, 12) ** 5, "c": normal(12, 4)}
BATCHES = [normal(8, 16), normal(8, 16, seed=1)]


def f(params, x):
    return jnp.tanh(jnp.maximum(x @ params["a"], 0) @ params["b"] / 50) @ params["c"]


@pytest.fixture(scope="module")
def measured():
    q = quantize(f, PARAMS, BATCHES)
    return q, q.report(PARAMS, BATCHES, repeats=1)


def results(function, params):
    return np.concatenate([np.asarray(function(params, x)) for x in BATCHES])


def test_of_results(measured):
    q, report = measured
    want, got = results(f, PARAMS), results(q, q.params)
    assert report.sqnr == pytest.approx(sqnr(want, got), abs=0.05)
    assert report.error == pytest.approx(np.abs(want - got).max(), rel=1e-3)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_of_each_product_alone(measured, name):
    row = next(r for r in measured[1].rows if r.name == name)
    rest = [n for n in PARAMS if n != name]
    alone = quantize(f, PARAMS, BATCHES, exclude=rest)
    got = results(alone, alone.params)
    assert row.alone == pytest.approx(sqnr(results(f, PARAMS), got), abs=0.05)


def test_of_each_product_itself(measured):
    _, report = measured
    first = lambda params, x: x @ params["a"]
    own = quantize(first, PARAMS, BATCHES)
    wanted = sqnr(results(first, PARAMS), results(own, own.params))
    rows = {r.name: r for r in report.rows}
    assert rows["a"].own == pytest.approx(wanted, abs=0.05)
    assert rows["a"].accumulated == pytest.approx(wanted, abs=0.05)
    # The last product, with all before it quantized, gives the result.
    assert rows["c"].accumulated == pytest.approx(report.sqnr, abs=0.05)


def test_of_memory_and_time(measured):
    q, report = measured
    assert report.bytes_before == 4 * sum(x.size for x in PARAMS.values())
    assert report.bytes_after == sum(x.nbytes for x in amdjax.tree.leaves(q.params))
    rows = {r.name: r for r in report.rows}
    assert rows["a"].bytes_before == 4 * 16 * 12
    assert rows["a"].bytes_after == 16 * 12 + 3 * 4 * 12  # with scales, sums, and what means lack
    assert report.seconds_before > 0 and report.seconds_after > 0


def test_the_worst_can_be_left_out(measured):
    _, report = measured
    order = sorted(report.rows, key=lambda r: r.alone)
    assert report.worst(2) == [r.name for r in order[:2]]
    better = quantize(f, PARAMS, BATCHES, exclude=report.worst(1))
    again = better.report(PARAMS, BATCHES, repeats=1)
    assert again.sqnr > report.sqnr + 1
    left = next(r for r in again.rows if r.name == report.worst()[0])
    assert left.recipe == "" and math.isnan(left.alone)
    with pytest.raises(ValueError, match="n must not be negative"):
        report.worst(-1)


def test_products_in_loops_are_measured_alone():
    step = lambda h, w: (jnp.tanh(h @ w), None)
    loop = lambda params, x: lax.scan(step, x, params)[0]
    w = normal(3, 16, 16) / 4
    q = quantize(loop, w, BATCHES)
    (row,) = q.report(w, BATCHES, repeats=1).rows
    assert math.isnan(row.own) and row.alone == pytest.approx(
        sqnr(results(loop, w), results(q, q.params)), abs=0.05
    )


def test_is_data_and_text(measured, monkeypatch):
    _, report = measured
    assert json.loads(json.dumps(report.as_dict()))["rows"][0]["name"] == "a"
    assert "dot_general" in str(report) and "results:" in str(report)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(report_module.importlib, "import_module", missing)
    lines = report.table().splitlines()
    assert lines[0].split()[:3] == ["product", "operation", "as"]
    assert len(lines) == 1 + len(report.rows) + 1
    monkeypatch.undo()
    assert importlib.import_module("json") is json


def test_ratios():
    assert sqnr(np.ones(3), np.ones(3)) == math.inf
    assert sqnr(np.zeros(3), np.ones(3)) == -math.inf
    assert sqnr(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(20)
    row = Row("a", "dot_general", "", math.nan, math.nan, math.nan, 4, 4)
    assert Report((row,), 1.0, 1.0, 4, 4, 1.0, 1.0).worst() == []


def test_no_data():
    q = quantize(f, PARAMS, BATCHES)
    with pytest.raises(ValueError, match="data must not be empty"):
        q.report(PARAMS, [])
