"""SciPy's surface on traced arrays."""
