"""Machine code for this computer: compile LLVM IR text, load objects, find symbols.

Helper processes compile for other machines as well.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import heapq
import itertools
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from amdjax.codegen import compile_worker
from amdjax.codegen.compile_worker import LLVM_LOCK, CompileError, Compiler, Machine
from amdjax.codegen.host import HostMachine, host

__all__ = [
    "CODEGEN_VERSION", "FUNCTION_ATTRIBUTES", "CompileError", "Engine", "HostMachine", "Library",
    "compile_ir", "compile_many", "engine", "host", "to_assembly",
]  # fmt: skip

# Part of the keys of measured results, and of kernels on disk, for which a digest of the sources
# stands too; raise it when the same text compiles to something else.
CODEGEN_VERSION = 60

# For every function of the CPU target. LLVM halves vectors on many AVX-512 machines if not told.
FUNCTION_ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


@cache
def _compiler() -> Compiler:
    return Compiler(_host_machine())


@cache
def _host_machine() -> Machine:
    machine = host()
    return Machine(machine.triple, machine.cpu, machine.features)


def compile_ir(text: str, *, opt: int = 2) -> bytes:
    """Compile LLVM IR text to a relocatable object for this machine.

    Args:
        text: a module; triple and data layout may be left out.
        opt: 0 (for code that runs once) to 4 (-O3); see `Compiler`.

    Raises:
        CompileError: LLVM rejects the text; the message shows where.
    """
    return _compiler().object_code(text, opt)


def to_assembly(text: str, *, opt: int = 2) -> str:
    """The assembly that `compile_ir` would encode."""
    return _compiler().assembly(text, opt)


class Library(dict[str, int]):
    """Addresses by name of one loaded object; the code goes when this object does."""

    __slots__ = ("_session", "_tracker")

    def __init__(self, names: Iterable[str], tracker: llvm.ResourceTracker, session: llvm.LLJIT):
        super().__init__((name, tracker[name]) for name in names)
        self._tracker: llvm.ResourceTracker | None = tracker
        self._session: llvm.LLJIT | None = session

    def close(self) -> None:
        """Unload now; the addresses are dead afterwards."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.close()
            self._session = None
        self.clear()


class Engine:
    """Loads object code into this process.

    Undefined symbols are looked up among those given to `define`, then in the process. LLVM
    keeps some kilobytes for each library it ever linked in a session, so sessions are replaced
    after a while; an old one goes with the last library in it.
    """

    _LOADS_PER_SESSION = 64

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._symbols: dict[str, int] = {}
        self._session: llvm.LLJIT | None = None
        self._loads = itertools.count()
        self._loads_left = 0

    def define(self, symbols: dict[str, int]) -> None:
        """Make addresses known under names to all objects loaded from now on."""
        self._symbols.update(symbols)

    def load(self, object_code: bytes | Sequence[bytes], names: Iterable[str]) -> Library:
        """Load an object and return the addresses of `names` in it.

        Several objects given at once are linked together: their functions have different names,
        may call each other, and load in less than half the time.

        Raises:
            RuntimeError: a symbol is undefined, or one of `names` is missing.
        """
        names = tuple(names)
        objects = [object_code] if isinstance(object_code, bytes) else object_code
        builder = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            builder.add_object_img(data)
        for symbol, address in self._symbols.items():
            if any(symbol.encode() in data for data in objects):
                builder.import_symbol(symbol, address)
        for name in names:
            builder.export_symbol(name)
        with self._lock:
            session = self._current_session()
            tracker = builder.link(session, f"amdjax{next(self._loads)}")
        return Library(names, tracker, session)

    def _current_session(self) -> llvm.LLJIT:
        if self._session is None or self._loads_left == 0:
            machine = _compiler().target_machine()
            self._session = llvm.create_lljit_compiler(machine, use_jit_link=True)
            self._loads_left = self._LOADS_PER_SESSION
        self._loads_left -= 1
        return self._session


_engine = Engine()


def engine() -> Engine:
    """The engine of this process."""
    return _engine


def _hold_llvm_lock_over_fork() -> None:
    """A child forked while another thread compiles would find llvmlite's lock taken for ever."""
    if not hasattr(os, "register_at_fork"):
        return

    def release() -> None:
        LLVM_LOCK.__exit__(None, None, None)

    enter = LLVM_LOCK.__enter__
    os.register_at_fork(before=enter, after_in_parent=release, after_in_child=release)


_hold_llvm_lock_over_fork()


# Compiling many modules. llvmlite admits one thread at a time, so others need other processes.

_WORKER_START_SECONDS = 0.08
_MAX_WORKERS = 8
_PIPE_BYTES = 1 << 20
_QUEUED_SECONDS = 0.03  # of work that a helper is given at once while a program is planned
_OTHER_MACHINES = 8.0  # what compiling for a GPU takes, compared with the same text for the host


def estimated_seconds(text: str) -> float:
    """What compiling `text` takes, roughly: a fixed part, then its length."""
    return 2e-3 + 0.7e-6 * len(text)


def compile_many(texts: Sequence[str], *, opt: int = 2) -> list[bytes]:
    """Compile several modules, with helper processes when that is worth their start.

    Raises:
        CompileError: for the first text that LLVM rejects.
    """
    workers = _worker_count(texts)
    if workers == 0:
        return [compile_ir(text, opt=opt) for text in texts]
    return _Batch(texts, opt).run(workers)


def _worker_count(texts: Sequence[str]) -> int:
    if len(texts) <= 8:
        return 0
    return _workers_for(sum(map(estimated_seconds, texts)))


def _workers_for(work: float) -> int:
    """How many helpers to employ for so many seconds of compiling."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    spare = min((usable or 1) - 1, _MAX_WORKERS)
    running = _workers.running()
    if running:
        return min(spare, max(running, int(work / _WORKER_START_SECONDS)))
    # Alone we would need `work`; helpers start contributing only after their start.
    return min(spare, int(work / _WORKER_START_SECONDS)) if work > 2 * _WORKER_START_SECONDS else 0


class Compilation:
    """Modules that helpers compile while the caller is still writing more of them.

    Args:
        opt: level, as for `compile_ir`.
        machine: what to compile for; this computer if None. Code generation for other machines may
            end its process over what it cannot do, so it happens in helpers alone.
    """

    def __init__(self, *, opt: int = 2, machine: Machine | None = None) -> None:
        self._batch = _Batch((), opt, open=True, machine=machine)
        self._seconds = self._expected = 0.0

    def expect(self, seconds: float) -> None:
        """Announce work to come."""
        self._expected += seconds

    def start(self, seconds: float) -> None:
        """Start the helpers for so many seconds of work, which are ready when it comes."""
        self._batch.employ(_workers_for(seconds))

    def add(self, text: str) -> None:
        """Take one more module."""
        self._seconds += estimated_seconds(text)
        self._batch.add(text)
        self._batch.employ(self._workers())

    def _workers(self) -> int:
        seconds = max(self._seconds, self._expected)
        if self._batch.machine is None:
            return _workers_for(seconds)
        return max(1, _workers_for(seconds * _OTHER_MACHINES))

    def finish(self) -> list[bytes]:
        """Object code of all modules in the order they were added.

        Raises:
            CompileError: for the first text that LLVM rejects.
        """
        return self._batch.run(self._batch.least_workers)

    def cancel(self) -> None:
        """Let go of the helpers; what they have not begun is not compiled."""
        self._batch.release()


_DEFINED = re.compile(r"^define [^@\n]*@([\w.$-]+)", re.MULTILINE)


class _Batch:
    """Modules to compile, here and by helpers; the longest ones first.

    No thread waits for helpers: one that needs Python's lock for every request and reply would get
    it some milliseconds late while the program is being planned. What helpers have made is taken,
    and they get more, whenever a module is added; each has one waiting behind that in its hands.

    Attributes:
      machine: as for `Compilation`.
    """

    def __init__(
        self, texts: Sequence[str], opt: int, *, open: bool = False, machine: Machine | None = None
    ) -> None:
        self.machine = machine
        self._texts = list(texts)
        self._results: list[bytes | None] = [None] * len(texts)
        self._todo = [(-len(text), index) for index, text in enumerate(texts)]  # a heap
        heapq.heapify(self._todo)
        self._open, self._opt = open, opt
        self._helpers: list[_Worker] = []
        self._employed = 0
        self._error: CompileError | None = None

    @property
    def least_workers(self) -> int:
        """Helpers without which nothing would be compiled."""
        return int(self.machine is not None and bool(self._texts))

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._results.append(None)
        self._return(len(self._texts) - 1)
        self._exchange()

    def employ(self, workers: int) -> None:
        """Have at least so many helpers."""
        while self._employed < workers:
            self._employed += 1
            helper = _workers_of(self.machine).acquire()
            if helper is not None:
                self._helpers.append(helper)
                self._supply(helper)

    def release(self) -> None:
        """What is not compiled by now is not wanted."""
        self._todo.clear()
        while self._helpers:
            helper = self._helpers.pop()
            if helper.tasks or helper.unsent:  # which an interrupt may have left half done
                helper.close()
            else:
                _workers_of(self.machine).release(helper)

    def run(self, workers: int) -> list[bytes]:
        """Object code of all modules, with so many helpers."""
        self._open = False
        self.employ(workers)
        try:
            while self._error is None and (self._todo or any(h.tasks for h in self._helpers)):
                is_here = self.machine is None or not self._helpers
                self._exchange(wait=not (self._todo and is_here))
                if self._todo and is_here:
                    self._compile_here(heapq.heappop(self._todo)[1])
        finally:
            self.release()
        if self._error is not None:
            raise self._error
        return [data for data in self._results if data is not None]

    def _compile_here(self, index: int) -> None:
        compiler = _compiler() if self.machine is None else Compiler(self.machine)
        try:
            self._results[index] = compiler.code(self._texts[index], self._opt)
        except CompileError as error:
            self._error = error

    def _return(self, index: int) -> None:
        heapq.heappush(self._todo, (-len(self._texts[index]), index))

    # Helpers

    def _exchange(self, *, wait: bool = False) -> None:
        """Take what helpers have made and give them more.

        Args:
          wait: until one has made something, if there is anything to make.
        """
        busy = [h for h in self._helpers if h.tasks]
        if wait and busy:
            poll = select.poll()  # which, unlike select, knows of any number of open files
            for helper in busy:
                poll.register(helper.replies, select.POLLIN)
                if helper.unsent:
                    poll.register(helper.requests, select.POLLOUT)
            poll.poll()
        for helper in busy:
            self._serve(helper)
        for helper in tuple(self._helpers):
            self._supply(helper)

    def _serve(self, helper: _Worker) -> None:
        """Take what a helper has made; it may have died."""
        try:
            helper.send()
            for index, data in helper.receive():
                self._results[index] = data
        except CompileError as error:
            self._error = error
        except (OSError, EOFError):
            self._drop(helper)

    def _supply(self, helper: _Worker) -> None:
        """Give a helper what it needs until the next exchange."""
        while self._todo and self._error is None and self._has_room(helper):
            index = heapq.heappop(self._todo)[1]
            try:
                helper.request(index, self._texts[index], self._opt)
            except OSError:
                self._drop(helper)
                return

    def _has_room(self, helper: _Worker) -> bool:
        tasks = helper.tasks
        if not tasks:
            return True
        if not self._open and (self.machine or len(self._todo) <= len(self._helpers)):
            return False  # another process would begin it earlier
        queued = sum(estimated_seconds(self._texts[i]) for i in tasks) if len(tasks) > 1 else 0
        return helper.answered and queued < _QUEUED_SECONDS

    def _drop(self, helper: _Worker) -> None:
        """What a helper had in hand when it died is compiled here or by another one."""
        self._helpers.remove(helper)
        tasks = tuple(helper.tasks)
        helper.close()
        if self.machine is not None and tasks and helper.process.returncode:
            name = _DEFINED.search(self._texts[tasks[0]])
            where = f"kernel {name[1]}: " if name else ""
            self._error = CompileError(where + helper.last_words())
            return
        for index in tasks:
            self._return(index)
        if self.machine is not None:
            self._employed -= 1
            self.employ(self._employed + 1)


class _Worker:
    """One helper process, for this computer or for another machine.

    Attributes:
      requests: the pipe to it.
      replies: the pipe from it.
      tasks: numbers of the requests that it has not replied to, in their order.
      unsent: what its pipe had no room for.
      answered: whether it has replied to anything, so that it is known to run.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine
        #: What LLVM says when it gives up goes here; for this computer it does not.
        self.errors = tempfile.TemporaryFile() if machine else None  # noqa: SIM115
        self.said = b""
        machine = machine or _host_machine()
        # -I -S: neither the user's environment nor site-packages' start-up files take part, hence
        # the folder that holds llvmlite goes along.
        start = (
            "import runpy, sys; script = sys.argv[1]; sys.path.append(sys.argv[2]); "
            "runpy.run_path(script, run_name='__main__')"
        )
        folder = str(Path(llvm.__file__).parents[2])
        arguments = [compile_worker.__file__, folder, *machine]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", start, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors or subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.requests, self.replies = self.process.stdin, self.process.stdout
        for pipe in (self.requests, self.replies):
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError):  # room for several modules, where it can be told
                fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", -1), _PIPE_BYTES)
        self.tasks: deque[int] = deque()
        self.unsent, self._received = b"", bytearray()
        self.answered = False
        self.owner = os.getpid()

    def request(self, number: int, text: str, opt: int) -> None:
        """Have a module compiled, behind those it was asked for before."""
        data = text.encode()
        self.unsent += compile_worker.REQUEST.pack(opt, len(data)) + data
        self.tasks.append(number)
        self.send()

    def send(self) -> None:
        """Pass on what the pipe has room for."""
        while self.unsent and (count := self.requests.write(self.unsent)) is not None:
            self.unsent = self.unsent[count:]

    def receive(self) -> Iterator[tuple[int, bytes]]:
        """What it has made by now, with the numbers of the requests.

        Raises:
            CompileError: LLVM rejected the next text.
            EOFError: the process has ended.
        """
        while (data := self.replies.read(1 << 16)) is not None:
            if not data:
                raise EOFError
            self._received += data
        header, received = compile_worker.REPLY.size, self._received
        while len(received) >= header:
            status, size = compile_worker.REPLY.unpack_from(received)
            if len(received) < header + size:
                return
            reply = bytes(received[header : header + size])
            del received[: header + size]
            number, self.answered = self.tasks.popleft(), True
            if status:
                raise CompileError(reply.decode(errors="replace"))
            yield number, reply

    def last_words(self) -> str:
        """Why the process died; known once it is closed."""
        lines = self.said.decode(errors="replace").splitlines()
        reason = [line for line in lines if "error" in line.lower()] or lines[-1:]
        return "\n".join(reason) or f"code generation died ({self.process.returncode})"

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.owner == os.getpid():
            # A helper that LLVM ended is left its status; one that is alive has nothing to say.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0 if self.machine is None else 1)
            self.process.kill()
            self.process.wait()
            if self.errors is not None:
                self.errors.seek(0)
                self.said = self.errors.read()
        if self.errors is not None:
            self.errors.close()


class _Workers:
    """Idle helpers for a machine; each ends by itself after a silent while.

    Threads share the list without a lock, which a fork might leave taken: every access is one
    that Python makes atomic, so that a helper is never handed out twice.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine
        self._idle: list[_Worker] = []

    def running(self) -> int:
        return sum([worker.alive for worker in tuple(self._idle)])

    def acquire(self) -> _Worker | None:
        """An idle helper or a new one; None when none can be started."""
        with contextlib.suppress(IndexError):
            while True:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.close()
        if not sys.executable or not os.path.exists(compile_worker.__file__):
            return None
        with contextlib.suppress(OSError):
            return _Worker() if self.machine is None else _Worker(self.machine)
        return None

    def release(self, worker: _Worker) -> None:
        self._idle.append(worker)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


_workers = _Workers()
_workers_by_machine: dict[Machine, _Workers] = {}
atexit.register(_workers.close)


def _workers_of(machine: Machine | None) -> _Workers:
    """The helpers for a machine."""
    if machine is None:
        return _workers
    found = _workers_by_machine.get(machine)
    if found is None:
        found = _workers_by_machine.setdefault(machine, _Workers(machine))
        atexit.register(found.close)
    return found
