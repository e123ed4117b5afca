"""What the stages of compiling made; where a plan was read, they run when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from amdjax.core.config import State, config
from amdjax.jit.instructions import Plan

__all__ = ["Observed", "Stages"]

Stages = list[tuple[str, Any]]  # by name
Observer = Callable[[str, Any], None]


class Observed:
    """The stages of a program.

    Args:
      compile: compiles it, and tells an observer what each stage made; tells nothing where the plan
        was read.
      again: plans it as if no plan were kept, and tells an observer.

    Attributes:
      executable: what was compiled.
    """

    def __init__(self, compile: Callable[[Observer], Any], again: Callable[[Observer], Plan]):
        self._stages: Stages = []
        self._again, self._settings = again, config.traced()
        self.executable = compile(self._note)
        self._plan = self.executable.plan if self._stages else None

    def _note(self, stage: str, made: Any) -> None:
        self._stages.append((stage, made))

    @property
    def stages(self) -> Stages:
        """What each stage made, by name."""
        return self._planned()[0]

    @property
    def plan(self) -> Plan:
        """The plan, with the tile programs of its kernels."""
        return self._planned()[1]

    def _planned(self) -> tuple[Stages, Plan]:
        if self._plan is None:
            with _settings(self._settings):
                self._plan = self._again(self._note)
        return self._stages, self._plan


@contextmanager
def _settings(values: dict[str, Any]) -> Iterator[None]:
    """The settings that were in force."""
    with ExitStack() as stack:
        for name, value in values.items():
            if config.read(name) != value:
                stack.enter_context(State(name)(value))
        yield
