"""Several engines on one device: each simulated request by request, its steps as slow as the others make them."""
