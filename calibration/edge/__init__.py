"""Latency of whole convolutional networks on phones, boards, FPGA, CPUs and GPUs, from a few measured ones."""
