"""What devices sustain in composed steps: three numbers a kernel family, fitted to the kernels of serving engines."""
