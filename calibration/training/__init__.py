"""Measured training steps: which software ran them, and the few scalars of the step that they fit."""
