"""Cutting planes: 1-slack, n-slack, and the bundle method for any convex loss."""
