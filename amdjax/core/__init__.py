"""Avals, dtypes, primitives, jaxprs, traces, pytrees, errors and flags."""
