"""Where libraries written for JAX register what their own primitives mean."""

from amdjax.interpreters import (
    ad as ad,
    batching as batching,
    mlir as mlir,
    partial_eval as partial_eval,
    pxla as pxla,
    xla as xla,
)
