"""Chains of nests that keep what they hand on: mappings, their cost, and the search for the best."""
