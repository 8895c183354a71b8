"""Names of number formats whose weights share scales in groups: `int4_g32`, `int4_asym_g64`, `int6_asym_g64s32`.

`g` is followed by the weights of a group and `s` by the bits that the group shares, scale and zero point, where they
are not those of the format. Integers of other than 4 and 8 bits have such names only. Nothing here imports JAX.
"""

from __future__ import annotations

import re

USUAL_GROUP = 128
UNLISTED = (2, 3, 5, 6, 7)  # bits of weights that are counted and multiplied as those of `int4`
# Format -> (bits of a weight, bits of scale and zero point of a group); without `g` in the name 128 weights share them.
IN_GROUPS = {"int4": (4, 16), "int4_asym": (4, 20), "int4_fp8": (4, 16), "int8_group": (8, 16)} | {
    f"int{bits}{kind}": (bits, 16 + (bits if kind else 0)) for bits in UNLISTED for kind in ("", "_asym")
}
_NAME = re.compile(rf"({'|'.join(IN_GROUPS)})(?:_g([1-9]\d{{0,6}})(?:s(\d{{1,3}}))?)?")


def group_name(base: str, group: int, shared: int) -> str:
    """The name of the format `base` with `group` weights that share `shared` bits."""
    own = "" if shared == IN_GROUPS[base][1] else f"s{shared}"
    return base if group == USUAL_GROUP and not own else f"{base}_g{group}{own}"


def in_groups(name: str) -> tuple[str, float] | None:
    """(the listed format that is multiplied alike, stored bits of a weight with its share) of such a name; or None."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    bits, shared = IN_GROUPS[found[1]]
    group = USUAL_GROUP if found[2] is None else int(found[2])
    listed = "int4" if bits in UNLISTED else found[1]
    return listed, bits + (shared if found[3] is None else int(found[3])) / group
