"""What engines do to a plain step of decode or prefill: one file a technique, each a pure function of one point."""
