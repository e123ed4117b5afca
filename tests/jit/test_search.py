"""Solvers: plans are found and estimated without a compiler, and every one of them is right."""

import dataclasses
import functools
import itertools
import subprocess
import sys

import numpy as np
import pytest

import amdjax
from amdjax import jit, lax, nn
from amdjax.core.jaxpr import Var
from amdjax.jit.schedule import Schedule
from amdjax.kernels import register_for_gpus
from amdjax.passes import prepare
from amdjax.passes.product_chains import product_chain_p
from amdjax.schedule import search
from amdjax.schedule.fusion import fuse
from amdjax.schedule.gpu import regions as gpu_regions  # noqa: F401  (has families)
from amdjax.schedule.search import (
    FAMILIES,
    Family,
    UnknownDecision,
    deciding,
    shares,
)
from amdjax.targets import get
from amdjax.targets.cpu import CpuTarget
from tests.support.jit_helpers import on_machine
from tests.support.turns import in_turn

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


def gradient_of_kernel(x, ct):
    """Of `conv(x, w)` with respect to `w`, of shape (3, 3, features, features)."""
    form, pads = ("CHWN", "IHWO", "HWNC"), ((1, 1), (1, 1))
    return lax.conv_general_dilated(x, ct, (1, 1), pads, dimension_numbers=form)


def few_features(x, w):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")
    )


def add_rows(x, rows, updates):
    indices = lax.expand_dims(lax.convert_element_type(lax.abs(rows), np.int32), (1,))
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lax.scatter_add(x, indices, updates, numbers)


def attend(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


def uniform_attention(q, k, v):
    return nn.dot_product_attention(q * 0, k, v)


def attention_gradient(q, k, v):
    """Where all logits are 0, so that weights are powers of two and sums exact."""
    return amdjax.vjp(nn.dot_product_attention, q * 0, k, v)[1](q)


def between_products(q, k, v):
    """Squares of products, divided by the sums of their rows, times values."""

    def chain(q, k, v):
        w = lax.max(lax.batch_matmul(q, lax.transpose(k, (0, 2, 1))), 0.0) ** 2
        return lax.batch_matmul(w / (w.sum(-1, keepdims=True) + 1), v)

    return product_chain_p.bind(q, k, v, jaxpr=prepare(amdjax.make_jaxpr(chain)(q, k, v)))


#: By kind of problems, a program with several plans, and the shapes of its arguments.
PROGRAMS = {
    "map": (lambda x, y: lax.transpose(x, (1, 0)) + y, [(90, 300), (300, 90)]),
    "rows": (lambda x: x.sum(1), [(3, 40_000)]),
    "sort": (lambda x: lax.sort(x), [(20_000,)]),
    "selection": (lambda x: lax.top_k(x, 5), [(40_000,)]),
    "scan": (lambda x: lax.cumsum(x, axis=0), [(70_000,)]),
    "scatter": (add_rows, [(20, 32), (1000,), (1000, 32)]),
    "product": (lambda x, y: x @ y, [(100, 90), (90, 80)]),
    "product of a computed operand": (
        lambda x, s, t: x @ (s * t), [(2, 1024), (1024, 1), (1, 2048)]
    ),
    "grouped product": (
        lambda x, w, s: lax.ragged_dot(x, w, lax.convert_element_type(s, np.int32)),
        [(100, 90), (5, 90, 80), (5,)],
    ),
    "depthwise convolution": (lambda x, w: conv(x, w, groups=16), [(2, 9, 9, 16), (3, 3, 1, 16)]),
    "attention": (attend, [(1, 300, 2, 16)] * 3),
    "gradient of attention": (attention_gradient, [(1, 256, 2, 16), *[(1, 64, 2, 16)] * 2]),
    "chain of products": (between_products, [(512, 128, 64), *[(512, 256, 64)] * 2]),
    "gradient of a depthwise kernel": (kernel_gradient, [(2, 12, 12, 16), (2, 12, 12, 16)]),
    "convolution": (kernel_gradient, [(2, 12, 12, 16), (2, 12, 12, 16)]),
}  # fmt: skip
#: More programs, by family and solver that none above has plans of.
MORE = {
    "few rows": ("attention on a CPU", uniform_attention, [(1, 2, 4, 16), *[(1, 512, 2, 16)] * 2]),
    "dot products": ("product on a CPU", lambda x, y: x @ y.T, [(3, 4000), (100, 4000)]),
    "rank updates": ("product on a CPU", lambda x, y: x @ y, [(8, 1024), (1024, 2048)]),
    "implicit": ("product on a CPU", conv, [(2, 9, 20, 8), (3, 3, 8, 40)]),
    "implicit gradient": (
        "product on a CPU", gradient_of_kernel, [(2, 9, 20, 8), (2, 9, 20, 40)]
    ),
    "few columns": ("product on a CPU", few_features, [(2, 24, 24, 16), (2, 3, 3, 16)]),
    "network": ("sort on a CPU", lambda x: lax.sort(x), [(40, 100)]),
    "computed lines": (
        "product of a computed operand on a CPU", lambda x, s, t: x @ (s * t).T,
        [(2, 1024), (1, 1024), (2048, 1)],
    ),
    "depthwise": ("convolution on a CPU", *PROGRAMS["depthwise convolution"]),
    "products": ("convolution on a CPU", conv, [(2, 9, 9, 4), (3, 3, 4, 16)]),
}  # fmt: skip


def programs(name):
    """Of a family: functions and the shapes of their arguments."""
    kind = name.partition(" on a ")[0]
    return [PROGRAMS[kind], *(program for family, *program in MORE.values() if family == name)]


def planned(name, f, shapes):
    """A family's problems in a program, and the machine."""
    machine = GPU if name.endswith("GPU") else CPU
    args = (amdjax.ShapeDtypeStruct(s, np.float32) for s in shapes)
    jaxpr = prepare(amdjax.make_jaxpr(f)(*args)).jaxpr
    problems = []
    find = Family.find

    def note(self, problem, target):
        if self.name == name:
            problems.append((problem, target))
        return find(self, problem, target)

    Family.find = note
    try:
        text = str(Schedule(fuse(jaxpr, machine), machine))
    finally:
        Family.find = find
    return problems, text


def table(name):
    """The plans of a family's solvers, their estimates, and which one is chosen, as text."""
    family, lines = FAMILIES[name], []
    for f, shapes in programs(name):
        problems, text = planned(name, f, shapes)
        for problem, machine in problems:
            if (best := family.find(problem, machine)) is None:
                continue
            assert dataclasses.is_dataclass(best) and best.__dataclass_params__.frozen
            assert str(best) in text or name in COMPOSED
            for solver in family.solvers:
                plans = list(solver.plans(problem, machine))
                assert len(set(map(str, plans))) == len(plans)
                for plan in plans:
                    estimate = solver.estimate(problem, plan, machine)
                    assert estimate >= 0
                    lines.append(f"{name}: {solver.name}: {estimate:.6g}: {plan}")
            with deciding(listing=True) as decisions:
                family.find(problem, machine)
            assert decisions.taken[0] in decisions.options[0]
    return lines


#: Their plans are made by others' choices, or were estimates for another family's.
COMPOSED = tuple(
    f"{kind} on a {on}" for kind in ("convolution", "product") for on in ("CPU", "GPU")
)


def test_plans_need_no_compiler():
    """All solvers in a process that has no LLVM."""
    code = """
import sys
sys.modules["llvmlite"] = None
from tests.jit import test_search
for name in test_search.FAMILIES:
    print(*test_search.table(name), sep="\\n")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = {
        (name, solver.name): run.stdout.count(f"{name}: {solver.name}: ")
        for name, family in FAMILIES.items()
        for solver in family.solvers
    }
    without = {key for key, count in found.items() if not count}
    assert without <= MACHINE_SPECIFIC, without
    assert sum(found.values()) > 2 * len(found)


SIZES = [(1, 1, 1), (5, 700, 3), (64, 64, 64), (77, 2000, 300), (900, 40, 2000), (3000, 3, 70)]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("bits", [256, 512])
def test_searches_of_products_leave_out_no_better_plan(bits, threads):
    """What is found without looking at all plans takes as long as the best of all of them."""
    machine, family = CpuTarget(vector_bits=bits, threads=threads), FAMILIES["product on a CPU"]
    products = [(lambda x, y: x @ y, [(m, k), (k, n)]) for m, k, n in SIZES]
    products += [(lambda x, y: x.T @ y.T, [(k, m), (n, k)]) for m, k, n in SIZES]
    for batch, size, fin, fout in [(1, 9, 3, 70), (2, 20, 64, 96), (1, 60, 16, 24), (1, 7, 256, 8)]:
        for form in (("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")):
            shapes = [[sizes[c] for c in spec] for spec, sizes in (
                (form[0], dict(N=batch, H=size, W=size + 1, C=fin)),
                (form[1], dict(H=3, W=2, I=fin, O=fout)),
            )]  # fmt: skip
            convolution = functools.partial(
                lax.conv_general_dilated, window_strides=(1, 2), padding="SAME",
                dimension_numbers=form,
            )  # fmt: skip
            products.append((convolution, shapes))
    left_out = 0
    for f, shapes in products:
        for problem, _ in planned(family.name, f, shapes)[0]:
            every = {}
            for solver in family.solvers:
                with search._adding_up() as others:
                    plans = solver.plans(problem, machine)
                costs = [solver.estimate(problem, x, machine) + sum(others) for x in plans]
                if solver.least is not None and plans:
                    assert solver.least(problem, machine) <= min(costs) * (1 + 1e-12)
                if plans:
                    usual = solver.best(problem, machine)
                    chosen = next(c for c, x in zip(costs, plans) if str(x) == str(usual))
                    assert chosen == min(costs)
                    every[solver.name] = min(costs), str(usual)
            solver, plan = family.usual(problem, machine)
            best = min(cost for cost, _ in every.values())
            assert every[solver.name] == (best, str(plan))
            assert solver.name == next(n for n, (cost, _) in every.items() if cost == best)
            left_out += sum(
                s.least is not None and s.least(problem, machine) * search.ROUNDING >= best
                for s in family.solvers
            )
    assert left_out > len(products) / 2


@pytest.mark.parametrize("sizes", [(9, 3, 64), (20, 16, 24), (60, 3, 8)])
def test_convolutions_that_are_alike_are_searched_for_once(sizes, monkeypatch):
    """Their plans are those that a search for each finds, of the variables of each."""
    size, fin, fout = sizes
    name, searched, original = "convolution on a CPU", [], Family._searched

    def count(self, problem, machine):
        searched.append(self.name)
        return original(self, problem, machine)

    monkeypatch.setattr(Family, "_searched", count)

    def problem(padding="SAME"):
        f = functools.partial(conv, padding=padding)
        return planned(name, f, [(2, size, size, fin), (3, 3, fin, fout)])[0][0]

    with search.remembering():
        searched.clear()
        found = [(x, FAMILIES[name].find(*x)) for x in (problem(), problem(), problem("VALID"))]
        with search._adding_up() as costs:
            again = problem()
            costs.clear()
            FAMILIES[name].find(*again)
    assert searched.count(name) == 2
    with search._adding_up() as fresh:
        FAMILIES[name].find(*again)
    assert costs == fresh != []
    for (problem, machine), plan in found:
        assert str(plan) == str(FAMILIES[name].find(problem, machine))
        own = [*problem.ctx.inputs, *problem.ctx.outputs]
        assert set(variables(plan)) <= set(own)
        assert len(set(variables(plan))) in (0, 3)


def variables(x):
    """The variables that a plan names."""
    if isinstance(x, Var):
        yield x
    elif isinstance(x, (tuple, list)):
        for part in x:
            yield from variables(part)
    elif dataclasses.is_dataclass(x):
        yield from variables([getattr(x, f.name) for f in dataclasses.fields(x)])


#: Solvers that need a machine or a problem which other tests have.
MACHINE_SPECIFIC = {
    ("attention on a CPU", "AMX"), ("product on a CPU", "AMX"), ("product on a CPU", "VNNI"),
    ("product on a CPU", "implicit words"),
    ("convolution on a GPU", "padded groups"), ("convolution on a GPU", "depthwise"),
    ("convolution on a CPU", "depthwise gradient"), ("product on a CPU", "streamed"),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in FAMILIES if not n.endswith("GPU")])
def test_every_plan_computes_the_same(name, monkeypatch):
    """On this computer, as if it had four threads."""
    on_machine(monkeypatch, threads=4)
    for f, shapes in programs(name):
        rng = np.random.default_rng(7)  # whole numbers, whose sums in any order are exact
        args = [rng.integers(-8, 8, shape).astype(np.float32) for shape in shapes]
        results = [
            amdjax.tree.map(np.asarray, jit(lambda *xs: f(*xs))(*args))
            for _ in every_decision(name, monkeypatch)
        ]
        assert results
        for found in results[1:]:
            amdjax.tree.map(np.testing.assert_array_equal, found, results[0])


def every_decision(name, monkeypatch):
    """A family decides for its first plan, then for others, of which a commit tries a third."""
    turn = in_turn(range(3), 3, name)
    find, n, most = Family.find, 0, 1

    def nth(self, problem, target):
        nonlocal most
        if self.name != name:
            return find(self, problem, target)
        rounded = {solver.name for solver in self.solvers if solver.approximate}
        options = [o for o in self.options(problem, target) if o.solver not in rounded]
        most = max(most, len(options))
        return self.decided(options[min(n, len(options) - 1)], problem, target)[1]

    with monkeypatch.context() as patch:
        patch.setattr(Family, "find", nth)
        while n < most:
            if n == 0 or [n % 3] == turn:
                yield n
            n += 1


def test_decisions(monkeypatch):
    """What was decided comes back; what is no plan is refused, and then forgotten."""
    f, shapes = PROGRAMS["product"]
    [(problem, machine)], _ = planned("product on a CPU", f, shapes)
    family = FAMILIES["product on a CPU"]
    with deciding(listing=True) as usual:
        expected = family.find(problem, machine)
    (options,) = usual.options
    assert len({option.solver for option in options}) > 1
    for option in options:
        with deciding([option]) as decisions:
            plan = family.find(problem, machine)
        assert decisions.taken == [option] and str(plan) == option.plan
    wrong = options[0]._replace(plan="no such plan")
    with deciding([wrong]), pytest.raises(UnknownDecision):
        family.find(problem, machine)
    for known in ([wrong], [options[-1]], []):
        monkeypatch.setattr(search, "_finder", lambda step, machine, known=known: known)
        plan = search.planned("step", machine, lambda: family.find(problem, machine))
        assert str(plan) == (options[-1].plan if known == [options[-1]] else str(expected))


@pytest.mark.parametrize("most", range(1, 20))
def test_shares(most):
    found = shares(most)
    assert found[0] == 1 and found[-1] == most and found == sorted(set(found))
    assert all(b <= 2 * a for a, b in itertools.pairwise(found))
