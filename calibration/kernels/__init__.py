"""Single kernels: a law per family with a learned correction, fitted to measured rows and read by predictions."""
