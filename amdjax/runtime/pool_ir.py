"""The thread pool in LLVM IR, for each system and machine; `threads.py` says how it works."""

from __future__ import annotations

from amdjax.codegen.engine import FUNCTION_ATTRIBUTES
from amdjax.runtime.interrupts import POLL

MAX_THREADS = 256

_POOL = r"""
; The words that several threads write have cache lines of their own.
@epoch = internal global i32 0, align 64      ; counts jobs; workers sleep on it
@open = internal global i32 0, align 64       ; the current job takes helpers
@active = internal global i32 0, align 64     ; workers that may be inside the job
@sleepers = internal global i32 0, align 64   ; workers asleep on @epoch
@to_wake = internal global i32 0, align 64    ; sleepers that woken workers have yet to wake
@lock = internal global i32 0, align 64       ; held by the call that uses the pool
@waiting = internal global i32 0, align 64    ; the caller sleeps on @active
@stopping = internal global i32 0

@fn = internal global ptr null, align 64      ; the job
@ctx = internal global ptr null
@watch = internal global ptr null
@shares = internal global i64 0
@chunk = internal global i64 1
@share = internal global [MAX_THREADS x [8 x i64]] zeroinitializer, align 64  ; next, end

@wanted = internal global i64 1               ; threads, the caller included
@running = internal global i64 0              ; worker threads that exist
@spin = internal global i64 0                 ; ticks a worker looks for work before it sleeps
@scattered = internal global i64 0            ; tasks run alone, none after its neighbor: a check
@handles = internal global [MAX_THREADS x i64] zeroinitializer

define i64 @amdjax_ticks() ATTRS {
  %t = TICKS
  ret i64 %t
}

define i64 @amdjax_num_threads() ATTRS {
  %n = load atomic i64, ptr @wanted monotonic, align 8
  ret i64 %n
}

define void @amdjax_parallel_for(ptr %fn, ptr %ctx, i64 %n) ATTRS {
  call void @amdjax_watched_for(ptr %fn, ptr %ctx, i64 %n, ptr null)
  ret void
}

; The same for a call that has a watch: it may end with tasks undone.
define void @amdjax_watched_for(ptr %fn, ptr %ctx, i64 %n, ptr %watch) ATTRS {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %check, label %done
check:
  %scattered = load atomic i64, ptr @scattered monotonic, align 8
  %ordered = icmp eq i64 %scattered, 0
  br i1 %ordered, label %count, label %scatter
scatter:
  call void @run_scattered(ptr %fn, ptr %ctx, i64 %n, ptr %watch)
  br label %done
count:
  %many = icmp sgt i64 %n, 1
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %threaded = icmp sgt i64 %wanted, 1
  %try = and i1 %many, %threaded
  br i1 %try, label %acquire, label %alone
acquire:
  %seen = load atomic i32, ptr @lock monotonic, align 4
  %free = icmp eq i32 %seen, 0
  br i1 %free, label %exchange, label %alone
exchange:
  %old = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %old, 1
  br i1 %mine, label %together, label %alone
alone:
  call void @run_alone(ptr %fn, ptr %ctx, i64 %n, ptr %watch)
  br label %done
together:
  call void @publish(ptr %fn, ptr %ctx, i64 %n, ptr %watch)
  call void @take_part(i64 0)
  store atomic i32 0, ptr @open seq_cst, align 4
  call void @await_workers()
  store atomic i32 0, ptr @lock release, align 4
  br label %done
done:
  ret void
}

; The same for little work: all of it on this thread.
define void @amdjax_alone_for(ptr %fn, ptr %ctx, i64 %n) ATTRS {
entry:
  %scattered = load atomic i64, ptr @scattered monotonic, align 8
  %ordered = icmp eq i64 %scattered, 0
  %one = icmp sle i64 %n, 1
  %at.once = or i1 %ordered, %one
  br i1 %at.once, label %run, label %scatter
run:
  tail call void %fn(ptr %ctx, i64 0, i64 %n, i64 0)
  ret void
scatter:
  call void @run_scattered(ptr %fn, ptr %ctx, i64 %n, ptr null)
  ret void
}

; All tasks on this thread, with looks at the watch between parts of them.
define internal void @run_alone(ptr %fn, ptr %ctx, i64 %n, ptr %watch) ATTRS {
entry:
  %part = lshr i64 %n, 4
  %chunk = add i64 %part, 1
  br label %run
run:
  %begin = phi i64 [0, %entry], [%end, %look]
  %stop = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %stop, i64 %n)
  call void %fn(ptr %ctx, i64 %begin, i64 %end, i64 0)
  %more = icmp slt i64 %end, %n
  br i1 %more, label %look, label %done
look:
  %ended = call i64 @amdjax_poll(ptr %watch, i64 0)
  %go.on = icmp eq i64 %ended, 0
  br i1 %go.on, label %run, label %done
done:
  ret void
}

; All tasks on this thread one by one, odd ones from the last to the first, then even ones: whatever
; a task does to what a neighbor computes is seen in the result.
define internal void @run_scattered(ptr %fn, ptr %ctx, i64 %n, ptr %watch) ATTRS {
entry:
  %odd = lshr i64 %n, 1
  %even = sub i64 %n, %odd
  br label %run
run:
  %k = phi i64 [0, %entry], [%k.next, %look]
  %in.odd = icmp slt i64 %k, %odd
  %j = sub i64 %k, %odd
  %place = select i1 %in.odd, i64 %k, i64 %j
  %count = select i1 %in.odd, i64 %odd, i64 %even
  %from.end = sub i64 %count, %place
  %pair = sub i64 %from.end, 1
  %double = shl i64 %pair, 1
  %one = zext i1 %in.odd to i64
  %i = add i64 %double, %one
  %end = add i64 %i, 1
  call void %fn(ptr %ctx, i64 %i, i64 %end, i64 0)
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %n
  br i1 %more, label %look, label %done
look:
  %ended = call i64 @amdjax_poll(ptr %watch, i64 0)
  %go.on = icmp eq i64 %ended, 0
  br i1 %go.on, label %run, label %done
done:
  ret void
}

; Write down the job, open it and wake the first sleepers.
define internal void @publish(ptr %fn, ptr %ctx, i64 %n, ptr %watch) ATTRS {
entry:
  %existing = load i64, ptr @running
  %none = icmp eq i64 %existing, 0
  br i1 %none, label %begin, label %divide
begin:
  call void @start()
  br label %divide
divide:
  %workers = load i64, ptr @running
  %threads = add i64 %workers, 1
  %shares = call i64 @llvm.umin.i64(i64 %threads, i64 %n)
  %each = udiv i64 %n, %shares
  %rest = urem i64 %n, %shares
  br label %share
share:
  %i = phi i64 [0, %divide], [%i.next, %share]
  %first = phi i64 [0, %divide], [%last, %share]
  %longer = icmp ult i64 %i, %rest
  %one = zext i1 %longer to i64
  %size = add i64 %each, %one
  %last = add i64 %first, %size
  %next.p = getelementptr [8 x i64], ptr @share, i64 %i
  %end.p = getelementptr i64, ptr %next.p, i64 1
  store atomic i64 %first, ptr %next.p monotonic, align 8
  store i64 %last, ptr %end.p
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %shares
  br i1 %more, label %share, label %open
open:
  %eighth = lshr i64 %each, 3
  %chunk = call i64 @llvm.umax.i64(i64 %eighth, i64 1)
  store ptr %fn, ptr @fn
  store ptr %ctx, ptr @ctx
  store ptr %watch, ptr @watch
  store i64 %shares, ptr @shares
  store i64 %chunk, ptr @chunk
  store atomic i32 1, ptr @open seq_cst, align 4
  %e = atomicrmw add ptr @epoch, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %done
wake:
  %shares32 = trunc i64 %shares to i32
  %helpers = sub i32 %shares32, 1
  %count = call i32 @llvm.smin.i32(i32 %asleep, i32 %helpers)
  store atomic i32 %count, ptr @to_wake seq_cst, align 4
  call void @wake_two()
  br label %done
done:
  ret void
}

; Waking a thread costs its waker a microsecond or two, so the woken share that work.
define internal void @wake_two() ATTRS {
entry:
  %left = load atomic i32, ptr @to_wake monotonic, align 4
  %any = icmp sgt i32 %left, 0
  br i1 %any, label %claim, label %done
claim:
  %old = atomicrmw sub ptr @to_wake, i32 2 monotonic
  %still = icmp sgt i32 %old, 0
  br i1 %still, label %wake, label %done
wake:
  %count = call i32 @llvm.smin.i32(i32 %old, i32 2)
  call void @wake(ptr @epoch, i32 %count)
  br label %done
done:
  ret void
}

; Run chunks of the own share, then of the others'.
define internal void @take_part(i64 %worker) ATTRS {
entry:
  %fn = load ptr, ptr @fn
  %ctx = load ptr, ptr @ctx
  %shares = load i64, ptr @shares
  %chunk = load i64, ptr @chunk
  %watch = load ptr, ptr @watch
  %home = urem i64 %worker, %shares
  br label %share
share:
  %k = phi i64 [0, %entry], [%k.next, %following]
  %sum = add i64 %home, %k
  %wrapped = sub i64 %sum, %shares
  %over = icmp uge i64 %sum, %shares
  %s = select i1 %over, i64 %wrapped, i64 %sum
  %next.p = getelementptr [8 x i64], ptr @share, i64 %s
  %end.p = getelementptr i64, ptr %next.p, i64 1
  %end = load i64, ptr %end.p
  br label %look
look:
  %next = load atomic i64, ptr %next.p monotonic, align 8
  %left = icmp slt i64 %next, %end
  br i1 %left, label %take, label %following
take:
  %begin = atomicrmw add ptr %next.p, i64 %chunk monotonic
  %got = icmp slt i64 %begin, %end
  br i1 %got, label %run, label %following
run:
  %stop = add i64 %begin, %chunk
  %until = call i64 @llvm.smin.i64(i64 %stop, i64 %end)
  call void %fn(ptr %ctx, i64 %begin, i64 %until, i64 %worker)
  %ended = call i64 @amdjax_poll(ptr %watch, i64 %worker)
  %go.on = icmp eq i64 %ended, 0
  br i1 %go.on, label %look, label %done
following:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %shares
  br i1 %more, label %share, label %done
done:
  ret void
}

define internal void @await_workers() ATTRS {
entry:
  %busy0 = load atomic i32, ptr @active seq_cst, align 4
  %idle0 = icmp eq i32 %busy0, 0
  br i1 %idle0, label %done, label %begin
begin:
  %spin = load i64, ptr @spin
  %t0 = TICKS
  br label %look
look:
  PAUSE
  %busy1 = load atomic i32, ptr @active seq_cst, align 4
  %idle1 = icmp eq i32 %busy1, 0
  br i1 %idle1, label %done, label %time
time:
  %t = TICKS
  %dt = sub i64 %t, %t0
  %patient = icmp ult i64 %dt, %spin
  br i1 %patient, label %look, label %sleep
sleep:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %busy2 = load atomic i32, ptr @active seq_cst, align 4
  %idle2 = icmp eq i32 %busy2, 0
  br i1 %idle2, label %woken, label %wait
wait:
  call void @wait_a_while(ptr @active, i32 %busy2)
  %watch = load ptr, ptr @watch
  %ended = call i64 @amdjax_poll(ptr %watch, i64 0)  ; if so, the workers find out
  br label %sleep
woken:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %done
done:
  ret void
}

define internal ptr @worker(ptr %arg) ATTRS {
entry:
  %index = ptrtoint ptr %arg to i64
  %full = load i64, ptr @spin
  ; Rather look at a job that is over than miss the one this thread was started for.
  %e0 = load atomic i32, ptr @epoch acquire, align 4
  %e0.before = sub i32 %e0, 1
  br label %idle
idle:
  %seen = phi i32 [%e0.before, %entry], [%e, %leave], [%e, %notify]
  %budget = phi i64 [%full, %entry], [%kept, %leave], [%kept, %notify]
  %now = load atomic i32, ptr @epoch acquire, align 4
  %fresh = icmp ne i32 %now, %seen
  br i1 %fresh, label %job, label %begin
begin:
  %t0 = TICKS
  br label %round
round:
  br label %look
look:
  %turns = phi i32 [0, %round], [%turns.next, %again]
  PAUSE
  %seen1 = load atomic i32, ptr @epoch acquire, align 4
  %fresh1 = icmp ne i32 %seen1, %seen
  br i1 %fresh1, label %caught, label %again
again:
  %turns.next = add i32 %turns, 1
  %round.over = icmp uge i32 %turns.next, 32
  br i1 %round.over, label %time, label %look
time:
  %t1 = TICKS
  %dt = sub i64 %t1, %t0
  %patient = icmp ult i64 %dt, %budget
  br i1 %patient, label %yield, label %sleep
yield:
  ; If the core has other work it runs now, and the time this takes tells us.
  %ignored = call i32 @sched_yield()
  %t2 = TICKS
  %away = sub i64 %t2, %t1
  %limit = lshr i64 %full, 1
  %contended = icmp ugt i64 %away, %limit
  br i1 %contended, label %shorter, label %round
shorter:
  %quarter = lshr i64 %budget, 2
  br label %sleep
caught:
  %double = shl i64 %budget, 1
  %double.1 = add i64 %double, 1
  %longer = call i64 @llvm.umin.i64(i64 %double.1, i64 %full)
  br label %job
sleep:
  %budget.sleep = phi i64 [%budget, %time], [%quarter, %shorter]
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %doze
doze:
  %seen2 = load atomic i32, ptr @epoch seq_cst, align 4
  %fresh2 = icmp ne i32 %seen2, %seen
  br i1 %fresh2, label %awake, label %wait
wait:
  call void @wait(ptr @epoch, i32 %seen)
  br label %doze
awake:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  call void @wake_two()
  ; Work came soon: it would have paid to look for it longer.
  %t3 = TICKS
  %slept = sub i64 %t3, %t0
  %soon = icmp ult i64 %slept, %full
  %sixteenth = lshr i64 %full, 4
  %twice = shl i64 %budget.sleep, 1
  %more = add i64 %twice, %sixteenth
  %capped = call i64 @llvm.umin.i64(i64 %more, i64 %full)
  %budget.awake = select i1 %soon, i64 %capped, i64 %budget.sleep
  br label %job
job:
  %e = phi i32 [%now, %idle], [%seen1, %caught], [%seen2, %awake]
  %kept = phi i64 [%budget, %idle], [%longer, %caught], [%budget.awake, %awake]
  %stopping = load atomic i32, ptr @stopping acquire, align 4
  %end = icmp ne i32 %stopping, 0
  br i1 %end, label %exit, label %enter
enter:
  %a0 = atomicrmw add ptr @active, i32 1 seq_cst
  %open = load atomic i32, ptr @open seq_cst, align 4
  %is.open = icmp ne i32 %open, 0
  br i1 %is.open, label %work, label %leave
work:
  call void @take_part(i64 %index)
  br label %leave
leave:
  %a1 = atomicrmw sub ptr @active, i32 1 seq_cst
  %waiting = load atomic i32, ptr @waiting seq_cst, align 4
  %last = icmp eq i32 %a1, 1
  %waited = icmp ne i32 %waiting, 0
  %tell = and i1 %last, %waited
  br i1 %tell, label %notify, label %idle
notify:
  call void @wake(ptr @active, i32 1)
  br label %idle
exit:
  ret ptr null
}

; Called with the lock held.
define internal void @start() ATTRS {
entry:
  %attr = alloca [32 x i64], align 16
  %all = alloca [32 x i64], align 16
  %old = alloca [32 x i64], align 16
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %r0 = call i32 @pthread_attr_init(ptr %attr)
  ; The same stack everywhere: macOS gives new threads 512 KiB only.
  %r1 = call i32 @pthread_attr_setstacksize(ptr %attr, i64 8388608)
  ; Signals are for the threads of the program, which Python knows.
  %r2 = call i32 @sigfillset(ptr %all)
  %r3 = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %all, ptr %old)
  br label %create
create:
  %i = phi i64 [1, %entry], [%i.next, %created]
  %more = icmp ult i64 %i, %wanted
  br i1 %more, label %one, label %done
one:
  %handle = getelementptr i64, ptr @handles, i64 %i
  %arg = inttoptr i64 %i to ptr
  %error = call i32 @pthread_create(ptr %handle, ptr %attr, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %error, 0
  br i1 %ok, label %created, label %done
created:
  store i64 %i, ptr @running
  %i.next = add i64 %i, 1
  br label %create
done:
  %r4 = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %old, ptr null)
  %r5 = call i32 @pthread_attr_destroy(ptr %attr)
  ret void
}

; End all workers; the next parallel call starts `wanted` anew. 0 while a call is in progress.
define i32 @amdjax_pool_stop() ATTRS {
entry:
  %old = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %old, 1
  br i1 %mine, label %tell, label %busy
busy:
  ret i32 0
tell:
  %running = load i64, ptr @running
  store atomic i32 1, ptr @stopping release, align 4
  %e = atomicrmw add ptr @epoch, i32 1 seq_cst
  call void @wake(ptr @epoch, i32 2147483647)
  br label %join
join:
  %i = phi i64 [1, %tell], [%i.next, %one]
  %more = icmp ule i64 %i, %running
  br i1 %more, label %one, label %done
one:
  %handle.p = getelementptr i64, ptr @handles, i64 %i
  %handle = load i64, ptr %handle.p
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %i.next = add i64 %i, 1
  br label %join
done:
  store i64 0, ptr @running
  store atomic i32 0, ptr @stopping release, align 4
  store atomic i32 0, ptr @lock release, align 4
  ret i32 1
}

; After fork: the child has none of the threads and none of the calls in progress.
define void @amdjax_pool_reset() ATTRS {
  store i64 0, ptr @running
  store i32 0, ptr @active
  store i32 0, ptr @sleepers
  store i32 0, ptr @to_wake
  store i32 0, ptr @waiting
  store i32 0, ptr @open
  store i32 0, ptr @stopping
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

define void @amdjax_pool_configure(i64 %threads, i64 %spin) ATTRS {
  store atomic i64 %threads, ptr @wanted monotonic, align 8
  store i64 %spin, ptr @spin
  ret void
}

define void @amdjax_pool_scatter(i64 %scattered) ATTRS {
  store atomic i64 %scattered, ptr @scattered monotonic, align 8
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @sched_yield()
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
"""

# FUTEX_WAIT and FUTEX_WAKE with FUTEX_PRIVATE_FLAG.
_LINUX = r"""
define internal void @wait(ptr %word, i32 %value) ATTRS {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr null)
  ret void
}
@a_while = internal constant [2 x i64] [i64 0, i64 50000000]  ; seconds, nanoseconds
define internal void @wait_a_while(ptr %word, i32 %value) ATTRS {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr @a_while)
  ret void
}
define internal void @wake(ptr %word, i32 %count) ATTRS {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count)
  ret void
}
declare i64 @syscall(i64, ...)
"""

# UL_COMPARE_AND_WAIT; waking without ULF_WAKE_ALL wakes one, so wake all: words are re-checked.
_DARWIN = r"""
define internal void @wait(ptr %word, i32 %value) ATTRS {
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 1, ptr %word, i64 %wide, i32 0)
  ret void
}
define internal void @wait_a_while(ptr %word, i32 %value) ATTRS {
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 1, ptr %word, i64 %wide, i32 50000)  ; microseconds
  ret void
}
define internal void @wake(ptr %word, i32 %count) ATTRS {
  %r = call i32 @__ulock_wake(i32 257, ptr %word, i64 0)
  ret void
}
declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)
"""

# For systems whose primitives we do not know.
_SERIAL = r"""
define i64 @amdjax_ticks() ATTRS {
  ret i64 0
}
define i64 @amdjax_num_threads() ATTRS {
  ret i64 1
}
define void @amdjax_parallel_for(ptr %fn, ptr %ctx, i64 %n) ATTRS {
  call void @amdjax_watched_for(ptr %fn, ptr %ctx, i64 %n, ptr null)
  ret void
}
define void @amdjax_watched_for(ptr %fn, ptr %ctx, i64 %n, ptr %watch) ATTRS {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %fn(ptr %ctx, i64 0, i64 %n, i64 0)
  br label %done
done:
  ret void
}
define void @amdjax_alone_for(ptr %fn, ptr %ctx, i64 %n) ATTRS {
  call void %fn(ptr %ctx, i64 0, i64 %n, i64 0)
  ret void
}
define i64 @amdjax_poll(ptr %watch, i64 %worker) ATTRS {
  ret i64 0
}
define void @amdjax_poll_configure(ptr %look, i64 %ticks) ATTRS {
  ret void
}
define i32 @amdjax_pool_stop() ATTRS {
  ret i32 1
}
define void @amdjax_pool_reset() ATTRS {
  ret void
}
define void @amdjax_pool_configure(i64 %threads, i64 %spin) ATTRS {
  ret void
}
define void @amdjax_pool_scatter(i64 %scattered) ATTRS {
  ret void
}
"""

_X86 = {
    "TICKS": "call i64 @llvm.readcyclecounter()",
    "PAUSE": "call void @llvm.x86.sse2.pause()",
    "FUTEX": "202",
}
_ARM64 = {
    "TICKS": 'call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()',
    "PAUSE": 'call void asm sideeffect "isb", "~{memory}"()',
    "FUTEX": "98",
}


def pool_ir(system: str, machine: str) -> str:
    """The pool's module for `sys.platform` and `platform.machine()`."""
    words = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM64, "arm64": _ARM64}.get(machine)
    waiting = {"linux": _LINUX, "darwin": _DARWIN}.get(system)
    if words is None or waiting is None:
        return _SERIAL.replace("ATTRS", FUNCTION_ATTRIBUTES)
    text = _POOL + POLL + waiting
    if words is _X86:
        text += "declare i64 @llvm.readcyclecounter()\ndeclare void @llvm.x86.sse2.pause()\n"
    words = {
        **words,
        "MAX_THREADS": str(MAX_THREADS),
        "SIG_SETMASK": "2" if system == "linux" else "3",
        "ATTRS": FUNCTION_ATTRIBUTES,
    }
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text
