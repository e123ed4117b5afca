"""ONNX's own node cases: models with inputs and the outputs that its reference computed."""

import functools
import pathlib
import warnings
import zlib

import numpy as np

KNOWN = pathlib.Path(__file__).parent / "onnx_departures.txt"


@functools.cache
def cases():
    """All cases, by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def departures():
    """Names of cases that are not passed, with the reason."""
    lines = KNOWN.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def due(part, parts, rotation, shares):
    """Cases of one part that have their turn: one in so many, another each day."""
    for name, case in cases().items():
        number = zlib.crc32(name.encode())
        if number % parts == part and (number // parts + rotation) % shares == 0:
            yield name, case


def failure(case):
    """What goes wrong with a case, or None."""
    import onnx
    from onnx.backend.test.runner import Runner

    from amdjax.onnx import backend

    plain = lambda x: onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x
    try:
        prepared = backend.prepare(case.model)
        for inputs, outputs in case.data_sets:
            made = prepared.run(list(inputs))
            Runner.assert_similar_outputs(list(map(plain, outputs)), made, case.rtol, case.atol)
    except Exception as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return None
