"""Programs on the CPU: their kernels, and plans run by the program machine."""
