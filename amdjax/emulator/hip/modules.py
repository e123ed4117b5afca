"""Modules, kernels and launches of the emulated HIP runtime."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path

from amdjax.codegen.elf import code_object, format as elf
from amdjax.codegen.elf.code_object import KernelInfo
from amdjax.codegen.elf.format import ElfError, ElfFile
from amdjax.emulator.code_object import CodeObject, Kernel
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.hip.abi import HipFailure, Status, export, poke, text_at
from amdjax.emulator.hip.runtime import EmulatedDevice, Runtime
from amdjax.emulator.hip.streams import Stream, stream_of
from amdjax.emulator.machine import Launch, execute
from amdjax.targets import occupancy

# Entries of the `extra` argument of a launch.
_BUFFER_POINTER, _BUFFER_SIZE, _BUFFER_END = 1, 2, 3
_MAX_THREADS = 1024


@dataclass(eq=False)
class Module:
    """A loaded code object."""

    device: EmulatedDevice
    code: CodeObject
    infos: dict[str, KernelInfo]
    symbols: dict[str, tuple[int, int]]
    functions: dict[str, int] = field(default_factory=dict)
    is_loaded: bool = True


@dataclass(eq=False)
class Function:
    """A kernel of a module."""

    module: Module
    kernel: Kernel
    info: KernelInfo


# Loading


def _image_bytes(address: int) -> bytes:
    """The ELF file at an address; its headers say how long it is."""
    if not address:
        raise HipFailure(Status.InvalidValue, "the image is NULL")
    if ctypes.string_at(address, 4) != b"\x7fELF":
        raise HipFailure(Status.InvalidImage, "not an ELF file")
    head = elf.FILE_HEADER.unpack(ctypes.string_at(address, elf.FILE_HEADER.size))
    segments_at, sections_at = head[10], head[11]
    segment_size, segment_count, section_size, section_count = head[14:18]
    sections_end = sections_at + section_size * section_count
    end = max(segments_at + segment_size * segment_count, sections_end)
    for i in range(section_count):
        at = address + sections_at + i * section_size
        fields = elf.SECTION_HEADER.unpack(ctypes.string_at(at, elf.SECTION_HEADER.size))
        if fields[1] != elf.SHT_NOBITS:
            end = max(end, fields[4] + fields[5])
    return ctypes.string_at(address, end)


def _load(rt: Runtime, out: int, data: bytes) -> None:
    device = rt.device
    try:
        target = code_object.target_id(data).partition(":")[0]
        infos = code_object.kernel_info(data)
        symbols = {s.name: (s.value, s.size) for s in ElfFile(data).symbols(elf.SHT_DYNSYM)}
    except ElfError as error:
        raise HipFailure(Status.InvalidImage, str(error)) from error
    if target != device.target.name:
        raise HipFailure(
            Status.NoBinaryForGpu, f"code for {target}, the device is {device.target.name}"
        )
    try:
        code = CodeObject(data)
    except EmulatorError as error:
        raise HipFailure(Status.InvalidImage, str(error)) from error
    device.memory.register(code.base, len(code.image), code.image)
    poke(out, rt.handles.add(Module(device, code, infos, symbols)))


@export("hipModuleLoadData", "pp")
def module_load_data(rt: Runtime, out: int, image: int) -> None:
    _load(rt, out, _image_bytes(image))


@export("hipModuleLoadDataEx", "ppupp")
def module_load_data_ex(
    rt: Runtime, out: int, image: int, count: int, options: int, values: int
) -> None:
    module_load_data(rt, out, image)


@export("hipModuleLoad", "pp")
def module_load(rt: Runtime, out: int, path: int) -> None:
    try:
        data = Path(text_at(path)).read_bytes()
    except OSError as error:
        raise HipFailure(Status.FileNotFound, str(error)) from error
    _load(rt, out, data)


@export("hipModuleUnload", "p")
def module_unload(rt: Runtime, handle: int) -> None:
    module = rt.handles.get(handle, Module)
    module.device.synchronize()
    module.device.memory.release(module.code.base)
    module.is_loaded = False
    for function in module.functions.values():
        rt.handles.remove(function)
    rt.handles.remove(handle)


@export("hipModuleGetFunction", "ppp")
def module_get_function(rt: Runtime, out: int, handle: int, name: int) -> None:
    module, wanted = rt.handles.get(handle, Module), text_at(name)
    if wanted not in module.code.kernels or wanted not in module.infos:
        known = ", ".join(module.infos) or "none"
        raise HipFailure(Status.NotFound, f"no kernel {wanted!r}; the module has {known}")
    if wanted not in module.functions:
        kernel, info = module.code.kernels[wanted], module.infos[wanted]
        module.functions[wanted] = rt.handles.add(Function(module, kernel, info))
    poke(out, module.functions[wanted])


@export("hipModuleGetGlobal", "pppp")
def module_get_global(rt: Runtime, out: int, size: int, handle: int, name: int) -> None:
    module, wanted = rt.handles.get(handle, Module), text_at(name)
    if wanted not in module.symbols:
        raise HipFailure(Status.NotFound, f"no variable {wanted!r}")
    value, nbytes = module.symbols[wanted]
    poke(out, module.code.base + value)
    if size:
        poke(size, nbytes)


# Attributes


def _attributes(function: Function) -> dict[str, int]:
    info = function.info
    target = function.module.device.target
    return {
        "threads": min(info.max_workgroup, _MAX_THREADS),
        "shared": info.lds,
        "local": info.scratch,
        "registers": info.vgprs + info.agprs,
        "dynamic": target.lds_bytes - info.lds,
    }


@export("hipFuncGetAttribute", "pip")
def func_get_attribute(rt: Runtime, out: int, number: int, handle: int) -> None:
    values = _attributes(rt.handles.get(handle, Function))
    order = (
        values["threads"], values["shared"], 0, values["local"], values["registers"], 0, 0, 0,
        values["dynamic"], 0,
    )  # fmt: skip
    if not 0 <= number < len(order):
        raise HipFailure(Status.InvalidValue, f"function attribute {number}")
    poke(out, order[number], "i")


@export("hipFuncGetAttributes", "pp")
def func_get_attributes(rt: Runtime, out: int, handle: int) -> None:
    """Writes a `hipFuncAttributes`."""
    values = _attributes(rt.handles.get(handle, Function))
    data = struct.pack(
        "<iiQQiiiiiQ", 0, 0, 0, values["local"], values["dynamic"], values["threads"],
        values["registers"], 0, 0, values["shared"],
    )  # fmt: skip
    if not out:
        raise HipFailure(Status.InvalidValue)
    ctypes.memmove(out, data, len(data))


@export("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", "ppiz")
def occupancy_of_function(
    rt: Runtime, out: int, handle: int, workgroup: int, shared_bytes: int
) -> None:
    function = rt.handles.get(handle, Function)
    target, info = function.module.device.target, function.info
    if not 0 < workgroup <= _MAX_THREADS:
        raise HipFailure(Status.InvalidValue, f"a workgroup of {workgroup} threads")
    found = occupancy(
        target, info.vgprs, info.agprs, info.sgprs, info.lds + shared_bytes, workgroup
    )
    # Of each of as many as the properties of the device say there are.
    poke(out, found.workgroups * target.lds_units // target.compute_units, "i")


# Launches


def _explicit_size(info: KernelInfo) -> int:
    return max((a.offset + a.size for a in info.arguments if not a.is_hidden), default=0)


def _from_parameters(info: KernelInfo, parameters: int) -> bytearray:
    """Arguments given as an array of pointers to their values."""
    out = bytearray(info.kernarg_size)
    explicit = [a for a in info.arguments if not a.is_hidden]
    pointers = (ctypes.c_size_t * len(explicit)).from_address(parameters)
    for argument, pointer in zip(explicit, pointers):
        if not pointer:
            raise HipFailure(Status.InvalidValue, f"the pointer to {argument.name} is NULL")
        value = ctypes.string_at(pointer, argument.size)
        out[argument.offset : argument.offset + argument.size] = value
    return out


def _from_extra(info: KernelInfo, extra: int) -> bytearray:
    """Arguments given as a packed buffer: pairs of key and value, then the end mark."""
    pointer = size = None
    at = extra
    while (key := ctypes.c_size_t.from_address(at).value) != _BUFFER_END:
        value = ctypes.c_size_t.from_address(at + 8).value
        if key == _BUFFER_POINTER:
            pointer = value
        elif key == _BUFFER_SIZE:
            size = ctypes.c_size_t.from_address(value).value
        else:
            raise HipFailure(Status.InvalidValue, f"launch parameter {key}")
        at += 16
    if not pointer or size is None:
        raise HipFailure(Status.InvalidValue, "a launch buffer without address or size")
    if size < _explicit_size(info):
        raise HipFailure(
            Status.InvalidValue,
            f"kernel {info.name} takes {_explicit_size(info)} bytes of arguments, got {size}",
        )
    data = ctypes.string_at(pointer, size)[: info.kernarg_size]
    return bytearray(data.ljust(info.kernarg_size, b"\0"))


def _fill_hidden(
    info: KernelInfo, kernarg: bytearray, grid: tuple[int, ...], workgroup: tuple[int, ...]
) -> None:
    """What the runtime puts behind the arguments, for kernels that ask for it."""
    values = {"hidden_grid_dims": 3}
    for axis, blocks, threads in zip("xyz", grid, workgroup):
        values[f"hidden_block_count_{axis}"] = blocks
        values[f"hidden_group_size_{axis}"] = threads
    for argument in info.arguments:
        if argument.is_hidden:
            value = values.get(argument.kind, 0)
            end = argument.offset + argument.size
            kernarg[argument.offset : end] = value.to_bytes(argument.size, "little")


def _check_shape(
    function: Function, grid: tuple[int, ...], workgroup: tuple[int, ...], shared_bytes: int
) -> None:
    info, target = function.info, function.module.device.target
    threads = workgroup[0] * workgroup[1] * workgroup[2]
    if not all(grid) or not threads:
        raise HipFailure(Status.InvalidValue, f"grid {grid} of workgroups {workgroup}")
    if threads > min(info.max_workgroup, _MAX_THREADS):
        raise HipFailure(
            Status.InvalidValue,
            f"kernel {info.name} runs with up to {info.max_workgroup} threads, not {threads}",
        )
    if any(g * w >= 1 << 32 for g, w in zip(grid, workgroup)):
        raise HipFailure(Status.InvalidConfiguration, f"grid {grid} is too large")
    if info.lds + shared_bytes > target.lds_bytes:
        raise HipFailure(
            Status.InvalidValue,
            f"kernel {info.name} needs {info.lds + shared_bytes} bytes of LDS; {target.name} has "
            f"{target.lds_bytes}",
        )


@export("hipModuleLaunchKernel", "puuuuuuuppp")
def module_launch_kernel(
    rt: Runtime, handle: int, gx: int, gy: int, gz: int, x: int, y: int, z: int, shared_bytes: int,
    stream_handle: int, parameters: int, extra: int,
) -> None:  # fmt: skip
    _launch(
        rt, handle, (gx, gy, gz), (x, y, z), shared_bytes, stream_handle, parameters, extra, False
    )


@export("hipModuleLaunchCooperativeKernel", "puuuuuuupp")
def module_launch_cooperative_kernel(
    rt: Runtime, handle: int, gx: int, gy: int, gz: int, x: int, y: int, z: int, shared_bytes: int,
    stream_handle: int, parameters: int,
) -> None:  # fmt: skip
    """A launch whose workgroups are resident at once and may wait for each other."""
    _launch(rt, handle, (gx, gy, gz), (x, y, z), shared_bytes, stream_handle, parameters, 0, True)


def _launch(
    rt: Runtime, handle: int, grid: tuple[int, int, int], workgroup: tuple[int, int, int],
    shared_bytes: int, stream_handle: int, parameters: int, extra: int, cooperative: bool,
) -> None:  # fmt: skip
    function, stream = rt.handles.get(handle, Function), stream_of(rt, stream_handle)
    if stream.device is not function.module.device:
        raise HipFailure(Status.InvalidHandle, "the stream is another device's than the module")
    info = function.info
    _check_shape(function, grid, workgroup, shared_bytes)
    if parameters and extra:
        raise HipFailure(Status.InvalidValue, "arguments are given in both ways")
    if extra:
        kernarg = _from_extra(info, extra)
    elif parameters:
        kernarg = _from_parameters(info, parameters)
    elif _explicit_size(info):
        raise HipFailure(Status.InvalidValue, f"kernel {info.name} has arguments, none were given")
    else:
        kernarg = bytearray(info.kernarg_size)
    _fill_hidden(info, kernarg, grid, workgroup)
    _submit(stream, function, grid, workgroup, bytes(kernarg), shared_bytes, cooperative)


def _submit(
    stream: Stream, function: Function, grid: tuple[int, int, int], workgroup: tuple[int, int, int],
    kernarg: bytes, shared_bytes: int, cooperative: bool,
) -> None:  # fmt: skip
    kernel, memory = function.kernel, function.module.device.memory

    own = Launch(kernel, grid, workgroup, kernarg, memory, shared_bytes, cooperative=cooperative)
    if cooperative and math.prod(grid) > own.resident:
        detail = (
            f"kernel {kernel.name} wants {math.prod(grid)} workgroups; {own.resident} are resident"
        )
        raise HipFailure(Status.CooperativeLaunchTooLarge, detail)

    def run() -> None:
        if not function.module.is_loaded:
            message = f"kernel {kernel.name} is launched after its module was unloaded"
            raise HipFailure(Status.LaunchFailure, message)
        execute(own)

    stream.submit(run, "kernel", kernel)
