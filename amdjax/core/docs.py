"""Docstrings completed from tables: what many functions say alike is written once.

A public function says in its source what is its own: a sentence, an example, arguments that no
other has. What it shares with its family, arguments such as `axis` and what it returns and raises,
stands in a table of `Family`, and `complete` writes both into its `__doc__` in one order: text,
`Args:`, `Returns:`, `Raises:`, `Example:`. `help()`, doctest and Sphinx see the whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from amdjax.core.boundaries import unwrapped

_SECTIONS = ("Args:", "Returns:", "Raises:", "Example:")
_NO_PARAMETERS = (lambda: None).__code__  # of classes that are not made by functions of Python


class Phrases(NamedTuple):
    """What all functions of a package say alike.

    Args:
      parameters: what a parameter is, by its name.
      raises: lines of `Raises:`, by a parameter's name or its annotation.
      returns: the section `Returns:`, by the annotation of the result.
    """

    parameters: Mapping[str, str] = {}
    raises: Mapping[str, str] = {}
    returns: Mapping[str, str] = {}


class Family:
    """Functions that are documented alike.

    Args:
      names: the functions, separated by blanks.
      returns: their section `Returns:`; where a function writes its own, that stays.
      raises: further lines of `Raises:`, as "ValueError: for ...".
      parameters: what their parameters are; a function's own words come first.
    """

    implied = True  # the package's lines of `Raises:` hold for them

    def __init__(
        self, names: str = "", returns: str = "", /, *raises: str, **parameters: str
    ) -> None:
        self.names = names.split()
        self.returns, self.raises, self.parameters = returns, raises, parameters


class Irregular(Family):
    """A family whose `raises` are all: the package's lines do not hold for it."""

    implied = False


def complete(namespace: dict[str, Any], families: Iterable[Family], phrases: Phrases) -> None:
    """Complete the docstrings of what a module offers.

    Called once, at the end of a package's `__init__`, before `boundaries.public_surface` wraps the
    functions. Does nothing under `python -OO`, which leaves no docstrings.

    Args:
      namespace: `globals()` of the module.
      families: each function is in one of them at most; those that are not in `namespace` are
        left to another call.
      phrases: used for all names of `__all__`, in a family or not.
    """
    known = {name: family for family in families for name in family.names}
    alone, seen = Family(), set()
    for name in (*known, *_public(namespace)):
        value = namespace.get(name)
        if id(value) in seen or not callable(value) or not value.__doc__:
            continue
        seen.add(id(value))
        family, code = known.get(name, alone), getattr(unwrapped(value), "__code__", None)
        if code is not None:
            value.__doc__ = rendered(value, code, family, phrases)
        elif isinstance(value, type) and value.__module__.startswith("amdjax"):
            made: Any = value.__init__  # type: ignore[misc]  # only looked at
            made = made if hasattr(made, "__code__") else value.__new__
            code = getattr(unwrapped(made), "__code__", _NO_PARAMETERS)
            value.__doc__ = rendered(value, code, family, phrases._replace(raises={}))


def _public(namespace: dict[str, Any]) -> Iterable[str]:
    """The names a module offers; of those without `__all__`, what was made in the package."""
    package = namespace["__name__"]
    return namespace.get("__all__") or [
        name
        for name, value in namespace.items()
        if name[0] != "_" and str(getattr(value, "__module__", "")).startswith(package)
    ]


def rendered(fn: Any, code: Any, family: Family, phrases: Phrases) -> str:
    """The whole docstring of a function.

    Args:
      fn: the function or class, with what it says itself in `__doc__`.
      code: the code object whose parameters are described; of a class, that of its making.
      family: its family.
      phrases: those of its package.

    Returns:
      The text, without indentation. What nothing describes is left out, for a test to find.
    """
    text, sections = _parsed(fn.__doc__)
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    own = _entries(sections["Args:"]) if sections["Args:"] else {}
    args: list[str] = []
    implied: dict[str, None] = {}
    annotations = getattr(fn, "__annotations__", {})
    known, common = family.parameters, phrases.parameters
    raises = phrases.raises if family.implied else {}
    names = dict.fromkeys(_in_order(code, count))
    if isinstance(fn, type) and code.co_flags & inspect.CO_VARKEYWORDS:
        names |= dict.fromkeys(known)  # what a class passes on is its family's
    for name in names:
        line = own.pop(name, "") or known.get(name) or common.get(name)
        if line:
            args.append(line if line[:2] == "  " else f"  {name}: {line}")
        if raises:
            for word in (name, annotations.get(name, "")):
                if word in raises:
                    implied[raises[word]] = None
    args += own.values()
    returns = family.returns or phrases.returns.get(annotations.get("return", ""), "")
    sections["Args:"] = args
    sections["Returns:"] = sections["Returns:"] or [f"  {returns}"] * bool(returns)
    new = dict.fromkeys(f"  {line}" for line in (*family.raises, *implied))
    sections["Raises:"] += [line for line in new if line not in sections["Raises:"]]
    return _joined(text, sections)


def _joined(text: list[str], sections: Mapping[str, list[str]]) -> str:
    for header, lines in sections.items():
        if lines:
            text += ["", header, *lines]
    return "\n".join([*text, ""])


def _in_order(code: Any, count: int) -> tuple[str, ...]:
    """Parameters as a signature has them; code objects put `*args` behind keywords."""
    names = code.co_varnames[:count]
    if not code.co_flags & inspect.CO_VARARGS:
        return names
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    return (*names[:first], names[last], *names[first:last], *names[last + 1 :])


def _parsed(doc: str) -> tuple[list[str], dict[str, list[str]]]:
    """The text and the lines of each section; examples belong to `Example:` wherever they are."""
    # Closing quotes on a line of their own stand where the text begins.
    margin = "\n" + " " * (len(doc) - len(doc.rstrip(" ")))
    doc = doc.rstrip().replace(margin, "\n")
    sections: dict[str, list[str]] = {header: [] for header in _SECTIONS}
    if "Args:\n" not in doc and "Returns:\n" not in doc and "Raises:\n" not in doc:
        # Most have an example alone: then there is no need to look at each line.
        head, found, rest = doc.partition("\nExample:\n")
        if not found and "\n\n>>> " in doc:
            head, found, rest = doc.partition("\n\n")
            while rest[:4] != ">>> ":
                more, _, rest = rest.partition("\n\n")
                head = f"{head}\n\n{more}"
        if ">>>" not in head:
            sections["Example:"] = [_indented_text(rest)] if found else []
            return [head.rstrip("\n")], sections
    text: list[str] = []
    current, example = text, sections["Example:"]
    for line in doc.split("\n"):
        if line in sections:
            current = sections[line]
            continue
        if current is not example:
            if ">>>" in line and line.lstrip().startswith(">>>"):
                current = example
            elif current is not text and line and line[0] != " ":
                current = text  # a paragraph behind a section
                text += [""] if text[-1] else []
        current.append(line)
    while not text[-1]:
        text.pop()
    for header, lines in sections.items():
        if lines:
            sections[header] = _indented(lines)
    return text, sections


def _indented(lines: list[str]) -> list[str]:
    """A section's lines, two blanks in."""
    while not lines[-1]:
        lines.pop()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return [f"  {line[indent:]}" if line else "" for line in lines]


def _indented_text(text: str) -> str:
    """The same of a section as one text, which is faster."""
    indent = len(text) - len(text.lstrip(" "))
    if indent == 2:
        return text
    text = "  " + text[indent:].replace("\n" + " " * indent, "\n  ")
    while "\n  \n" in text:
        text = text.replace("\n  \n", "\n\n")
    return text


def _entries(lines: list[str]) -> dict[str, str]:
    """The entries of `Args:` by name; one that describes several parameters, by the first."""
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        if line[2:3] != " " and ":" in line:
            name = line.partition(":")[0].partition(",")[0].strip(" *")
            entries[name] = line
        elif line:
            entries[name] += f"\n{line}"
    return entries
