"""From fitted kernels to iterations: what a graph's kernels take on a device, and parameters of the composition."""
