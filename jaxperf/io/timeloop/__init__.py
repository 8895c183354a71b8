"""Timeloop's files: cases in JSON and YAML, tables of mapped nests, sparse designs, mappings written back."""
