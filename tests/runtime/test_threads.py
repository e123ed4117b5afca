import ctypes
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from amdjax.core.config import config
from amdjax.runtime import environment, threads
from tests.support.native_helpers import library, nested, repeat, run_python


@pytest.fixture(autouse=True)
def restore_size():
    before = threads.num_threads()
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 64, 1001])
def test_every_task_runs_once(size, tasks):
    threads.set_num_threads(size)
    assert threads.num_threads() == size
    counts = np.zeros(tasks + 1, np.int64)
    for _ in range(20):
        threads.parallel_for(library()["add_one"], counts.ctypes.data, tasks)
    assert (counts[:tasks] == 20).all() and counts[tasks] == 0


def test_many_launches_in_a_row():
    counts = np.zeros(37, np.int64)
    repeat(counts, 20_000)
    assert (counts == 20_000).all()


def test_launches_between_sleeps():
    counts = np.zeros(64, np.int64)
    for i in range(60):
        repeat(counts, 3)
        time.sleep(i * 2e-5)
    assert (counts == 180).all()


def test_worker_indices_are_in_range():
    threads.set_num_threads(4)
    workers = np.full(100_000, -1, np.int64)
    threads.parallel_for(library()["mark"], workers.ctypes.data, workers.size)
    assert workers.min() >= 0 and workers.max() < 4


def test_work_is_shared():
    """Tasks that wait for each other can only finish if several threads run them."""
    threads.set_num_threads(3)
    barrier = threading.Barrier(3, timeout=20)
    arrived = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    def meet(_, begin, end, worker):
        assert end == begin + 1
        try:
            barrier.wait()
            arrived.append(worker)
        except threading.BrokenBarrierError:
            pass

    threads.parallel_for(ctypes.cast(meet, ctypes.c_void_p).value, 0, 3)
    assert sorted(arrived) == [0, 1, 2]


def test_nested_calls():
    threads.set_num_threads(4)
    counts = np.zeros(8 * 100, np.int64)
    for _ in range(200):
        nested(counts)
    assert (counts == 200).all()


def test_calls_from_many_python_threads():
    threads.set_num_threads(3)
    arrays = [np.zeros(50 + i, np.int64) for i in range(8)]
    callers = [threading.Thread(target=repeat, args=(a, 3000)) for a in arrays]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert all((a == 3000).all() for a in arrays)


def test_resizing_while_others_compute():
    stop = threading.Event()
    counts = np.zeros(16, np.int64)
    done = 0

    def work():
        nonlocal done
        while not stop.is_set():
            repeat(counts, 10)
            done += 10

    caller = threading.Thread(target=work)
    caller.start()
    for size in (1, 4, 2, 5, 3) * 4:
        threads.set_num_threads(size)
    stop.set()
    caller.join(10)
    assert (counts == done).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_pool_works_in_a_forked_child():
    threads.set_num_threads(4)
    repeat(np.zeros(100, np.int64), 100)  # threads exist now
    for _ in range(5):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            counts = np.zeros(100, np.int64)
            repeat(counts, 100)
            nested(counts[:96])
            os._exit(0 if (counts[:96] == 101).all() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    counts = np.zeros(100, np.int64)
    repeat(counts, 100)
    assert (counts == 100).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_computes():
    stop = threading.Event()

    def work():
        counts = np.zeros(64, np.int64)
        while not stop.is_set():
            repeat(counts, 100)

    caller = threading.Thread(target=work)
    caller.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                counts = np.zeros(64, np.int64)
                repeat(counts, 50)
                os._exit(0 if (counts == 50).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        caller.join()


USE = """
import numpy as np
from tests.support.native_helpers import repeat
from amdjax.runtime import threads
counts = np.zeros(100, np.int64)
repeat(counts, 1000)
assert (counts == 1000).all()
print(threads.num_threads())
"""


@pytest.mark.parametrize("size", ["1", "2", "8"])
def test_environment_sets_the_size(size):
    assert run_python(USE, AMDJAX_NUM_THREADS=size).split() == [size]


def test_interpreter_exits_while_threads_spin():
    started = time.monotonic()
    run_python(USE, AMDJAX_NUM_THREADS="3", AMDJAX_SPIN_US="2000000")
    assert time.monotonic() - started < 30


def test_interpreter_exits_while_a_daemon_thread_computes():
    code = USE + (
        "import threading, time\n"
        "def work():\n"
        "    while True: repeat(np.zeros(100, np.int64), 100)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.05)\n"
    )
    for _ in range(3):
        run_python(code, AMDJAX_NUM_THREADS="3")


def test_flag_changes_the_size():
    before = config.num_threads
    try:
        config.update("num_threads", 5)
        assert threads.num_threads() == 5
        config.update("num_threads", None)
        assert threads.num_threads() == environment.usable_cores()
    finally:
        config.update("num_threads", before)


def test_bad_sizes():
    with pytest.raises(ValueError, match="at least 1"):
        threads.set_num_threads(0)
    before = config.num_threads
    with pytest.raises(ValueError, match="num_threads takes 1 or more, got -1"):
        config.update("num_threads", -1)
    assert config.num_threads == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_affinity_limits_the_default():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert environment.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_more_threads_than_cores():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + USE
    assert run_python(code, AMDJAX_NUM_THREADS="8").split() == ["8"]


@pytest.mark.parametrize("system", ["linux", "darwin", "sunos"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_pool_is_valid_for_other_systems(system, machine):
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(str(threads.pool_source(system, machine)))
    module.verify()
    names = {f.name for f in module.functions if not f.is_declaration}
    assert {*threads.SYMBOLS, "amdjax_pool_stop", "amdjax_pool_reset"} <= names
    if sys.platform == system and machine == "x86_64":
        assert "worker" in names
