import ctypes
import gc
import os
import select
import signal
import threading
import time

import pytest

from amdjax.codegen import compile_worker, engine as E
from tests.support.native_helpers import resident_bytes

SQUARE = "define i64 @{name}(i64 %x) nounwind {{\n  %y = mul i64 %x, %x\n  ret i64 %y\n}}\n"


def square(name="square"):
    return SQUARE.format(name=name)


def call(address, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


def test_host():
    machine = E.host()
    assert machine.vector_bits in (128, 256, 512)
    assert 8 << 10 <= machine.l1d_bytes <= machine.l2_bytes <= max(machine.l3_bytes, 1 << 20)
    assert 1 <= machine.physical_cores <= machine.logical_cores
    assert not machine.has("no-such-feature")
    assert E.host() is machine


@pytest.mark.parametrize("opt", range(compile_worker.MAX_LEVEL + 1))
def test_compile_load_run(opt):
    library = E.engine().load(E.compile_ir(square(), opt=opt), ["square"])
    assert call(library["square"], 12) == 144


def test_assembly():
    assert "square:" in E.to_assembly(square())


def test_loops_of_functions_that_say_so_keep_their_addresses():
    """The option is the process's; functions that do not ask for it get what they always got."""

    def loop(attribute):
        return f"""define void @f(ptr %x, i64 %n, i64 %pitch) {attribute} {{
          entry: br label %loop
          loop:
            %i = phi i64 [0, %entry], [%next, %loop]
            %at = mul i64 %i, %pitch
            %p = getelementptr float, ptr %x, i64 %at
            store float 1.0, ptr %p
            %next = add i64 %i, 1
            %more = icmp slt i64 %next, %n
            br i1 %more, label %loop, label %done
          done: ret void
        }}"""

    before, without, after = (
        E.to_assembly(loop(a)) for a in ("", compile_worker.NO_STRENGTH_REDUCTION, "")
    )
    assert before == after and "imul" not in before and "imul" in without


def test_functions_that_run_once_are_compiled_at_level_0():
    def add(attribute):
        return f"""define i64 @f(i64 %x) {attribute} {{
          %y = add i64 %x, 1
          %z = add i64 %y, 1
          ret i64 %z
        }}"""

    quick = E.to_assembly(add(compile_worker.RUNS_ONCE))
    assert quick == E.to_assembly(add(""), opt=0) != E.to_assembly(add(""))


def test_bad_text_shows_the_line():
    with pytest.raises(E.CompileError, match=r">\s+2    %y = mul i32 %x, %x"):
        E.compile_ir(square().replace("mul i64", "mul i32"))


def test_invalid_module_is_refused():
    twice = "define void @f() {\na:\n  br label %b\nb:\n  %x = add i32 %y, 1\n"
    twice += "  %y = add i32 %x, 1\n  ret void\n}\n"
    with pytest.raises(E.CompileError):
        E.compile_ir(twice)


def test_symbols_of_process_and_engine():
    text = (
        "declare double @pow(double, double)\ndeclare i64 @my_function(i64)\n"
        "define i64 @f(i64 %x) nounwind {\n  %d = sitofp i64 %x to double\n"
        "  %p = call double @pow(double %d, double 3.0)\n  %i = fptosi double %p to i64\n"
        "  %r = call i64 @my_function(i64 %i)\n  ret i64 %r\n}\n"
    )
    engine = E.Engine()
    base = engine.load(E.compile_ir(square("my_function")), ["my_function"])
    engine.define(dict(base))
    library = engine.load(E.compile_ir(text), ["f"])
    assert call(library["f"], 3) == 27**2


def test_undefined_symbols_and_names():
    text = "declare i64 @nowhere_to_be_found()\ndefine i64 @f(i64 %x) {\n"
    text += "  %r = call i64 @nowhere_to_be_found()\n  ret i64 %r\n}\n"
    with pytest.raises(RuntimeError, match="symbols"):
        E.engine().load(E.compile_ir(text), ["f"])
    with pytest.raises(RuntimeError, match="absent"):
        E.engine().load(E.compile_ir(square()), ["absent"])


def test_equal_names_do_not_clash():
    cube = square().replace("ret i64 %y", "%z = mul i64 %y, %x\n  ret i64 %z")
    a = E.engine().load(E.compile_ir(square()), ["square"])
    b = E.engine().load(E.compile_ir(cube), ["square"])
    assert call(a["square"], 3) == 9 and call(b["square"], 3) == 27


def test_objects_loaded_together():
    calls = "declare i64 @f1(i64)\ndefine i64 @twice(i64 %x) nounwind {\n"
    calls += "  %y = call i64 @f1(i64 %x)\n  %z = add i64 %y, %y\n  ret i64 %z\n}\n"
    objects = [E.compile_ir(text) for text in (*texts(5), calls)]
    library = E.engine().load(objects, ["f0", "f4", "twice"])
    assert [call(library[name], 6) for name in ("f0", "f4", "twice")] == [36, 36, 72]


def test_loads_leave_no_memory():
    data = E.compile_ir(square())
    engine = E.Engine()

    def load(times):
        for _ in range(times):
            engine.load(data, ["square"])
        gc.collect()
        return resident_bytes()

    before = load(500)
    assert load(10_000) - before < 8 << 20


def test_library_survives_its_engine():
    engine = E.Engine()
    data = E.compile_ir(square())
    kept = [engine.load(data, ["square"]) for _ in range(200)][::50]
    del engine
    gc.collect()
    assert [call(library["square"], 5) for library in kept] == [25] * 4
    for library in kept:
        library.close()
        assert not library


def test_loading_from_several_threads():
    data = E.compile_ir(square())
    results = []

    def work():
        for i in range(100):
            library = E.engine().load(data, ["square"])
            results.append(call(library["square"], i) == i * i)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 400 and all(results)


@pytest.fixture
def helpers(monkeypatch):
    """Helper processes whatever the amount of work; a set of them for this test only."""
    workers = E._Workers()
    monkeypatch.setattr(E, "_workers", workers)
    monkeypatch.setattr(E, "_worker_count", lambda texts: 2)
    yield workers
    workers.close()


def texts(n):
    return [square(f"f{i}") for i in range(n)]


def test_compile_many_equals_compile_ir(helpers):
    expected = [E.compile_ir(text) for text in texts(30)]
    # Without the parent's part, so that the helpers do it all.
    batch = E._Batch(texts(30), 2, open=True)
    batch.employ(2)
    while None in batch._results:
        batch._exchange(wait=True)
    assert batch.run(2) == expected
    assert helpers.running() == 2
    assert E.compile_many(texts(30)) == expected


def test_a_helper_that_dies_is_replaced(helpers):
    helpers.release(E._Worker())
    helpers.release(E._Worker())
    os.kill(helpers._idle[0].process.pid, signal.SIGKILL)
    expected = [E.compile_ir(text) for text in texts(40)]
    assert E.compile_many(texts(40)) == expected


def test_a_helper_that_stops_in_the_middle(helpers, monkeypatch):
    def fail(self):
        raise EOFError

    monkeypatch.setattr(E._Worker, "receive", fail)
    assert E.compile_many(texts(20)) == [E.compile_ir(text) for text in texts(20)]


def test_helpers_that_cannot_start(helpers, monkeypatch):
    monkeypatch.setattr(E.sys, "executable", "/nonexistent")
    assert len(E.compile_many(texts(20))) == 20


def test_compile_many_reports_errors(helpers):
    with pytest.raises(E.CompileError):
        E.compile_many([*texts(20), "nonsense"])
    worker = E._Worker()
    with pytest.raises(E.CompileError, match="expected top-level entity"):
        asked(worker, "nonsense")
    assert asked(worker, square()) == E.compile_ir(square())
    worker.close()


def asked(worker, text):
    """What a helper makes of a module, if it was asked for nothing else."""
    worker.request(0, text, 2)
    while True:
        select.select([worker.replies], [worker.requests] if worker.unsent else [], [], 20)
        worker.send()
        for _, data in worker.receive():
            return data


def test_modules_that_no_pipe_has_room_for(helpers):
    """Requests and replies pass in parts; those of equal length come in the order of adding."""
    numbers = ", ".join(f"i64 {n}" for n in range(1 << 17))
    data = f"@data = constant [{1 << 17} x i64] [{numbers}]\n"
    given = [data + square(), *texts(5), "; " + "x" * (3 << 20) + "\n" + square()]
    worker = E._Worker()
    assert asked(worker, given[0]) == E.compile_ir(given[0])
    assert len(E.compile_ir(given[0])) > 1 << 20
    helpers.release(worker)
    assert E.compile_many(given) == [E.compile_ir(text) for text in given]


def test_helpers_have_modules_in_their_queues(helpers, monkeypatch):
    monkeypatch.setattr(E, "_workers_for", lambda seconds: 1)
    batch = E._Batch((), 2, open=True)
    batch.employ(1)
    helper = batch._helpers[0]
    batch.add(square())
    batch.add(square())
    assert len(helper.tasks) == 1  # it may not have started
    while helper.tasks:
        batch._exchange(wait=True)
    for text in texts(100):
        batch.add(text)
        assert helper.tasks
    assert len(helper.tasks) > 1 and len(batch._todo) > 1  # others can take those
    assert batch.run(1) == [E.compile_ir(text) for text in (square(), square(), *texts(100))]


def test_helpers_compile_while_modules_are_added(helpers, monkeypatch):
    monkeypatch.setattr(E, "_workers_for", lambda seconds: 2)
    compilation = E.Compilation()
    compilation.expect(1.0)
    for text in texts(30):
        compilation.add(text)
    assert compilation.finish() == [E.compile_ir(text) for text in texts(30)]
    assert helpers.running() == 2


@pytest.mark.parametrize("end", ["finish", "cancel"])
def test_helpers_start_before_there_are_modules(helpers, monkeypatch, end):
    monkeypatch.setattr(E, "_workers_for", lambda seconds: int(seconds))
    compilation = E.Compilation()
    compilation.start(0.5)  # too little work for one
    assert not compilation._batch._helpers
    compilation.start(1.0)
    assert compilation._batch._helpers[0].alive
    assert getattr(compilation, end)() == ([] if end == "finish" else None)
    assert helpers.running() == 1  # it waits for the next program


def test_a_helper_serves_one_thread_at_a_time(monkeypatch):
    class Idle:
        alive = property(lambda self: time.sleep(1e-5) or True)  # lets other threads in

        def __init__(self):
            self.busy = threading.Lock()

    monkeypatch.setattr(E, "_Worker", Idle)
    workers, twice = E._Workers(), []

    def work():
        for _ in range(50):
            worker = workers.acquire()
            if not worker.busy.acquire(blocking=False):
                twice.append(worker)
            worker.busy.release()
            workers.release(worker)
            workers.running()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice
    assert len({id(w) for w in workers._idle}) == len(workers._idle)


def test_a_canceled_compilation_lets_its_helpers_go(helpers, monkeypatch):
    """But for one that has work: what it replies must not be taken for what is asked next."""
    monkeypatch.setattr(E, "_workers_for", lambda seconds: 2)
    compilation = E.Compilation()
    compilation.add(square("before"))
    busy, idle = compilation._batch._helpers
    compilation.cancel()
    assert helpers._idle == [idle] and not busy.alive
    compilation = E.Compilation()
    for text in texts(30):
        compilation.add(text)
    assert compilation.finish() == [E.compile_ir(text) for text in texts(30)]


def test_small_programs_start_no_helper(monkeypatch):
    monkeypatch.setattr(E, "_workers", E._Workers())  # those of other tests may still be running
    assert E._worker_count(texts(8)) == 0
    assert E._worker_count(texts(30)) == 0


def test_helper_ends_with_its_parent():
    """Its standard input ends when the parent dies, however it dies."""
    worker = E._Worker()
    assert asked(worker, square())
    worker.process.stdin.close()
    assert worker.process.wait(20) == 0
    worker.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_compiles():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            E.compile_ir(square())

    compiling = threading.Thread(target=work)
    compiling.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if E.compile_ir(square()) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        compiling.join()
