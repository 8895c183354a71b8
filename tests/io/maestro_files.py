"""The mappings of MAESTRO's two validations (github.com/maestro-project/maestro, validation/), stated anew in short.

`S` and `T` are `SpatialMap` and `TemporalMap`, `K16` is `(16,16) K`, `R*` all of a loop; clusters end at `|`.
"""

from __future__ import annotations

import re

# K, C, Y = X of VGG-16's convolutions, without padding (arXiv:1409.1556, table 1).
VGG16 = [(64, 3, 224), (64, 64, 224), (128, 64, 112), (128, 128, 112), (256, 128, 56), (256, 256, 56), (256, 256, 56)]
VGG16 += [(512, 256, 28), (512, 512, 28), (512, 512, 28), (512, 512, 14), (512, 512, 14), (512, 512, 14)]
MAERI = "TC1 SK1 TY'1 TX'1 TR* TS* |R* SY1 SR1 |S* SX1 SS1"
MAERI_MACHINE = "NumPEs: 256\nNoC_BW: 1000000000\nNoC_NumHops: 0\n"

# Eyeriss, row stationary, on AlexNet with a batch of 4: K, C, R = S, Y = X, stride, directives.
ALEXNET = [
    (96, 3, 11, 227, 4, "SY'1 TX'1 TN1 TC1 TK16 TR* TS* |R* TN1 TC1 TK2 SY1 SR1 TS*"),
    (256, 48, 5, 31, 1, "SY'1 TX'1 TN1 TC2 TK16 TR* TS* |R* TC1 SY1 SR1 TS*"),
    (384, 256, 3, 15, 1, "TN4 SK16 TC4 TY'13 TX15,13 TR* TS* |13 TN4 TK16 TC4 SY'1 TX15,13 TR* TS* "
     "|R* TN4 TC4 TK16 TX'13 SY1 SR1 TS*"),
    (384, 192, 3, 15, 1, "TN4 TC6 SK16 TY'13 TX'13 TR* TS* |2 TN4 SC3 TK16 TY'13 TX'1 TR* TS* "
     "|13 TN4 TC3 TK16 SY'1 TX'1 TR* TS* |R* TN1 TC1 TK1 TX'1 SY1 SR1 TS*"),
    (256, 192, 3, 15, 1, "TN4 TC6 SK16 TY'13 TX'13 TR* TS* |2 TN4 SC3 TK16 TY'13 TX'8 TR* TS* "
     "|13 TN1 TC3 TK16 SY'1 TX'1 TR* TS* |R* TN1 TC1 TK2 TX'1 SY1 SR1 TS*"),
]  # fmt: skip
EYERISS_MACHINE = "NumPEs: 168\nL1Size: 5120\nL2Size: 1024000\nNoC_BW: 14\nNoC_NumHops: 1\n"

SHORT = re.compile(r"(?P<kind>[ST])(?P<loop>[A-Z]'?)(?P<size>\*|\d+)(?:,(?P<offset>\d+))?")


def directives(short: str) -> str:
    """A dataflow as MAESTRO writes it."""
    lines = []
    for word in short.split():
        if word.startswith("|"):
            size = word[1:]
            lines.append(f"Cluster({f'Sz({size[0]})' if size.endswith('*') else size}, P);")
            continue
        found = SHORT.fullmatch(word)
        assert found is not None, word
        size = f"Sz({found['loop']})" if found["size"] == "*" else found["size"]
        kind = {"S": "SpatialMap", "T": "TemporalMap"}[found["kind"]]
        lines.append(f"{kind}({size},{found['offset'] or size}) {found['loop']};")
    return "\n".join(lines)


def layer(name: str, dimensions: str, stride: int, short: str) -> str:
    return f"""Layer {name} {{
Type: CONV
Stride {{ X: {stride}, Y: {stride} }}
Dimensions {{ {dimensions} }} // as the file has it
Dataflow {{
{directives(short)}
}}
}}
"""


def maeri() -> str:
    layers = [
        layer(f"CONV{number}", f"K: {k}, C:{c}, R: 3, S: 3, Y: {side}, X: {side}", 1, MAERI)
        for number, (k, c, side) in enumerate(VGG16, 1)
    ]
    return f"Network VGG16 {{\n{''.join(layers)}}}\n"


def eyeriss() -> str:
    layers = [
        layer(f"CONV{number}", f"N 4, K {k}, C {c}, R {kernel}, S {kernel}, Y {side}, X {side}", stride, short)
        for number, (k, c, kernel, side, stride, short) in enumerate(ALEXNET, 1)
    ]
    return f"Network alexnet {{\n{''.join(layers)}}}\n"
