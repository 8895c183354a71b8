"""Gemmini's cycles fitted to those of its RTL."""
