"""Primitives, each with all its rules in one place."""
