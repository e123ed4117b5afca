"""What the stages of compiling made; where a plan was read, they run when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.config import config
from amdjax.jit.instructions import Plan
from amdjax.jit.options import compiling_with

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
            changed = {k: v for k, v in self._settings.items() if config.read(k) != v}
            with compiling_with(changed):
                self._plan = self._again(self._note)
        return self._stages, self._plan
