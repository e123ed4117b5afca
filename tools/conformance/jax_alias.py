"""Makes `import jax` mean amdjax in a process that runs JAX's own tests.

Modules are those of the product's alias, `amdjax.as_jax`; besides, absent names do not end the
collection of a file (`missing`), and what JAX's test utilities take from private modules is there
(`internals`). The test utilities themselves, JAX's NumPy reference, and libraries written on JAX's
public interface, are JAX's own files, executed against the alias.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from missing import OutOfScope

JAX_FOLDER = importlib.machinery.PathFinder.find_spec("jax").submodule_search_locations[0]

import lenient  # noqa: E402
from internals import FRONTS  # noqa: E402
from lenient import Lenient  # noqa: E402

import amdjax.as_jax  # noqa: E402

EXECUTED = {
    "jax._src.test_util", "jax._src.public_test_util", "jax._src.test_warning_util",
    "jax._src.test_loader", "jax._src.lax_reference", "jax._src.internal_test_util",
    "jax._src.internal_test_util.lax_test_util", "jax._src.util", "jax.test_util",
    "jax.experimental.sparse.test_util",
}  # fmt: skip
"""Modules that are JAX's own files."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        if fullname in EXECUTED:
            file = os.path.join(JAX_FOLDER, *fullname.split(".")[1:])
            package = os.path.isdir(file)
            return importlib.util.spec_from_file_location(
                fullname,
                os.path.join(file, "__init__.py") if package else f"{file}.py",
                submodule_search_locations=[] if package else None,
            )
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = _module(fullname)
        return spec if spec.loader_state is not None else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return spec.loader_state

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def own_module(name: str) -> types.ModuleType | None:
    """The module that amdjax has, with what is absent in it; None if there is none."""
    if name in FRONTS:
        return FRONTS[name](name)
    own = amdjax.as_jax.module_for(name)
    return None if own is None else Lenient(name, [own])


def _module(name: str) -> types.ModuleType | None:
    found = own_module(name)
    if found is not None:
        return found
    # Such modules are imported at the head of test files; what is used of them is absent.
    private = name.startswith(("jax._src.", "jaxlib."))
    return Lenient(name) if private or exists_in_jax(name) else None


def exists_in_jax(name: str) -> bool:
    """Whether JAX has a module of this name."""
    place = os.path.join(JAX_FOLDER, *name.split(".")[1:])
    return os.path.isfile(f"{place}.py") or os.path.isdir(place)


def _known(name: str) -> bool:
    """Whether there is more of a module than its name."""
    if name in EXECUTED or own_module(name) is not None:
        return True
    return name.count(".") == 2 and name.startswith("jax._src.") and exists_in_jax(name)


lenient.known = _known


def _allow_equal_names() -> None:
    """Functions that are one here share `__name__`, and with it the names of generated tests."""
    from absl.testing import parameterized

    original = parameterized._update_class_dict_for_param_test_case

    def update(test_class_name: Any, dct: Any, reprs: Any, name: Any, iterator: Any) -> Any:
        def unique() -> Iterator[Any]:
            seen: set[str] = set()
            for f in iterator:
                renamed = getattr(f, "__x_use_name__", False)
                while renamed and (f.__name__ in seen or f.__name__ in dct):
                    f.__name__ += "_"
                seen.add(f.__name__)
                yield f

        return original(test_class_name, dct, reprs, name, unique())

    parameterized._update_class_dict_for_param_test_case = update


_COUNTS = "out of scope: counts of XLA's caches and compiles"


@contextlib.contextmanager
def _uncounted(*args: Any, **kwargs: Any) -> Iterator[Any]:
    def count(*_: Any) -> None:
        raise OutOfScope(_COUNTS)

    yield count


@contextlib.contextmanager
def _then_skipped(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield
    raise OutOfScope(_COUNTS)


def _cache_misses(self: Any, func: Any, **kwargs: Any) -> None:
    func()
    raise OutOfScope(_COUNTS)


def install() -> None:
    """Put the alias in place; JAX must not have been imported."""
    assert "jax" not in sys.modules, "jax is already imported"
    sys.meta_path.insert(0, _Finder())
    _allow_equal_names()
    utilities = importlib.import_module("jax._src.test_util")
    for name in [n for n in vars(utilities) if n.startswith("count_")] + ["collect_lowered_jaxprs"]:
        setattr(utilities, name, _uncounted)
    utilities.assert_num_jit_and_pmap_compilations = _then_skipped
    utilities.JaxTestCase.assertCacheMisses = _cache_misses


install()
