"""Structured prediction with a margin."""
