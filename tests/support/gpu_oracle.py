"""Runs schedules made for a GPU on the CPU: a tile program means the same everywhere."""

import dataclasses
from itertools import pairwise
from unittest import mock

import numpy as np

from amdjax import jit
from amdjax.core.array import asarray_concrete
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.jit.cpu.kernels import cpu_kernels
from amdjax.jit.cpu.program import CpuProgram, LoadedPlan
from amdjax.jit.instructions import Instruction
from amdjax.jit.plan import plan_program
from amdjax.kernels import register_for_gpus
from amdjax.kernels.shaped import PLANNERS
from amdjax.runtime import vm
from amdjax.targets import Device, get
from amdjax.targets.gpu import GpuCosts

register_for_gpus()

#: So small that every decision of the schedules is met with small arrays.
TINY = dataclasses.replace(
    get("gfx942"),
    wave_size=4,
    max_workgroup=16,
    lds_bytes=8 << 10,
    device=Device("tiny", 1, 1, 1, 1),
    # No loop is one launch: on a CPU programs do not wait for each other.
    costs=GpuCosts(launch=0),
)


#: What uses the matrix unit, which a CPU does not have; there the families for CPUs do it.
MATRIX = ("dot_general", "conv_general_dilated", "attention", "attention_gradient")


def plan_for(f, *args, target=TINY):
    """The plan of a function for a GPU."""
    return plan_program(jit(f).trace(*args).jaxpr, target)


def kernels_for(f, *args, target=TINY):
    """The tile programs of a function for a GPU."""
    return plan_for(f, *args, target=target).kernels()


class _OneByOne:
    """Leaves kernels of several batch, which a CPU does not run, to `separated`."""

    def __init__(self, loader):
        self.loader = loader

    def start(self, kernels):
        self.loader.start(kernels)

    def expect(self, kernels):
        self.loader.expect(kernels)

    def add(self, kernel):
        if kernel.batch == 1:
            self.loader.add(kernel)


def separated(i):
    """A launch of several batch as `CALLS` of the kernel of one."""
    if i.opcode != vm.CALL or i.words[0].batch == 1:
        return i
    kernel, programs, parallel, count, *views = i.words
    kernel = dataclasses.replace(kernel, batch=1)
    width = 1 + len(kernel.params)
    rows = [views[at : at + width] for at in range(0, count, width)]
    firsts = [*(row[0].offset for row in rows), programs]
    words = [programs, parallel, len(rows)]
    for row, (first, following) in zip(rows, pairwise(firsts), strict=True):
        words += [kernel, following - first, width - 1, *row[1:]]
    return Instruction(vm.CALLS, words)


def compile_schedules(f, *args, target=TINY):
    """The function as the tile programs made for a GPU, to be called on the CPU."""
    traced = jit(f).trace(*args)
    loader = cpu_kernels()
    others = {name: lower for name, lower in PLANNERS["gpu"].items() if name not in MATRIX}
    with mock.patch.dict(PLANNERS, gpu=others):
        plan = plan_program(traced.jaxpr, target, loader=_OneByOne(loader))
    plan = dataclasses.replace(plan, instructions=[separated(i) for i in plan.instructions])
    for kernel in plan.kernels():
        loader.add(kernel)
    closed = traced.jaxpr
    executable = CpuProgram(LoadedPlan(closed.out_avals, plan, loader.load()))

    def run(*args):
        leaves, _ = tree_flatten((args, {}))
        outs = executable.run([asarray_concrete(x) for x in leaves])
        return tree_unflatten(traced.out_tree, outs)

    return run


def run_schedules(f, *args, target=TINY):
    """The results of a function, computed on the CPU by the tile programs made for a GPU."""
    return compile_schedules(f, *args, target=target)(*args)


def assert_same(f, *args, rtol=1e-4, target=TINY):
    """Both schedules give the same."""
    got, want = run_schedules(f, *args, target=target), jit(f)(*args)
    for g, w in zip(tree_flatten(got)[0], tree_flatten(want)[0], strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w)
        else:
            scale = max(1.0, float(np.abs(w).max(initial=0.0)))
            wide = np.complex128 if w.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol, atol=rtol * scale)
