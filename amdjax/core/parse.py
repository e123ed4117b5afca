"""Read programs back from their printed form.

Nothing in the text is executed: primitives are looked up by name, parameters of structured types
among the classes registered with `core.jaxpr.register_param_type`. What the print does not tell,
such as functions, becomes `Opaque`.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import AbstractValue, ShapedArray, abstract_token
from amdjax.core.dims import Dim, DimSize, SymbolicScope, symbolic_dimension
from amdjax.core.effects import no_effects
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Opaque,
    Var,
    close_consts,
    param_types,
)
from amdjax.core.pprint import IMPLIED
from amdjax.core.primitive import Primitive
from amdjax.core.sharding import Space


class JaxprSyntaxError(ValueError):
    """A text is no program."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


_TOKENS = re.compile(
    r"""(?P<newline>\n)|(?P<space>[ \t\r]+)|(?P<comment>\#[^\n]*)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<complex>\([-+]?[\w.]+(?:e[-+]?\d+)?[-+][\w.]+(?:e[-+]?\d+)?j\)|-?[\d.]+(?:e[-+]?\d+)?j)
    |(?P<number>-?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)|-(?:inf|nan)\b)
    |(?P<opaque><(?:[^<>\n]|<[^<>\n]*>)*>)
    |(?P<word>[A-Za-z_]\w*(?:[.-][A-Za-z_]\w*)*)
    |(?P<mark>[][{}()=:;,.~*+^-])""",
    re.VERBOSE,
)


#: Types as most are: each size is one token, a number or a variable.
_PLAIN_TYPE = re.compile(
    r"~?([a-z]\w*)(<host>)?\[((?:(?:\d{1,18}|[A-Za-z_]\w*)(?:,(?=[^\],])|(?=\])))*)\]", re.ASCII
)
_DEPTH = 200  # of brackets in brackets


def _tokens(text: str) -> list[_Token]:
    found, at, depth = [], 0, 0
    for match in _TOKENS.finditer(text):
        kind, (start, end) = str(match.lastgroup), match.span()
        if start != at:
            break
        at = end
        if kind == "space" or kind == "comment":
            continue
        token = match.group()
        if kind == "mark" and token in "([{)]}":
            depth += 1 if token in "([{" else -1
            if depth > _DEPTH:
                where = _line(text, start)
                raise JaxprSyntaxError(f"more than {_DEPTH} brackets in brackets in {where}")
        found.append(_Token(kind, token, start, end))
    if at != len(text):
        raise JaxprSyntaxError(f"unexpected {text[at]!r} in {_line(text, at)}")
    found.append(_Token("end", "the end", at, at))
    return found


def _line(text: str, at: int) -> str:
    number = text.count("\n", 0, at)
    lines = text.split("\n")
    return f"line {number + 1}: {lines[min(number, len(lines) - 1)].strip()!r}"


def parse_jaxpr(
    text: str, consts: Sequence[Any] | None = None, scope: SymbolicScope | None = None
) -> ClosedJaxpr:
    """The program printed as `text`.

    Args:
      text: a program in JAX's form; weak types may be marked as `core.pprint` does it with
        `exact=True`.
      consts: values of its constants, which are not printed; zeros if not given.
      scope: what is known of dimension variables; nothing if it is not given.

    Returns:
      A program equal (`core.jaxpr.jaxprs_equal`) to the printed one.

    Raises:
      JaxprSyntaxError: the text is no program; the message shows the line.

    >>> closed = parse_jaxpr("{ lambda ; a:f32[3]. let b:f32[3] = copy a in (b, 1.0:f32[]) }")
    >>> closed.out_avals
    [ShapedArray(float32[3]), ShapedArray(float32[])]
    """
    parser = _Parser(text, scope or SymbolicScope())
    closed = parser.program()
    if consts is not None:
        closed = ClosedJaxpr(closed.jaxpr, consts)
    return closed


def parse_type(text: str, scope: SymbolicScope) -> AbstractValue:
    """The type that `core.pprint.type_text` wrote; raises JaxprSyntaxError for what is none."""
    parser = _Parser(text, scope)
    found = parser.type()
    if parser.peek().kind != "end":
        raise parser.fail("the end")
    return found


class _Parser:
    def __init__(self, text: str, scope: SymbolicScope):
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.variables: dict[str, Var] = {}
        self.shared: dict[str, ClosedJaxpr] = {}
        self.scope = scope
        self.types: dict[str, AbstractValue] = {}  # by their texts
        self.dimensions: set[str] = set()  # names of variables in shapes

    # Tokens

    def fail(self, wanted: str) -> JaxprSyntaxError:
        token = self.tokens[self.at]
        return JaxprSyntaxError(
            f"expected {wanted}, found {token.text!r} in {_line(self.text, token.start)}"
        )

    def peek(self, ahead: int = 0) -> _Token:
        """The token `ahead` places on, line ends not counted."""
        at = self.at
        while True:
            while self.tokens[at].kind == "newline":
                at += 1
            if ahead == 0 or self.tokens[at].kind == "end":
                return self.tokens[at]
            ahead, at = ahead - 1, at + 1

    def next(self) -> _Token:
        while self.tokens[self.at].kind == "newline":
            self.at += 1
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        if self.peek().text == text and self.peek().kind != "string":
            self.next()
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(repr(text))

    def word(self, what: str) -> str:
        if self.peek().kind != "word":
            raise self.fail(what)
        return self.next().text

    def at_line_end(self) -> bool:
        return self.tokens[self.at].kind in ("newline", "end")

    # Programs

    def program(self) -> ClosedJaxpr:
        while self.accept("let"):
            name = self.word("a name")
            self.expect("=")
            self.shared[name] = self.jaxpr()
            self.expect("in")
        closed = self.jaxpr()
        if self.peek().kind != "end":
            raise self.fail("the end")
        return closed

    def jaxpr(self) -> ClosedJaxpr:
        self.expect("{")
        self.expect("lambda")
        constvars = self.binders(";")
        self.expect(";")
        invars = self.binders(".")
        self.expect(".")
        self.expect("let")
        eqns = []
        while not self.ends_body():
            eqns.append(self.eqn())
        self.expect("in")
        self.expect("(")
        outvars = []
        while not self.accept(")"):
            outvars.append(self.atom())
            self.accept(",")
        self.expect("}")
        jaxpr = Jaxpr(constvars, invars, outvars, eqns)
        return close_consts(jaxpr, [_zeros(v.aval) for v in constvars])

    def ends_body(self) -> bool:
        return self.peek().text == "in" and self.peek(1).text == "("

    def binders(self, end: str) -> list[Var]:
        found = []
        while self.peek().text != end:
            found.append(self.binder())
        return found

    def binder(self) -> Var:
        name = self.word("a variable")
        self.expect(":")
        aval = self.type()
        if name == "_":
            return DropVar(aval)
        var = self.variables[name] = Var(aval)
        return var

    def type(self) -> AbstractValue:
        start = self.peek()  # behind line ends
        match = _PLAIN_TYPE.match(self.text, start.start)
        if match is not None and (known := self.plain_type(match)) is not None:
            count = match[3].count(",") + 1 if match[3] else 0
            while self.tokens[self.at] is not start:
                self.at += 1
            marks = 3 + (start.text == "~") + (match[2] is not None)
            self.at += marks + max(2 * count - 1, 0)
            return known
        weak = self.accept("~")
        name = self.word("a type")
        if name == "Tok":
            return abstract_token
        host = self.accept("<host>")
        if not host and self.peek().kind == "opaque":
            name += self.next().text
            host = self.accept("<host>")
        try:
            dtype = dtypes.dtype_from_short_name(name)
        except ValueError:
            raise self.fail(f"a type, not {name!r}") from None
        self.expect("[")
        shape = []
        while not self.accept("]"):
            shape.append(self.dimension())
            self.accept(",")
        return ShapedArray(shape, dtype, weak, memory_space=_space(host))

    def plain_type(self, match: re.Match[str]) -> AbstractValue | None:
        """The type that a text is; None for one that is none."""
        text = match[0]
        if text not in self.types:
            name, host, sizes = match.groups()
            try:
                dtype = dtypes.dtype_from_short_name(name)
                shape = [self.size(n) for n in sizes.split(",")] if sizes else []
            except ValueError:
                return None  # the usual way says what is wrong
            space = _space(host is not None)
            self.types[text] = ShapedArray(shape, dtype, text[0] == "~", memory_space=space)
        return self.types[text]

    def size(self, text: str) -> DimSize:
        """The size of a text; raises ValueError for one that is none."""
        size = int(text) if text.isdecimal() else symbolic_dimension(text, self.scope)
        if isinstance(size, Dim):
            self.dimensions |= size.variables()
        return size

    def dimension(self) -> DimSize:
        """A size, which may be symbolic."""
        start = end = self.peek()
        depth, before = 0, self.at
        while depth or not self.ends_dimension():
            end = self.next()
            depth += {"(": 1, ")": -1}.get(end.text, 0)
            if end.kind == "end":
                raise self.fail("a size")
        if self.at == before:
            raise self.fail("a size")
        try:
            return self.size(self.text[start.start : end.end])
        except ValueError as e:
            raise JaxprSyntaxError(f"{e} It stands in {_line(self.text, start.start)}") from None

    def ends_dimension(self) -> bool:
        """Whether a comma, what closes the shape, or another parameter follows."""
        token = self.tokens[self.at]
        return token.text in (",", "]", ")") or self.at_line_end() or self.peek(1).text == "="

    def is_dimension(self) -> bool:
        """Whether a symbolic size follows, of variables that a shape has shown before."""
        token, following = self.peek(), self.peek(1).text
        if token.kind == "number":
            return following in ("*", "+", "-", "^")
        if token.text in ("floordiv", "mod", "max", "min"):
            return following == "("
        return token.text == "-" or token.text in self.dimensions

    def atom(self) -> Var | Literal:
        token = self.peek()
        following = self.peek(1)
        if token.kind == "word" and following.text != ":":
            self.next()
            if token.text not in self.variables:
                self.at -= 1
                raise self.fail("a variable that is bound")
            return self.variables[token.text]
        if token.kind not in ("word", "number", "complex"):
            raise self.fail("a variable or a literal")
        text = self.next().text
        self.expect(":")
        aval = self.type()
        assert isinstance(aval, ShapedArray)
        value: Any = {"True": True, "False": False}.get(text)
        if value is None:
            value = _number(text)
        scalar = np.asarray(value, aval.dtype)[()]
        return Literal(scalar.item() if aval.weak_type else scalar, aval)

    # Operations

    def eqn(self) -> JaxprEqn:
        outvars: list[Var] = []
        # Operands are read before results are bound: names may be used again.
        start = self.at
        while self.peek(1).text == ":":
            self.word("a variable")
            self.expect(":")
            self.type()
        if self.at != start:
            self.expect("=")
        primitive = self.primitive()
        params = self.params() if self.tokens[self.at].text == "[" else {}
        invars = []
        while not self.at_line_end() and self.tokens[self.at].text not in ("in", "}"):
            invars.append(self.atom())
        end, self.at = self.at, start
        while self.peek(1).text == ":":
            outvars.append(self.binder())
        self.at = end
        return _make_eqn(primitive, invars, outvars, params)

    def primitive(self) -> Primitive:
        primitive = Primitive.by_name.get(self.word("a primitive"))
        if primitive is None:
            self.at -= 1
            raise self.fail("a primitive that exists")
        return primitive

    def params(self) -> dict[str, Any]:
        self.expect("[")
        params = {}
        while not self.accept("]"):
            name = self.word("a parameter")
            self.expect("=")
            if name.endswith("_prim"):  # as the comparison of `select_and_scatter_add`
                params[name] = self.primitive()
            elif name == "impl":  # of random keys, whose dtype has its name
                params[name] = self.key_dtype()._impl
            else:
                params[name] = self.value(shared=name != "name")
        return params

    def key_dtype(self) -> Any:
        try:
            return dtypes.dtype_from_short_name(f"key<{self.word('an implementation of keys')}>")
        except ValueError:
            self.at -= 1
            raise self.fail("an implementation of keys that exists") from None

    def value(self, shared: bool = True) -> Any:
        token = self.peek()
        if token.kind == "string":
            return ast.literal_eval(self.next().text)
        if shared and self.dimensions and self.is_dimension():
            return self.dimension()
        if token.kind in ("number", "complex"):
            return _number(self.next().text)
        if token.kind == "opaque":
            return Opaque(self.next().text)
        if token.text == "{":
            return self.jaxpr() if self.peek(1).text == "lambda" else self.braces()
        if token.text == "(":
            self.next()
            return tuple(self.items(")"))
        if token.text == "[":
            self.next()
            return self.items("]")
        if token.kind == "word":
            return self.named_value(shared)
        raise self.fail("a value")

    def items(self, end: str) -> list[Any]:
        found = []
        while not self.accept(end):
            found.append(self.value())
            self.accept(",")
        return found

    def braces(self) -> Any:
        self.expect("{")
        found: list[Any] = []
        keyed = False
        while not self.accept("}"):
            item = self.value()
            if self.accept(":"):
                keyed, item = True, (item, self.value())
            found.append(item)
            self.accept(",")
        return dict(found) if keyed or not found else frozenset(found)

    def named_value(self, shared: bool) -> Any:
        token = self.next()
        name = token.text
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        following = self.tokens[self.at]
        if following.text == "(" and following.start == token.end:
            return self.construct(token)
        if following.text in ("[", "<host>") and following.start == token.end:
            self.at -= 1
            return self.type()
        if following.kind == "opaque" and following.start == token.end:
            self.next()
            return dtypes.dtype_from_short_name(name + following.text)
        if "." in name:
            return self.member(token)
        if shared and name in self.shared:
            return self.shared[name]
        return name

    def member(self, token: _Token) -> Any:
        cls, _, member = token.text.partition(".")
        found = param_types.get(cls)
        if found is None or not issubclass(found, enum.Enum):
            self.at -= 1
            raise self.fail("a member of a registered enum")
        return found[member]

    def construct(self, token: _Token) -> Any:
        """A value written as a call: an array, or an instance of a registered class."""
        cls = param_types.get(token.text)
        if cls is None and token.text != "array":
            return self.opaque(token)
        self.expect("(")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        while not self.accept(")"):
            if self.peek().kind == "word" and self.peek(1).text == "=":
                name = self.word("a field")
                self.expect("=")
                kwargs[name] = self.value()
            else:
                args.append(self.value())
            self.accept(",")
        if cls is not None:
            return cls(*args, **kwargs)
        if len(args) != 1 or not kwargs.keys() <= {"dtype"}:
            raise self.fail("an array of one list and a dtype")
        return np.array(*args, **kwargs)

    def opaque(self, token: _Token) -> Opaque:
        """Skip to the matching parenthesis."""
        depth = 0
        while True:
            here = self.next()
            depth += {"(": 1, ")": -1}.get(here.text, 0)
            if depth == 0:
                return Opaque(self.text[token.start : here.end])
            if here.kind == "end":
                raise self.fail("')'")


_CONSTANTS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
    "float0": dtypes.float0,
    **{d.name: d for d in dtypes.array_dtypes},
}


def _number(text: str) -> Any:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return complex(text) if text.endswith(("j", ")")) else float(text)


def _space(host: bool) -> Space:
    return Space.Host if host else Space.Device


def _zeros(aval: Any) -> Any:
    """An array that takes no memory, whatever size the text says it has."""
    return np.broadcast_to(np.zeros((), aval.dtype), aval.shape)


def _make_eqn(
    primitive: Primitive, invars: list[Any], outvars: list[Var], params: dict[str, Any]
) -> JaxprEqn:
    in_avals, out_avals = [v.aval for v in invars], [v.aval for v in outvars]
    for name, implied in IMPLIED.get(primitive.name, {}).items():
        if name not in params:
            params[name] = implied(in_avals, out_avals)
    effects = primitive.effects(*in_avals, **params) if primitive.effects else no_effects
    return JaxprEqn(primitive, invars, outvars, params, effects)
