"""What was compiled in this process and why: `explain_recompiles`."""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from amdjax.jit.symbolic import kind_of, shape_of

_KEPT = 10_000
_FIRST = "first call"


class Work(NamedTuple):
    """How often something was made.

    Attributes:
      traced: the function.
      planned: the programs, for sizes.
      compiled: those of which none was there already.
    """

    traced: int = 0
    planned: int = 0
    compiled: int = 0

    def since(self, before: Work) -> Work:
        """What came after."""
        return Work(*(now - then for now, then in zip(self, before)))


@dataclass(frozen=True)
class _Compilation:
    """A signature that was met, and what was made for it.

    Attributes:
      function: its name and place.
      reason: what is new in it.
      sizes: of axes that differ from a former signature, before and now, by argument and axis.
      seconds: how long tracing and compiling took.
      work: how often something was traced, planned and compiled for it.
      symbolic: the types for which it serves, if they are symbolic.
      refused: why sizes did not become symbolic, where they were to.
    """

    function: str
    reason: str
    sizes: dict[tuple[str, int], tuple[int, int]]
    seconds: float
    work: Work
    symbolic: str | None
    refused: str | None


_compilations: collections.deque[_Compilation] = collections.deque(maxlen=_KEPT)
_served: collections.Counter[str] = collections.Counter()
"""For each function how many signatures needed nothing new."""


def note_served(function: str) -> None:
    """Note that a signature was met for the first time that a program made for others serves.

    Args:
      function: the function's name and place.
    """
    _served[function] += 1


def note(
    function: str, known: Iterable[Any], key: Any, names: Sequence[str], seconds: float, work: Work,
    symbolic: Sequence[Any] | None, refused: str | None,
) -> None:  # fmt: skip
    """Note that a signature was met for the first time.

    Args:
      function: the function's name and place.
      known: the keys of signatures compiled before, the last one first: structure, static
        arguments, settings, place and types.
      key: that of this one.
      names: what the function calls the leaves of its arguments.
      seconds: how long it took.
      work: what was made for it; nothing where a program for other sizes serves it, too.
      symbolic: the types for which the program serves, if they are symbolic.
      refused: why sizes did not become symbolic, where they were to.
    """
    reason, sizes = _reason(list(itertools.islice(known, 50)), key, names)
    types = None
    if symbolic is not None:
        types = ", ".join(f"{n}: {a.str_short()}" for n, a in zip(names, symbolic))
    _compilations.append(_Compilation(function, reason, sizes, seconds, work, types, refused))
    if not any(work) or reason == _FIRST or "logging" not in sys.modules:
        return
    # late: programs that log have it loaded
    import logging

    logging.getLogger("amdjax.jit").debug("Compiled %s: %s", function, reason)


def _reason(
    known: Sequence[Any], key: Any, names: Sequence[str]
) -> tuple[str, dict[tuple[str, int], tuple[int, int]]]:
    if not known:
        return _FIRST, {}
    found = [(_differences(old, key, names), old) for old in known]
    (parts, old) = min(found, key=lambda f: len(f[0]))
    sizes = {} if _differ(_kinds(old), _kinds(key)) else _sizes(old, key, names)
    return "; ".join(parts) or "the same, forgotten meanwhile", sizes


def _kinds(key: Any) -> Any:
    """What signatures that differ in sizes alone have in common."""
    return (*key[:4], *map(kind_of, key[4:]))


def _differences(old: Any, new: Any, names: Sequence[str]) -> list[str]:
    if old[0] != new[0]:
        return ["arguments of another structure"] * 3
    found = []
    for i, what in [(1, "other static arguments"), (2, "other settings"), (3, "another device")]:
        if _differ(old[i], new[i]):
            found.append(what)
    for name, before, now in zip(names, old[4:], new[4:]):
        was, shape = shape_of(before), shape_of(now)
        if kind_of(before) != kind_of(now):
            found.append(f"'{name}' is {now.str_short()}, was {before.str_short()}")
        else:
            found += [
                f"axis {axis} of '{name}' is {size}, was {last}"
                for axis, (last, size) in enumerate(zip(was, shape))
                if size != last
            ]
    return found


def _differ(old: Any, new: Any) -> bool:
    """Whether values of users differ: what cannot be compared does, as NumPy's numbers and `()`."""
    try:
        return bool(old != new)
    except Exception:
        return True


def _sizes(old: Any, new: Any, names: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (name, axis): (last, size)
        for name, before, now in zip(names, old[4:], new[4:])
        for axis, (last, size) in enumerate(zip(shape_of(before), shape_of(now)))
        if size != last
    }


def explain_recompiles() -> str:
    """What functions were compiled more than once in this process, why, and what to do about it.

    Returns:
      A text for people to read: for each function the signatures for which it was traced, planned
      or compiled, which axis of which argument, or what else, made each new, and how long it took.
      Signatures that a program made for others serves are only counted. What took longest comes
      first.

    Example:
      >>> amdjax.clear_caches()
      >>> @amdjax.jit
      ... def double(x):
      ...     return x * 2
      >>> _ = double(np.ones(3)), double(np.ones(5))
      >>> report = amdjax.explain_recompiles()
      >>> "axis 0 of 'x' is 5, was 3" in report
      True
    """
    by_function: dict[str, list[_Compilation]] = {}
    for compilation in list(_compilations):
        by_function.setdefault(compilation.function, []).append(compilation)
    several = [x for x in by_function.items() if sum(c.work.compiled for c in x[1]) > 1]
    several.sort(key=lambda item: -sum(c.seconds for c in item[1]))
    if not several:
        return "No function was compiled more than once."
    return "\n\n".join(_described(*item) for item in several)


def _described(function: str, compiled: Sequence[_Compilation]) -> str:
    made = [c for c in compiled if any(c.work)]
    traced, planned, programs = (sum(counts) for counts in zip(*(c.work for c in made)))
    total, rest = sum(c.seconds for c in made), len(compiled) - len(made) + _served[function]
    lines = [
        f"{function} was compiled {programs} times, in {total:.3f} s; traced {traced} times, "
        f"planned {planned} times; {rest} more signatures needed none of it"
    ]
    for c in made:
        served = f" (serves {c.symbolic})" if c.symbolic else ""
        done = ("traced", "planned anew, as before" if not c.work.compiled else "compiled")
        what = ", ".join(word for word, n in zip(done, (c.work.traced, c.work.planned)) if n)
        lines.append(f"  {c.seconds:8.3f} s  {what}: {c.reason}{served}")
    refused = next((c.refused for c in compiled if c.refused), None)
    if refused:
        lines.append(f"  Sizes cannot be symbolic: {refused}")
    elif not any(c.symbolic for c in compiled):
        lines += _advice(compiled)
    return "\n".join(lines)


def _advice(compiled: Sequence[_Compilation]) -> list[str]:
    """What to do about axes whose sizes differ."""
    axes: dict[tuple[str, int], dict[int, None]] = {}
    for c in compiled:
        for place, sizes in c.sizes.items():
            axes.setdefault(place, {}).update(dict.fromkeys(sizes))
    if not axes:
        return []
    told = ", ".join(
        f"axis {axis} of '{name}' ({', '.join(map(str, sizes))})"
        for (name, axis), sizes in axes.items()
    )
    return [
        f"  Sizes differ: {told}. Name them by jit(f, symbolic=…), or let "
        'jit(f, dynamic="auto") find them, so that one program serves all.'
    ]


def forget() -> None:
    """Forget what was compiled."""
    _compilations.clear()
    _served.clear()
