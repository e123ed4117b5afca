"""The thread pool's source, for each system and machine; `threads.py` says how it works."""

from __future__ import annotations

import re

from amdjax.codegen.engine import FUNCTION_ATTRIBUTES
from amdjax.codegen.llvm import I32, PTR, Value, const
from amdjax.codegen.restricted import Source
from amdjax.runtime.interrupts import POLL, POLL_CONSTANTS, POLL_DECLARED, POLL_GLOBALS

MAX_THREADS = 256

# The words that several threads write have cache lines of their own.
_GLOBALS = (
    "@epoch = internal global i32 0, align 64      ; counts jobs; workers sleep on it",
    "@open = internal global i32 0, align 64       ; the current job takes helpers",
    "@active = internal global i32 0, align 64     ; workers that may be inside the job",
    "@sleepers = internal global i32 0, align 64   ; workers asleep on @epoch",
    "@to_wake = internal global i32 0, align 64    ; sleepers that woken workers have yet to wake",
    "@lock = internal global i32 0, align 64       ; held by the call that uses the pool",
    "@waiting = internal global i32 0, align 64    ; the caller sleeps on @active",
    "@stopping = internal global i32 0",
    "@job = internal global ptr null, align 64     ; its function",
    "@context = internal global ptr null",
    "@watch = internal global ptr null",
    "@shares = internal global i64 0",
    "@chunk = internal global i64 1",
    f"@share = internal global [{MAX_THREADS} x [8 x i64]] zeroinitializer, align 64  ; next, end",
    "@wanted = internal global i64 1               ; threads, the caller included",
    "@running = internal global i64 0              ; worker threads that exist",
    "@spin = internal global i64 0                 ; ticks to look for work before sleeping",
    "@scattered = internal global i64 0            ; tasks run alone, in the order of a check",
    f"@handles = internal global [{MAX_THREADS} x i64] zeroinitializer",
)

_POOL = '''
def amdjax_ticks() -> i64:
    return ticks()

def amdjax_num_threads() -> i64:
    return load(wanted, "i64 monotonic")

def amdjax_parallel_for(fn, ctx, n: i64):
    amdjax_watched_for(fn, ctx, n, None)

def amdjax_watched_for(fn, ctx, n: i64, watch):
    "The same for a call that has a watch: it may end with tasks undone."
    if n <= 0:
        return
    if load(scattered, "i64 monotonic") != 0:
        run_scattered(fn, ctx, n, watch)
    elif (
        n > 1 and load(wanted, "i64 monotonic") > 1
        and load(lock, "i32 monotonic") == 0 and acquired(lock)
    ):
        publish(fn, ctx, n, watch)
        take_part(0)
        store(open, 0, "i32 seq_cst")
        await_workers()
        store(lock, 0, "i32 release")
    else:
        run_alone(fn, ctx, n, watch)

def amdjax_alone_for(fn, ctx, n: i64):
    "The same for little work: all of it on this thread."
    if load(scattered, "i64 monotonic") == 0 or n <= 1:
        fn(ctx, 0, n, 0)
    else:
        run_scattered(fn, ctx, n, None)

def run_alone(fn, ctx, n: i64, watch):
    "All tasks on this thread, with looks at the watch between parts of them."
    chunk = (n >> 4) + 1
    begin: i64 = 0
    while True:
        end = smin(begin + chunk, n)
        fn(ctx, begin, end, 0)
        if end >= n or amdjax_poll(watch, 0):
            return
        begin = end

def run_scattered(fn, ctx, n: i64, watch):
    """All tasks on this thread one by one, odd ones from the last to the first, then even ones:
    whatever a task does to what a neighbor computes is seen in the result."""
    odd = n >> 1
    for k in range(n):
        i = 2 * (odd - k) - 1 if k < odd else 2 * (n - 1 - k)
        fn(ctx, i, i + 1, 0)
        if k + 1 < n and amdjax_poll(watch, 0):
            return

def publish(fn, ctx, n: i64, watch_):
    "Write down the job, open it and wake the first sleepers."
    if load(running, "i64") == 0:
        start()
    count = umin(load(running, "i64") + 1, n)
    each = n // count
    rest = n % count
    first: i64 = 0
    for i in range(count):
        last = first + each + (1 if i < rest else 0)
        store(share + 8 * i, first, "i64 monotonic")
        store(share + 8 * i + 1, last, "i64")
        first = last
    store(job, fn, "ptr")
    store(context, ctx, "ptr")
    store(watch, watch_, "ptr")
    store(shares, count, "i64")
    store(chunk, umax(each >> 3, 1), "i64")
    store(open, 1, "i32 seq_cst")
    add(epoch, 1, "i32 seq_cst")
    asleep = load(sleepers, "i32 seq_cst")
    if asleep > 0:
        store(to_wake, smin(asleep, resized(count - 1, "i32")), "i32 seq_cst")
        wake_two()

def wake_two():
    "Waking a thread costs its waker a microsecond or two, so the woken share that work."
    if load(to_wake, "i32 monotonic") > 0:
        left = sub(to_wake, 2, "i32 monotonic")
        if left > 0:
            wake(epoch, smin(left, TWO))

def take_part(worker: i64):
    "Run chunks of the own share, then of the others'."
    fn = load(job, "ptr")
    ctx = load(context, "ptr")
    count = load(shares, "i64")
    size = load(chunk, "i64")
    looks = load(watch, "ptr")
    home = worker % count
    for k in range(count):
        sum = home + k
        next = share + 8 * (sum - count if sum >= count else sum)
        end = number(next, 1)
        while load(next, "i64 monotonic") < end:
            begin = add(next, size, "i64 monotonic")
            if begin >= end:
                break
            fn(ctx, begin, smin(begin + size, end), worker)
            if amdjax_poll(looks, worker):
                return

def await_workers():
    if load(active, "i32 seq_cst") == 0:
        return
    patience = load(spin, "i64")
    begin = ticks()
    while True:
        pause()
        if load(active, "i32 seq_cst") == 0:
            return
        if not below(ticks() - begin, patience):
            break
    while True:
        store(waiting, 1, "i32 seq_cst")
        busy = load(active, "i32 seq_cst")
        if busy == 0:
            break
        wait_a_while(active, busy)
        amdjax_poll(load(watch, "ptr"), 0)  # if it is to end, the workers find out
    store(waiting, 0, "i32 seq_cst")

def worker(index) -> ptr:
    # Rather look at a job that is over than miss the one this thread was started for.
    seen: i32 = load(epoch, "i32 acquire") - 1
    budget = stack(1)  # ticks to look for a job before sleeping
    budget[0] = load(spin, "i64")
    while True:
        e: i32 = load(epoch, "i32 acquire")
        if e == seen:
            e = next_job(seen, budget)
        if load(stopping, "i32 acquire") != 0:
            return None
        add(active, 1, "i32 seq_cst")
        if load(open, "i32 seq_cst") != 0:
            take_part(address(index))
        if sub(active, 1, "i32 seq_cst") == 1 and load(waiting, "i32 seq_cst") != 0:
            wake(active, ONE)
        seen = e

def next_job(seen: i32, budget) -> i32:
    "The epoch once it is another."
    full = load(spin, "i64")
    given = number(budget, 0)
    slept: i64 = given
    begin = ticks()
    while True:
        for turn in range(32):
            pause()
            caught = load(epoch, "i32 acquire")
            if caught != seen:
                budget[0] = umin(2 * given + 1, full)
                return caught
        time = ticks()
        if not below(time - begin, given):
            break
        # If the core has other work it runs now, and the time this takes tells us.
        sched_yield()
        if below(full >> 1, ticks() - time):
            slept = given >> 2
            break
    add(sleepers, 1, "i32 seq_cst")
    now: i32 = load(epoch, "i32 seq_cst")
    while now == seen:
        wait(epoch, seen)
        now = load(epoch, "i32 seq_cst")
    sub(sleepers, 1, "i32 seq_cst")
    wake_two()
    # Work came soon: it would have paid to look for it longer.
    soon = below(ticks() - begin, full)
    budget[0] = umin(2 * slept + (full >> 4), full) if soon else slept
    return now

def start():
    "Called with the lock held."
    attributes = stack(32)
    all = stack(32)
    old = stack(32)
    pthread_attr_init(attributes)
    # The same stack everywhere: macOS gives new threads 512 KiB only.
    pthread_attr_setstacksize(attributes, 8388608)
    # Signals are for the threads of the program, which Python knows.
    sigfillset(all)
    pthread_sigmask(SIG_SETMASK, all, old)
    for i in range(load(wanted, "i64 monotonic") - 1):
        if pthread_create(handles + 1 + i, attributes, worker, pointer(i + 1)) != 0:
            break
        store(running, i + 1, "i64")
    pthread_sigmask(SIG_SETMASK, old, None)
    pthread_attr_destroy(attributes)

def amdjax_pool_stop() -> i32:
    "End all workers; the next parallel call starts `wanted` anew. 0 while a call is in progress."
    if not acquired(lock):
        return 0
    store(stopping, 1, "i32 release")
    add(epoch, 1, "i32 seq_cst")
    wake(epoch, MANY)
    for i in range(load(running, "i64")):
        pthread_join(number(handles, i + 1), None)
    store(running, 0, "i64")
    store(stopping, 0, "i32 release")
    store(lock, 0, "i32 release")
    return 1

def amdjax_pool_reset():
    "After fork: the child has none of the threads and none of the calls in progress."
    store(running, 0, "i64")
    store(active, 0, "i32")
    store(sleepers, 0, "i32")
    store(to_wake, 0, "i32")
    store(waiting, 0, "i32")
    store(open, 0, "i32")
    store(stopping, 0, "i32")
    store(lock, 0, "i32 release")

def amdjax_pool_configure(threads: i64, ticks: i64):
    store(wanted, threads, "i64 monotonic")
    store(spin, ticks, "i64")

def amdjax_pool_scatter(scatter: i64):
    store(scattered, scatter, "i64 monotonic")
'''

_DECLARED = {
    "sched_yield": "i32 ()",
    "sigfillset": "i32 (ptr)",
    "pthread_sigmask": "i32 (i32, ptr, ptr)",
    "pthread_attr_init": "i32 (ptr)",
    "pthread_attr_setstacksize": "i32 (ptr, i64)",
    "pthread_attr_destroy": "i32 (ptr)",
    "pthread_create": "i32 (ptr, ptr, ptr, ptr)",
    "pthread_join": "i32 (i64, ptr)",
    "syscall": "i64 (i64, ...)",
    "__ulock_wait": "i32 (i32, ptr, i64, i32)",
    "__ulock_wake": "i32 (i32, ptr, i64)",
    **POLL_DECLARED,
}

_LINUX = """
def wait(word, value: i32):
    syscall(FUTEX, word, FUTEX_WAIT, value, None)

def wait_a_while(word, value: i32):
    time = stack(2)  # seconds, nanoseconds
    time[0] = 0
    time[1] = 50000000
    syscall(FUTEX, word, FUTEX_WAIT, value, time)

def wake(word, count: i32):
    syscall(FUTEX, word, FUTEX_WAKE, count)
"""

# UL_COMPARE_AND_WAIT; waking without ULF_WAKE_ALL wakes one, so wake all: words are re-checked.
_DARWIN = """
def wait(word, value: i32):
    __ulock_wait(1, word, resized(value, "i64"), 0)

def wait_a_while(word, value: i32):
    __ulock_wait(1, word, resized(value, "i64"), 50000)  # microseconds

def wake(word, count: i32):
    __ulock_wake(257, word, 0)
"""

# For systems whose primitives we do not know.
_SERIAL = """
def amdjax_ticks() -> i64:
    return 0

def amdjax_num_threads() -> i64:
    return 1

def amdjax_parallel_for(fn, ctx, n: i64):
    amdjax_watched_for(fn, ctx, n, None)

def amdjax_watched_for(fn, ctx, n: i64, watch):
    if n > 0:
        fn(ctx, 0, n, 0)

def amdjax_alone_for(fn, ctx, n: i64):
    fn(ctx, 0, n, 0)

def amdjax_poll(watch, worker: i64) -> i64:
    return 0

def amdjax_poll_configure(look, ticks: i64):
    return

def amdjax_pool_stop() -> i32:
    return 1

def amdjax_pool_reset():
    return

def amdjax_pool_configure(threads: i64, spin: i64):
    return

def amdjax_pool_scatter(scattered: i64):
    return
"""

# Instructions for ticks and for pauses, and the number of the system call.
_X86 = "call i64 @llvm.readcyclecounter()", "call void @llvm.x86.sse2.pause()", 202
_ARM64 = (
    'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()',
    'call void asm sideeffect "isb", "~{memory}"()',
    98,
)


def pool_source(system: str, machine: str) -> Source:
    """The pool for `sys.platform` and `platform.machine()`."""
    words = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM64, "arm64": _ARM64}.get(machine)
    waiting = {"linux": _LINUX, "darwin": _DARWIN}.get(system)
    if words is None or waiting is None:
        return Source(_SERIAL, {}, {}, (), FUNCTION_ATTRIBUTES)
    ticks, pause, futex = words
    text = _POOL + POLL + waiting
    text = re.sub(r"\bticks\(\)", f"instruction({ticks!r}, 'i64')", text)
    text = text.replace("pause()", f"instruction({pause!r}, 'void')")
    definitions = (*_GLOBALS, *POLL_GLOBALS)
    numbers = {
        "ONE": 1, "TWO": 2, "MANY": 2**31 - 1, "SIG_SETMASK": 2 if system == "linux" else 3,
        "FUTEX_WAIT": 128, "FUTEX_WAKE": 129,  # with FUTEX_PRIVATE_FLAG
    }  # fmt: skip
    constants: dict[str, Value | int] = {**POLL_CONSTANTS, "FUTEX": futex}
    constants |= {name: const(I32, number) for name, number in numbers.items()}
    names = (line[1:].partition(" ")[0] for line in definitions)
    constants |= {name: Value(PTR, f"@{name}") for name in names}
    return Source(text, constants, _DECLARED, definitions, FUNCTION_ATTRIBUTES)
