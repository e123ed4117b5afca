"""Plans as data: written once a program was planned, and read instead of planning it again.

A plan is JSON of a closed form. Reading it makes nothing but instructions, and refuses what does
not fit: numbers beyond their ranges, places outside of memory, jumps to nowhere. Of a kernel it has
the name, the parameters, and the key under which its machine code is kept. What instructions do
with memory is up to who wrote them, as with machine code; so plans are read from where that is.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.dims import Dim, Estimate, SymbolicScope
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.dims.polynomial import Polynomial, text
from amdjax.core.dims.sized import OPERATIONS
from amdjax.core.dtypes import dtype_from_short_name, float0, short_dtype_name
from amdjax.core.sharding import Space
from amdjax.jit.instructions import Instruction, Label, Parallel, Plan, Storage, View, Zeros
from amdjax.runtime import vm
from amdjax.tile.ir import Block
from amdjax.tile.kernel import Kernel
from amdjax.tile.schedule import Schedule
from amdjax.tile.types import Buffer

#: Bytes of constants that planning made, such as tables, up to which a plan carries them; and of
#: zeros that it asks for.
CARRIED, MOST_ZEROS = 1 << 16, 1 << 30
MOST_NESTED, MOST_OPERANDS = 200, 10_000  # estimates in estimates, numbers in one
MOST_THREADS = 1 << 11  # of a workgroup
#: Bytes of a plan that is read, and the greatest size or place in it.
MOST_BYTES, LARGEST = 64 << 20, 1 << 60
_ROLES = ("in", "out", "inout", "size")
_KEY_BYTES = 32


class StoredPlan(NamedTuple):
    """A plan that was read.

    Attributes:
      plan: its instructions; kernels have no programs.
      keys: the kernels, with the keys of their machine code.
    """

    plan: Plan
    keys: list[tuple[Kernel, bytes]]


class Unwritable(Exception):
    """A plan holds what has no form as data."""


# Writing


def written_plan(plan: Plan, consts: Sequence[Any], keys: Mapping[int, bytes]) -> bytes | None:
    """A plan as data; None for one that calls Python, or carries large values.

    Args:
      plan: of sizes that are known, or symbolic.
      consts: the constants of its program.
      keys: those of its kernels' machine code, by the ids of the kernels.
    """
    try:
        data = _Writer(plan, consts, keys).data()
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    except (Unwritable, ValueError):  # of numbers that JSON has not
        return None


def written_number(x: Any) -> Any:
    """A number, a size or an estimate in JSON; raises `Unwritable` for what has no form."""
    if isinstance(x, (bool, int, np.integer)):
        return int(x)
    if isinstance(x, float):
        return ["f", x]
    if isinstance(x, Dim):
        return ["d", written_size(x.polynomial)]
    if isinstance(x, Estimate) and _weight(x, {}) <= MOST_OPERANDS:
        return ["e", x.operation, *map(written_number, x.operands)]
    raise Unwritable


def written_size(a: Polynomial) -> str:
    """A polynomial of sizes as text; raises `Unwritable` for one that reads back as another."""
    written = text(a)
    if parse_dimension(written, SymbolicScope()) != a:
        raise Unwritable
    return written


def _weight(x: Any, known: dict[int, int]) -> int:
    """How many numbers an estimate is made of, those that it meets again counted again."""
    if not isinstance(x, Estimate):
        return 1
    if id(x) not in known:
        known[id(x)] = 1 + sum(_weight(operand, known) for operand in x.operands)
    return known[id(x)]


def read_number(told: Any, scope: SymbolicScope | None, depth: int = 0) -> Any:
    """What `written_number` wrote; raises ValueError for what it cannot have.

    Args:
      told: the form.
      scope: of the dimensions; None where none may be.
    """
    if type(told) is int:
        return _number(told)
    _require(scope is not None and depth < MOST_NESTED, "a size")
    assert scope is not None
    kind, *rest = told
    if kind == "f":
        (number,) = rest
        _require(type(number) in (int, float), "a number")
        return float(number)
    if kind == "d":
        (dimension,) = rest
        _require(type(dimension) is str, "a size")
        return Dim(scope, parse_dimension(dimension, scope))
    operation, *operands = rest
    known = kind == "e" and operation in OPERATIONS
    _require(known and len(operands) == OPERATIONS[operation][1], "an estimate")
    return Estimate(None, operation, *(read_number(x, scope, depth + 1) for x in operands))


class _Writer:
    def __init__(self, plan: Plan, consts: Sequence[Any], keys: Mapping[int, bytes]) -> None:
        self.plan, self.keys = plan, keys
        self.places = {id(c): i for i, c in reversed(list(enumerate(consts)))}
        self.storages: dict[int, int] = {}  # numbers, by id
        self.of_storages: list[Any] = []
        self.kernels: dict[int, int] = {}
        self.of_kernels: list[Any] = []

    def data(self) -> dict[str, Any]:
        plan = self.plan
        if plan.hosts:
            raise Unwritable
        arena = list(map(self.storage, plan.storages))
        instructions = [[i.opcode, i.step, *map(self.word, i.words)] for i in plan.instructions]
        return {
            "arena": arena, "instructions": instructions,
            "constants": list(map(self.constant, plan.constants)),
            "numbers": [plan.arena_bytes, plan.slots, plan.inputs, plan.outputs, plan.constants_at],
            "host": [plan.host_bytes, plan.host_slot, sorted(plan.hosted)],
            "aliases": list(plan.aliases.items()),
            "storages": self.of_storages, "kernels": self.of_kernels,
        }  # fmt: skip

    def storage(self, s: Storage) -> int:
        number = self.storages.get(id(s))
        if number is None:
            number = self.storages[id(s)] = len(self.of_storages)
            self.of_storages.append([
                written_number(s.nbytes), s.slot, s.writable, s.offset, s.align, s.first, s.last,
                *([True] if s.space is Space.Host else []),
            ])  # fmt: skip
        return number

    def word(self, w: Any) -> Any:
        if isinstance(w, View):
            return [
                "v", self.storage(w.storage), written_number(w.offset), w.counter,
                written_number(w.stride),
            ]  # fmt: skip
        if isinstance(w, Kernel):
            return ["k", self.kernel(w)]
        if isinstance(w, Parallel):
            return ["p", written_number(w.programs), written_number(w.nanoseconds)]
        return ["l", w.position] if isinstance(w, Label) else written_number(w)

    def kernel(self, k: Kernel) -> int:
        number = self.kernels.setdefault(id(k), len(self.of_kernels))
        if number == len(self.of_kernels):
            params = [[p.name, p.dtype, p.role] for p in k.params]
            on_gpu = [k.schedule.workgroup, k.batch, k.cooperative]
            rest = [] if on_gpu == [0, 1, False] else [on_gpu]
            self.of_kernels.append([k.name, self.keys[id(k)].hex(), params, *rest])
        return number

    def constant(self, x: Any) -> Any:
        place = self.places.get(id(x))
        if place is not None:
            return ["c", place]
        if isinstance(x, Zeros) and isinstance(x.nbytes, Dim):
            return ["s", written_number(x.nbytes)]
        if isinstance(x, Zeros):
            return ["z", "u8", [x.nbytes]]
        if isinstance(x, ConcreteArray):
            x = np.asarray(x)
        if not isinstance(x, np.ndarray) or x.dtype == float0:
            raise Unwritable
        head = [short_dtype_name(x.dtype), list(x.shape)]
        data = np.ascontiguousarray(x).tobytes()
        if not any(data) and x.nbytes <= MOST_ZEROS:  # bits, since -0.0 is zero as well
            return ["z", *head]
        if x.nbytes > CARRIED:
            raise Unwritable
        return ["a", *head, base64.b64encode(data).decode()]


# Reading


def read_plan(data: bytes, consts: Sequence[Any], scope: SymbolicScope | None = None) -> StoredPlan:
    """The plan that was written.

    Args:
      data: what `written_plan` made, or anything.
      consts: the constants of its program.
      scope: of symbolic sizes; None where all are known.

    Raises:
      ValueError: it is no plan of such a program.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError("it is too long")
        return _Reader(json.loads(data, parse_constant=_refuse), consts, scope).read()
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as e:
        raise ValueError(f"this is no plan: {type(e).__name__}: {e}") from None


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no number of a plan")


class _Cooperative(Kernel):
    """A kernel whose programs wait for each other, of which the tile program is not known."""

    @property
    def cooperative(self) -> bool:
        return True


class _Reader:
    def __init__(self, told: Any, consts: Sequence[Any], scope: SymbolicScope | None) -> None:
        self.told, self.consts, self.scope = told, consts, scope
        arena_bytes, slots, inputs, outputs, constants_at = map(_size, told["numbers"])
        in_order = 2 <= inputs <= outputs <= constants_at <= slots < 1 << 24
        _require(in_order and slots == constants_at + len(told["constants"]), "slots")
        self.slots, self.arena_bytes = slots, arena_bytes
        self.inputs, self.outputs, self.constants_at = inputs, outputs, constants_at
        self.host_bytes, self.host_slot, hosted = told["host"]
        _require(0 < _size(self.host_slot) < constants_at and _size(self.host_bytes) >= 0, "a host")
        _require(all(_size(i) < outputs - inputs for i in hosted), "an argument")
        self.hosted = frozenset(hosted)
        self.kernels = list(map(self.kernel, told["kernels"]))
        self.storages = list(map(self.storage, told["storages"]))
        self.labels: dict[int, Label] = {}

    def read(self) -> StoredPlan:
        told = self.told
        arena = [self.at(self.storages, n) for n in told["arena"]]
        _require(len(set(map(id, arena))) == len(arena), "the arena")
        ids = set(map(id, arena))
        in_arena = all((id(s) in ids) == (s.slot is None) for s in self.storages)
        placed = [s for s in arena if s.last >= 0] if self.scope is None else []
        room = {Space.Device: self.arena_bytes, Space.Host: self.host_bytes}
        fits = all(s.offset + s.nbytes <= room[s.space] for s in placed)
        _require(in_arena and fits, "the arena")
        instructions = list(map(self.instruction, told["instructions"]))
        _require(bool(instructions) and instructions[-1].opcode == vm.HALT, "its end")
        constants = list(map(self.constant, told["constants"]))
        plan = Plan(
            instructions, arena, self.arena_bytes, self.slots, self.inputs, self.outputs,
            self.constants_at, constants, [], self.aliases(told["aliases"]),
            self.hosted, self.host_bytes, self.host_slot,
        )  # fmt: skip
        return StoredPlan(plan, self.kernels)

    def number(self, told: Any) -> Any:
        found = read_number(told, self.scope)
        _require(isinstance(found, (int, Dim)), "a number")
        return found

    def size(self, told: Any) -> Any:
        found = self.number(told)
        return found if isinstance(found, Dim) else _size(found)

    def at(self, values: Sequence[Any], n: Any) -> Any:
        _require(type(n) is int and 0 <= n < len(values), "a number")
        return values[n]

    def kernel(self, told: Any) -> tuple[Kernel, bytes]:
        name, key, params, *rest = told
        code = bytes.fromhex(key)
        _require(type(name) is str and len(code) == _KEY_BYTES, "a kernel")
        buffers = []
        for of in params:
            _require(len(of) == 3 and all(type(x) is str for x in of), "a parameter")
            _require(of[2] in _ROLES, "a parameter")
            buffers.append(Buffer(*of))
        kind, workgroup, batch = Kernel, 0, 1
        for on_gpu in rest:
            workgroup, batch, cooperative = on_gpu
            kind = _Cooperative if cooperative is True else Kernel
            _require(0 <= _size(workgroup) <= MOST_THREADS and _size(batch) > 0, "a kernel")
        schedule = Schedule(workgroup=workgroup)
        return kind(name, buffers, [], Block(), 0, schedule=schedule, batch=batch), code

    def storage(self, told: Any) -> Storage:
        nbytes, slot, writable, offset, align, first, last, *host = told
        _require(host in ([], [True]), "a memory")
        _require(slot is None or 0 < _size(slot) < self.slots, "a slot")
        _require(type(writable) is bool and type(last) is int and last >= -1, "a storage")
        nbytes = self.size(nbytes)
        offset, align, first = map(_size, (offset, align, first))
        space = Space.Host if host else Space.Device
        return Storage(nbytes, slot, writable, offset, align, first, last, space)

    def instruction(self, told: Any) -> Instruction:
        opcode, step, *words = told
        _require(type(opcode) is int and type(step) is int and step >= -1, "an instruction")
        form = _FORMS.get(opcode)
        instruction = Instruction(opcode, list(map(self.word, words)), step)
        _require(form is not None and form(self, instruction.words), f"operation {opcode}")
        return instruction

    def word(self, told: Any) -> Any:
        if type(told) is int:
            return _number(told)
        kind, *rest = told
        if kind == "v":
            number, offset, counter, stride = rest
            _require(0 < _size(counter) < self.constants_at, "a counter")
            storage = self.at(self.storages, number)
            return View(storage, self.number(offset), counter, self.number(stride))
        if kind == "p":
            programs, nanoseconds = rest
            return Parallel(self.size(programs), read_number(nanoseconds, self.scope))
        if kind == "d":
            return self.number(told)
        (number,) = rest
        if kind == "k":
            return self.at(self.kernels, number)[0]
        _require(kind == "l" and 0 <= _size(number) < len(self.told["instructions"]), "a jump")
        return self.labels.setdefault(number, Label(number))

    def constant(self, told: Any) -> Any:
        kind, *rest = told
        if kind == "c":
            (number,) = rest
            return self.at(self.consts, number)
        if kind == "s":
            (nbytes,) = rest
            return Zeros(self.size(nbytes))
        name, shape, *data = rest
        dtype = np.dtype(dtype_from_short_name(name))
        _require(len(shape) <= 32 and not dtype.hasobject, "a constant")
        count = math.prod(map(_size, shape))
        _require(count * dtype.itemsize <= (MOST_ZEROS if kind == "z" else CARRIED), "a constant")
        if kind == "z":
            _require(not data, "a constant")
            return np.zeros(shape, dtype)
        _require(kind == "a", "a constant")
        (encoded,) = data
        values = np.frombuffer(bytearray(base64.b64decode(encoded, validate=True)), dtype)
        _require(values.size == count, "a constant")
        return values.reshape(shape)

    def aliases(self, told: Any) -> dict[int, int]:
        """Results, which are told by number, in the memory of arguments."""
        made = {}
        for result, argument in told:
            fits = _size(result) < self.constants_at - self.outputs
            _require(fits and _size(argument) < self.outputs - self.inputs, "an alias")
            made[result] = argument
        return made

    def is_slot(self, word: Any) -> bool:
        return type(word) is int and 1 < word < self.constants_at


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} is not as it should be")


def _number(x: Any) -> int:
    _require(type(x) is int and abs(x) <= LARGEST, "a number")
    return x


def _size(x: Any) -> int:
    _require(_number(x) >= 0, "a size")
    return x


# Forms of instructions: the kinds of words behind each operation


def _is_view(w: Any) -> bool:
    return isinstance(w, View)


def _is_count(w: Any) -> bool:
    return isinstance(w, Dim) or (type(w) is int and w >= 0)


def _is_parallel(w: Any) -> bool:
    return isinstance(w, Parallel) or (type(w) is int and 0 <= w <= 1)


def _is_launch(words: Sequence[Any]) -> bool:
    """Kernel, grid, whether it is parallel, how many operands, the operands."""
    if len(words) < 4 or not isinstance(words[0], Kernel) or not _is_count(words[1]):
        return False
    kernel = words[0]
    # A launch of a batch passes the first program in front of each list.
    count = len(kernel.params) if kernel.batch == 1 else kernel.batch * (len(kernel.params) + 1)
    fits = type(words[3]) is int and count == words[3] == len(words) - 4
    return fits and _is_parallel(words[2]) and all(map(_is_view, words[4:]))


def _are_launches(words: Sequence[Any]) -> bool:
    """Programs, whether they are parallel, how many kernels, and each with grid and operands."""
    if len(words) < 3 or not _is_count(words[0]) or not _is_parallel(words[1]):
        return False
    if type(words[2]) is not int or words[2] < 0:
        return False
    at = 3
    for _ in range(min(words[2], len(words))):
        if len(words) < at + 3 or type(words[at + 2]) is not int or words[at + 2] < 0:
            return False
        count = words[at + 2]
        if not _is_launch([words[at], words[at + 1], 0, count, *words[at + 3 : at + 3 + count]]):
            return False
        at += 3 + count
    return at == len(words)


def _form(*kinds: Callable[[_Reader, Any], bool]) -> Callable[[_Reader, Sequence[Any]], bool]:
    return lambda reader, words: (
        len(words) == len(kinds) and all(kind(reader, w) for kind, w in zip(kinds, words))
    )


_view = lambda reader, w: _is_view(w)
_label = lambda reader, w: isinstance(w, Label)
_int = lambda reader, w: type(w) is int or isinstance(w, Dim)
_FORMS: dict[int, Callable[[_Reader, Sequence[Any]], bool]] = {
    vm.HALT: _form(),
    vm.CALL: lambda reader, words: _is_launch(words),
    vm.CALLS: lambda reader, words: _are_launches(words),
    vm.JUMP: _form(_label),
    vm.UNLESS: _form(_view, _label),
    vm.SET: _form(_Reader.is_slot, _int),
    vm.ADD: _form(_Reader.is_slot, _int),
    vm.REPEAT: _form(_Reader.is_slot, _int, _label),
    vm.SWAP: _form(_Reader.is_slot, _Reader.is_slot),
    vm.ADDRESS: _form(_Reader.is_slot, _view),
    vm.COPY: _form(_view, _view, lambda reader, w: _is_count(w)),
    vm.ASIDE: _form(_view, _view, lambda reader, w: _is_count(w), _int),
    vm.AWAIT: _form(_int),
    vm.SWITCH: lambda reader, words: (
        len(words) > 2 and _is_view(words[0]) and words[1] == len(words) - 2
        and all(isinstance(w, Label) for w in words[2:])
    ),
}  # fmt: skip
