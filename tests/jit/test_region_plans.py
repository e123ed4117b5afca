"""Plans of regions and kernel families: what is decided, as text, and that nothing is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import ShapeDtypeStruct, jit
from amdjax.jit.plan import plan_program
from amdjax.jit.schedule import Schedule, epilogue, is_shaped
from amdjax.kernels.shaped import ShapedContext, plan_shaped
from amdjax.schedule import map_plan, maps, rows
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Region, Single, fuse
from amdjax.schedule.regions import plan_region
from amdjax.targets import get
from amdjax.targets.cpu import CpuTarget
from tests.support.gpu_cases import CASES, FAMILIES

CPU = CpuTarget(vector_bits=256, threads=4)
TARGETS = {"cpu": CPU, "gfx942": get("gfx942"), "gfx1100": get("gfx1100")}

#: Program, target and plan of its last step, a line each.
LINES = (Path(__file__).parent / "golden_plans.txt").read_text().splitlines()
GOLDEN = {tuple(key.split()): text for key, _, text in (line.partition(": ") for line in LINES)}


def schedule(name, target):
    f, *args = CASES[name]
    seen = []
    observe = lambda stage, x: seen.append(x) if stage == "schedule" else None
    plan_program(jit(f).trace(*args).jaxpr, target, observe=observe)
    return seen


@pytest.mark.turns(1)
@pytest.mark.parametrize("name,target", GOLDEN)
def test_plans(name, target):
    (found,) = schedule(name, TARGETS[target])
    assert str(found).splitlines()[-1].strip() == GOLDEN[name, target]


MAPS = {
    "square": (lambda x: x.T, (70, 96)), "few rows": (lambda x: x.T, (9, 4)),
    "crossing": (lambda x: x + x.T, (64, 64)), "flat": (lambda x: x * 2, (5000,)),
    "broadcast": (lambda x: x[:, None, :] * x[None], (30, 50)),
    "batch": (lambda x: jnp.swapaxes(x, 1, 2), (3, 40, 24)), "number": (lambda x: x + 1, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("bits", (128, 256, 512))
def test_the_usual_map_is_the_first_of_least_cost(name, bits):
    """Squares are taken without a look at others: none is estimated to take as little."""
    f, shape = MAPS[name]
    fusion = fuse(jit(f).trace(ShapeDtypeStruct(shape, np.float32)).jaxpr.jaxpr)
    (step,) = fusion.steps
    domain, target = Domain(step, fusion), CpuTarget(vector_bits=bits, threads=4)
    plans = map_plan.cpu_map_plans(domain, target)
    costs = [map_plan.cpu_map_cost(domain, plan, target) for plan in plans]
    assert map_plan.usual_map_plan(domain, target) == plans[costs.index(min(costs))]
    if name in ("square", "crossing", "batch"):
        assert len(plans) > 1 and plans[0].transposition and costs[0] < min(costs[1:])


def test_each_region_has_its_plan_below_it():
    (found,) = schedule("layer_norm_gradient", CPU)
    lines = str(found).splitlines()
    assert len(lines) == 4 and [line.startswith("  rows of") for line in lines] == [0, 1, 0, 1]


def of_tables(x, w):
    places = np.zeros((2, 112), np.int32)
    return sum((x[:, places[i]] * w[i][:, None] for i in range(2)), start=w[0][:, None])


def of_masked_tables(x, w):
    """More tables than images."""
    taken = jnp.where((w[0] > 0)[:, None], of_tables(x, w[1:]), 0)
    return taken * w[3][:, None] + w[4][:, None] * w[5][:, None] - w[6][:, None]


@pytest.mark.parametrize("f", [of_tables, of_masked_tables])
def test_lanes_run_along_what_is_contiguous_where_places_are_data(f):
    """However many tables are read along another axis."""
    observed = []
    args = jnp.zeros((4, 56, 64)), jnp.zeros((7, 112))
    observe = lambda stage, x: observed.append(x) if stage == "schedule" else None
    plan_program(jit(f).trace(*args).jaxpr, CPU, observe=observe)
    assert "lanes over i2" in str(observed[0]).splitlines()[-1]


def test_programs_are_not_far_too_short():
    """Rows of lanes that do not fill one join the loop around, if programs stay for all threads.

    Else some steps of that loop do.
    """
    for shape, programs in [((8, 112, 112, 64), 896), ((1, 4, 112, 64), 16)]:
        observed = []
        args = jnp.zeros((*shape[:2], 56, 64)), jnp.zeros(112, np.int32)
        observe = lambda stage, x: observed.append(x) if stage == "schedule" else None
        plan_program(jit(lambda x, i: x[:, :, i]).trace(*args).jaxpr, CPU, observe=observe)
        assert f", {programs} programs" in str(observed[0]).splitlines()[-1]


JOINED = [  # shapes, the axis, and what the plan says of places
    ([(3, 255, 64), (3, 1, 64)], 1, "64 of it in a program, 48 of i1, apart from 0 255"),
    ([(3, 5, 33), (3, 9, 33), (3, 1, 33)], 1, "in loops over i0 i1, apart from 0 5 14"),
    ([(3001, 32), (3001, 32)], 1, "32 lanes over i1, 64 of it in a program"),
]


@pytest.mark.parametrize("shapes, axis, places", JOINED)
def test_what_is_joined_is_copied_part_by_part(shapes, axis, places):
    """Also along a loop around the lanes, and where a part is shorter than a tile would be."""
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape).astype("f") for shape in shapes]
    compiled = jit(lambda *xs: jnp.concatenate([x * 2 for x in xs], axis)).lower(*xs).compile()
    np.testing.assert_array_equal(compiled(*xs), np.concatenate([x * 2 for x in xs], axis))
    observed = []
    observe = lambda stage, x: observed.append(x) if stage == "schedule" else None
    plan_program(compiled.traced.jaxpr, CPU, observe=observe)
    text = str(observed[0]).splitlines()[-1]
    assert places in text
    kernel = compiled.as_text("tiles")
    assert "select" not in kernel


@pytest.mark.parametrize("count, lanes", [(50_000, 128), (50, 32)])
def test_pieces_of_large_tables_are_long(count, lanes):
    """A table in the caches serves short ones as fast."""
    observed = []
    table, places = ShapeDtypeStruct((count, 512), np.float32), np.zeros((64, 32), np.int32)
    observe = lambda stage, x: observed.append(x) if stage == "schedule" else None
    sums = jit(lambda t, i: t.at[i].get(mode="clip").sum(1))
    plan_program(sums.trace(table, places).jaxpr, CPU, observe=observe)
    assert f" {lanes} lanes over rows" in str(observed[0]).splitlines()[-1]


@pytest.mark.parametrize(
    "f, shape, lanes",
    [
        (lambda x: x.sum(0), (1024, 2048), 64),
        (lambda x: x.sum(0), (2048, 2048), 32),  # beyond the caches, in one stream
        (lambda x: x.sum(0), (64, 64), 32),  # in the caches
        (lambda x: x.sum(0), (8192, 96), 32),  # of which 64 lanes would leave many idle
        (lambda x: jnp.argmax(x, 0), (2048, 2048), 32),  # two accumulators
        (lambda x: jnp.tanh(x).sum(0), (2048, 2048), 32),  # that takes longer than reading
    ],
)
def test_sums_of_neighboring_rows_read_long_pieces_of_far_memory(f, shape, lanes):
    observed = []
    observe = lambda stage, x: observed.append(x) if stage == "schedule" else None
    plan_program(jit(f).trace(ShapeDtypeStruct(shape, np.float32)).jaxpr, CPU, observe=observe)
    assert f" {lanes} lanes over rows" in str(observed[0]).splitlines()[-1]


def test_empty_regions_have_no_plan():
    (found,) = schedule("empty", CPU)
    assert str(found).splitlines()[-1] == "  no elements"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("softmax", "sum", "layer", "arg"))]
)
def test_plans_are_frozen_and_need_no_emission(name, target, monkeypatch):
    schedules = schedule(name, TARGETS[target])

    def refuse(*_, **__):
        raise AssertionError("something is written")

    monkeypatch.setattr(maps, "RegionWriter", refuse)
    monkeypatch.setattr(rows, "RegionWriter", refuse)
    for found in schedules:
        again = Schedule(fuse(found.fusion.jaxpr, found.target), found.target)
        assert str(again) == str(found)
        for step in found.fusion.steps:
            if isinstance(step, Region) and (plan := plan_region(step, found.fusion, found.target)):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    plan.domain = None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FAMILIES)
def test_plans_of_families_are_frozen_and_need_no_emission(name, target, monkeypatch):
    schedules = schedule(name, TARGETS[target])

    def refuse(*_, **__):
        raise AssertionError("something is written")

    monkeypatch.setattr(ShapedContext, "kernel", refuse)
    for found in schedules:
        for step in found.fusion.steps:
            if isinstance(step, Single) and is_shaped(step.eqn):
                ctx = ShapedContext(step.eqn, found.target, epilogue(step, found.fusion))
                plan = plan_shaped(ctx)
                assert str(plan) in str(found)
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(plan, dataclasses.fields(plan)[0].name, None)
