"""Steady state of engines in closed form: batches, queues, percentiles, one engine or two pools."""
