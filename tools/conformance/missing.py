"""Stands for names that amdjax lacks, so that one of them does not hide a whole file of tests.

While tests are collected such a name may be used in any way and yields another like it. Once tests
run, using it is an error of the test, or skips the test where the name is out of scope.
"""

from __future__ import annotations

import unittest
from typing import Any

OUT_OF_SCOPE = (
    "jax.export", "jax.distributed", "jax.lib", "jax.ffi", "jax.memory", "jax.cloud_tpu_init",
    "jax.device_put_sharded", "jax.device_put_replicated", "jax.collect_profile", "jax.tools",
    "jax.experimental.pallas", "jax.experimental.mosaic", "jax.experimental.hijax",
    "jax.experimental.compute_on", "jax.experimental.serialize_executable",
    "jax.experimental.sparse.transform", "jax.experimental.topologies",
    "jax.experimental.xla_metadata", "jax.experimental.jax2tf",
    "jax.experimental.colocated_python", "jax.experimental.custom_partitioning",
    "jax.experimental.roofline", "jax.experimental.buffer_callback", "jax.extend.mlir",
    "jax.extend.ifrt_programs", "jax.extend.lowering", "jax.extend.pallas", "jax.extend.xla",
)  # fmt: skip
"""Public modules and names that drive XLA, other compilers, or several processes."""


class OutOfScope(unittest.SkipTest):
    """The test reaches for a private part of JAX, or for something out of scope."""


class State:
    """Whether tests run; before, modules are imported and tests collected."""

    running = False


def absent(name: str) -> Exception:
    """What using an absent name means for a test."""
    if name.startswith(("jax._src", "jaxlib")):
        return OutOfScope(f"out of scope: {name}")
    if any(f"{name}.".startswith(f"{outside}.") for outside in OUT_OF_SCOPE):
        return OutOfScope(f"out of scope: {name}")
    return AttributeError(f"amdjax has no {name}")


class Missing:
    """A name that does not exist."""

    def __init__(self, name: str):
        self.__dict__["_name"] = name
        self.__dict__["__name__"] = self.__dict__["__qualname__"] = name.rpartition(".")[2]

    def _used(self, what: str = "") -> Missing:
        if State.running:
            raise absent(self._name)
        return Missing(self._name + what)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._used(f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._used()

    def __getitem__(self, key: Any) -> Any:
        # One element for those who iterate; with an `__iter__` it would be taken for a generator
        # of tests.
        if isinstance(key, int) and key > 0:
            raise IndexError(key)
        return self._used()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._used()

    def __len__(self) -> int:
        return 1

    def __add__(self, other: Any) -> Any:
        return self._used()

    __radd__ = __mul__ = __rmul__ = __add__

    def __instancecheck__(self, value: Any) -> bool:
        self._used()
        return False

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Base,)

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __enter__(self) -> Any:
        return self._used()

    def __exit__(self, *exc: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<missing {self._name}>"


class _Base:
    """The base of classes that derive from an absent one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if State.running:
            raise OutOfScope(f"out of scope: {cls.__name__}, derived from an internal class")
        return super().__new__(cls)
