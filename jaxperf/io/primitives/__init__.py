"""What each primitive of JAX is to a device: its kind, its arithmetic, the bytes it moves and its kernels."""
