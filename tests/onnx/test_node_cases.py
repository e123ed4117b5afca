"""ONNX's node cases through its Backend interface: one in twenty at a commit, all of them in turns.

`support/onnx_departures.txt` lists the cases that are not passed, each with its reason; what passes
now must leave the list. AMDJAX_TEST_ONNX=all runs all.
"""

import os

import pytest

from tests.support import onnx_cases

pytest.importorskip("onnx")

PARTS, SHARES = 8, 20


@pytest.mark.turns(1)
@pytest.mark.xdist_group("onnx cases")  # which one process makes once
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_node_cases(part):
    every = os.environ.get("AMDJAX_TEST_ONNX") == "all"
    rotation = int(os.environ["AMDJAX_TEST_ROTATION"])
    known, wrong = onnx_cases.departures(), []
    for name, case in onnx_cases.due(part, PARTS, rotation, 1 if every else SHARES):
        told = onnx_cases.failure(case)
        if (told is None) == (name in known):
            wrong.append(f"{name}: {told or 'passes now, take it off the list'}")
    assert not wrong, "\n".join(wrong)


def test_departures_are_cases():
    assert set(onnx_cases.departures()) <= set(onnx_cases.cases())
    assert len(onnx_cases.cases()) - len(onnx_cases.departures()) > 1785
