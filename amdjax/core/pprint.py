"""Jaxprs as text, in JAX's form.

>>> from amdjax.core.parse import parse_jaxpr
>>> print(parse_jaxpr("{ lambda ; a:f32[3]. let b:f32[3] = copy a in (b,) }"))
{ lambda ; a:f32[3]. let b:f32[3] = copy a in (b,) }
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import AbstractValue, ShapedArray
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    open_jaxpr,
    set_printer,
    subjaxprs_of_value,
)
from amdjax.core.recursion import deep

Implied = Callable[[Sequence[Any], Sequence[Any]], Any]


def _always(value: Any) -> Implied:
    return lambda in_avals, out_avals: value


IMPLIED: dict[str, dict[str, Implied]] = {
    "jit": {
        "donated_invars": lambda in_avals, out_avals: (False,) * len(in_avals),
        "inline": _always(False),
        "keep_unused": _always(False),
    },
    "broadcast_in_dim": {
        "broadcast_dimensions": _always(()),
        "shape": lambda in_avals, out_avals: out_avals[0].shape,
        "sharding": _always(None),
    },
    "convert_element_type": {"sharding": _always(None)},
    "dot_general": {"out_sharding": _always(None), "precision": _always(None)},
}
"""Parameters that are left out where they have the value that follows from the types."""


@deep
def format_jaxpr(
    jaxpr: Jaxpr | ClosedJaxpr, *, exact: bool = False, source_info: bool = False,
    name_stack: bool = False, use_color: bool = False, width: int = 80,
) -> str:  # fmt: skip
    """The text of a program.

    Args:
      jaxpr: the program.
      exact: whether weak types are marked by `~`, which JAX's form leaves out.
      source_info: whether the user's line is written behind each operation.
      name_stack: whether scopes and transforms are written behind each operation.
      use_color: accepted; the text has no colors.
      width: how wide lines may get before they are broken.
    """
    del use_color
    printer = _Printer(exact, width, source_info, name_stack)
    top = open_jaxpr(jaxpr)
    printer.name_shared(top)
    return printer.shared_definitions() + "\n".join(printer.jaxpr(top, 0))


@deep
def format_alike(programs: Iterable[Jaxpr | ClosedJaxpr]) -> list[str]:
    """The texts of programs, with one name for a variable in all of them.

    Args:
      programs: the programs.
    """
    names = _Printer(False, 80)
    texts = []
    for top in map(open_jaxpr, programs):
        printer = _Printer(False, 80)
        printer.names, printer.count = names.names, names.count
        printer.name_shared(top)
        texts.append(printer.shared_definitions() + "\n".join(printer.jaxpr(top, 0)))
        names.count = printer.count
    return texts


def format_eqn(eqn: JaxprEqn) -> str:
    """The text of one operation."""
    return "\n".join(_Printer(False, 80).eqn(eqn, 0))


def type_text(aval: AbstractValue) -> str:
    """A type as it is in exact texts of programs."""
    weak = isinstance(aval, ShapedArray) and aval.weak_type
    return ("~" if weak else "") + aval.str_short()


def format_value(value: Any) -> str:
    """The text of a parameter's value."""
    return "\n".join(_Printer(False, 80).value(value, 0))


set_printer(jaxpr=format_jaxpr, eqn=format_eqn, value=format_value)


def var_name(index: int) -> str:
    """The name of the `index`-th variable: a, b, …, z, ba, bb and so on."""
    name = chr(97 + index % 26)
    while index >= 26:
        index //= 26
        name = chr(97 + index % 26) + name
    return name


_KEYWORDS = frozenset(("in", "let"))


class _Printer:
    def __init__(self, exact: bool, width: int, source: bool = False, name_stack: bool = False):
        self.exact, self.width = exact, width
        self.source, self.name_stack = source, name_stack
        self.names: dict[Var, str] = {}
        self.count = 0
        self.reads: set[Var] | None = None  # variables read by the programs being printed
        self.shared: dict[int, str] = {}
        self.definitions: list[tuple[str, Jaxpr]] = []

    # Programs that several operations call are printed once, under a name.

    def name_shared(self, top: Jaxpr) -> None:
        counts: Counter[int] = Counter()
        found: dict[int, tuple[Jaxpr, str]] = {}
        order: list[int] = []

        def visit(jaxpr: Jaxpr) -> None:
            for eqn in jaxpr.eqns:
                for value in eqn.params.values():
                    for sub in map(open_jaxpr, subjaxprs_of_value(value)):
                        counts[id(sub)] += 1
                        if id(sub) not in found:
                            found[id(sub)] = sub, str(eqn.params.get("name", "f"))
                            visit(sub)
                            order.append(id(sub))

        visit(top)
        taken: Counter[str] = Counter()
        for key in order:
            jaxpr, name = found[key]
            if counts[key] > 1 and jaxpr.eqns:
                name = re.sub(r"\W", "_", name)
                self.shared[key] = f"{name}{taken[name] or ''}"
                taken[name] += 1
                self.definitions.append((self.shared[key], jaxpr))

    def shared_definitions(self) -> str:
        return "".join(
            f"let {name} = " + "\n".join(self.jaxpr(jaxpr, 0, define=True)) + " in\n"
            for name, jaxpr in self.definitions
        )

    # Every method below returns lines; the first is written behind what precedes it.

    def jaxpr(self, jaxpr: Jaxpr, indent: int, define: bool = False) -> list[str]:
        if not define and id(jaxpr) in self.shared:
            return [self.shared[id(jaxpr)]]
        self.reads = {*(self.reads or ()), *_read_variables(jaxpr)}
        consts = " ".join(self.binder(v) for v in jaxpr.constvars)
        args = " ".join(self.binder(v) for v in jaxpr.invars)
        head = f"{{ lambda {consts}; {args}. let" if consts else f"{{ lambda ; {args}. let"
        body = [self.eqn(e, indent + 4) for e in jaxpr.eqns]
        outs = ", ".join(self.atom(v) for v in jaxpr.outvars)
        tail = f"in ({outs}{',' if len(jaxpr.outvars) == 1 else ''}) }}"
        if not body:
            return [f"{head}  {tail}"]
        if len(body) == 1 and len(body[0]) == 1 and not (self.source or self.name_stack):
            line = f"{head} {body[0][0]} {tail}"
            if indent + len(line) <= self.width:
                return [line]
        lines = [head]
        for eqn in body:
            lines.append(" " * (indent + 4) + eqn[0])
            lines.extend(eqn[1:])
        lines.append(" " * (indent + 2) + tail)
        return lines

    def eqn(self, eqn: JaxprEqn, indent: int) -> list[str]:
        """Lines of an operation; all but the first carry their indentation."""
        form = _FORMS.get(eqn.primitive.name)
        if form is not None:
            return [form(self, eqn) + self.comment(eqn)]
        binders = " ".join(self.result(v) for v in eqn.outvars)
        params = self.params(eqn, indent + 2)
        head = f"{binders} = {eqn.primitive.name}" if binders else eqn.primitive.name
        args = " ".join(self.atom(v) for v in eqn.invars)
        tail = (f" {args}" if args else " ") + self.comment(eqn)
        if not params:
            return [head + tail]
        if all(len(lines) == 1 for _, lines in params):
            line = f"{head}[{' '.join(f'{n}={v[0]}' for n, v in params)}]"
            if indent + len(line) + 1 + len(args) <= self.width:
                return [line + tail]
        lines = [f"{head}["]
        for name, value in params:
            lines.append(" " * (indent + 2) + f"{name}={value[0]}")
            lines.extend(value[1:])
        lines.append(" " * indent + "]" + tail)
        return lines

    def comment(self, eqn: JaxprEqn) -> str:
        """Where an operation was written, as far as that is asked for."""
        parts = [str(eqn.source)] if self.source else []
        if self.name_stack:
            parts.append(f"[{eqn.source.name_stack}]")
        return f"  # {' '.join(parts)}" if parts else ""

    def params(self, eqn: JaxprEqn, indent: int) -> list[tuple[str, list[str]]]:
        implied = IMPLIED.get(eqn.primitive.name, {})
        types = [v.aval for v in eqn.invars], [v.aval for v in eqn.outvars]
        shown = []
        for name in sorted(eqn.params, key=lambda n: (n != "name", n)):
            value = eqn.params[name]
            if name in implied and value == implied[name](*types):
                continue
            shown.append((name, self.value(value, indent)))
        return shown

    def value(self, value: Any, indent: int) -> list[str]:
        if isinstance(value, (Jaxpr, ClosedJaxpr)):
            return self.jaxpr(open_jaxpr(value), indent)
        if isinstance(value, tuple) and any(True for _ in subjaxprs_of_value(value)):
            return self.tuple_of_jaxprs(value, indent)
        return [_scalar_text(value)]

    def tuple_of_jaxprs(self, value: tuple[Any, ...], indent: int) -> list[str]:
        fields = getattr(value, "_fields", None)
        lines = [f"{type(value).__name__}(" if fields else "("]
        for i, item in enumerate(value):
            text = self.value(item, indent + 2)
            label = f"{fields[i]}=" if fields else ""
            lines.append(" " * (indent + 2) + label + text[0])
            lines.extend(text[1:])
        lines.append(" " * indent + ")")
        return lines

    def binder(self, v: Var) -> str:
        return f"{self.name(v)}:{self.type(v.aval)}"

    def result(self, v: Var) -> str:
        """The binder of a result; one that nothing reads has no name."""
        return self.binder(v) if self.is_read(v) else f"_:{self.type(v.aval)}"

    def is_read(self, v: Var) -> bool:
        return type(v) is not DropVar and (self.reads is None or v in self.reads)

    def name(self, v: Var) -> str:
        found = self.names.get(v)
        if found is None:
            found = self.names[v] = var_name(self.count)
            self.count += 1
            if var_name(self.count) in _KEYWORDS:
                self.count += 1
        return found

    def type(self, aval: AbstractValue) -> str:
        return type_text(aval) if self.exact else aval.str_short()

    def atom(self, v: Any) -> str:
        if isinstance(v, Literal):
            return f"{literal_text(v.val)}:{self.type(v.aval)}"
        return self.name(v)

    # Operations on references are written as Python writes them.

    def place(self, eqn: JaxprEqn, first: int) -> str:
        """A reference, and where in it; operands of the index begin at `first`."""
        arrays = iter(eqn.invars[first:])
        indices = eqn.params["indices"]
        text = "".join(
            f"{{reshape{index[1]}}}" if index[:1] == ("reshape",)
            else f"[{','.join(self.index(i, arrays) for i in index)}]"
            for index in indices
        )  # fmt: skip
        return self.atom(eqn.invars[0]) + (text or "[...]")

    def index(self, part: Any, arrays: Iterator[Any]) -> str:
        if part is None or isinstance(part, int):
            return str(part)
        if part is Ellipsis:
            return "..."
        if isinstance(part, tuple) and part[0] == "window":
            _, start, size, stride = part
            first = self.index(start, arrays)
            reach = size * stride
            end = f"{first}+{reach}" if not first.isdigit() else str(int(first) + reach)
            return f"{first}:{end}" + (f":{stride}" if stride != 1 else "")
        if isinstance(part, tuple):
            bounds = ["" if p is None else self.index(p, arrays) for p in part[1:]]
            return ":".join(bounds if bounds[2] else bounds[:2])
        return self.atom(next(arrays))

    def get(self, eqn: JaxprEqn) -> str:
        return f"{self.result(eqn.outvars[0])} <- {self.place(eqn, 1)}"

    def swap(self, eqn: JaxprEqn) -> str:
        (old,) = eqn.outvars
        place = self.place(eqn, 2)
        if not self.is_read(old):
            return f"{place} <- {self.atom(eqn.invars[1])}"
        return f"{self.result(old)}, {place} <- {place}, {self.atom(eqn.invars[1])}"

    def addupdate(self, eqn: JaxprEqn) -> str:
        return f"{self.place(eqn, 2)} += {self.atom(eqn.invars[1])}"


_FORMS: dict[str, Callable[[_Printer, JaxprEqn], str]] = {
    "get": _Printer.get,
    "swap": _Printer.swap,
    "addupdate": _Printer.addupdate,
}


def _read_variables(jaxpr: Jaxpr) -> Iterator[Var]:
    for eqn in jaxpr.eqns:
        yield from (v for v in eqn.invars if isinstance(v, Var))
    yield from (v for v in jaxpr.outvars if isinstance(v, Var))


def literal_text(value: Any) -> str:
    """A scalar as it is written in programs."""
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    return str(value)


_NUMBERS = frozenset((int, float, bool, type(None)))
_PLAIN = re.compile(r"[A-Za-z_][\w.]*$")
_WORDS = frozenset(("None", "True", "False", "inf", "nan", "float0"))


def _scalar_text(value: Any, quoted: bool = False) -> str:
    if type(value) in _NUMBERS:  # most are
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value not in _WORDS and value not in _DTYPE_NAMES
        return value if plain and not quoted and "." not in value else repr(value)
    if isinstance(value, np.dtype):
        return "float0" if value == dtypes.float0 else value.name
    if isinstance(value, dtypes.ExtendedDType):
        return str(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, AbstractValue):
        return value.str_short()
    if isinstance(value, (np.generic, bool, int, float, complex)) or value is None:
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, np.ndarray):
        return f"array({value.tolist()}, dtype={value.dtype.name})"
    return _structure_text(value)


def _structure_text(value: Any) -> str:
    inner = functools.partial(_scalar_text, quoted=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = ", ".join(f"{f}={inner(x)}" for f, x in zip(value._fields, value))
        return f"{type(value).__name__}({fields})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(inner, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(inner, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inner(k)}: {inner(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (frozenset, set)):
        return "{" + ", ".join(sorted(map(inner, value))) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ", ".join(
            f"{f.name}={inner(getattr(value, f.name))}" for f in dataclasses.fields(value)
        )
        return f"{type(value).__name__}({fields})"
    if callable(value) and type(value).__repr__ in _OPAQUE_REPRS:
        return f"<function {_callable_name(value)}>"
    text = str(value)
    return text if " at 0x" not in text else f"<{type(value).__name__}>"


def _callable_name(value: Any) -> str:
    if isinstance(value, functools.partial):
        return _callable_name(value.func)
    return getattr(value, "__name__", type(value).__name__)


_OPAQUE_REPRS: frozenset[Any] = frozenset(
    f.__repr__
    for f in (
        object,
        type(lambda: None),
        type(_PLAIN.match),
        type(_Printer(False, 80).type),
        functools.partial,
    )
)
_DTYPE_NAMES = frozenset(d.name for d in dtypes.array_dtypes)
