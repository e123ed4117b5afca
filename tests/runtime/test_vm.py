"""The machine that runs programs, instruction by instruction."""

import ctypes
import threading
from array import array

import numpy as np
import pytest

from amdjax.codegen.engine import compile_ir, engine
from amdjax.runtime import threads, vm
from tests.support.native_helpers import library


def at(slot, offset=0, counter=vm.ZERO, stride=0):
    """An operand."""
    return [slot, offset, counter, stride]


END = [vm.JUMP, "@end"]


def assemble(parts):
    """Words from instructions; `":name"` is a place, `"@name"` its position."""
    flat = [w for part in parts for w in (part if isinstance(part, list) else [part])]
    places, position = {}, 0
    for w in flat:
        if isinstance(w, str) and w.startswith(":"):
            places[w[1:]] = position
        else:
            position += 1
    words = [w for w in flat if not (isinstance(w, str) and w.startswith(":"))]
    return [places[w[1:]] if isinstance(w, str) else w for w in words]


def words_at(place, count):
    return list((ctypes.c_int64 * count).from_address(place))


def run(code, slots, most=8):
    """Run a program up to its `END`; returns its status and the slots there."""
    threads.initialize()
    final = []

    def note(place):
        final.extend(words_at(place, len(slots)))

    fn = id(note)
    shown = [at(vm.ZERO, 0, 2 + i, 1) for i in range(len(slots))]
    words = assemble([*code, ":end", vm.HOST, fn, len(slots), *shown, vm.HALT])
    program = array("q", vm.header(most, 2 + len(slots)) + words)
    call = array("q", [program.buffer_info()[0], 0, 0, *slots]).tobytes()
    return vm.run_program()(call), final


def address(x):
    return x.ctypes.data


def test_halt():
    assert run([vm.HALT], [5]) == (0, [])


def test_unknown_opcodes_end_the_program():
    assert run([99], [5]) == (0, [])


def test_set_add_repeat_count():
    code = [vm.SET, 2, 0, ":again", vm.ADD, 3, 5, vm.ADD, 2, 1, vm.REPEAT, 2, 7, "@again"]
    assert run(code, [99, 0]) == (0, [7, 35])


def test_swap_and_jump():
    code = [vm.JUMP, "@past", vm.SET, 2, 1, ":past", vm.SWAP, 2, 3]
    assert run(code, [10, 20]) == (0, [20, 10])


def test_addresses():
    code = [vm.ADDRESS, 2, at(3, 8), vm.ADDRESS, 4, at(3, 8, 5, 100)]
    assert run(code, [0, 1000, 0, 3])[1] == [1008, 1000, 1308, 3]


def test_copies_may_overlap():
    x = np.arange(10, dtype=np.uint8)
    run([vm.COPY, at(2, 2), at(2), 8], [address(x)])
    np.testing.assert_array_equal(x, [0, 1, 0, 1, 2, 3, 4, 5, 6, 7])


@pytest.mark.parametrize("flag,want", [(0, 2), (1, 1), (255, 1)])
def test_unless_reads_one_byte(flag, want):
    x = np.array([flag, 9], np.uint8)
    code = [vm.UNLESS, at(2), "@no", vm.SET, 3, 1, END, ":no", vm.SET, 3, 2]
    assert run(code, [address(x), 0])[1][1] == want


@pytest.mark.parametrize("index,want", [(-5, 0), (0, 0), (1, 1), (2, 2), (9, 2)])
def test_switch_clamps(index, want):
    x = np.array([index], np.int32)
    code = [vm.SWITCH, at(2), 3, "@0", "@1", "@2"]
    for k in range(3):
        code += [f":{k}", vm.SET, 3, k, END]
    assert run(code, [address(x), -1])[1][1] == want


ADDS = """
    define void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) {
    entry:
      %p = load ptr, ptr %args
      %second = getelementptr i64, ptr %args, i64 1
      %by = load i64, ptr %second
      br label %loop
    loop:
      %i = phi i64 [%begin, %entry], [%next, %loop]
      %q = getelementptr i64, ptr %p, i64 %i
      %old = load i64, ptr %q
      %new = add i64 %old, %by
      store i64 %new, ptr %q
      %next = add i64 %i, 1
      %more = icmp slt i64 %next, %end
      br i1 %more, label %loop, label %done
    done:
      ret void
    }
    """


@pytest.mark.parametrize("parallel", [0, 1])
def test_calls(parallel):
    """Kernels get the addresses of their operands and every program of the grid."""
    code = engine().load(compile_ir(ADDS), ["kernel"])
    x = np.arange(1000)
    run([vm.CALL, code["kernel"], 1000, parallel, 2, at(2), at(vm.ZERO, 5)], [address(x)])
    np.testing.assert_array_equal(x, np.arange(1000) + 5)
    assert library()  # the pool's own helpers still load beside it


@pytest.mark.parametrize("parallel", [0, 1])
@pytest.mark.parametrize("sizes", [(1,), (5, 1, 1, 300, 7), (1,) * 40, (1000, 999)])
def test_calls_of_several_kernels(parallel, sizes):
    """Each gets its own operands and its own programs, each of them once."""
    code = engine().load(compile_ir(ADDS), ["kernel"])
    arrays = [np.arange(n) for n in sizes]
    words = [vm.CALLS, sum(sizes), parallel, len(sizes)]
    for i, n in enumerate(sizes):
        words += [code["kernel"], n, 2, *at(2 + i), *at(vm.ZERO, 10 + i)]
    most = vm.operands_of_calls([2] * len(sizes))
    for _ in range(20):
        assert run([words], [address(x) for x in arrays], max(most, len(sizes)))[0] == 0
    for i, x in enumerate(arrays):
        np.testing.assert_array_equal(x, np.arange(sizes[i]) + 20 * (10 + i))


def test_calls_in_a_loop_advance_their_addresses():
    seen = []

    def note(place):
        seen.append(tuple(words_at(place, 2)))

    fn = id(note)
    code = [vm.SET, 2, 0, ":again", vm.HOST, fn, 2, at(3, 4, 2, 10), at(3, 0, 2, -1),
            vm.ADD, 2, 1, vm.REPEAT, 2, 3, "@again"]  # fmt: skip
    assert run(code, [0, 1000])[0] == 0
    assert seen == [(1004, 1000), (1014, 999), (1024, 998)]


def test_a_host_function_that_raises_ends_the_program():
    calls = []

    def fail(place):
        calls.append(1)
        raise KeyError("seven")

    with pytest.raises(KeyError, match="seven"):
        run([vm.HOST, id(fail), 0, vm.HOST, id(fail), 0], [1])
    assert calls == [1]


def test_the_interpreter_lock_is_free_while_a_program_runs():
    """A loop without an end, which another Python thread ends."""
    flag = np.ones(1, np.uint8)
    timer = threading.Timer(0.05, lambda: flag.fill(0))
    timer.start()
    assert run([":again", vm.UNLESS, at(2), "@end", vm.JUMP, "@again"], [address(flag)])[0] == 0


def test_a_program_may_run_in_several_threads_at_once():
    """Slots belong to a call: the program counts in its own."""
    from concurrent.futures import ThreadPoolExecutor

    def job(n):
        return run([vm.SET, 2, 0, ":again", vm.ADD, 2, 1, vm.REPEAT, 2, n, "@again"], [0])[1]

    with ThreadPoolExecutor(4) as pool:
        counts = range(20_000, 20_008)
        assert list(pool.map(job, counts)) == [[n] for n in counts]


def test_the_interpreter_is_compiled_once():
    assert vm.run_program() is vm.run_program()


def test_table_of_instructions_is_complete():
    from amdjax.jit.report import OPCODES

    assert [getattr(vm, name) for name in OPCODES] == list(range(len(OPCODES)))
    assert all(f"`{name}`" in vm.__doc__ for name in OPCODES)
