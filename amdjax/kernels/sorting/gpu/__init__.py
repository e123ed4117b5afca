"""Ways of sorting on GPUs: bitonic networks, and digits for long rows."""
