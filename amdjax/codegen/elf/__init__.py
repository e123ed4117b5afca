"""AMD code objects: the linker that makes them, in Python, and what they say of their kernels."""
