"""Loads and stores: allocations, their shadows, and the handlers of accesses."""
