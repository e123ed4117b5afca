"""Contractions and depthwise convolutions on GPUs."""
