"""Calculon's three JSON files."""
