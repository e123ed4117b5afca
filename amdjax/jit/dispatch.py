"""Records of calls that machine code repeats: what `runtime.dispatch_ir` matches and runs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import RLock
from types import FunctionType
from typing import TYPE_CHECKING, Any

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
from amdjax.runtime.memory import Buffer, BufferPart, SmallBuffer, buffer_pool

if TYPE_CHECKING:
    from amdjax.jit.arrays import Runner

#: The machine code is loaded once so many calls went through Python that were compiled before.
LOAD_AFTER = 32
#: Arguments and results that a call may have, which are gathered on the stack.
MOST_ARRAYS = 4096

_calls = 0
_loading = RLock()


@dataclass(frozen=True)
class NativeCall:
    """How a program is run that needs no Python but to make its results.

    Attributes:
      code: the address of its words.
      slots: words of a call, as `amdjax_run` takes it.
      arena: bytes of workspace.
      results: of each type, bytes, and offset in memory that all share.
      whole: bytes of that memory; None where each result has its own.
      held: what has to live as long.
    """

    code: int
    slots: int
    arena: int
    results: Sequence[tuple[Any, int, int]]
    whole: int | None
    held: Any

    def record_operation(
        self, primitive: Primitive, args: Sequence[ConcreteArray], params: dict[str, Any]
    ) -> None:
        """Let machine code repeat an operation."""
        key = recorded.operation_key(primitive, [x.aval for x in args], params)
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
        key, pool = config._trace_key, buffer_pool()

        def memory(nbytes: int | None) -> tuple[int, int]:
            if nbytes is None:
                return 0, 0
            free = pool.free_addresses(nbytes)
            held.extend((nbytes, free))
            return id(nbytes), 0 if free is None else id(free)

        made_by = 0 if build is None else id(None) if build is list else id(build)
        words = array("q", [id(key), *counts, self.slots, self.code])
        words.extend((*memory(self.arena or None), *memory(self.whole), made_by, len(self.results)))
        for aval, nbytes, offset in self.results:
            words.extend((id(aval), *memory(nbytes), offset))
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
    plain = found.native is not None and all(type(x) is ConcreteArray for x in leaves)
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
    placed = PlacedArray(x.aval, small, object())
    for y, z, name in ((small, part, "address"), (small, part, "nbytes"), (x, placed, "aval")):
        if at(y, name) != at(z, name):
            raise RuntimeError(f"{name} lies in different places")
    held = programs()
    held.records = (held,)
    fresh = function(lambda: None)
    return {
        "none": None, "str": str, "dict": dict,
        "array": ConcreteArray, "at_aval": at(x, "aval"), "at_buffer": at(x, "buffer"),
        "at_placement": at(placed, "placement"),
        "memory": Buffer, "small": SmallBuffer, "part": BufferPart,
        "at_address": at(small, "address"), "at_nbytes": at(small, "nbytes"),
        "at_free": at(small, "_free"), "at_whole": at(part, "whole"),
        "local": "amdjax.runtime.dispatch", "context": context, "config": config,
        "attributes": "__dict__", "trace": "trace", "trace_key": "_trace_key",
        "base": Context.base, "events": vars(events), "recorder": "recorder",
        "at_programs": at(fresh, "_programs"), "at_records": at(held, "records"),
        "alloc": buffer_pool().alloc, "operations": recorded.operations,
        "call": function.__call__, "bind": Primitive.bind,
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
