"""Descriptions of the machines code is generated for."""
