"""Products of matrices, and what is added to them."""

from __future__ import annotations

import re
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.dtypes import canonicalize_dtype

from ..nodes import Node
from ..registry import rule
from .arithmetic import check_same_dtype


def _adjoint(x: Any, conjugates: bool) -> Any:
    y = jnp.swapaxes(x, -1, -2)
    return jnp.conj(y) if conjugates and y.dtype.kind == "c" else y


@rule("MatMul", only_device=True)
def mat_mul(node: Node, a: Any, b: Any) -> Any:
    if a.ndim != 2 or b.ndim != 2:
        raise node.error(f"inputs must be matrices, got shapes {a.shape} and {b.shape}")
    a = _adjoint(a, False) if node.flag("transpose_a") else a
    b = _adjoint(b, False) if node.flag("transpose_b") else b
    return _product(node, a, b)


@rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", only_device=True)
def batch_mat_mul(node: Node, x: Any, y: Any) -> Any:
    if x.ndim < 2 or y.ndim < 2:
        raise node.error(f"inputs must be matrices, got shapes {x.shape} and {y.shape}")
    x = _adjoint(x, True) if node.flag("adj_x") else x
    y = _adjoint(y, True) if node.flag("adj_y") else y
    return _product(node, x, y)


def _product(node: Node, x: Any, y: Any) -> Any:
    result = node.dtype("Tout") if "Tout" in node.attributes else x.dtype
    if node.op != "BatchMatMulV3":
        check_same_dtype(node, x, y)
    return jnp.matmul(x, y, preferred_element_type=canonicalize_dtype(result))


@rule("Einsum", only_device=True)
def einsum(node: Node, *inputs: Any) -> Any:
    equation = node.text("equation", None)
    if not re.fullmatch(r"[A-Za-z.,\s]*->[A-Za-z.\s]*", equation):
        raise node.error(f"the attribute 'equation' is no equation: {equation!r}")
    check_same_dtype(node, *inputs)
    return jnp.einsum(equation, *inputs)


@rule("BiasAdd", "BiasAddV1", only_device=True)
def bias_add(node: Node, value: Any, bias: Any) -> Any:
    check_same_dtype(node, value, bias)
    layout = node.text("data_format", "NHWC", ("NHWC", "NCHW", "NDHWC", "NCDHW"))
    axis = 1 if layout.startswith("NC") and value.ndim > 2 else value.ndim - 1
    if bias.ndim != 1 or value.ndim < 2:
        raise node.error(f"bias must be a vector, got shapes {value.shape} and {bias.shape}")
    if bias.shape[0] != value.shape[axis]:
        raise node.error(f"bias has {bias.shape[0]} elements for {value.shape[axis]} channels")
    return value + bias.reshape([-1 if i == axis else 1 for i in range(value.ndim)])
