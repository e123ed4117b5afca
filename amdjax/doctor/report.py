"""The report of the doctor, written as things are found."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TextIO

__all__ = ["Report"]


@dataclass
class Report:
    """What was found, written as it is found.

    Args:
      file: where to.

    Attributes:
      problems: what is wrong, each with what to do.
    """

    file: TextIO
    problems: list[tuple[str, str]] = field(default_factory=list)

    def section(self, title: str) -> None:
        """Begin a part of the report."""
        self.write(f"\n{title}")

    def row(self, name: str, value: str, width: int = 16) -> None:
        """A fact; `width` columns are the name's."""
        self.write(f"  {name:<{width - 1}} {value}")

    def problem(self, what: str, advice: str = "") -> None:
        """Something wrong, and what to do about it; the end of the report repeats it."""
        if (what, advice) not in self.problems:
            self.write(f"  ! {what}")
            self.problems.append((what, advice))

    def write(self, line: str) -> None:
        """A line, at once: what comes next may take long."""
        print(line, file=self.file, flush=True)

    def conclude(self, good: str) -> bool:
        """Say what to do; returns whether all is well."""
        if not self.problems:
            self.write(f"\n{good}")
            return True
        self.write("\nWhat to do")
        for i, (what, advice) in enumerate(self.problems, 1):
            self._paragraph(f"{_sentence(what)}.", f"  {i}. ")
            if advice:
                self._paragraph(advice, "     ")
        return False

    def _paragraph(self, text: str, indent: str) -> None:
        # Commands and paths stay whole, to be copied.
        self.write(
            textwrap.fill(
                text, 96, initial_indent=indent, subsequent_indent="     ",
                break_long_words=False, break_on_hyphens=False,
            )
        )  # fmt: skip


def _sentence(text: str) -> str:
    """With a capital, unless the first word is a name that is written otherwise."""
    begins = text.partition(" ")[0].isalpha()
    return (f"{text[:1].upper()}{text[1:]}" if begins else text).rstrip(".")
