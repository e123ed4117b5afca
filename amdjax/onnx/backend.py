"""ONNX's Backend interface: `prepare`, `run_model`, `run_node`, `supports_device`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from amdjax.runtime.devices import devices

from .errors import OnnxError
from .model import Model, load
from .reading import read_tensor

#: Names that ONNX has for devices, and platforms that they stand for.
_PLATFORMS = {"CPU": "cpu", "CUDA": "gpu", "ROCM": "gpu", "GPU": "gpu"}


class PreparedModel(BackendRep):
    """A model that is ready to run.

    Args:
      model: the model.
    """

    def __init__(self, model: Model, device: str = "CPU") -> None:
        self.model = model
        self.device = device

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs as arrays of NumPy.

        Args:
          inputs: arrays in the order of the model's inputs, one array, or arrays by name.
        """
        if isinstance(inputs, dict):
            made = self.model(**{name: _given(value) for name, value in inputs.items()})
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            made = self.model(*map(_given, given))
        return tuple(_plain(made[v.name]) for v in self.model.outputs)


class AmdjaxBackend(Backend):
    """ONNX's Backend interface to amdjax."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether each operator has a rule."""
        try:
            load(model)
        except OnnxError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """A model that is ready to run.

        Args:
          model: a `ModelProto`, or what else `load` takes.
          device: `"CPU"`, or `"ROCM"` where there is a GPU.
          kwargs: as for `load`.
        """
        if not cls.supports_device(device):
            raise OnnxError(f"device: there is no {device!r} here")
        return PreparedModel(load(model, **kwargs), device)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node.

        Args:
          node: a `NodeProto`.
          inputs: its inputs, in their order.
          device: as for `prepare`.
          outputs_info: not needed.
          kwargs: `opset_version`, the newest by default.
        """
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        named = [name for name in node.input if name]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name) for name in named],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device here."""
        platform = _PLATFORMS.get(device.partition(":")[0])
        if platform is None:
            return False
        try:
            return bool(devices(platform))
        except RuntimeError:
            return False


def _given(value: Any) -> Any:
    """An input, which may be a message."""
    return read_tensor(value, None) if isinstance(value, onnx.TensorProto) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if value is None else np.asarray(value)


prepare = AmdjaxBackend.prepare
run_node = AmdjaxBackend.run_node
run_model = AmdjaxBackend.run_model
supports_device = AmdjaxBackend.supports_device
is_compatible = AmdjaxBackend.is_compatible

__all__: Sequence[str] = [
    "AmdjaxBackend", "PreparedModel", "is_compatible", "prepare", "run_model", "run_node",
    "supports_device",
]  # fmt: skip
