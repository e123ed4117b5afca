"""All workloads, family by family."""

from __future__ import annotations

from . import (
    control_flow,
    conv,
    dispatch,
    elementwise,
    layers,
    losses,
    matmul,
    models,
    nn,
    reductions,
    rnn,
    shapes,
    sorting,
    startup,
    vision,
)
from .workload import Workload

FAMILIES = (
    startup,
    dispatch,
    elementwise,
    reductions,
    sorting,
    matmul,
    conv,
    rnn,
    nn,
    layers,
    losses,
    control_flow,
    models,
    vision,
    shapes,
)


def workloads() -> list[Workload]:
    """Every workload, each knowing its family."""
    found = []
    for module in FAMILIES:
        for workload in module.WORKLOADS:
            workload.family = module.__name__.rpartition(".")[2]
            found.append(workload)
    return found
