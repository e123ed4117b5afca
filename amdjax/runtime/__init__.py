"""Devices, buffers, threads and loaded code."""
