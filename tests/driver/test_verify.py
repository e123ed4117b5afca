"""`verify` finds faults that are sown into the compiler, and names the node."""

import numpy as np
import pytest

import amdjax
from amdjax.core.primitive import Primitive
from amdjax.driver.checking import TOLERANCES, difference
from amdjax.jit import plan


@pytest.fixture
def fresh():
    """Programs that a fault was compiled into are forgotten."""
    amdjax.clear_caches()
    yield
    amdjax.clear_caches()


def test_a_right_program_is_right(network, ok):
    found = ok("verify", network, "--batch", 2)
    assert found["equal"]
    assert not found["unchecked"]
    assert found["outputs"][0]["rms"] < 1e-6
    each = ok("verify", network, "-i", "--ref-use-double")["each"]
    assert {r["node"] for r in each} > {"stem", "pool", "softmax"}
    assert all(r["within"] for r in each)
    assert ok("verify", network, "--bisect")["first"] is None


@pytest.mark.parametrize("target", [None, "gfx1100"])
def test_wrong_lowering_is_found(network, amdjax_command, monkeypatch, fresh, target):
    rule = Primitive.by_name["exp"].lowering
    wrong = type(rule)(lambda b, x, **params: b.add(b.exp(x), b.const(0.25, x.dtype)))
    monkeypatch.setattr(Primitive.by_name["exp"], "lowering", wrong)
    place = [] if target is None else ["--target", target]
    done = amdjax_command("verify", network, "--json", "--bisect", *place)
    assert done.code == 1
    first = done.data["first"]
    assert (first["operation"], first["node"], first["alone"]) == ("exp", "softmax", True)
    assert abs(first["found"] - first["wanted"] - 0.25) < 1e-5
    assert first["compiled"] <= 7
    each = amdjax_command("verify", network, "--json", "--each", *place).data["each"]
    assert [r["operation"] for r in each if not r["within"]] == ["exp"]
    said = amdjax_command("verify", network, "--bisect", *place).out
    assert "exp of node 'softmax'" in said
    assert "--bisect" in amdjax_command("verify", network, *place).out


def test_a_fault_between_operations_is_told_apart(network, amdjax_command, monkeypatch, fresh):
    usual = plan.prepare

    def prepare(closed, *rest):
        closed = usual(closed, *rest)
        eqns = list(closed.eqns)
        pools = [i for i, e in enumerate(eqns) if e.primitive.name == "reduce_window_max"]
        # Only where something stands before and behind it, as in no program of one operation.
        if pools and len(eqns) > 3:
            (i,) = pools
            eqns[i] = eqns[i].replace(primitive=Primitive.by_name["reduce_window_min"])
        return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))

    monkeypatch.setattr(plan, "prepare", prepare)
    done = amdjax_command("verify", network, "--json", "--bisect")
    assert done.code == 1
    first = done.data["first"]
    assert (first["operation"], first["node"], first["alone"]) == (
        "reduce_window_max", "pool", False,
    )  # fmt: skip


def test_tolerances(affine, amdjax_command, ok):
    assert ok("verify", affine)["tolerance"] == {"rms": 1e-3, "atol": 1e-3, "rtol": 1e-3}
    tight = ["--rms-tol", "0", "--atol", "0", "--rtol", "0"]
    done = amdjax_command("verify", affine, "--batch", 64, *tight, "--ref-use-double", "--json")
    assert done.code == 1
    assert done.data["tolerance"] == {"rms": 0, "atol": 0, "rtol": 0}
    assert amdjax_command("verify", affine, "--atol", "-1").code == 2
    assert amdjax_command("verify", affine, "-i", "-b").code == 2


@pytest.mark.parametrize(
    "flag,rms", [("fp16", 0.08), ("bf16", 0.08), ("fp8", 0.25), ("int8", 0.25)]
)
def test_precisions_are_compared_with_what_the_file_says(network, ok, flag, rms):
    plain = ok("verify", network)["outputs"][0]
    found = ok("verify", network, f"--{flag}")
    assert found["tolerance"]["rms"] == rms
    assert found["outputs"][0]["name"] == plain["name"]
    assert plain["rms"] < found["outputs"][0]["rms"] < rms


def test_a_precision_that_loses_more_than_it_may_is_told(network, amdjax_command):
    tight = ["--rms-tol", "1e-6", "--atol", "0", "--rtol", "0", "--json"]
    assert amdjax_command("verify", network, "--bf16", *tight).code == 1
    for words in (["--fp16", "--int8"], ["--fp16", "--bisect"], ["--int8", "--each"]):
        assert amdjax_command("verify", network, *words).code == 2


def test_differences():
    tolerance = TOLERANCES[32]
    x = np.array([1.0, np.nan, np.inf, -2.0])
    assert difference(x, x, tolerance).is_within
    for other in ([1.0, 0.0, np.inf, -2.0], [1.0, np.nan, 7.0, -2.0], [1.0, np.nan, -np.inf, -2.0]):
        assert not difference(x, np.array(other), tolerance).is_within
    found = difference(np.array([[1.0, 2.0]]), np.array([[1.0, 2.5]]), tolerance)
    assert found.place == (0, 1)
    assert (found.most, found.is_within) == (0.5, False)
    np.testing.assert_allclose(found.rms, 0.5 / 2.5 / np.sqrt(2))
    assert difference(np.zeros((0, 2)), np.zeros((0, 2)), tolerance).is_within
