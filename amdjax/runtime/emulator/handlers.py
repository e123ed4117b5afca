"""Handlers as machine code: written when first needed, kept in the compile cache."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

from amdjax.codegen.engine import Library, engine
from amdjax.codegen.llvm import I32, I64, PTR, Function, Module, Type, Value, const
from amdjax.runtime.cache import compile_cached
from amdjax.runtime.emulator import access, state
from amdjax.runtime.emulator.builder import Lanes, Variant, new_handler
from amdjax.runtime.emulator.lower import write_handler

_RUN = "amdjax_emulator_run_groups"

# Words of the launch block that the driver reads.
(STATES, STATE_BYTES, WAVES, TEMPLATE, LDS_MEMORY, LDS_BYTES, GRID_X, GRID_Y, FIRST, LAST,
 ID_X, ID_Y, ID_Z, FAULTED, LAUNCH_WORDS) = range(15)  # fmt: skip


class Handlers:
    """Addresses of handlers by variant, and of the driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[Variant, int] = {}
        self._libraries: list[Library] = []
        self._driver = 0

    @property
    def driver(self) -> int:
        """Address of `i32 run_groups(ptr launch)`."""
        with self._lock:
            if not self._driver:
                self._load_support()
            return self._driver

    def addresses(self, variants: Iterable[Variant]) -> dict[Variant, int]:
        """Handlers of all `variants`, compiling those not met before."""
        with self._lock:
            if not self._driver:
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
        module = Module()
        access.find_function(module)
        _driver_function(module)
        library = engine().load(compile_cached([str(module)], opt=2), [access.FIND, _RUN])
        self._libraries.append(library)
        engine().define({access.FIND: library[access.FIND]})
        self._driver = library[_RUN]


HANDLERS = Handlers()


def _symbol(variant: Variant) -> str:
    digest = hashlib.sha256(repr(variant).encode()).hexdigest()[:24]
    return f"amdjax_emulator_{digest}"


def handler_text(variant: Variant, name: str = "handler") -> str:
    """LLVM IR of one handler."""
    module, f = new_handler(name)
    write_handler(Lanes(f, variant))
    return str(module)


def _run_wave(f: Function, wave: Value) -> Value:
    """Run records until one stops the wave; returns the status."""
    at = lambda base, offset: f.gep(base, offset, Type("i8"))
    f.store(const(I32, 0), at(wave, state.STATUS), 4)
    first = f.load(PTR, at(wave, state.PC), 8)

    def step(carried: list[Value]) -> list[Value]:
        (record,) = carried
        count = at(record, state.COUNT)
        f.store(f.add(f.load(I64, count, 8), const(I64, 1)), count, 8)
        handler = f.load(PTR, at(record, state.HANDLER), 8)
        return [f.call_pointer(handler, PTR, wave, record)]

    f.while_loop([first], lambda c: f.icmp("ne", c[0], Value(PTR, "null")), step)
    return f.load(I32, at(wave, state.STATUS), 4)


def _driver_function(module: Module) -> None:
    """Run workgroups FIRST to LAST, each wave from barrier to barrier."""
    f = module.function(_RUN, [("launch", PTR)], I32, attributes="nounwind")
    (launch,) = f.args
    word = lambda index: f.load(I64, f.gep(launch, index, I64), 8)
    pointer = lambda index: f.load(PTR, f.gep(launch, index, I64), 8)
    byte = Type("i8")
    states, stride, waves = pointer(STATES), word(STATE_BYTES), word(WAVES)
    grid_x, grid_y = word(GRID_X), word(GRID_Y)
    zero, one = const(I64, 0), const(I64, 1)
    ended, barrier = (const(I32, int(s)) for s in (state.Status.ENDED, state.Status.BARRIER))
    for name in ("memcpy.p0.p0.i64", "memset.p0.i64"):
        second = "ptr" if "cpy" in name else "i8"
        module.declarations[name] = f"declare void @llvm.{name}(ptr, {second}, i64, i1)"

    def group(index: Value, _: list[Value]) -> list[Value]:
        size = f.mul(stride, waves)
        f.emit(f"call void @llvm.memcpy.p0.p0.i64({states}, {pointer(TEMPLATE)}, {size}, i1 false)")
        # What nothing wrote is recognisable.
        f.emit(f"call void @llvm.memset.p0.i64({pointer(LDS_MEMORY)}, i8 -52, {word(LDS_BYTES)}, "
               "i1 false)")  # fmt: skip
        rest = f.udiv(index, grid_x)
        ids = f.urem(index, grid_x), f.urem(rest, grid_y), f.udiv(rest, grid_y)

        def place(w: Value, _: list[Value]) -> list[Value]:
            wave = f.gep(states, f.mul(w, stride), byte)
            for slot, value in zip((ID_X, ID_Y, ID_Z), ids):
                f.store(f.cast("trunc", value, "i32"), f.gep(wave, word(slot), byte), 4)
            return []

        f.loop(zero, waves, 1, [], place)
        f.while_loop([one], lambda c: f.icmp("ne", c[0], zero), lambda c: turn())
        return []

    def turn() -> list[Value]:
        """One stretch of every wave that has not ended; returns how many are at a barrier."""
        return f.loop(zero, waves, 1, [zero], stretch)

    def stretch(w: Value, carried: list[Value]) -> list[Value]:
        wave = f.gep(states, f.mul(w, stride), byte)
        before = f.load(I32, f.gep(wave, state.STATUS, byte), 4)
        done = f.icmp("eq", before, ended)
        status = f.if_(done, lambda: [ended], lambda: [_run_wave(f, wave)])[0]
        bad, good = f.new_label("fault"), f.new_label("fine")
        f.cond_br(f.icmp("ugt", status, barrier), bad, good)
        f.start_block(bad)
        f.store(wave, f.gep(launch, FAULTED, I64), 8)
        f.ret(status)
        f.start_block(good)
        waiting = f.cast("zext", f.icmp("eq", status, barrier), "i64")
        return [f.add(carried[0], waiting)]

    f.loop(word(FIRST), word(LAST), 1, [], group)
    f.ret(const(I32, 0))
