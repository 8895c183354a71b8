"""The search for a training layout: all layouts of a cluster, the best of each, plans and pools."""
