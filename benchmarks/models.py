"""Whole networks: training steps and inference."""

from __future__ import annotations

from . import gpt, mlp, resnet

WORKLOADS = [mlp.STEP, resnet.INFERENCE, resnet.STEP, gpt.STEP]
