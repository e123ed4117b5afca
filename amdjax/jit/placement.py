"""Where programs run: at what their arguments are committed to, else on the default device.

As in JAX, `device_put(x, device)` commits an array to a device, and so is what is computed from it.
All other arrays are moved to where they are needed. A program is compiled for one placement, and
then takes its arguments from wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amdjax.core import events, transfers
from amdjax.core.array import Array, ConcreteArray, PlacedArray
from amdjax.core.backend import get_backend
from amdjax.core.constraints import as_sharding, check_layout, one_device_of
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.placement import compiling_for
from amdjax.core.sharding import Format, Layout, NamedSharding, Space, space_of
from amdjax.jit.arrays import Runner, SizedRunner, on_host
from amdjax.jit.cpu.kernels import cpu_kernels
from amdjax.jit.cpu.program import (
    compile_for_cpu,
    compile_sized_for_cpu,
    cpu_target,
    read_sized_for_cpu,
)
from amdjax.jit.gpu.upload import buffer_on
from amdjax.jit.shardings import mesh_of_one_device, sharding_results
from amdjax.jit.stored_variants import StoredVariant
from amdjax.passes.shardings import shardings_in
from amdjax.runtime.devices import Device, Placement
from amdjax.runtime.gpu import GpuDevice

if TYPE_CHECKING:
    from amdjax.targets import GpuTarget


def committed_placement(arrays: Iterable[Any], name: str) -> Placement | None:
    """Where a program with such arguments must run; None if they leave it open.

    Args:
      arrays: the arguments.
      name: of the program, for the message.

    Raises:
      ValueError: two of them are committed to different devices.
    """
    found: PlacedArray | None = None
    for x in arrays:
        if type(x) is PlacedArray and x.placement.committed:
            if found is None:
                found = x
            elif x.placement is not found.placement:
                raise ValueError(_mixed(list(arrays), name))
    return None if found is None else found.placement


def mesh_placement() -> Placement | None:
    """Where programs run whose arguments leave it open: on the current mesh, if there is one."""
    mesh = mesh_of_one_device()
    return None if mesh is None else mesh.flat_devices[0].committed


def _mixed(arrays: Sequence[Any], name: str) -> str:
    shown: dict[Placement, str] = {}
    for i, x in enumerate(arrays):
        if type(x) is PlacedArray and x.placement.committed:
            text = f"argument {i} ({x.aval.str_short()}) to {x.placement.device}"
            shown.setdefault(x.placement, text)
    return (
        f"{name}: received incompatible devices; its arguments are committed to different ones: "
        f"{', '.join(shown.values())}. Put them on one with amdjax.device_put(x, device)."
    )


def compile_placed(
    closed: ClosedJaxpr, donated: Sequence[bool] = (), placement: Placement | None = None
) -> Runner:
    """A program as a function of arrays that may be anywhere.

    Args:
      closed: the program.
      donated: which arguments may be overwritten.
      placement: where it runs; None where the arguments are known to be in host memory and the
        results are committed to no device.
    """
    told = next(shardings_in(closed), None)
    if told is not None and not (placement and placement.committed):
        placement = one_device_of(told, "sharding").committed
    device = None if placement is None else placement.device
    if not isinstance(device, GpuDevice):
        run = compile_for_cpu(closed, donated).runner(placement)
    else:
        # late: loads with the first GPU
        from amdjax.jit.gpu.program import compile_for_gpu

        assert placement is not None
        with compiling_for(device):
            run = compile_for_gpu(closed, device, donated).runner(placement)
    if placement is None or not placement.committed:
        return run
    return sharding_results(closed, run, told is not None)


def compile_sized_placed(
    closed: ClosedJaxpr, donated: Sequence[bool] = (), placement: Placement | None = None
) -> SizedRunner:
    """A program, as `compile_placed` makes it, as a function of sizes of its dimension variables.

    Args:
      closed: the program; its dimensions are those of a `SizedScope`, whose guards have to hold.
      donated, placement: as for `compile_placed`.
    """
    device = None if placement is None else placement.device
    if placement is None or not isinstance(device, GpuDevice):
        sized = compile_sized_for_cpu(closed, donated).runner(lambda p: p.runner(placement))
    else:
        # late: loads with the first GPU
        from amdjax.jit.gpu.program import compile_sized_for_gpu

        place = placement
        with compiling_for(device):
            sized = compile_sized_for_gpu(closed, device, donated).runner(lambda p: p.runner(place))
    if placement is None or not placement.committed:
        return sized
    return replace(
        sized, make=lambda n: sharding_results(instantiate(closed, n), sized.make(n), False)
    )


def read_sized_placed(
    closed: ClosedJaxpr, donated: Sequence[bool] = (), placement: Placement | None = None
) -> list[tuple[StoredVariant, SizedRunner]]:
    """The variants that come with a program in a file; none where results have shardings."""
    if placement is not None and placement.committed:
        return []
    device = None if placement is None else placement.device
    if placement is None or not isinstance(device, GpuDevice):
        loaded = read_sized_for_cpu(closed, donated)
        return [(v, plan.runner(lambda p: p.runner(placement))) for v, plan in loaded]
    # late: loads with the first GPU
    from amdjax.jit.gpu.program import read_sized_for_gpu

    place, found = placement, read_sized_for_gpu(closed, device, donated)
    return [(v, program.runner(lambda p: p.runner(place))) for v, program in found]


def sized_key(
    closed: ClosedJaxpr, donated: Sequence[bool], target: GpuTarget | None
) -> bytes | None:
    """The key of the variants that come with a program for a target; None where it has none."""
    if next(shardings_in(closed), None) is not None:
        return None  # it runs elsewhere than arguments say
    if target is None:
        return cpu_kernels().variants_key(closed, donated, cpu_target())
    # late: loads the generator for GPUs
    from amdjax.jit.gpu.kernels import sized_variants_key

    return sized_variants_key(closed, target, donated)


def put(x: ConcreteArray, placement: Placement, space: Space = Space.Device) -> ConcreteArray:
    """An array with the contents of `x` at a placement; memory is shared where it can be."""
    if x.buffer is None:
        x._view()  # raises
    if type(x) is PlacedArray and x.placement is placement and x.aval.memory_space is space:
        return x
    device = placement.device
    if type(x) is PlacedArray and x.placement.device is not device:
        here = x.placement.device
        transfers.check("device_to_device", f"{x.aval.str_short()} from {here} to {device}")
    aval = x.aval.update(memory_space=space)
    if isinstance(device, GpuDevice):
        with events.span("copy to device", "copy", device=device, bytes=x.nbytes):
            return PlacedArray(aval, buffer_on(x, device, space), placement)
    with events.span("copy to host", "copy", bytes=x.nbytes):
        buffer = on_host(x).buffer
    if placement.committed:
        return PlacedArray(aval, buffer, placement)
    return ConcreteArray(aval, buffer)


def put_in_space(x: Array, space: Space) -> Array:
    """An array in a memory space of its device, or of the default one if it is on none.

    Args:
      x: an array; tracers are returned.
      space: the memory space; `Space.Any` is where it is.
    """
    if not isinstance(x, ConcreteArray) or space in (Space.Any, x.aval.memory_space):
        return x
    named = x.named if type(x) is PlacedArray else None
    backend = get_backend()
    place = x.placement if type(x) is PlacedArray else backend.default_placement()
    there = put(x, place or backend.host_device().uncommitted, space)
    if isinstance(there, PlacedArray):
        there.named = named
    return there


def put_as(x: Array, sharding: Any) -> Array:
    """An array laid out as a sharding of one device says.

    Args:
      x: an array; tracers are only checked.
      sharding: a sharding, or a specification that goes with the current mesh.

    Raises:
      TypeError: it is neither device nor sharding.
      ValueError: it does not fit the array's shape.
      NotImplementedError: it spans several devices.
    """
    if isinstance(sharding, Format) and sharding.layout is Layout.AUTO:
        raise ValueError(
            f"device_put: sharding and layout of a Format should be concrete, got {sharding}"
        )
    check_layout(sharding, x.ndim, "device_put")
    sharding = as_sharding(sharding, "device_put")
    sharding.shard_shape(x.shape)
    device = one_device_of(sharding, "device_put")
    if not isinstance(x, ConcreteArray):
        return x
    space = space_of(sharding) or x.aval.memory_space
    there = put(x, checked_device(device, "device_put").committed, space)
    named = sharding if isinstance(sharding, NamedSharding) else None
    assert isinstance(there, PlacedArray)
    if there.named == named:
        return there
    return PlacedArray(there.aval, there.buffer, there.placement, named)


def checked_device(device: Any, what: str) -> Device:
    """`device`, if it is one.

    Raises:
      ValueError: it is not.
    """
    if not isinstance(device, Device):
        raise ValueError(
            f"{what}: device must be one of amdjax.devices(). Received invalid value: {device!r}"
        )
    return device
