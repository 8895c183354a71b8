"""Loop nests on spatial accelerators: accesses, cycles and energy of one mapping, as pure functions of one point."""
