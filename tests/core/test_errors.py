import traceback

import pytest

import amdjax
from amdjax import errors
from amdjax.core import tracebacks
from amdjax.core.boundaries import api_boundary
from amdjax.core.config import State, config
from amdjax.core.errors import leaked_tracer_message


class Tracer:
    aval = "float32[3]"

    def _origin_msg(self):
        return "It was made at model.py:3 (f)."


class BareTracer:
    aval = "int32[]"


CLASSES = {
    errors.ConcretizationTypeError: TypeError,
    errors.NonConcreteBooleanIndexError: IndexError,
    errors.TracerArrayConversionError: TypeError,
    errors.TracerIntegerConversionError: TypeError,
    errors.TracerBoolConversionError: errors.ConcretizationTypeError,
}


@pytest.mark.parametrize("cls,base", CLASSES.items())
def test_messages_teach(cls, base):
    e = cls(Tracer())
    assert isinstance(e, base)
    text = str(e)
    assert "float32[3]" in text
    assert "model.py:3" in text
    assert "amdjax." in text  # what to write instead
    assert "int32[]" in str(cls(BareTracer()))


def test_bases():
    assert issubclass(errors.JAXTypeError, TypeError)
    assert issubclass(errors.JAXIndexError, IndexError)
    assert issubclass(errors.NonConcreteBooleanIndexError, errors.JAXIndexError)
    assert issubclass(errors.UnexpectedTracerError, errors.JAXTypeError)
    assert issubclass(errors.KeyReuseError, errors.JAXTypeError)
    assert issubclass(errors.JaxRuntimeError, RuntimeError)
    assert issubclass(errors.JaxprTypeError, TypeError)


def test_context_and_leaks():
    e = errors.ConcretizationTypeError(Tracer(), "jnp.arange needs its length.")
    assert "jnp.arange needs its length." in str(e)
    e = errors.UnexpectedTracerError(leaked_tracer_message(Tracer(), "In f."))
    assert "float32[3]" in str(e) and "model.py:3" in str(e) and "jax_check_tracer_leaks" in str(e)
    assert "split" in str(errors.KeyReuseError("Key k was used twice."))


def compile_internal(source, name):
    """Define a function as if its file were part of the package."""
    namespace = {}
    exec(compile(source, tracebacks.PACKAGE_DIR + "fake.py", "exec"), namespace)
    return namespace[name]


CALLER = """
def call(f, *args):
    return deeper(f, *args)
def deeper(f, *args):
    return f(*args)
"""


def test_user_frame_skips_internal_frames():
    call = compile_internal(CALLER, "call")
    assert tracebacks.user_frame().f_code.co_name == "test_user_frame_skips_internal_frames"
    assert call(tracebacks.user_frame).f_code.co_filename == __file__


def frames(e):
    return [f.filename for f in traceback.extract_tb(e.__traceback__)]


def test_api_boundary_filters():
    api = api_boundary(compile_internal(CALLER, "call"))

    def user():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        api(user)
    files = frames(caught.value)
    assert not any(f.endswith("fake.py") for f in files)
    assert files[0] == files[-1] == __file__
    with pytest.raises(ValueError) as caught:
        api(api, user)
    assert not any(f.startswith(tracebacks.PACKAGE_DIR) for f in frames(caught.value))


def test_api_boundary_shows_all_on_request():
    api = api_boundary(compile_internal(CALLER, "call"))
    config.update("traceback", "full")
    try:
        with pytest.raises(ZeroDivisionError) as caught:
            api(lambda: 1 / 0)
    finally:
        config.update("traceback", "filtered")
    assert any(f.endswith("fake.py") for f in frames(caught.value))


def test_frames_left_out_are_noted_once_on_request():
    api = api_boundary(compile_internal(CALLER, "call"))
    with State("traceback")("noted"), pytest.raises(ZeroDivisionError) as caught:
        api(api, lambda: 1 / 0)
    (note,) = caught.value.__notes__
    assert "AMDJAX_TRACEBACK=full" in note
    assert files_outside(caught.value)


def files_outside(error):
    return not any(f.startswith(tracebacks.PACKAGE_DIR) for f in frames(error))


@pytest.mark.parametrize("name", ["ConcretizationTypeError", "TracerBoolConversionError"])
def test_errors_of_tracing_name_the_page_that_explains_them(name):
    class Unknown(amdjax.core.Tracer):
        pass

    error = getattr(amdjax.errors, name)(Unknown(None))
    assert f"errors.html#jax.errors.{name}" in str(error)


def test_api_boundary_keeps_a_fully_internal_traceback():
    api = api_boundary(compile_internal("def f():\n    return 1 / 0\n", "f"))
    with pytest.raises(ZeroDivisionError) as caught:
        api()
    assert frames(caught.value)[0] == __file__


def test_api_boundary_keeps_name_and_result():
    @api_boundary
    def f(x, *, y=1):
        """Doc."""
        return x + y

    assert f(1, y=2) == 3
    assert f.__name__ == "f" and f.__doc__ == "Doc."


def test_warnings_point_at_the_user():
    warn = compile_internal("def w(warn):\n    warn('careful')\n", "w")
    with pytest.warns(UserWarning, match="careful") as caught:
        warn(tracebacks.warn)
    assert caught[0].filename == __file__
