"""Regular expressions that are matched in time that is linear in the text.

Patterns come from files, and a backtracking matcher takes exponential time for some. Here all ways
to match are followed at once (Thompson, 1968): a set of places in a program, one character at a
time. The syntax is RE2's, but for lookahead and backreferences, which it does not have either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: How many instructions a pattern may have, and how deep its groups may lie.
_MOST_INSTRUCTIONS, _MOST_REPEATS, _DEEPEST = 20_000, 1000, 100

Accepts = Callable[[str], bool]

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7F", "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class _Instruction(NamedTuple):
    """A step: a character to accept, a condition on the place, or where to go on."""

    accepts: Accepts | None = None
    holds: Callable[[str, int], bool] | None = None
    targets: tuple[int, ...] = ()

    def takes(self, character: str) -> bool:
        """Whether it accepts a character."""
        return self.accepts is not None and self.accepts(character)


def full_match(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a whole text matches.

    Raises:
      ValueError: the pattern is none, or a larger one than is allowed.
    """
    program = _Compiler(pattern).program()

    def matches(text: str) -> bool:
        places = _closure(program, [0], text, 0)
        for i, character in enumerate(text):
            if not places:
                return False
            stepped = [p + 1 for p in places if p < len(program) and program[p].takes(character)]
            places = _closure(program, stepped, text, i + 1)
        return len(program) in places

    return matches


#: The place behind the last instruction is the end of a match.
_Program = list[_Instruction]


def _closure(program: _Program, places: Iterable[int], text: str, at: int) -> set[int]:
    """All places that are reached without a character."""
    found: set[int] = set()
    stack = list(places)
    while stack:
        place = stack.pop()
        if place in found:
            continue
        found.add(place)
        if place == len(program):
            continue
        instruction = program[place]
        if instruction.accepts is not None:
            continue
        if instruction.holds is not None:
            stack += [place + 1] if instruction.holds(text, at) else []
        else:
            stack += [place + t for t in instruction.targets]
    return found


class _Compiler:
    """From a pattern to a program, by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = 0
        self.depth = 0

    def program(self) -> _Program:
        made = self.choice()
        if self.at < len(self.pattern):
            raise self.error("unbalanced )")
        return made

    def error(self, message: str) -> ValueError:
        return ValueError(f"pattern {self.pattern!r}: {message} at {self.at}")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def skip(self, text: str) -> bool:
        found = self.peek(text)
        self.at += len(text) if found else 0
        return found

    def choice(self) -> _Program:
        """Alternatives between bars."""
        outer = self.flags
        made = self.sequence()
        while self.skip("|"):
            other = self.sequence()
            jump = _Instruction(targets=(len(other) + 1,))
            made = [_Instruction(targets=(1, len(made) + 2)), *made, jump, *other]
        self.flags = outer
        return made

    def sequence(self) -> _Program:
        made: _Program = []
        while self.at < len(self.pattern) and not (self.peek("|") or self.peek(")")):
            made = [*made, *self.repeated(self.atom())]
            if len(made) > _MOST_INSTRUCTIONS:
                raise self.error("it is too large")
        return made

    def repeated(self, atom: _Program) -> _Program:
        """An atom with its quantifier; lazy ones match the same texts."""
        count = re.compile(r"\{(\d+)(,?)(\d*)\}").match(self.pattern, self.at)
        if count:
            self.at = count.end()
            low = int(count[1])
            high = int(count[3]) if count[3] else None if count[2] else low
        elif self.at < len(self.pattern) and self.pattern[self.at] in "*+?":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.pattern[self.at]]
            self.at += 1
        else:
            return atom
        self.skip("?")
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise self.error(f"a repetition must be of at most {_MOST_REPEATS}")
        if max(low, high or 0, 1) * (len(atom) + 1) > _MOST_INSTRUCTIONS:
            raise self.error("it is too large")
        made = [*atom] * low
        if high is None:
            made += [_Instruction(targets=(1, len(atom) + 2)), *atom]
            made.append(_Instruction(targets=(-len(atom) - 1,)))
        else:
            made += [_Instruction(targets=(1, len(atom) + 1)), *atom] * (high - low)
        return made

    def atom(self) -> _Program:
        if self.skip("("):
            return self.group()
        if self.skip("^"):
            return self.condition(lambda text, at: at == 0)
        if self.skip("$"):
            return self.condition(lambda text, at: at == len(text))
        if self.skip("."):
            newline = bool(self.flags & re.DOTALL)
            return self.character(lambda c: newline or c != "\n")
        if self.peek("["):
            return self.character(self.among(self.bracket()))
        if self.skip("\\"):
            return self.escape()
        if self.pattern[self.at] in "*+?":
            raise self.error("nothing to repeat")
        self.at += 1
        return self.character(self.among(re.escape(self.pattern[self.at - 1])))

    def group(self) -> _Program:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error("its groups lie too deep")
        outer = self.flags
        if self.skip("?"):
            head = re.compile(r"P?<\w+>|([imsU]*)(?:-([imsU]*))?([:)])").match(
                self.pattern, self.at
            )
            if not head:
                raise self.error("unknown kind of group")
            self.at = head.end()
            for letters, on in ((head[1] or "", True), (head[2] or "", False)):
                for flag in (getattr(re, x.upper()) for x in letters if x in "ims"):
                    self.flags = self.flags | flag if on else self.flags & ~flag
            if head[3] == ")":  # flags for what follows in the group around it
                self.depth -= 1
                return []
        made = self.choice()
        if not self.skip(")"):
            raise self.error("missing )")
        self.flags = outer
        self.depth -= 1
        return made

    def bracket(self) -> str:
        """The text of a class."""
        start = self.at
        self.at += 2 if self.pattern.startswith("[^", self.at) else 1
        self.skip("]")
        while not self.skip("]"):
            if self.at >= len(self.pattern):
                raise self.error("missing ]")
            end = self.pattern.find(":]", self.at) if self.peek("[:") else -1
            self.at = end + 2 if end >= 0 else self.at + (2 if self.peek("\\") else 1)
        inside = self.pattern[start : self.at]
        inside = re.sub(r"\[:(\w+):\]", lambda m: _POSIX.get(m[1], m[0]), inside)
        # What Python may one day read as an operation on sets is a character here.
        return inside[0] + re.sub(r"(?<!\\)\[", r"\\[", inside[1:])

    def escape(self) -> _Program:
        letter = self.pattern[self.at : self.at + 1]
        if letter == "Q":
            end = self.pattern.find("\\E", self.at)
            end = len(self.pattern) if end < 0 else end
            text = self.pattern[self.at + 1 : end]
            self.at = min(end + 2, len(self.pattern))
            parts = [self.character(self.among(re.escape(c))) for c in text]
            return [instruction for part in parts for instruction in part]
        found = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x[0-9A-Fa-f]{2}|[0-7]{3}|[\W_]|[dDsSwWtnrfva]")
        match = found.match(self.pattern, self.at)
        self.at += len(match[0]) if match else 1
        if match and match[1]:
            return self.character(self.among(re.escape(chr(int(match[1], 16)))))
        if match:
            plain = re.escape(match[0]) if re.fullmatch(r"[\W_]", match[0]) else "\\" + match[0]
            return self.character(self.among(plain))
        conditions: dict[str, Callable[[str, int], bool]] = {
            "A": lambda text, at: at == 0, "z": lambda text, at: at == len(text),
            "b": _is_edge, "B": lambda text, at: not _is_edge(text, at),
        }  # fmt: skip
        if letter not in conditions:
            raise self.error(f"unknown escape \\{letter}")
        return self.condition(conditions[letter])

    def among(self, text: str) -> Accepts:
        """Whether a character is one of a class, or is a letter."""
        try:
            one = re.compile(text, (self.flags & re.IGNORECASE) | re.ASCII | re.DOTALL)
        except (re.error, OverflowError) as error:
            raise self.error(str(error)) from None
        return lambda c: one.fullmatch(c) is not None

    def character(self, accepts: Accepts) -> _Program:
        return [_Instruction(accepts=accepts)]

    def condition(self, holds: Callable[[str, int], bool]) -> _Program:
        return [_Instruction(holds=holds)]


def _is_edge(text: str, at: int) -> bool:
    """Whether a word begins or ends at a place."""
    word = [0 <= i < len(text) and re.fullmatch(r"\w", text[i], re.ASCII) for i in (at - 1, at)]
    return bool(word[0]) != bool(word[1])
