"""Execution traces of MLCommons' Chakra: binary and JSON, read as `Trace` and written."""
