"""JAX's modules as its tests see them: amdjax's, with something in place of each absent name."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Sequence
from typing import Any

from missing import Missing, OutOfScope, State, absent

#: Whether there is more of a module than its name; the alias says.
known: Callable[[str], bool] = lambda name: False


class Lenient(types.ModuleType):
    """A module whose names are `extra`, then those of `sources`; any other is a `Missing`.

    Args:
      name: the module's, as JAX calls it.
      sources: modules of amdjax.
      extra: further names.
    """

    def __init__(self, name: str, sources: Sequence[Any] = (), extra: Any = None):
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__["_sources"] = list(sources)
        self.__dict__.update(extra or {})

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if name.startswith("__") and name.endswith("__"):
            for source in self._sources:
                if hasattr(source, name):
                    return getattr(source, name)
            if name == "__array_namespace_info__" and not State.running:
                return Missing(full)
            raise AttributeError(name)
        error: Exception | None = None
        for source in self._sources:
            try:
                value = getattr(source, name)
            except (AttributeError, ModuleNotFoundError) as e:
                error = error or e
                continue
            if isinstance(value, types.ModuleType) and not callable(value):
                public = not name.startswith("_")
                own = public and value.__name__.startswith(("amdjax.", "jax."))
                return importlib.import_module(full) if own else value
            return value
        if known(full):
            return importlib.import_module(full)
        if State.running and self._sources and not isinstance(absent(full), OutOfScope):
            raise error or absent(full)
        return Missing(full)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *(n for source in self._sources for n in dir(source))})
