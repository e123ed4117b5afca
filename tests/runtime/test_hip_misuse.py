"""What programs do to memory and modules that are gone, or going."""

from ctypes import byref, c_size_t

import numpy as np
import pytest

from tests.support.hip_calls import MEMORY, ON_DEVICE, ONES, Hip
from tests.support.hip_kernels import code_object, saxpy_arguments

NBYTES = ONES.nbytes


@pytest.fixture
def hip():
    return Hip("gfx942")


def replay(hip, stream, issue):
    """A function that launches what `issue` puts into a stream as a graph, and waits."""
    assert hip.hipStreamBeginCapture(c_size_t(stream), 0) == "Success"
    assert issue() == "Success"
    graph = c_size_t()
    assert hip.hipStreamEndCapture(c_size_t(stream), byref(graph)) == "Success"
    run = hip.make("hipGraphInstantiateWithFlags", graph, c_size_t(0))

    def launch() -> str:
        assert hip.hipGraphLaunch(c_size_t(run), c_size_t(stream)) == "Success"
        return hip.hipStreamSynchronize(c_size_t(stream))

    return launch


def issues(hip, gone, kept, stream):
    size, stream = c_size_t(NBYTES), c_size_t(stream)
    return {
        "source": lambda: hip.hipMemcpyAsync(kept, gone, size, ON_DEVICE, stream),
        "destination": lambda: hip.hipMemcpyAsync(gone, kept, size, ON_DEVICE, stream),
        "fill": lambda: hip.hipMemsetAsync(gone, 1, size, stream),
    }


@pytest.mark.parametrize("use", ["source", "destination", "fill"])
def test_a_graph_outlives_memory_it_copies(hip, use):
    gone, kept, stream = hip.upload(ONES), hip.upload(ONES), hip.make("hipStreamCreate")
    launch = replay(hip, stream, issues(hip, gone, kept, stream)[use])
    assert launch() == "Success"
    assert hip.hipFree(gone) == "Success"
    assert launch() == "IllegalAddress"
    assert "after its release" in hip.text("IllegalAddress")
    assert (hip.download(kept, 64) == 1).all()


def test_a_graph_outlives_its_module(hip):
    x, y, stream = hip.upload(ONES), hip.upload(ONES), hip.make("hipStreamCreate")
    module = hip.make("hipModuleLoadData", code_object("gfx942"))
    function = hip.make("hipModuleGetFunction", c_size_t(module), b"saxpy")
    arguments = saxpy_arguments(x, y, 64, 1.0)
    launch = replay(hip, stream, lambda: hip.launch(function, arguments, stream=stream))
    assert launch() == "Success"
    assert hip.hipModuleUnload(c_size_t(module)) == "Success"
    assert launch() == "LaunchFailure"
    assert "after its module was unloaded" in hip.text("LaunchFailure")
    np.testing.assert_array_equal(hip.download(y, 64), 2)


def test_memory_is_freed_once(hip):
    stream = c_size_t(hip.make("hipStreamCreate"))
    twice, mixed = hip.upload(ONES), hip.upload(ONES)
    for _ in range(2):
        assert hip.hipFreeAsync(twice, stream) == "Success"
    assert hip.hipStreamSynchronize(stream) == "InvalidValue"
    assert hip.hipFreeAsync(mixed, stream) == "Success"
    assert hip.hipFree(mixed) == "InvalidValue"
    pinned = hip.make("hipHostMalloc", c_size_t(64), 0)
    assert hip.hipFreeAsync(pinned, stream) == "InvalidValue"
    assert hip.hipHostFree(pinned) == "Success"
    hip.make("hipMalloc", c_size_t(MEMORY))  # all of it came back


@pytest.mark.parametrize("nbytes", [1 << 50, (1 << 63) - 1, (1 << 64) - 1])
def test_more_pinned_memory_than_there_can_be(hip, nbytes):
    assert hip.hipHostMalloc(byref(c_size_t()), c_size_t(nbytes), 0) == "OutOfMemory"
