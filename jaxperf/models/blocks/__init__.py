"""The blocks of a layer on one rank of a deployment: one file for each kind of token mixer and feed-forward block.

A block says what it launches, what it keeps of a sequence, what its weights take and how it may be split. A new kind
is a dataclass in `models.mixers` or `models.feedforward`, a file here, its kernels, and a line in `blocks.catalog`.
"""
