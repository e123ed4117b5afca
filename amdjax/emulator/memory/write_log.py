"""Native code that remembers what waves stored since their last barrier.

The shadow of an allocation holds 1 for a byte that was written, or a tag that says which wave of
which worker did it just now. The places of tags are logged, so that a barrier, or the end of the
workgroup, can make ones of them. A log that is full forgets early, which hides races but makes
none up.
"""

from __future__ import annotations

from amdjax.codegen.llvm import I8, I64, PTR, Function, Module, Type, Value, const
from amdjax.emulator import state

LOG, FORGET = "amdjax_emulator_log", "amdjax_emulator_forget"
CAPACITY = 1 << 14
_ENTRY = 16
_VOID = Type("void")


def _word(f: Function, context: Value, offset: int) -> Value:
    return f.gep(context, offset, I8)


def write_forget(module: Module) -> Function:
    """Add `void forget(context)`: every tag that was logged becomes 1."""
    f = module.function(FORGET, [("context", PTR)], _VOID, attributes="nounwind")
    (context,) = f.args
    module.declarations["memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    log, place = f.load(PTR, _word(f, context, state.LOG), 8), _word(f, context, state.LOG_COUNT)

    def clear(index: Value, _: list[Value]) -> list[Value]:
        entry = f.gep(log, f.mul(index, const(I64, _ENTRY)), I8)
        start, size = f.load(PTR, entry, 8), f.load(I64, f.gep(entry, 8, I8), 8)
        f.emit(f"call void @llvm.memset.p0.i64({start}, i8 1, {size}, i1 false)")
        return []

    f.loop(const(I64, 0), f.load(I64, place, 8), 1, [], clear)
    f.store(const(I64, 0), place, 8)
    f.ret()
    return f


def write_log(module: Module) -> Function:
    """Add `void log(context, place, size)`."""
    arguments = [("context", PTR), ("place", PTR), ("size", I64)]
    f = module.function(LOG, arguments, _VOID, attributes="nounwind")
    context, place, size = f.args
    counter = _word(f, context, state.LOG_COUNT)

    def forget() -> list[Value]:
        f.call(FORGET, _VOID, context, declare=False)
        return []

    f.if_(f.icmp("eq", f.load(I64, counter, 8), const(I64, CAPACITY)), forget)
    count = f.load(I64, counter, 8)
    entry = f.gep(
        f.load(PTR, _word(f, context, state.LOG), 8), f.mul(count, const(I64, _ENTRY)), I8
    )
    f.store(place, entry, 8)
    f.store(size, f.gep(entry, 8, I8), 8)
    f.store(f.add(count, const(I64, 1)), counter, 8)
    f.ret()
    return f
