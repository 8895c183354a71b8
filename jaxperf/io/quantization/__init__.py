"""The `quantization_config` of Hugging Face configs, one function per method."""
