"""Our own operation graphs: what an eager framework launches for a model, built from its description.

A model is a Python function that calls operations on a `Tape`, in the order a framework would; each operation records
one `jaxperf.models.graph.Node` with the kernels of its forward pass and, when training, of its backward pass and of the
accumulation into its parameters' gradients. `catalog.workload` gives the graph of a description or of a model that is
built in; models of a shipped name or a config file are opened in `jaxperf.io.workloads`. Nothing here imports JAX.
"""
