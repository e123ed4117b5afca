"""JAX's flags: amdjax's, and those that only its test utilities have, which remember a value."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator
from typing import Any

from lenient import Lenient
from missing import Missing

from amdjax.core import config as own

ExplicitX64Mode = enum.StrEnum("ExplicitX64Mode", "WARN ERROR ALLOW")


class Remembered:
    """A flag that nothing but the tests reads."""

    def __init__(self, name: str, default: Any = None):
        self.name, self.value = name, default

    @contextlib.contextmanager
    def __call__(self, value: Any = True) -> Iterator[None]:
        before, self.value = self.value, value
        try:
            yield
        finally:
            self.value = before


_remembered: dict[str, Remembered] = {}


def flag(name: str, default: Any = None, *args: Any, **kwargs: Any) -> Remembered:
    """The remembered flag of a name."""
    return _remembered.setdefault(name.removeprefix("jax_"), Remembered(name, default))


def state(name: str) -> Any:
    """The context manager of a flag."""
    try:
        found, mapping = own.resolved(name)
    except AttributeError:
        return flag(name)
    manager = own.State(found)
    return (lambda value: manager(mapping.get(value, value))) if mapping else manager


def update(name: str, value: Any) -> None:
    """Set a flag."""
    try:
        own.config.update(name, value)
    except (AttributeError, NotImplementedError):
        flag(name).value = value


def read(name: str) -> Any:
    """The value of a flag."""
    try:
        return own.config.read(name)
    except AttributeError:
        return flag(name).value


class _States(dict):
    __missing__ = staticmethod(state)


class _Config:
    """`jax.config`."""

    values = property(lambda self: own.config.values)
    update, _read = staticmethod(update), staticmethod(read)
    parse_flags_with_absl = staticmethod(lambda: None)
    config_with_absl = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(own.config, name) if hasattr(own.config, name) else read(name)


config = _Config()


class ConfigModule(Lenient):
    """`jax._src.config`."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__dict__.update(
            config=config, config_states=_States(), update=update, _read=read, string_flag=flag,
            int_flag=flag, bool_flag=flag, ExplicitX64Mode=ExplicitX64Mode,
            bool_env=lambda name, default: os.getenv(name, str(default)).lower() in ("1", "true"),
            parse_flags_with_absl=lambda: None,
            EffortLevel=Missing("jax._src.config.EffortLevel"),
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(own, name) and name not in own.FLAGS:
            return getattr(own, name)
        return state(name)
