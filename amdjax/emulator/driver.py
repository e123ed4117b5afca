"""The native driver: runs workgroups one after the other, every wave from barrier to barrier.

Workgroups that are resident together take turns: each runs until one of its waves sleeps.
"""

from __future__ import annotations

from amdjax.codegen.llvm import I1, I8, I32, I64, PTR, Function, Module, Type, Value, const
from amdjax.emulator import state, trace
from amdjax.emulator.memory.write_log import FORGET

RUN = "amdjax_emulator_run_groups"
TURN = "amdjax_emulator_run_turn"
#: The same with a trace of what waves do.
TRACED = {name: f"{name}_traced" for name in (RUN, TURN)}

# Words of the launch block. LDS_BYTES of LDS_MEMORY are set anew for each workgroup, and of the
# shadows WRITTEN and (at barriers too) RACES as many bytes as say so. A wave that runs LONGEST
# instructions without a barrier is taken not to end. Of a workgroup that takes turns: whether it
# has BEGUN, and whether a wave SLEPT when they last ran, so that the others' barrier still waits.
(STATES, STATE_BYTES, WAVES, TEMPLATE, LDS_MEMORY, LDS_BYTES, GRID_X, GRID_Y, FIRST, LAST,
 ID_X, ID_Y, ID_Z, FAULTED, WRITTEN, WRITTEN_BYTES, RACES, RACES_BYTES, ONE_BARRIER, GROUP,
 CONTEXT, LONGEST, BEGUN, SLEPT, APART, LAUNCH_WORDS) = range(26)  # fmt: skip

# What nothing wrote is recognizable.
_LDS_FILL = 0xCC


class _Driver:
    """Writes `i32 run_groups(ptr launch)` or `i32 run_turn(ptr launch)`."""

    def __init__(self, module: Module, name: str, traced: bool) -> None:
        self.traced, name = traced, TRACED[name] if traced else name
        self.f = module.function(name, [("launch", PTR)], I32, attributes="nounwind")
        (self.launch,) = self.f.args
        for used in ("memcpy.p0.p0.i64", "memset.p0.i64"):
            second = "ptr" if "cpy" in used else "i8"
            module.declarations[used] = f"declare void @llvm.{used}(ptr, {second}, i64, i1)"
        self.states, self.stride = self._pointer(STATES), self._word(STATE_BYTES)
        self.waves = self._word(WAVES)

    def _word(self, index: int) -> Value:
        return self.f.load(I64, self.f.gep(self.launch, index, I64), 8)

    def _pointer(self, index: int) -> Value:
        return self.f.load(PTR, self.f.gep(self.launch, index, I64), 8)

    def _fill(self, memory: int, nbytes: int, value: int) -> None:
        """Set a block whose address and size are words of the launch."""
        self.f.emit(
            f"call void @llvm.memset.p0.i64({self._pointer(memory)}, i8 {value}, "
            f"{self._word(nbytes)}, i1 false)"
        )

    def _wave(self, index: Value) -> Value:
        return self.f.gep(self.states, self.f.mul(index, self.stride), I8)

    def _set_up(self, index: Value) -> None:
        """Waves and LDS of a workgroup as they start."""
        f = self.f
        f.store(index, f.gep(self.launch, GROUP, I64), 8)
        f.store(const(I64, 0), f.gep(self.launch, APART, I64), 8)
        size = f.mul(self.stride, self.waves)
        template = self._pointer(TEMPLATE)
        f.emit(f"call void @llvm.memcpy.p0.p0.i64({self.states}, {template}, {size}, i1 false)")
        self._fill(LDS_MEMORY, LDS_BYTES, _LDS_FILL)
        self._fill(WRITTEN, WRITTEN_BYTES, 0)
        self._fill(RACES, RACES_BYTES, 0)
        grid_x, grid_y = self._word(GRID_X), self._word(GRID_Y)
        rest = f.udiv(index, grid_x)
        ids = f.urem(index, grid_x), f.urem(rest, grid_y), f.udiv(rest, grid_y)

        def place(w: Value, _: list[Value]) -> list[Value]:
            for slot, value in zip((ID_X, ID_Y, ID_Z), ids):
                at = f.gep(self._wave(w), self._word(slot), I8)
                # z may share a register with y, which is stored before it.
                f.store(f.cast("trunc", value, "i32"), at, 2)
            return []

        f.loop(const(I64, 0), self.waves, 1, [], place)

    def _run_wave(self, wave: Value) -> Value:
        """Run records until one stops the wave; returns the status."""
        f = self.f
        at = lambda base, offset: f.gep(base, offset, I8)
        f.store(const(I32, 0), at(wave, state.STATUS), 4)
        first = f.load(PTR, at(wave, state.PC), 8)

        longest, zero = self._word(LONGEST), const(I64, 0)
        context = self._pointer(CONTEXT)
        if self.traced:
            trace.push_wave(f, context, wave)

        def step(carried: list[Value]) -> list[Value]:
            record, left = carried
            count = at(record, state.COUNT)
            f.store(f.add(f.load(I64, count, 8), const(I64, 1)), count, 8)
            if self.traced:
                trace.push_record(f, context, record)
            handler = f.load(PTR, at(record, state.HANDLER), 8)
            following = f.call_pointer(handler, PTR, wave, record)
            return [following, f.sub(left, const(I64, 1))]

        def goes_on(carried: list[Value]) -> Value:
            record, left = carried
            return f.and_(f.icmp("ne", record, Value(PTR, "null")), f.icmp("ne", left, zero))

        last, _ = f.while_loop([first, longest], goes_on, step)

        def endless() -> list[Value]:
            f.store(last, at(wave, state.PC), 8)
            return [const(I32, int(state.Status.ENDLESS))]

        stopped = lambda: [f.load(I32, at(wave, state.STATUS), 4)]
        return f.if_(f.icmp("ne", last, Value(PTR, "null")), endless, stopped)[0]

    def _stop_if(self, bad: Value, wave: Value, status: Value) -> None:
        f = self.f
        stop, go = f.new_label("fault"), f.new_label("fine")
        f.cond_br(bad, stop, go)
        f.start_block(stop)
        self._forget_stores()
        f.store(wave, f.gep(self.launch, FAULTED, I64), 8)
        f.ret(status)
        f.start_block(go)

    def _forget_stores(self) -> None:
        self.f.call(FORGET, Type("void"), self._pointer(CONTEXT), declare=False)

    def _stretch(self, w: Value, carried: list[Value]) -> list[Value]:
        """Run a wave that has not ended and need not wait.

        Carries where waves of this turn wait, 0 for nowhere, whether they left stores behind,
        whether one sleeps, the last wave that waits, and whether one has ended.

        Every other workgroup goes through its waves backwards: a wave that overwrites what another
        reads is found when it comes first.
        """
        f = self.f
        odd = f.and_(self._word(GROUP), const(I64, 1))
        backwards = f.sub(f.sub(self.waves, const(I64, 1)), w)
        w = f.select(f.icmp("ne", odd, const(I64, 0)), backwards, w)
        wave, (place, unsettled, asleep, waits, ends) = self._wave(w), carried
        ended, barrier, sleeping = (
            const(I32, int(s))
            for s in (state.Status.ENDED, state.Status.BARRIER, state.Status.ASLEEP)
        )
        before = f.load(I32, f.gep(wave, state.STATUS, I8), 4)
        slept = f.icmp("ne", self._word(SLEPT), const(I64, 0))
        held = f.and_(slept, f.icmp("eq", before, barrier))
        stays = f.or_(held, f.icmp("eq", before, ended))
        status = f.if_(stays, lambda: [before], lambda: [self._run_wave(wave)])[0]
        sleeps = f.icmp("eq", status, sleeping)
        fault = f.and_(f.icmp("ugt", status, barrier), f.not_(sleeps))
        self._stop_if(fault, wave, status)
        asleep = f.or_(asleep, f.cast("zext", sleeps, "i64"))
        ends = f.or_(ends, f.icmp("eq", status, ended))

        def wait() -> list[Value]:
            mine = f.load(I64, f.gep(wave, state.PC, I8), 8)
            zero = const(I64, 0)
            differs = f.and_(f.icmp("ne", place, zero), f.icmp("ne", place, mine))
            apart = f.or_(self._word(APART), f.cast("zext", differs, "i64"))
            f.store(apart, f.gep(self.launch, APART, I64), 8)
            left = f.load(I32, f.gep(wave, state.UNSETTLED, I8), 4)
            return [mine, f.or_(unsettled, left), wave]

        goes_on = lambda: [place, unsettled, waits]
        place, unsettled, waits = f.if_(f.icmp("eq", status, barrier), wait, goes_on)
        return [place, unsettled, asleep, waits, ends]

    def _turn(self) -> tuple[Value, Value]:
        """One stretch of every wave; ended waves do not hold up the others' barrier.

        Returns where waves wait, 0 for nowhere, and whether one sleeps: then they go on waiting.
        """
        f, zero = self.f, const(I64, 0)
        start = [zero, const(I32, 0), zero, Value(PTR, "null"), const(I1, False)]
        place, unsettled, asleep, waits, ends = f.loop(zero, self.waves, 1, start, self._stretch)
        f.store(asleep, f.gep(self.launch, SLEPT, I64), 8)
        different = [self._word(word) for word in (ONE_BARRIER, APART)]
        uneven = f.and_(ends, f.icmp("ne", place, zero))
        for word in different:
            uneven = f.and_(uneven, f.icmp("ne", word, zero))
        self._stop_if(uneven, waits, const(I32, int(state.Status.DIVERGENT_BARRIER)))

        def forget() -> list[Value]:
            self._forget_stores()
            return []

        def complete() -> list[Value]:
            self._fill(RACES, RACES_BYTES, 0)
            f.if_(f.icmp("eq", unsettled, const(I32, 0)), forget)
            return []

        f.if_(f.icmp("eq", asleep, zero), complete)
        return place, asleep

    def write_groups(self) -> None:
        """All workgroups, one after the other; none of their waves sleeps."""
        f, zero = self.f, const(I64, 0)

        def group(index: Value, _: list[Value]) -> list[Value]:
            self._set_up(index)
            waits = lambda c: f.icmp("ne", c[0], zero)
            f.while_loop([const(I64, 1)], waits, lambda c: [self._turn()[0]])
            return []

        f.loop(self._word(FIRST), self._word(LAST), 1, [], group)
        f.ret(const(I32, 0))

    def write_turn(self) -> None:
        """The first workgroup until a wave of it sleeps, or to its end."""
        f, zero, one = self.f, const(I64, 0), const(I64, 1)

        def begin() -> list[Value]:
            self._set_up(self._word(FIRST))
            f.store(one, f.gep(self.launch, BEGUN, I64), 8)
            return []

        f.if_(f.icmp("eq", self._word(BEGUN), zero), begin)

        def goes_on(carried: list[Value]) -> Value:
            place, asleep = carried
            return f.and_(f.icmp("ne", place, zero), f.icmp("eq", asleep, zero))

        _, asleep = f.while_loop([one, zero], goes_on, lambda c: list(self._turn()))
        statuses = const(I32, int(state.Status.ASLEEP)), const(I32, int(state.Status.RUNNING))
        f.ret(f.select(f.icmp("ne", asleep, zero), *statuses))


def write_groups(module: Module, traced: bool = False) -> Function:
    """Add the function that runs workgroups one after the other."""
    driver = _Driver(module, RUN, traced)
    driver.write_groups()
    return driver.f


def write_turn(module: Module, traced: bool = False) -> Function:
    """Add the function that lets a workgroup have its turn."""
    driver = _Driver(module, TURN, traced)
    driver.write_turn()
    return driver.f
