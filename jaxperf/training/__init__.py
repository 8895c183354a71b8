"""L4: distributed training: layouts, step time, memory, uncertainty, search."""
