"""Plans on devices: where programs run, their kernels, how they are issued and examined."""
