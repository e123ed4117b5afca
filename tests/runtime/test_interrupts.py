"""Ctrl-C ends loops that would never end by themselves, and the process goes on."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")

HEAD = """
import signal, sys, threading
import numpy as np
import amdjax, amdjax.numpy as jnp
from amdjax import lax

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it

def endless(step, *start):
    return lambda: lax.while_loop(lambda c: c[-1] >= 0, step, (*start, jnp.float32(1)))

def interrupted(run):
    run = amdjax.jit(run)
    print("ready", flush=True)
    try:
        run()
    except KeyboardInterrupt:
        return True
    return False

def check_usable():
    x = jnp.arange(300_000.0).reshape(300, 1000)
    np.testing.assert_allclose((x @ x.T)[0, :2], [332833500.0, 832333500.0], rtol=1e-5)
    assert float(amdjax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + 1.0, 0.0))(1000)) == 1000
"""


def run_interrupted(program: str, *, emulate: str = "", threads: int = 2) -> list[str]:
    """What a program prints after the line `ready`, upon which it gets a SIGINT.

    It gets another if need be, as a person would press the keys again: Python drops what is raised
    while an object is finalized, and `ctypes` what is raised on the way into an emulated function.
    """
    environment = {**os.environ, "AMDJAX_NUM_THREADS": str(threads), "AMDJAX_EMULATE": emulate}
    command = [sys.executable, "-c", HEAD + textwrap.dedent(program)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            first, output = process.stdout.readline(), ""
            # Long enough to be within the loop; sooner, the test would see less, not fail.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.8)
            for _ in range(3):
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=15)
                    break
        finally:
            process.kill()
    assert first == "ready\n" and process.returncode == 0, first + output
    return output.splitlines()


LOOPS = {
    "numbers in a kernel": "endless(lambda c: (c[0] + 1, c[1]), 0)",
    "a counted loop in a kernel": "lambda: lax.fori_loop(0, 2**31 - 2, "
    "lambda i, c: lax.fori_loop(0, 2**31 - 2, lambda j, d: d * 1.0001 + 1e-7, c), 1.0)",
    "elements in kernels": "lambda: lax.fori_loop(0, 2**31 - 2, "
    "lambda i, c: c * 1.0001 + 1e-7, jnp.ones(300_000))",
    "one element goes on": "lambda: amdjax.vmap(lambda n: lax.while_loop(lambda c: c < n, "
    "lambda c: c * 1.0 + 0.0, 1.0))(jnp.zeros(100_000).at[-1].set(2.0))",
    "elements, the last for long": "lambda: lax.map(lambda n: lax.while_loop(lambda c: c < n, "
    "lambda c: c * 1.0 + 0.0, 1.0), jnp.zeros(1000).at[-1].set(2.0))",
    "a loop around kernels": "endless(lambda c: (c[0][::-1] + 1.0, c[1]), jnp.ones((64, 33)))",
    "products in a loop": "endless(lambda c: (c[0] @ c[0], c[1]), jnp.ones((700, 700)))",
    "a scan": "lambda: lax.scan(lambda c, _: (c[::-1] + 1.0, None), jnp.ones(70), "
    "length=2**31 - 2)",
    "a callback in a loop": "endless(lambda c: (amdjax.pure_callback(lambda x: x, "
    "amdjax.ShapeDtypeStruct((), jnp.float32), c[0]), c[1]), jnp.float32(1))",
}


ALONE = ["elements in kernels", "products in a loop"]


@pytest.mark.parametrize("loop,threads", [*((x, 2) for x in LOOPS), *((x, 1) for x in ALONE)])
def test_ctrl_c_ends_a_loop(loop, threads):
    said = run_interrupted(
        f"print(interrupted({LOOPS[loop]})); check_usable(); print('usable')", threads=threads
    )
    assert said[-2:] == ["True", "usable"]


@pytest.mark.parametrize("loop", ["a loop around kernels", "a callback in a loop"])
def test_ctrl_c_ends_a_loop_on_a_device(loop):
    """Inside an emulated function, a call that is interrupted may also fail."""
    program = f"""
        try:
            print(interrupted({LOOPS[loop]}))
        except Exception as e:
            print(type(e).__name__ in ("ValueError", "HipError"))
        check_usable()
        print('usable')
    """
    assert run_interrupted(program, emulate="gfx942")[-2:] == ["True", "usable"]


def test_a_handler_of_the_program_runs_and_the_loop_goes_on():
    said = run_interrupted("""
        flag, seen = threading.Event(), []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        stop = lambda x: np.float32(-1 if seen else 1)
        run = lambda: lax.while_loop(
            lambda c: c[1] >= 0,
            lambda c: (lax.fori_loop(0, 100_000, lambda i, d: d * 0.5 + 1.0, c[0]),
                       amdjax.pure_callback(stop, amdjax.ShapeDtypeStruct((), jnp.float32), c[1])),
            (jnp.float32(0), jnp.float32(1)))[0]
        print("ready", flush=True)
        print(amdjax.jit(run)(), seen, signal.getsignal(signal.SIGINT) is not None)
    """)
    assert said == ["2.0 [1] True"]


def test_an_exception_of_a_handler_is_that_of_the_call():
    said = run_interrupted("""
        class Enough(Exception): pass
        def handler(*_): raise Enough("now")
        signal.signal(signal.SIGINT, handler)
        try:
            interrupted(endless(lambda c: (c[0] + 1, c[1]), 0))
        except Enough as e:
            print(e)
        check_usable()
    """)
    assert said[-1:] == ["now"]


def test_other_threads_go_on_while_the_main_thread_is_interrupted():
    said = run_interrupted("""
        check_usable()  # else the other thread waits for imports, which may be interrupted
        flag = np.ones(1, np.float32)
        read = lambda x: flag[0]
        run = endless(lambda c: (lax.fori_loop(0, 1000, lambda i, d: d * 0.5 + 1.0, c[0]),
                      amdjax.pure_callback(read, amdjax.ShapeDtypeStruct((), jnp.float32), c[1])),
                      jnp.float32(0))
        results = []
        thread = threading.Thread(target=lambda: results.append(amdjax.jit(run)()))
        thread.start()
        print("main", interrupted(endless(lambda c: (c[0] + 1, c[1]), 0)))
        flag[0] = -1
        thread.join(60)
        print(results[0][0])
        check_usable()
    """)
    assert said == ["main True", "2.0"]


def test_threads_that_loop_for_ever_do_not_keep_the_process():
    """Python shuts down while a daemon thread is in a native loop."""
    said = run_interrupted("""
        run = amdjax.jit(endless(lambda c: (c[0] + 1, c[1]), 0))
        threading.Thread(target=run, daemon=True).start()
        print(interrupted(endless(lambda c: (c[0][::-1] + 1, c[1]), jnp.ones(70))))
    """)
    assert said == ["True"]


def test_donated_arguments_of_an_interrupted_call_are_gone():
    said = run_interrupted("""
        x = jnp.ones((64, 33))
        loop = endless(lambda c: (c[0] + 1.0, c[1]), 0.0)
        run = amdjax.jit(lambda x: x + loop()[0], donate_argnums=0)
        print("ready", flush=True)
        try:
            run(x)
        except KeyboardInterrupt:
            print(x.is_deleted())
    """)
    assert said == ["True"]


@pytest.mark.parametrize("module", ["blocking", "micro_kernel", "dispatch"])
def test_an_interrupted_import_is_done_by_the_next_call(module):
    """Modules that were read stay without the packages that they are in."""
    program = f"""
        from importlib.machinery import SourceFileLoader

        read = SourceFileLoader.exec_module
        def interrupted(loader, module):
            if module.__name__ == "amdjax.kernels.products.cpu.{module}":
                SourceFileLoader.exec_module = read
                raise KeyboardInterrupt
            return read(loader, module)
        SourceFileLoader.exec_module = interrupted
        try:
            check_usable()
        except KeyboardInterrupt:
            check_usable()
            print("usable")
    """
    run = [sys.executable, "-c", HEAD + textwrap.dedent(program)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout == "usable\n", done.stderr
