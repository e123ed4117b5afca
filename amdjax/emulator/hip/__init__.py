"""The emulator as `libamdhip64.so`, and the platform `emulated` that runs on it."""
