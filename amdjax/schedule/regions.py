"""Gives a region its loops and tiles: from what is computed to a tile program.

The domain of a region is first brought to few long loops (`domain.py`). On a CPU one loop is then
spread over vector lanes: by `maps.py` where nothing is reduced, by `rows.py` where something is. On
a GPU one or two loops are spread over a workgroup: by `gpu/maps.py` and `gpu/rows.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import tile
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.gpu.maps import GpuMapKernel
from amdjax.schedule.gpu.multi_pass import GpuRowWalks
from amdjax.schedule.maps import MapKernel
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.region_kernel import Machine
from amdjax.schedule.rows import CombineKernel, RowKernel
from amdjax.targets import GpuTarget


def lower_region(region: Region, fusion: Fusion, target: Machine) -> list[Call]:
    """The kernels of a region, usually one."""
    if 0 in region.domain:
        return _empty_region(region, fusion, target)
    domain = Domain(region, fusion)
    on_gpu = isinstance(target, GpuTarget)
    if region.axes is None:
        maps = GpuMapKernel if on_gpu else MapKernel
        return [maps(region, fusion, target, domain).build()]
    rows = GpuRowWalks if on_gpu else RowKernel
    return rows(region, fusion, target, domain).build()


def _empty_region(region: Region, fusion: Fusion, target: Machine) -> list[Call]:
    """Nothing to walk: element values have no elements, reductions are their identities."""
    stored: list[Any] = [v for r in region.roots for v in r.vars if v in fusion.stored]
    calls = [Call(tile.Builder("empty").finish(0), stored, 0, 0.0)]  # gives them their places
    rows = int(np.prod(region.row_shape, dtype=np.int64)) if region.axes is not None else 0
    if rows:
        reductions = {r: Reduction(r.eqn) for r in region.roots if r.is_reduction}
        partials: dict[Root, list[Temp]] = {r: [] for r in reductions}
        calls.append(CombineKernel(region, fusion, target, reductions, partials, 0, rows).build())
    return calls
