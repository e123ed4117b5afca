"""Search spaces: plans are found and costed without a compiler, and every one of them is right."""

import dataclasses
import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

import amdjax
from amdjax import jit, lax
from amdjax.jit.schedule import Schedule
from amdjax.kernels import register_for_gpus
from amdjax.passes import prepare
from amdjax.schedule.fusion import fuse
from amdjax.schedule.gpu import regions as gpu_regions  # noqa: F401  (has search spaces)
from amdjax.schedule.search import SPACES, SearchSpace, shares
from amdjax.targets import get
from amdjax.targets.cpu import CpuTarget

register_for_gpus()
CPU, GPU = CpuTarget(vector_bits=256, threads=4), get("gfx942")


def conv(x, w, padding="SAME", groups=1):
    form = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (1, 1), padding, dimension_numbers=form, feature_group_count=groups
    )


def kernel_gradient(x, ct):
    """Of `conv(x, w, groups=x.shape[-1])` with respect to `w`, of shape (3, 3, 1, features)."""
    form, pads, groups = ("CHWN", "IHWO", "HWNC"), ((1, 1), (1, 1)), x.shape[-1]
    return lax.conv_general_dilated(
        x, ct, (1, 1), pads, dimension_numbers=form, batch_group_count=groups
    )


def few_features(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")
    )


def add_rows(x, rows, updates):
    indices = lax.expand_dims(lax.convert_element_type(lax.abs(rows), np.int32), (1,))
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lax.scatter_add(x, indices, updates, numbers)


#: By the name of a space, a program with several candidates, and the shapes of its arguments.
PROGRAMS = {
    "map": (lambda x, y: lax.transpose(x, (1, 0)) + y, [(90, 300), (300, 90)]),
    "rows": (lambda x: x.sum(1), [(3, 40_000)]),
    "sort": (lambda x: lax.sort(x), [(20_000,)]),
    "selection": (lambda x: lax.top_k(x, 5), [(40_000,)]),
    "scan": (lambda x: lax.cumsum(x, axis=0), [(70_000,)]),
    "scatter": (add_rows, [(20, 32), (1000,), (1000, 32)]),
    "product without packing": (lambda x, y: x @ y, [(3, 4000), (4000, 100)]),
    "product of few columns": (few_features, [(2, 24, 24, 16), (2, 3, 3, 16)]),
    "product": (lambda x, y: x @ y, [(100, 90), (90, 80)]),
    "depthwise convolution": (lambda x, w: conv(x, w, groups=16), [(2, 9, 9, 16), (3, 3, 1, 16)]),
    "gradient of a depthwise kernel": (kernel_gradient, [(2, 12, 12, 16), (2, 12, 12, 16)]),
}  # fmt: skip


def kind(space):
    return space.partition(" on a ")[0]


def planned(name):
    """A space's problems in its program, and the machine."""
    f, shapes = PROGRAMS[kind(name)]
    machine = GPU if name.endswith("GPU") else CPU
    args = (amdjax.ShapeDtypeStruct(s, np.float32) for s in shapes)
    jaxpr = prepare(amdjax.make_jaxpr(f)(*args)).jaxpr
    problems = []
    find = SearchSpace.find

    def note(self, problem, target):
        if self.name == name:
            problems.append((problem, target))
        return find(self, problem, target)

    SearchSpace.find = note
    try:
        text = str(Schedule(fuse(jaxpr, machine is GPU), machine))
    finally:
        SearchSpace.find = find
    return problems, text


def table(name):
    """The candidates of a space, their costs, and which one is chosen, as text."""
    problems, text = planned(name)
    space, lines = SPACES[name], []
    for problem, machine in problems:
        plans = space.candidates(problem, machine)
        costs = [space.cost(problem, plan, machine) for plan in plans]
        if (best := space.find(problem, machine)) is None:
            assert not plans
            continue
        texts = list(map(str, plans))
        assert costs[texts.index(str(best))] == min(costs) < math.inf and str(best) in text
        assert len(set(texts)) == len(texts)
        assert dataclasses.is_dataclass(best) and best.__dataclass_params__.frozen
        lines += [f"{name}: {cost:.6g}: {plan}" for plan, cost in zip(plans, costs, strict=True)]
    return lines


def test_candidates_need_no_compiler():
    """All spaces in a process that has no LLVM."""
    code = """
import sys
sys.modules["llvmlite"] = None
from tests.jit import test_search
for name in test_search.SPACES:
    print(*test_search.table(name), sep="\\n")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = {name: run.stdout.count(f"{name}: ") for name in SPACES}
    assert all(found.values()), found
    assert sum(found.values()) > 3 * len(found)


@pytest.mark.parametrize("name", [n for n in SPACES if not n.endswith("GPU")])
def test_every_candidate_computes_the_same(name, monkeypatch):
    """On this computer, as if it had four threads."""
    from amdjax.jit.cpu import program  # which loads LLVM

    machine = dataclasses.replace(program.cpu_target(), threads=4)
    monkeypatch.setattr(program, "cpu_target", lambda: machine)
    f, shapes = PROGRAMS[kind(name)]
    rng = np.random.default_rng(7)  # whole numbers, whose sums in any order are exact
    args = [rng.integers(-8, 8, shape).astype(np.float32) for shape in shapes]
    expected, find, counts = None, SearchSpace.find, []

    def nth(self, problem, target):
        if self.name != name:
            return find(self, problem, target)
        plans = self.candidates(problem, target)
        counts.append(len(plans))
        return plans[min(n, len(plans) - 1)] if plans else None

    monkeypatch.setattr(SearchSpace, "find", nth)
    n = 0
    while n < max(counts, default=1):
        found = amdjax.tree.map(np.asarray, jit(lambda *xs: f(*xs))(*args))
        expected = found if expected is None else expected
        amdjax.tree.map(np.testing.assert_array_equal, found, expected)
        n += 1
    assert n > 1


@pytest.mark.parametrize("most", range(1, 20))
def test_shares(most):
    found = shares(most)
    assert found[0] == 1 and found[-1] == most and found == sorted(set(found))
    assert all(b <= 2 * a for a, b in itertools.pairwise(found))
