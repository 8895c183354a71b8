"""Replay of execution traces on another device, topology or number of ranks, without a run."""
