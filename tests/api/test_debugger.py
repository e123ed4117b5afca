"""The prompt of `debug.breakpoint`, and what callbacks are given."""

import io

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp


def session(*commands):
    return io.StringIO("".join(f"{c}\n" for c in commands)), io.StringIO()


def stopped(run, *commands, **options):
    """What the prompt says to commands, in a function with the variables x and y = x + 1."""
    stdin, stdout = session(*commands)

    def f(x):
        y = x + 1
        amdjax.debug.breakpoint(stdin=stdin, stdout=stdout, **options)
        return y * 2

    result = run(f)
    return stdout.getvalue().removeprefix("Entering jdb:\n"), result


def test_prompt_shows_values_of_a_compiled_function():
    text, result = stopped(lambda f: amdjax.jit(f)(jnp.float32(2)), "p x, y", "y", "q_", "c")
    pair = "(Array(2., dtype=float32), Array(3., dtype=float32))"
    name = "*** NameError: name 'q_' is not defined"
    assert text == f"(jdb) {pair}\n(jdb) Array(3., dtype=float32)\n(jdb) {name}\n(jdb) "
    assert result == 6


def test_prompt_walks_frames():
    def run(f):
        def outer(z):
            return f(z)

        return amdjax.jit(outer)(jnp.float32(1))

    text, _ = stopped(run, "p z", "u", "p z", "l", "d", "d", "w", "c")
    answers = text.split("(jdb) ")
    assert "NameError" in answers[1]
    assert "->              return f(z)\n" in answers[2] and "test_debugger.py(" in answers[2]
    assert answers[3] == "Array(1., dtype=float32)\n"
    assert "def outer(z)" in answers[4]
    assert answers[6].startswith("At bottommost frame.\n")
    assert answers[7].startswith("Traceback:\n") and "return f(z)" in answers[7]


def test_number_of_frames():
    text, _ = stopped(lambda f: f(1.0), "u", "c", num_frames=1)
    assert "At topmost frame." in text


def test_prompt_under_transforms():
    batched = lambda f: amdjax.jit(amdjax.vmap(f))(jnp.arange(2.0))
    text, result = stopped(batched, "p y", "c", "p y", "c")
    again = "(jdb) Entering jdb:\n"
    shown = [f"(jdb) Array({n}., dtype=float32)\n" for n in (1, 2)]
    assert text == f"{shown[0]}{again}{shown[1]}(jdb) "
    np.testing.assert_array_equal(result, [2, 4])
    text, slope = stopped(lambda f: amdjax.grad(f)(3.0), "p y", "c")
    assert "4." in text and slope == 2


def test_end_of_commands_ends_the_program():
    with pytest.raises(SystemExit):
        stopped(lambda f: amdjax.jit(f)(1.0))


def test_variables_that_are_no_pytrees():
    stdin, stdout = session("p odd", "c")

    @amdjax.jit
    def f(x):
        odd = {lambda: 0: x, lambda: 1: x}
        amdjax.debug.breakpoint(stdin=stdin, stdout=stdout)
        return len(odd) * x

    f(1.0)
    assert "<cant_flatten>" in stdout.getvalue()


def test_token():
    stdin, stdout = session("p x", "c")

    @amdjax.jit
    def f(x):
        used = amdjax.debug.breakpoint(token=x * 2, stdin=stdin, stdout=stdout)
        amdjax.debug.breakpoint(token=x * 3, stdin=stdin, stdout=stdout)  # is not used
        return used

    assert f(4.0) == 8
    assert stdout.getvalue().count("Entering") == 1
    with pytest.raises(ValueError, match="mutually exclusive"):
        amdjax.debug.breakpoint(token=1.0, ordered=True)
    with pytest.raises(ValueError, match="backend"):
        amdjax.debug.breakpoint(backend="web")


@pytest.mark.parametrize("call", [
    lambda seen, x: amdjax.debug.callback(seen.append, x),
    lambda seen, x: amdjax.io_callback(seen.append, None, x),
    lambda seen, x: amdjax.pure_callback(lambda y: seen.append(y) or y, x, x),
])  # fmt: skip
def test_callbacks_may_keep_what_they_are_given(call):
    seen = []

    def step(i, x):
        out = call(seen, x)
        return (x if out is None else out) + 1

    amdjax.jit(lambda x: amdjax.lax.fori_loop(0, 5, step, x))(jnp.zeros(1000)).block_until_ready()
    assert [float(x[0]) for x in seen] == [0, 1, 2, 3, 4]
    assert all(isinstance(x, amdjax.Array) for x in seen)


def test_shardings_of_traced_values():
    seen = []

    @amdjax.jit
    def f(x):
        amdjax.debug.inspect_array_sharding({"a": x, "b": [x * 2]}, callback=seen.append)
        return x

    f(jnp.ones(3))
    assert [s.device_set for s in seen] == [set(amdjax.devices("cpu"))] * 2
    amdjax.vmap(lambda x: amdjax.debug.inspect_array_sharding(x, callback=seen.append))(
        jnp.ones((2, 3))
    )
    assert len(seen) == 3


def test_grid_of_devices(capsys):
    class Device:
        platform = "cpu"

        def __init__(self, id):
            self.id = id

    devices = np.array([Device(i) for i in range(4)]).reshape(2, 2)
    mesh = amdjax.sharding.Mesh(devices, ("x", "y"))
    sharding = amdjax.sharding.NamedSharding(mesh, amdjax.P("x", "y"))
    amdjax.debug.visualize_sharding((4, 4), sharding)
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "┌──────────┬──────────┐"
    assert lines[2] == "│  CPU 0   │  CPU 1   │"
    assert lines[5] == "├──────────┼──────────┤"
    assert {len(line) for line in lines if line} == {23}
    shared = amdjax.sharding.NamedSharding(mesh, amdjax.P("y"))
    amdjax.debug.visualize_sharding((4,), shared)
    assert capsys.readouterr().out.split("\n")[1] == "│CPU 0,2│CPU 1,3│"
    with pytest.raises(ValueError, match="1 and 2 dimensions"):
        amdjax.debug.visualize_sharding((2, 2, 2), shared)
