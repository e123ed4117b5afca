"""Small libraries that show how others may be built: `stax` (layers) and `optimizers`."""

from amdjax.example_libraries import optimizers as optimizers, stax as stax
