"""Measured collectives: a physical law times a bounded, smooth correction that what is alike shares."""
