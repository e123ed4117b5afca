"""Lets programs written for JAX run on amdjax unchanged, in this process.

Import it before whatever imports JAX:

    import amdjax.as_jax
    import optax  # runs on amdjax

or start a program with it: `python -m amdjax.as_jax script.py`, `… -m module`, `… -c code`.

`jax`, `jax.*` and `jaxlib` then mean amdjax: `jax.numpy` is the very module `amdjax.numpy`, and
`jax.Array` is `amdjax.Array`. Only the outermost package is an object of its own, because it says
which release of JAX's interface this is: `jax.__version__`. Modules that amdjax lacks are not
found, as modules are that JAX lacks. A `JAX_…` variable of the environment is read where the
`AMDJAX_…` variable of the same name is not set. No file outside amdjax is touched, and other
processes know nothing of it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import pathlib
import runpy
import sys
import types
from collections.abc import Sequence
from typing import Any

from amdjax.core.config import config
from amdjax.core.flags import FLAGS, is_flag, parsed, resolved

JAX_VERSION = "0.10.2"
"""The release of JAX whose interface is followed."""

_ROOTS = ("jax", "jaxlib")


class _Front(types.ModuleType):
    """A module of JAX's that has no module of its own here: names come from others."""

    def __init__(self, name: str, sources: Sequence[str], names: dict[str, Any] | None = None):
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__.update(names or {})
        self.__dict__["_sources"] = sources

    def __getattr__(self, name: str) -> Any:
        if name not in ("__file__", "__path__"):
            for source in self._sources:
                try:
                    return getattr(importlib.import_module(source), name)
                except AttributeError:
                    continue
            if (below := f"{self.__name__}.{name}") in _fronts():
                return importlib.import_module(below)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        modules = [importlib.import_module(source) for source in self._sources]
        return sorted({*self.__dict__, *(name for m in modules for name in dir(m))})


_VERSIONS = {
    "__version__": JAX_VERSION,
    "__version_info__": tuple(map(int, JAX_VERSION.split("."))),
}


@functools.cache
def _fronts() -> dict[str, Any]:
    """Modules of JAX's whose names have other homes here: those homes, and further names."""
    # late: a table that only this door needs
    from amdjax.extend.internals import INTERNALS

    versions: tuple[list[str], dict[str, Any]] = [], _VERSIONS
    return {"jaxlib": versions, "jax.version": versions, "jaxlib.version": versions, **INTERNALS}


def module_for(name: str) -> types.ModuleType | None:
    """What a module of JAX's is here.

    Args:
      name: its full name, such as `jax.numpy`.

    Returns:
      amdjax's module, a front for names that have other homes, or None if there is no such module.

        >>> import amdjax.numpy
        >>> module_for("jax.numpy") is amdjax.numpy
        True
    """
    if name == "jax":
        package = sys.modules["amdjax"]
        about = {"__doc__": package.__doc__, "__file__": package.__file__}
        return _Front(name, ["amdjax"], {**_VERSIONS, **about})
    if name in (fronts := _fronts()):
        return _Front(name, *fronts[name])
    if not name.startswith("jax.") or name.startswith("jax._src"):
        return None
    own = "amdjax" + name.removeprefix("jax")
    try:
        module = importlib.import_module(own)
    except ModuleNotFoundError as e:
        if e.name is None or not own.startswith(e.name):
            raise  # a module of ours is there, but misses something
        return None
    # Code that asks for `jax.jit` means the function: its parent hands that out.
    return module


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves JAX's names. No other finder looks for their submodules: their paths are empty."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        root, _, rest = fullname.partition(".")
        if root == "amdjax" and f"jax.{rest}" in _fronts():
            # `from jax.experimental import x` asks for it below the module's own name.
            module: types.ModuleType | None = importlib.import_module(f"jax.{rest}")
        elif root in _ROOTS:
            module = module_for(fullname)
        else:
            return None
        if module is None:
            return None
        package = hasattr(module, "__path__")
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=package)
        spec.loader_state = module, getattr(module, "__spec__", None)
        return spec

    def create_module(self, spec: Any) -> types.ModuleType:
        return spec.loader_state[0]

    def exec_module(self, module: types.ModuleType) -> None:
        # The import system has put its own spec on the module, which may be one of ours.
        spec = module.__spec__
        assert spec is not None
        own = spec.loader_state[1]
        if own is not None:
            module.__spec__ = own


def install() -> None:
    """Make `jax` and `jaxlib` mean amdjax in this process; done by importing this module.

    Raises:
      ImportError: JAX itself was imported before.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    for root in _ROOTS:
        if root in sys.modules:
            where = getattr(sys.modules[root], "__file__", None)
            raise ImportError(
                f"amdjax.as_jax: {root!r} was imported already ({where or 'origin unknown'}); "
                "import amdjax.as_jax before anything that imports JAX, or start the program "
                "with `python -m amdjax.as_jax`"
            )
    _fronts()  # whose own imports the finder must not see
    _adopt_environment()
    # Who listens to JAX's log hears ours.
    logging.getLogger("amdjax").parent = logging.getLogger("jax")
    sys.meta_path.insert(0, _Finder())


def _adopt_environment() -> None:
    """Set the flags whose `JAX_…` variables are set and whose own variables are not."""
    for variable, text in os.environ.items():
        name = variable.removeprefix("JAX_").lower()
        if not variable.startswith("JAX_") or not is_flag(name):
            continue
        name, values = resolved(name)
        flag = FLAGS[name]
        if flag.effect and flag.env not in os.environ:
            config.update(name, values[text] if text in values else parsed(flag, text, variable))


_USAGE = "usage: python -m amdjax.as_jax [script.py | -m module | -c code] [arguments]"


def main(argv: Sequence[str]) -> None:
    """Run a program with the alias in place, as `python` itself would.

    Args:
      argv: a script, `-m` and a module or `-c` and code; then the program's own arguments.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(_USAGE)
        raise SystemExit(0 if argv else 2)
    if argv[0] in ("-m", "-c") and len(argv) < 2:
        raise SystemExit(f"{argv[0]} needs a value\n{_USAGE}")
    if argv[0] == "-m":
        sys.argv = [argv[1], *argv[2:]]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        main_module = types.ModuleType("__main__")
        sys.modules["__main__"] = main_module
        exec(compile(argv[1], "<string>", "exec"), main_module.__dict__)
    else:
        sys.argv = list(argv)
        sys.path[0] = str(pathlib.Path(argv[0]).resolve().parent)
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    # Of this module there must be one only, also for a program that imports it.
    from amdjax import as_jax

    as_jax.main(sys.argv[1:])
else:
    install()
