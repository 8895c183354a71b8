"""Reinforcement learning from a model's own answers: generation, scoring and training put together to one iteration."""
