"""Text to callable addresses: the way of compiled programs into this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amdjax.codegen.engine import Library, engine
from amdjax.codegen.restricted import Source
from amdjax.runtime import threads
from amdjax.runtime.cache import compile_cached


def load(object_code: bytes | Sequence[bytes], names: Iterable[str]) -> Library:
    """Load object code that may use the thread pool (`threads.DECLARATIONS`) and libc."""
    threads.initialize()
    return engine().load(object_code, names)


def build(modules: Sequence[tuple[str | Source, Iterable[str]]], *, opt: int = 2) -> list[Library]:
    """Compile, or find in the cache, and load modules given as (text, names wanted from it)."""
    objects = compile_cached([text for text, _ in modules], opt=opt)
    return [load(data, names) for data, (_, names) in zip(objects, modules)]
