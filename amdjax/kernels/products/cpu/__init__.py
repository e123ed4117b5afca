"""Contractions and depthwise convolutions on CPUs."""
