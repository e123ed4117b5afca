"""Keys of plans: equal only for programs of which the same plan is made.

A key stands for all that planning reads: the program's text, the values of smaller constants, which
arguments may be overwritten, the machine, the settings, what is known of measured choices, and the
compiler itself. Where something has a say that this cannot tell, such as a rule of the user's,
there is no key, and the program is planned.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import FunctionType
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, is_extended
from amdjax.core.config import config
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, LateJaxpr, Literal, Opaque, open_jaxpr, subjaxprs
from amdjax.core.lowering import Host
from amdjax.core.pprint import format_jaxpr
from amdjax.core.primitive import Primitive
from amdjax.core.recursion import deep
from amdjax.jit.finding import choices_known
from amdjax.jit.stored_plans import CARRIED
from amdjax.runtime.cache import compiler_version, package_digest

#: Operations, those of loops and branches counted, below which planning takes no longer than
#: looking for a plan.
LEAST = 12
#: Bytes of constants up to which their values count. Of larger ones planning reads those of masks
#: alone: weights are packed and computed with as a program is loaded.
VALUES_COUNT = CARRIED
#: Bytes of constants whose values count, which are hashed, up to which plans are kept.
MOST_CONSTANTS = 1 << 30
_SCHEMA = "plan 1"
#: Flags that say where programs run and choices are kept; the key has the machine and the choices.
_ELSEWHERE = ("default_device", "db_path")
_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None), type(Ellipsis), slice))
#: Where rules are made of functions of the user's.
_DOORS = ("amdjax.interpreters", "amdjax.extend", "amdjax.experimental")
_DEPTH = 8  # of functions in functions


@dataclass(frozen=True)
class PlanKey:
    """Under what a plan is kept.

    Attributes:
      local: in the cache on disk, where measured choices may change.
      carried: with a program in a file, which has the choices of where it was made.
    """

    local: bytes
    carried: bytes


def plan_key(
    closed: ClosedJaxpr, donated: Sequence[bool], machine: Any, facts: Sequence[str]
) -> PlanKey | None:
    """The key of a program's plan; None where plans are not kept, or it would not tell all.

    Args:
      closed: the program, of known sizes.
      donated: which arguments may be overwritten.
      machine: the target.
      facts: what else decides its machine code.
    """
    if not config.keep_plans or config.dump or config.check or not config.is_plain:
        return None
    if not isinstance(closed, LateJaxpr) and not _is_worth_it(closed.jaxpr):
        return None
    choices, sources = choices_known(machine), package_digest()
    if choices is None or sources is None:
        return None
    try:
        program = _program(closed)
    except _Untold:
        return None
    settings = [(k, v) for k, v in config.traced().items() if k not in _ELSEWHERE]
    overwritten = [i for i, d in enumerate(donated) if d]
    told = (
        _SCHEMA, sources, *compiler_version(), *_versions(), repr(machine), *facts,
        repr(settings), repr(overwritten), program,
    )  # fmt: skip
    carried = hashlib.sha256("\0".join(told).encode()).digest()
    return PlanKey(hashlib.sha256(carried + choices.encode()).digest(), carried)


def is_told(value: Any) -> bool:
    """Whether the numbers of a program's constant are in its key."""
    aval = getattr(value, "aval", value)
    return is_extended(aval) or bool(aval.dtype == bool) or aval.nbytes <= VALUES_COUNT


@functools.cache
def _versions() -> tuple[str, ...]:
    """What computes constants besides ourselves."""
    return sys.version, np.__version__


class _Untold(Exception):
    """A program has what its text does not tell."""


def _is_worth_it(jaxpr: Jaxpr) -> bool:
    """Whether it has operations enough, those of its parts counted."""
    waiting, count = [jaxpr], 0
    while waiting and count < LEAST:
        found = waiting.pop()
        count += len(found.eqns)
        waiting += map(open_jaxpr, subjaxprs(found))
    return count >= LEAST


# Programs as text that tells all


@deep
def _program(closed: ClosedJaxpr) -> str:
    """What tells a program from all others; raises for one that nothing tells."""
    told = _Told()
    if isinstance(closed, LateJaxpr):
        for name in closed.primitives:
            told.rule(Primitive.by_name[name])
        return closed.identity
    told.constants(closed.consts)
    told.program(closed.jaxpr)
    return "\n".join((format_jaxpr(closed, exact=True), *told.words))


class _Told:
    """What the form of a program leaves open: its constants, and values of parameters to the bit.

    Attributes:
      words: this, in the order of the program.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        self._room = MOST_CONSTANTS
        self._seen: dict[int, Any] = {}  # programs by id, which are kept alive
        self._rules: set[int] = set()

    def constants(self, values: Sequence[Any]) -> None:
        """The constants of the program as a whole, and which of them are one array."""
        places: dict[int, int] = {}
        for place, value in enumerate(values):
            first = places.setdefault(id(value), place)
            aval = getattr(value, "aval", value)
            if first < place:
                self.words.append(f"constant {first}")
            elif is_told(value):
                self.array(value)
            else:
                self.words.append(f"{aval.dtype.name} {aval.shape}")

    def program(self, program: ClosedJaxpr | Jaxpr) -> None:
        if id(program) in self._seen:
            return
        self._seen[id(program)] = program
        for value in program.consts if isinstance(program, ClosedJaxpr) else ():
            self.array(value)
        jaxpr = open_jaxpr(program)
        self.atoms((*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars))
        for eqn in jaxpr.eqns:
            self.rule(eqn.primitive)
            self.atoms((*eqn.invars, *eqn.outvars))
            # Rules of derivatives do not count.
            custom = eqn.primitive.name.startswith("custom_")
            for name, value in eqn.params.items():
                if not (custom and (isinstance(value, Opaque) or callable(value))):
                    self.words.append(name)
                    self.value(value)

    def atoms(self, atoms: Sequence[Any]) -> None:
        for x in atoms:
            if isinstance(x, Literal):
                self.array(x.val)
            if is_extended(x.aval):
                self.value(x.aval.dtype)

    def rule(self, primitive: Primitive) -> None:
        """Nothing, where the package alone says how an operation is computed."""
        rule = primitive.lowering
        if id(rule) in self._rules:
            return
        if rule is None or isinstance(rule, Host) or not _is_ours(type(rule).__module__):
            raise _Untold
        for x in vars(rule).values():
            _check_ours(x, 0)
        self._rules.add(id(rule))

    def value(self, value: Any) -> None:
        """The value of a parameter."""
        kind = type(value)
        if kind in _PLAIN:
            self.words.append(repr(value))
        elif isinstance(value, (Jaxpr, ClosedJaxpr)):
            self.program(value)
        elif isinstance(value, (np.generic, np.ndarray, ConcreteArray)):
            self.array(value)
        elif isinstance(value, (Enum, np.dtype, Dim)):
            self.words.append(f"{kind.__name__} {value!s}")
        elif isinstance(value, type) and issubclass(value, np.generic):
            self.words.append(value.__name__)
        elif isinstance(value, ShapedArray):
            words = value.shape, value.dtype, value.weak_type, value.memory_space
            self.words.append(" ".join(map(str, words)))
            self.value(value.dtype)
        elif isinstance(value, (tuple, list, dict, set, frozenset)):
            self.container(value)
        elif isinstance(value, FunctionType) and "<" not in value.__qualname__:
            self.words.append(f"{value.__module__} {value.__qualname__}")
            _check_ours(value, 0)
        elif _is_ours(kind.__module__) and not callable(value):
            self.words.append(kind.__name__)
            self.container([(name, getattr(value, name, None)) for name in _attributes(value)])
        else:
            raise _Untold

    def container(self, value: Any) -> None:
        items = list(value.items() if isinstance(value, dict) else value)
        self.words.append(f"{type(value).__name__} {len(items)}")
        for item in sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items:
            self.value(item)

    def array(self, value: Any) -> None:
        """The type and the bits of an array."""
        if is_extended(getattr(value, "aval", None)):
            raise _Untold
        array = np.asarray(value)
        self._room -= array.nbytes
        if array.dtype.hasobject or self._room < 0:
            raise _Untold
        data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        known = data.tobytes().hex() if array.nbytes <= 32 else hashlib.sha256(data).hexdigest()
        self.words.append(f"{array.dtype.name} {array.shape} {known}")


def _attributes(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
    return sorted({*slots, *getattr(value, "__dict__", ())} - {"__weakref__", "__dict__"})


def _check_ours(x: Any, depth: int) -> None:
    """Raise for a function that is the user's, or made of one."""
    if depth > _DEPTH:
        raise _Untold
    if isinstance(x, functools.partial):
        x = (x.func, *x.args, *x.keywords.values())
    if isinstance(x, (list, tuple)):
        for item in x:
            _check_ours(item, depth + 1)
    if not callable(x) or isinstance(x, type):
        return
    module = getattr(x, "__module__", None)
    if not (_is_ours(module) or module in ("operator", "_operator", "math")):
        raise _Untold
    for cell in getattr(x, "__closure__", None) or ():
        _check_ours(cell.cell_contents, depth + 1)
    for value in getattr(x, "__defaults__", None) or ():
        _check_ours(value, depth + 1)


def _is_ours(module: Any) -> bool:
    return (
        isinstance(module, str) and module.startswith("amdjax.") and not module.startswith(_DOORS)
    )
