"""Programs on GPUs: their kernels, how plans are issued, and what can be asked of them."""
