"""Planes that are kept: arena, cache and working set, the quadratic programme over them, and long vectors."""
