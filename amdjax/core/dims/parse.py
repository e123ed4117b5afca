"""Dimensions read from text: "2*t + floordiv(b, 4)", "t <= 512", "b, ..., 3"."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Protocol

from amdjax.core.dims.operations import Facts, floordiv, greatest, mod
from amdjax.core.dims.polynomial import Polynomial, multiply, of, plus, scale

__all__ = ["parse_constraint", "parse_dimension", "split_shape"]


class Names(Facts, Protocol):
    """Facts that also know variables."""

    def variable(self, name: str) -> Polynomial:
        """The polynomial that a variable is."""


_DEPTH = 50  # of expressions
_POWER = 64  # the greatest one that is written out
_TERMS, _BITS = 256, 128  # of a polynomial, and of its coefficients


def parse_dimension(text: str, names: Names) -> Polynomial:
    """The dimension that a text describes.

    Args:
      text: integers, names, `+ - * // % ** ^`, `floordiv`, `mod`, `max`, `min`, `non_negative`.
      names: what is known of the names.

    Raises:
      ValueError: it describes none; the message shows where.
    """
    return _of_node(_syntax_tree(text), text, names, 0)


def parse_constraint(text: str, names: Names) -> tuple[Polynomial, str, Polynomial]:
    """A constraint "left symbol right" in parts.

    Raises:
      ValueError: it is none.
    """
    parts = re.split(r"(>=|<=|==|>|<)", text) if isinstance(text, str) else []
    if len(parts) != 3:
        raise ValueError(
            f"constraints: {text!r} is none: write two dimensions with one of >=, <=, ==, >, < "
            f"between, as 'a >= 2*b' or 'mod(t, 8) == 0'"
        )
    return parse_dimension(parts[0], names), parts[1], parse_dimension(parts[2], names)


def split_shape(text: str) -> list[str]:
    """The texts of a shape's dimensions, where commas in parentheses separate nothing.

    Raises:
      ValueError: parentheses do not match, or there is nothing between two commas.
    """
    parts, depth = [""], 0
    for mark in _without_parentheses(text.strip()):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            break
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    if not parts[-1].strip():  # "a," is a shape of one dimension, "" of none
        parts.pop()
    if depth or not all(part.strip() for part in parts):
        why = "parentheses do not match" if depth else "nothing stands between two commas"
        raise ValueError(f"syntax error in symbolic shape {text!r}: {why}")
    return [part.strip() for part in parts]


def _without_parentheses(text: str) -> str:
    """A shape without the parentheses that enclose all of it."""
    depth = 0
    for at, mark in enumerate(text):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if not depth:
            return text[1:-1] if at == len(text) - 1 and text.startswith("(") else text
    return text


def _syntax_tree(text: str) -> ast.expr:
    if len(text) > 1000:
        raise ValueError("a symbolic dimension of more than 1000 characters")
    try:
        return ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _error(text, "it is no expression") from None


def _error(text: str, why: str) -> ValueError:
    return ValueError(
        f"syntax error in symbolic dimension {text.strip()!r}: {why}. Write integers, names, "
        "+, -, *, //, %, ^, floordiv(a, b), mod(a, b), max(a, b), min(a, b)."
    )


_BINARY: dict[type[ast.operator], Callable[[Polynomial, Polynomial, Names], Polynomial]] = {
    ast.Add: lambda a, b, _: plus(a, b),
    ast.Sub: lambda a, b, _: plus(a, scale(b, -1)),
    ast.Mult: lambda a, b, _: multiply(a, b),
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}

_CALLS: dict[str, tuple[int, Callable[..., Polynomial]]] = {
    "floordiv": (2, lambda names, a, b: floordiv(a, b, names)),
    "mod": (2, lambda names, a, b: mod(a, b, names)),
    "max": (0, lambda names, *args: greatest(args, names, "max")),
    "min": (0, lambda names, *args: greatest(args, names, "min")),
    "non_negative": (1, lambda names, a: greatest((a, ()), names, "max")),
}


def _of_node(node: ast.expr, text: str, names: Names, depth: int) -> Polynomial:
    """The polynomial of a syntax tree, of which nothing is executed."""
    if depth > _DEPTH:
        raise _error(text, "it is nested too deep")

    def part(x: ast.expr) -> Polynomial:
        return _of_node(x, text, names, depth + 1)

    match node:
        case ast.Constant(value=int(value)) if type(value) is int:
            return of(value)
        case ast.Name(id=name):
            return names.variable(name)
        case ast.UnaryOp(op=ast.USub()):
            return scale(part(node.operand), -1)
        case ast.UnaryOp(op=ast.UAdd()):
            return part(node.operand)
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(power))) if power <= _POWER:
            result, base = of(1), part(node.left)
            for _ in range(power):
                result = _bounded(multiply(result, base), text)
            return result
        case ast.BinOp() if type(node.op) in _BINARY:
            rule = _BINARY[type(node.op)]
            return _bounded(rule(part(node.left), part(node.right), names), text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            count, call = _CALLS[name]
            if args and count in (0, len(args)):
                return call(names, *map(part, args))
            raise _error(text, f"{name} takes {count or 'some'} arguments, got {len(args)}")
    raise _error(text, f"{ast.unparse(node)!r} is not understood")


def _bounded(a: Polynomial, text: str) -> Polynomial:
    """A polynomial that is not so large that arithmetic with it takes long."""
    if len(a) > _TERMS or any(abs(factor).bit_length() > _BITS for _, factor in a):
        raise _error(text, "written out it is too large")
    return a
