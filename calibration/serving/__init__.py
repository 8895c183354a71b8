"""Measured serving benchmarks: what the tables leave unsaid, and the few scalars of engines and clients they fit."""
