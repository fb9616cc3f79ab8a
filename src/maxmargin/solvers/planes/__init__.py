"""Planes that are kept: arena and working set, the mean plane, the quadratic programme over planes, and long vectors."""
