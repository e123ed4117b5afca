"""Recorded calls of JAX's functions, made of amdjax: eagerly, jitted, batched, differentiated.

Where amdjax refuses a call, its message must name the function or an argument, or show a value.

`recorded/NAME.npz` holds the calls and what JAX gave; `tools/record_jax.py` writes it. What is
known to differ stands in `recorded/NAME.departures`, one call and mode a line with what differs,
and must differ: a line that no longer does has to go. One run takes a share of the calls, another
each day; AMDJAX_TEST_RECORDED=all takes all.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import zlib

import pytest

import amdjax
from tests.support import recorded_calls as recorded

HERE = pathlib.Path(__file__).parent / "recorded"
SHARES = 20


def is_due(call):
    if os.environ.get("AMDJAX_TEST_RECORDED") == "all":
        return True
    turn = zlib.crc32(json.dumps(call).encode()) + int(os.environ["AMDJAX_TEST_ROTATION"])
    return turn % SHARES == 0


def cases():
    for path in sorted(HERE.glob("*.npz")):
        by_function = collections.defaultdict(list)
        for call, outcomes in recorded.load(path):
            if is_due(call):
                by_function[call[0]].append((call, outcomes))
        known = recorded.departures(path.with_suffix(".departures"))
        for name, calls in by_function.items():
            yield pytest.param(calls, known, id=f"{path.stem}-{name}")


@pytest.fixture(autouse=True)
def settings():
    before = amdjax.config.jax_enable_x64
    yield
    amdjax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("calls, known", list(cases()))
def test_recorded_calls(calls, known):
    wrong = []
    for call, outcomes in calls:
        told = dict(recorded.replay(call, outcomes))
        for mode in [*outcomes, "message", "printed"]:
            listed = (json.dumps(call), mode) in known
            if mode in told and not listed:
                wrong.append(f"{mode} {call}: {told[mode]}")
            elif mode not in told and listed:
                wrong.append(f"{mode} {call}: agrees now, take it off the list")
    assert not wrong, "\n".join(wrong)


def test_a_message_that_says_nothing_is_noticed():
    call = ["numpy.sum", 0, [{"a": ["float32", [2, 3], 1, "usual"]}], {"axis": 5}]
    made = recorded.Call(call, amdjax)
    assert recorded.unclear(call, "index beyond the end of a tuple", made)
    for clear in ("axis 5 is out of range", "sum does not take it", "got shape (2, 3)"):
        assert not recorded.unclear(call, clear, made)


def test_a_wrong_outcome_is_noticed():
    """The comparison sees values, dtypes, weak types, shapes, errors and acceptance."""
    x = {"a": ["float32", [2], 1, "usual"]}
    right = dict(recorded.replay(["numpy.sin", 0, [x], {}], _outcomes(["numpy.sin", 0, [x], {}])))
    assert right == {}
    for other in ("numpy.cos", "numpy.isnan", "numpy.sum", "numpy.linalg.inv"):
        assert dict(recorded.replay([other, 0, [x], {}], _outcomes(["numpy.sin", 0, [x], {}])))
    bad = ["numpy.sum", 0, [x], {"axis": 5}]
    assert dict(recorded.replay(["numpy.sum", 0, [x], {}], _outcomes(bad)))


def _outcomes(call):
    return {"eager": recorded.outcome(recorded.Call(call, amdjax).eager, amdjax)}


@pytest.mark.turns(3)
def test_linear_algebra_of_an_older_processor():
    """BLAS chooses kernels by processor, which round otherwise and turn vectors another way."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", "calls and linalg"]
    env = {**os.environ, "OPENBLAS_CORETYPE": "Prescott"}
    done = subprocess.run([*command, __file__], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
