"""Jaxprs: typed, first-order, let-bound programs, and what is common to all uses of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from amdjax.core import source_info
from amdjax.core.aval import AbstractValue, get_aval
from amdjax.core.config import config
from amdjax.core.dtypes import NARROWED
from amdjax.core.effects import Effects, join_effects, no_effects
from amdjax.core.primitive import Primitive
from amdjax.core.recursion import Room
from amdjax.core.ref import AbstractRef, RefEffect
from amdjax.core.source_info import Origin, SourceInfo


class Var:
    """A variable; it has a type and an identity, and is named only when printed.

    Args:
      aval: the type.
    """

    __slots__ = ("__weakref__", "aval")

    def __init__(self, aval: AbstractValue):
        self.aval: Any = aval  # nearly always a ShapedArray; a token for ordered effects

    def __repr__(self) -> str:
        return f"Var({self.aval.str_short()})"


class DropVar(Var):
    """A result that is not read; printed as `_`.

    Args:
      aval: the type.
    """

    __slots__ = ()


class Literal:
    """A scalar written into the program.

    Args:
      val: a Python scalar if weakly typed, else a NumPy scalar.
      aval: its type.
    """

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: AbstractValue | None = None):
        self.val = val
        self.aval: Any = get_aval(val) if aval is None else aval

    def __repr__(self) -> str:
        return f"Literal({self.val!r}:{self.aval.str_short()})"


Atom = Var | Literal


_texts: dict[str, Callable[..., str]] = {}


def set_printer(**texts: Callable[..., str]) -> None:
    """Name what makes the text of a `jaxpr`, of an `eqn` and of a parameter's `value`."""
    _texts.update(texts)


class JaxprEqn:
    """One operation: `outvars = primitive[params] invars`.

    Args:
      primitive: the operation.
      invars: variables and literals.
      outvars: variables.
      params: the operation's parameters.
      effects: what it does besides computing.
      source: where it was written.
    """

    __slots__ = ("_origin", "effects", "invars", "outvars", "params", "primitive", "source")

    def __init__(
        self, primitive: Primitive, invars: Sequence[Atom], outvars: Sequence[Var],
        params: dict[str, Any], effects: Effects = no_effects,
        source: SourceInfo = source_info.unknown,
    ):  # fmt: skip
        self.primitive = primitive
        self.invars = invars
        self.outvars = outvars
        self.params = params
        self.effects = effects
        self.source = source

    @property
    def is_wide(self) -> bool:
        """Whether it was traced with 64-bit types, under a setting which may not be that of now."""
        atoms = (*self.invars, *self.outvars)
        return any(getattr(x.aval, "dtype", None) in NARROWED for x in atoms)

    def replace(self, **changes: Any) -> JaxprEqn:
        """The same equation with some fields changed."""
        new = JaxprEqn(
            self.primitive, self.invars, self.outvars, self.params, self.effects, self.source
        )
        for name, value in changes.items():
            setattr(new, name, value)
        return new

    @property
    def source_info(self) -> SourceInfo:
        return self.source

    @property
    def origin(self) -> Origin:
        """What code that computes the equation is said to be made from; made when first asked."""
        try:
            return self._origin
        except AttributeError:
            self._origin: Origin = Origin(self.primitive.name, self.source)
            return self._origin

    def __repr__(self) -> str:
        return _texts["eqn"](self)


class DebugInfo(NamedTuple):
    """What error messages say about the function a jaxpr comes from.

    Args:
      kind: what traces it, as "jit".
      name: of the function.
      location: where it is written.
      arg_names: of its arguments, if they are known.
      result_paths: to the leaves of its result, if they are known.
    """

    kind: str = "tracing"
    name: str = "<function>"
    location: str = ""
    arg_names: tuple[str, ...] | None = None
    result_paths: tuple[str, ...] | None = None


def visible_effects(effects: Effects, *binders: Sequence[Var]) -> Effects:
    """Effects without those on references, if none of the references comes from outside."""
    if any(type(v.aval) is AbstractRef for variables in binders for v in variables):
        return effects
    return frozenset(e for e in effects if not isinstance(e, RefEffect))


class Jaxpr:
    """A program whose constants are variables.

    Args:
      constvars: variables bound to constants.
      invars: variables bound to arguments.
      outvars: the results, variables or literals.
      eqns: the operations in order.
      effects: the union of the equations' effects; computed if not given.
      debug_info: for error messages.
    """

    __slots__ = (
        "__weakref__",
        "constvars",
        "debug_info",
        "effects",
        "eqns",
        "invars",
        "memo",
        "outvars",
    )

    def __init__(
        self, constvars: Sequence[Var], invars: Sequence[Var], outvars: Sequence[Atom],
        eqns: Sequence[JaxprEqn], effects: Effects | None = None,
        debug_info: DebugInfo | None = None,
    ):  # fmt: skip
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        if effects is None:
            effects = join_effects(*(e.effects for e in eqns))
        self.effects = visible_effects(effects, self.constvars, self.invars) if effects else effects
        self.debug_info = debug_info
        self.memo: dict[Any, Any] = {}

    @property
    def in_avals(self) -> list[Any]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """The same program with some fields changed."""
        if "eqns" in changes:
            changes.setdefault("effects", None)
        return Jaxpr(**{name: changes.get(name, getattr(self, name)) for name in _JAXPR_FIELDS})

    def pretty_print(self, **options: Any) -> str:
        """The text of the program; see `core.pprint.format_jaxpr` for options."""
        return _texts["jaxpr"](self, **options)

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__


_JAXPR_FIELDS = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")


class ClosedJaxpr:
    """A program together with its constants.

    Args:
      jaxpr: the program.
      consts: the values of its constvars.
    """

    __slots__ = ("__weakref__", "consts", "jaxpr", "memo")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()):
        if len(consts) != len(jaxpr.constvars):
            raise ValueError(f"{len(jaxpr.constvars)} constvars but {len(consts)} consts")
        self.jaxpr = jaxpr
        self.consts = list(consts)
        self.memo: dict[Any, Any] = {}

    @property
    def in_avals(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.outvars]

    @property
    def const_avals(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.constvars]

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @property
    def literals(self) -> list[Any]:
        return self.consts

    def replace(self, **changes: Any) -> ClosedJaxpr:
        """The same closed program with another `jaxpr` or other `consts`."""
        return ClosedJaxpr(changes.get("jaxpr", self.jaxpr), changes.get("consts", self.consts))

    def pretty_print(self, **options: Any) -> str:
        return self.jaxpr.pretty_print(**options)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


class LateJaxpr(ClosedJaxpr):
    """A program of which little is known before it is read, which is done when it is asked for.

    Args:
      read: reads the program.
      consts: its constants.
      in_avals, out_avals: the types of its arguments and results.
      identity: equal only for programs that read the same and have the same constants.
      primitives: the names of all operations in it.
    """

    __slots__ = ("_avals", "_read", "identity", "primitives")

    def __init__(
        self, read: Callable[[], Jaxpr], consts: Sequence[Any], in_avals: Sequence[Any],
        out_avals: Sequence[Any], identity: str, primitives: Sequence[str],
    ):  # fmt: skip
        self._read, self._avals = read, (list(in_avals), list(out_avals))
        self.identity, self.primitives = identity, primitives
        self.consts = list(consts)
        self.memo = {}

    def __getattr__(self, name: str) -> Any:
        """The program, which is no attribute before it is read."""
        if name != "jaxpr":
            raise AttributeError(name)
        self.jaxpr = self._read()
        return self.jaxpr

    @property
    def in_avals(self) -> list[Any]:
        return list(self._avals[0])

    @property
    def out_avals(self) -> list[Any]:
        return list(self._avals[1])

    @property
    def const_avals(self) -> list[Any]:
        return list(map(get_aval, self.consts))


class Opaque:
    """Stands for a parameter that its printed form does not tell, such as a function."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


ParamType = TypeVar("ParamType", bound=type)
param_types: dict[str, type] = {}


def register_param_type(cls: ParamType) -> ParamType:
    """Let the parser read parameters of this class: a namedtuple, dataclass or enum."""
    param_types[cls.__name__] = cls
    return cls


F = TypeVar("F", bound=Callable[..., Any])
#: Between a pass over a program and that over one in it.
FRAMES_OF_A_PROGRAM = 24


def memoize_on_jaxpr(fn: F) -> F:
    """Keep results of `fn(jaxpr, *hashable)` on the jaxpr, to live as long as it does."""

    @functools.wraps(fn)
    def memoized(jaxpr: Any, *args: Any) -> Any:
        key = (fn, config.trace_key(), args)
        found = jaxpr.memo.get(key)
        if found is None:
            with Room(FRAMES_OF_A_PROGRAM):  # for programs in programs
                found = jaxpr.memo[key] = fn(jaxpr, *args)
        return found

    return memoized  # type: ignore[return-value]


def eval_jaxpr(
    jaxpr: Jaxpr, consts: Sequence[Any], *args: Any,
    apply: Callable[[JaxprEqn, list[Any]], Any] | None = None,
) -> list[Any]:  # fmt: skip
    """Run a program operation by operation under the current trace.

    Args:
      jaxpr: the program.
      consts: values of its constvars.
      *args: values of its invars.
      apply: `apply(eqn, values)` is done in place of an operation, and gives what that would.

    Returns:
      The results, a list.
    """
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"the jaxpr takes {len(jaxpr.invars)} arguments, got {len(args)}")
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, consts))
    env.update(zip(jaxpr.invars, args))
    dying = last_uses(jaxpr)
    outer = source_info.position()
    try:
        for eqn, dead in zip(jaxpr.eqns, dying):
            values = [x.val if type(x) is Literal else env[x] for x in eqn.invars]  # type: ignore[index]
            source_info.replay(eqn.source, outer)
            if apply is None:
                out = eqn.primitive.bind(*values, **eqn.params)
            else:
                out = apply(eqn, values)
            if eqn.primitive.multiple_results:
                env.update(zip(eqn.outvars, out))
            else:
                env[eqn.outvars[0]] = out
            for v in dead:
                del env[v]
    finally:
        source_info.restore(outer)
    return [x.val if type(x) is Literal else env[x] for x in jaxpr.outvars]  # type: ignore[index]


def last_uses(jaxpr: Jaxpr) -> list[list[Var]]:
    """For each equation the variables that nothing after it reads."""
    found = jaxpr.memo.get("last_uses")
    if found is None:
        found = jaxpr.memo["last_uses"] = _last_uses(jaxpr)
    return found


def _last_uses(jaxpr: Jaxpr) -> list[list[Var]]:
    alive = {v for v in jaxpr.outvars if type(v) is not Literal}
    dying: list[list[Var]] = []
    for eqn in reversed(jaxpr.eqns):
        dead = [v for v in (*eqn.invars, *eqn.outvars) if type(v) is not Literal]
        fresh = [v for v in dict.fromkeys(dead) if v not in alive]
        alive.update(fresh)
        dying.append(fresh)  # type: ignore[arg-type]
    dying.reverse()
    return dying


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The program as a function of its flat arguments that returns a list.

    Args:
      closed_jaxpr: the program.

    Returns:
      A function.

        >>> closed = amdjax.make_jaxpr(lambda x: x * 2)(1.0)
        >>> print(*amdjax.extend.core.jaxpr_as_fun(closed)(3.0))
        6.0
    """
    return functools.partial(eval_jaxpr, closed_jaxpr.jaxpr, closed_jaxpr.consts)


def subjaxprs_of_value(value: Any) -> Iterator[Jaxpr | ClosedJaxpr]:
    """The programs inside a parameter's value."""
    if isinstance(value, (Jaxpr, ClosedJaxpr)):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from subjaxprs_of_value(item)


def subjaxprs(jaxpr: Jaxpr | ClosedJaxpr) -> Iterator[Jaxpr | ClosedJaxpr]:
    """The programs in the parameters of a program's equations, not recursively.

    Args:
      jaxpr: the program.

    Returns:
      An iterator over them.

        >>> closed = amdjax.make_jaxpr(amdjax.jit(lambda x: x * 2))(1.0)
        >>> len(list(subjaxprs(closed)))
        1
    """
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            yield from subjaxprs_of_value(value)


def open_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    """The program without its constants."""
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


@memoize_on_jaxpr
def close_jaxpr(jaxpr: Jaxpr) -> ClosedJaxpr:
    """`jaxpr`, which must have no constvars, as a `ClosedJaxpr`; always the same object."""
    return ClosedJaxpr(jaxpr, ())


def with_leading(info: DebugInfo | None, count: int) -> DebugInfo | None:
    """What is said about a function once values that it closes over are leading arguments."""
    if info is None or info.arg_names is None:
        return info
    return info._replace(arg_names=(*["a value closed over"] * count, *info.arg_names))


def convert_constvars_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The same program taking its constants as leading arguments.

    Args:
      jaxpr: the program.

    Returns:
      The program.

        >>> jaxpr = amdjax.make_jaxpr(lambda x, y: (x, y + 1))(1.0, 2.0).jaxpr
        >>> convert_constvars_jaxpr(jaxpr).constvars
        []
    """
    info = with_leading(jaxpr.debug_info, len(jaxpr.constvars))
    return jaxpr.replace(constvars=(), invars=[*jaxpr.constvars, *jaxpr.invars], debug_info=info)


def hoist_consts(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The program with its constants as leading arguments, and those constants."""
    if not closed.consts:
        return closed, []
    return ClosedJaxpr(convert_constvars_jaxpr(closed.jaxpr), ()), list(closed.consts)


def close_consts(jaxpr: Jaxpr, consts: Sequence[Any]) -> ClosedJaxpr:
    """`jaxpr` closed over `consts`; the same object each time where there are none."""
    return ClosedJaxpr(jaxpr, consts) if jaxpr.constvars else close_jaxpr(jaxpr)


# Equality


def jaxprs_equal(a: Jaxpr | ClosedJaxpr, b: Jaxpr | ClosedJaxpr) -> bool:
    """Whether two programs are the same up to the identity of variables.

    Functions in parameters compare by how they print.
    """
    if isinstance(a, ClosedJaxpr) and isinstance(b, ClosedJaxpr) and len(a.consts) != len(b.consts):
        return False
    return _Same().jaxprs(open_jaxpr(a), open_jaxpr(b))


class _Same:
    """Traverses two programs at once and remembers which variables correspond."""

    def __init__(self) -> None:
        self.to: dict[Var, Var] = {}

    def jaxprs(self, a: Jaxpr, b: Jaxpr) -> bool:
        sizes = [(x.constvars, x.invars, x.eqns, x.outvars) for x in (a, b)]
        if [len(part) for part in sizes[0]] != [len(part) for part in sizes[1]]:
            return False
        binders = zip([*a.constvars, *a.invars], [*b.constvars, *b.invars])
        return (
            all(self.bind(x, y) for x, y in binders)
            and all(self.eqns(x, y) for x, y in zip(a.eqns, b.eqns))
            and all(self.atoms(x, y) for x, y in zip(a.outvars, b.outvars))
        )

    def bind(self, a: Var, b: Var) -> bool:
        self.to[a] = b
        return a.aval == b.aval

    def atoms(self, a: Atom, b: Atom) -> bool:
        if isinstance(a, Literal) and isinstance(b, Literal):
            x, y = np.asarray(a.val), np.asarray(b.val)
            return a.aval == b.aval and (x == y or bool(x != x and y != y))
        return isinstance(a, Var) and self.to.get(a) is b

    def eqns(self, a: JaxprEqn, b: JaxprEqn) -> bool:
        return (
            a.primitive.name == b.primitive.name
            and len(a.invars) == len(b.invars)
            and len(a.outvars) == len(b.outvars)
            and a.params.keys() == b.params.keys()
            and all(self.atoms(x, y) for x, y in zip(a.invars, b.invars))
            and all(self.values(x, b.params[name]) for name, x in a.params.items())
            and all(self.bind(x, y) for x, y in zip(a.outvars, b.outvars))
        )

    def values(self, a: Any, b: Any) -> bool:
        if isinstance(a, (Jaxpr, ClosedJaxpr)):
            return isinstance(b, (Jaxpr, ClosedJaxpr)) and self.jaxprs(open_jaxpr(a), open_jaxpr(b))
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            return len(a) == len(b) and all(self.values(x, y) for x, y in zip(a, b))
        if isinstance(a, np.ndarray):
            return np.array_equal(a, b)
        if callable(a) or callable(b) or isinstance(a, Opaque) or isinstance(b, Opaque):
            text = _texts["value"]
            return text(a) == text(b)
        return bool(a == b) or (a != a and b != b)
