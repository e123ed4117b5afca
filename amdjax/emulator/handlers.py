"""Handlers as machine code: written when first needed, kept in the compile cache."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from amdjax.codegen.engine import Library, engine
from amdjax.codegen.llvm import I1, I32, Value, const
from amdjax.codegen.restricted import Source
from amdjax.emulator import driver, state, trace
from amdjax.emulator.builder import Lanes, Variant, new_handler
from amdjax.emulator.driver import RUN, TRACED, TURN
from amdjax.emulator.memory import scalar_memory, statistics, write_log
from amdjax.emulator.memory.vector_memory import FIND, NOTE
from amdjax.emulator.memory.write_log import LOG
from amdjax.emulator.write import write_handler
from amdjax.runtime.cache import compile_cached

# LLVM calls this by name where a host rounds to bfloat by no instruction: atomic additions do.
_ROUND = """
define bfloat @amdjax_round_to_bfloat(float %x) {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %high, 64
  %nan = fcmp uno float %x, 0.0
  %chosen = select i1 %nan, i32 %quiet, i32 %rounded
  %short = trunc i32 %chosen to i16
  %y = bitcast i16 %short to bfloat
  ret bfloat %y
}
"""


class Handlers:
    """Addresses of handlers by variant, and of the driver's functions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[Variant, int] = {}
        self._libraries: list[Library] = []
        self._drivers: dict[str, int] = {}

    def driver(self, name: str = RUN) -> int:
        """Address of `i32 run_groups(ptr launch)`, of `run_turn`, or of one that traces."""
        with self._lock:
            if not self._drivers:
                self._load_support()
            if name not in self._drivers:
                self._load_tracing()
            return self._drivers[name]

    def addresses(self, variants: Iterable[Variant]) -> dict[Variant, int]:
        """Handlers of all `variants`, compiling those not met before."""
        with self._lock:
            if not self._drivers:
                self._load_support()
            missing = [v for v in dict.fromkeys(variants) if v not in self._addresses]
            if missing:
                self._compile(missing)
            return self._addresses

    def _compile(self, variants: list[Variant]) -> None:
        names = [_symbol(v) for v in variants]
        texts = [handler_text(v, name) for v, name in zip(variants, names)]
        library = engine().load(compile_cached(texts, opt=2), names)
        self._libraries.append(library)
        self._addresses |= {v: library[name] for v, name in zip(variants, names)}

    def _load_support(self) -> None:
        names = [FIND, NOTE, LOG, RUN, TURN]
        library = engine().load(compile_cached([_support(traced=False)], opt=2), names)
        rounding = engine().load(compile_cached([_ROUND], opt=2), ["amdjax_round_to_bfloat"])
        self._libraries += [library, rounding]
        engine().define({name: library[name] for name in names[:3]})
        engine().define({"__truncsfbf2": rounding["amdjax_round_to_bfloat"]})
        self._drivers = {name: library[name] for name in (RUN, TURN)}

    def _load_tracing(self) -> None:
        """What is wanted by few."""
        library = engine().load(compile_cached([_support(traced=True)], opt=2), [RUN, TURN])
        self._libraries.append(library)
        self._drivers |= {traced: library[name] for name, traced in TRACED.items()}


def _support(traced: bool) -> Source:
    """The driver, and what handlers call; or the driver that traces, and what it calls."""
    parts = [trace.SOURCE, write_log.FORGET, driver.SOURCE]
    if not traced:
        parts += [write_log.SOURCE, scalar_memory.SOURCE, statistics.SOURCE]
    numbers = {
        name: value
        for module in (state, driver)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int)
    }
    statuses = {status.name: const(I32, status) for status in state.Status}
    others: dict[str, Value | int] = {
        "CAPACITY": write_log.CAPACITY,
        "LANES": 64,
        "TRACED": const(I1, traced),
    }
    constants: dict[str, Value | int] = {**numbers, **trace.MARKS, **statuses, **others}
    return Source("\n".join(parts), constants, {}, (), "nounwind")


HANDLERS = Handlers()


def _symbol(variant: Variant) -> str:
    digest = hashlib.sha256(repr(variant).encode()).hexdigest()[:24]
    return f"amdjax_emulator_{digest}"


def handler_text(variant: Variant, name: str = "handler") -> str:
    """LLVM IR of one handler."""
    module, f = new_handler(name)
    write_handler(Lanes(f, variant))
    return str(module)
