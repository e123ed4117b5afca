import ctypes
import shutil
import subprocess

import pytest

from amdjax.emulator.hip.jump_library import JumpLibrary, shared_library
from tests.support.hip_calls import LINUX_X86

pytestmark = LINUX_X86
ADD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_double)
NAMES = [f"function_{i}" for i in range(300)]


@pytest.fixture(scope="module")
def library():
    functions = {name: ADD(lambda a, b, i=i: a + int(b) + i) for i, name in enumerate(NAMES)}
    return JumpLibrary("libamdjaxtest.so", functions)


def test_functions_are_found_and_get_their_arguments(library):
    opened = ctypes.CDLL(library.path)
    for i, name in enumerate(NAMES):
        assert getattr(opened, name)(1000, ctypes.c_double(20.5)) == 1020 + i


def test_the_soname_finds_it(library):
    opened = ctypes.CDLL("libamdjaxtest.so")
    assert opened.function_7(0, ctypes.c_double(0)) == 7


def test_a_name_that_is_not_exported(library):
    with pytest.raises(AttributeError, match="function_300"):
        _ = library.handle.function_300


def test_two_libraries_keep_apart(library):
    other = JumpLibrary("libamdjaxtest.so", {"function_7": ADD(lambda a, b: -1)})
    assert other.handle.function_7(0, ctypes.c_double(0)) == -1
    assert library.handle.function_7(0, ctypes.c_double(0)) == 7


def test_readelf_agrees(tmp_path):
    tool = shutil.which("readelf") or pytest.skip("needs readelf")
    path = tmp_path / "lib.so"
    path.write_bytes(shared_library("libx.so", ["first", "second"]))
    done = subprocess.run(
        [tool, "--wide", "--headers", "--dynamic", path], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    assert "Library soname: [libx.so]" in done.stdout
    assert "R E" in done.stdout and "RWE" not in done.stdout
