"""Records of calls that machine code repeats: what `runtime.dispatch_ir` matches and runs."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from threading import RLock
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from amdjax.core import events, recorded
from amdjax.core.array import ConcreteArray, PlacedArray
from amdjax.core.aval import ShapedArray
from amdjax.core.collector import rare_collections
from amdjax.core.config import config
from amdjax.core.context import Context, context
from amdjax.core.primitive import Primitive
from amdjax.core.tracebacks import hide_internal_frames
from amdjax.core.treedef import LEAF, is_namedtuple
from amdjax.runtime import dispatch, dispatch_ir as ir
from amdjax.runtime.device_pool import DevicePool
from amdjax.runtime.gpu import DeviceBuffer, GpuDevice
from amdjax.runtime.memory import Buffer, BufferPart, SmallBuffer, buffer_pool

if TYPE_CHECKING:
    from amdjax.jit.arrays import Runner

#: The machine code is loaded once so many calls went through Python that were compiled before.
LOAD_AFTER = 32
#: Arguments and results that a call may have, which are gathered on the stack.
MOST_ARRAYS = 4096

_calls = 0
_loading = RLock()


class Memory(Protocol):
    """Where the arrays of a call are.

    Attributes:
      home: the pool that the buffers of arguments on a device belong to.
    """

    home: Any

    def like(self, nbytes: int) -> Any:
        """A buffer without an address."""

    def part(self, nbytes: int) -> Any:
        """The same of a part of a buffer."""

    def free_addresses(self, nbytes: int) -> list[int] | None:
        """Where addresses are taken from while there are any."""

    def alloc(self, nbytes: int) -> Any:
        """A buffer."""


class HostMemory:
    """That of the host."""

    home = None

    def __init__(self) -> None:
        pool = buffer_pool()
        self.free_addresses, self.alloc = pool.free_addresses, pool.alloc

    def like(self, nbytes: int) -> Any:
        """See `Memory`."""
        like = object.__new__(SmallBuffer)
        like.nbytes, like._free = nbytes, self.free_addresses(nbytes) or []
        return like

    def part(self, nbytes: int) -> Any:
        """See `Memory`."""
        like = object.__new__(BufferPart)
        like.nbytes = nbytes
        return like


class DeviceMemory:
    """That of a GPU, where results share none."""

    def __init__(self, device: GpuDevice):
        self.home, self._device, self.alloc = device.pool, device, device.alloc

    def free_addresses(self, nbytes: int) -> list[int] | None:
        """See `Memory`."""
        return self.home.free_addresses(nbytes)

    def like(self, nbytes: int) -> Any:
        """See `Memory`."""
        return DeviceBuffer.without_address(self._device, nbytes)

    part = like


@dataclass(frozen=True)
class NativeCall:
    """How a program is run that needs no Python but to make its results and to issue its work.

    Attributes:
      code: the address of its words.
      slots: words of a call, as `amdjax_run` takes it.
      arena: bytes of workspace.
      results: of each type, bytes, and offset in memory that all share.
      whole: bytes of that memory; None where each result has its own.
      held: what has to live as long.
      issue: on GPUs what takes the words of a call as bytes.
      placement: of arguments and results; None for the host.
      memory: where they are.
      aliases: results that take over the memory of an argument.
      donated: arguments that are gone after the call.
    """

    code: int
    slots: int
    arena: int
    results: Sequence[tuple[Any, int, int]]
    whole: int | None
    held: Any
    issue: Callable[[bytes], None] | None = None
    placement: Any = None
    memory: Memory | None = None
    aliases: Mapping[int, int] = field(default_factory=dict)
    donated: frozenset[int] = frozenset()

    def takes(self, args: Iterable[Any]) -> bool:
        """Whether arguments are arrays where the program wants them."""
        if self.placement is None:
            return all(type(x) is ConcreteArray for x in args)
        return all(
            type(x) is PlacedArray and x.placement is self.placement and x.named is None
            for x in args
        )

    def record_operation(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any]
    ) -> None:
        """Let machine code repeat an operation, if it can."""
        if not self.takes(args):
            return
        avals = [x.aval for x in args]
        key = recorded.operation_key(primitive, avals, params, self.placement)
        build: Any = list if primitive.multiple_results else None
        counts = len(args), 0, len(args)
        recorded.operations[key] = self.record(counts, array("q"), build, [key])

    def record(self, counts: Sequence[int], nodes: array[int], build: Any, held: list[Any]) -> Any:
        """A record.

        Args:
          counts: of arguments given by position and by name, and of their arrays.
          nodes: the arguments.
          build: makes the result of a list of arrays; None if it is the only one of them.
          held: what `nodes` has addresses of.
        """
        key, memory, place = config._trace_key, self.memory or HostMemory(), self.placement

        def kept(x: Any) -> int:
            held.append(x)
            return id(x)

        def like(x: Any) -> tuple[int, int]:
            return kept(x), type(x).__basicsize__ // 8

        def block(nbytes: int | None) -> tuple[int, ...]:
            if nbytes is None:
                return 0, 0, 0, 0
            free = memory.free_addresses(nbytes)
            make = partial(memory.alloc, nbytes)
            return *like(memory.like(nbytes)), 0 if free is None else kept(free), kept(make)

        def array_like(aval: Any) -> tuple[int, int]:
            x = ConcreteArray(aval, None) if place is None else PlacedArray(aval, None, place)
            del x.buffer
            return like(x)

        made_by = 0 if build is None else id(None) if build is list else id(build)
        words = array("q", [id(key), *counts, self.slots, self.code])
        words.append(0 if self.issue is None else kept(self.issue))
        kind = ConcreteArray if place is None else PlacedArray
        words.extend((id(kind), 0 if place is None else id(place)))
        words.append(0 if memory.home is None else id(memory.home))
        donated = sorted({*self.donated, *self.aliases.values()})
        words.extend((*block(self.arena or None), *block(self.whole), made_by, len(donated)))
        words.append(len(self.results))
        for i, (aval, nbytes, offset) in enumerate(self.results):
            words.extend(array_like(aval))
            shared = self.whole is not None
            words.extend((*like(memory.part(nbytes)), 0, 0) if shared else block(nbytes))
            words.extend((offset, self.aliases.get(i, -1)))
        words.extend(donated)
        return ((words + nodes).tobytes(), key, build, self, held)


def is_wanted() -> bool:
    """Whether a call is to be recorded, which was compiled before and goes through Python."""
    global _calls
    if not (config.native_calls and dispatch.is_supported()):
        return False
    _calls += 1
    return _calls > LOAD_AFTER and is_loaded()


def record_call(
    found: Any, args: Sequence[Any], kwargs: dict[str, Any], static: Any,
    leaves: Sequence[Any],
) -> Any:  # fmt: skip
    """The record of a call of a compiled function; None if it cannot be one.

    Args:
      found: what it runs.
      args, kwargs: the arguments.
      static: those of them that are compile-time constants, as `Parameters.split` tells.
      leaves: the arrays in the others, in order.
    """
    plain = found.native is not None and found.native.takes(leaves)
    native = found.native if plain else NativeCall(0, 4, 0, (), None, None)
    if len(leaves) + len(native.results) > MOST_ARRAYS:
        return None
    fixed, fixed_names = ({}, {}) if static is None else (dict(static[1]), dict(static[2]))
    nodes, held, rest = array("q"), list[Any](), enumerate(leaves)

    def words(x: Any, is_static: bool) -> array[int]:
        return _same(x, held) if is_static else _nodes(x, rest, held, plain)

    try:
        for i, x in enumerate(args):
            nodes += words(x, i in fixed)
        named = {name: words(kwargs[name], name in fixed_names) for name in sorted(kwargs)}
    except (_Unmatched, RecursionError):
        return None
    for name in kwargs:
        nodes.append(id(name))
        nodes += named[name]
    held += kwargs
    build = None if found.tree is LEAF else found.tree.unflatten
    counts = len(args), len(kwargs), len(leaves)
    return native.record(counts, nodes, build if plain else _in_python(found.run, build), held)


def _in_python(run: Runner, build: Callable[[Any], Any] | None) -> Callable[[list[Any]], Any]:
    """Makes the result of a call whose arguments were matched."""

    def call(leaves: list[Any]) -> Any:
        try:
            outs = run(leaves)
            return outs[0] if build is None else build(outs)
        except Exception as e:
            hide_internal_frames(e)
            raise

    return call


def is_loaded() -> bool:
    """Whether machine code stands in place of methods in Python, which it does from now on.

    It does not where Python, or where it keeps slots, is not as it was expected.
    """
    with _loading:
        return _methods() is not None


@cache
def _methods() -> dispatch.Methods | None:
    ((function, programs),) = recorded.called
    with rare_collections:
        try:
            methods = dispatch.Methods(_state(function, programs))
        except (AttributeError, RuntimeError):
            return None
        methods.replace_finalizer(SmallBuffer)
        methods.replace_finalizer(DeviceBuffer)
        methods.replace_call(Primitive, "bind", "amdjax_bind")
        methods.replace_call(function, "__call__", "amdjax_call")
        recorded.compile_operator = _operator_compiler(methods)
        return methods


def _state(function: type, programs: type) -> dict[str, Any]:
    """What the machine code is told of this process."""
    small = SmallBuffer(1 << 40, 1 << 41, [])
    part = BufferPart(small, 1 << 40, 1 << 41)
    x = ConcreteArray(ShapedArray((), "float32"), small)
    at = dispatch.slot_offset
    placed = PlacedArray(x.aval, small, object(), object())
    device = object.__new__(DeviceBuffer)
    device.address, device._free, device._host = 1 << 40, [], np.empty(0)
    device._pool = DevicePool(lambda nbytes: None, lambda address: None)
    for y, z, name in (
        (small, part, "address"), (small, device, "address"), (small, device, "_free"),
        (x, placed, "aval"), (x, placed, "buffer"),
    ):  # fmt: skip
        if at(y, name) != at(z, name):
            raise RuntimeError(f"{name} lies in different places")
    if ctypes.c_int64.from_address(id(part)).value != sys.getrefcount(part) - 1:
        raise RuntimeError("references are counted in another place")
    held = programs()
    held.records = (held,)
    fresh = function(lambda: None)
    return {
        "none": None, "str": str, "dict": dict,
        "array": ConcreteArray, "at_aval": at(x, "aval"), "at_buffer": at(x, "buffer"),
        "placed": PlacedArray, "at_placement": at(placed, "placement"),
        "at_named": at(placed, "named"), "memory": Buffer, "small": SmallBuffer,
        "at_address": at(small, "address"), "at_free": at(small, "_free"),
        "at_whole": at(part, "whole"), "device": DeviceBuffer, "at_home": at(device, "_pool"),
        "at_host": at(device, "_host"), "list": list, "true": True, "is_own": "is_own",
        "local": "amdjax.runtime.dispatch", "context": context, "config": config,
        "attributes": "__dict__", "trace": "trace", "trace_key": "_trace_key",
        "base": Context.base, "events": vars(events), "recorder": "recorder",
        "at_programs": at(fresh, "_programs"), "at_records": at(held, "records"),
        "operations": recorded.operations, "call": function.__call__, "bind": Primitive.bind,
        "release": DeviceBuffer.__del__,
    }  # fmt: skip


def _operator_compiler(methods: dispatch.Methods) -> Callable[[FunctionType], None]:
    def compile_operator(method: FunctionType) -> None:
        if getattr(ConcreteArray, method.__name__) is method:
            methods.replace_operator(ConcreteArray, method)

    return compile_operator


class _Unmatched(Exception):
    """A call that machine code does not know."""


def _nodes(x: Any, leaves: Iterator[tuple[int, Any]], held: list[Any], plain: bool) -> array[int]:
    """The words of a tree, whose leaves are the next of `leaves`."""
    kind = type(x)
    if kind is ConcreteArray or kind is PlacedArray:
        aval: Any = x.aval
        i, leaf = next(leaves)
        if leaf is not x:
            raise _Unmatched
        place = None if kind is ConcreteArray else x.placement
        held.extend((aval, place))
        if plain:
            return array("q", [ir.LEAF, i, id(aval)])
        return array("q", [ir.ARRAY, i, id(aval), id(kind), 0 if place is None else id(place)])
    if x is None:
        return _same(x, held)
    if kind is tuple or kind is list or is_namedtuple(kind):
        held.append(kind)
        words = array("q", [ir.LIST if kind is list else ir.TUPLE, id(kind), len(x)])
        for child in x:
            words += _nodes(child, leaves, held, plain)
        return words
    if kind is dict and all(type(k) is str for k in x):
        children = {k: _nodes(x[k], leaves, held, plain) for k in sorted(x)}
        words = array("q", [ir.DICT, len(x)])
        for k in x:
            held.append(k)
            words.append(id(k))
            words += children[k]
        return words
    raise _Unmatched


#: Types of which an object is as it was if it is the same.
_UNCHANGING = frozenset((bool, int, float, complex, str, bytes, type(None), type, FunctionType))


def _same(x: Any, held: list[Any]) -> array[int]:
    if type(x) not in _UNCHANGING:
        raise _Unmatched
    held.append(x)
    return array("q", [ir.SAME, id(x)])


recorded.is_wanted, recorded.record_call = is_wanted, record_call
