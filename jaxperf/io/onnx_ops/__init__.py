"""What each ONNX operator is to a device, in the terms of `jaxperf.io.primitives`."""
