"""Design: the cores and the memory of a device that serves a model within its targets at the least cost."""
