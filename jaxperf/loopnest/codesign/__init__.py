"""Machines compared or improved on the layers of a network."""
