"""Megatron-style argument lists."""
