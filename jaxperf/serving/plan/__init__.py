"""Plans of serving systems: what is tried, its steady state, the verdicts, and the best ones simulated."""
