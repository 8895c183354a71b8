"""Step time as a distribution: who waits for whom, from a group of ranks to a cluster."""
