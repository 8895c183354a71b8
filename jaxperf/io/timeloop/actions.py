"""Actions of energy tables: what each is called, of words, of metadata and of what zeros leave out."""

from __future__ import annotations

COMPUTE = "compute"
# Field of `Level` -> its action.
ENERGIES = {
    "read_energy": "read",
    "write_energy": "write",
    "update_energy": "update",
    "hop_energy": "hop",  # of a word, from one child to the next
    "leakage": "leak",
}
# Actions of a level with zeros and what energy tables call each, in the order in which they are looked for.
VERBS = {"reads": ("read",), "fills": ("fill", "write"), "updates": ("update", "write")}
KINDS = {
    "gated": ("gated_{}",),
    "skipped": ("skipped_{}", "gated_{}"),
    "metadata": ("metadata_{}",),
    "gated_metadata": ("gated_metadata_{}",),
    "skipped_metadata": ("skipped_metadata_{}", "gated_metadata_{}"),
}
COUNTED = ("decompression_count", "compression_count")
GATED_COMPUTE = ("gated_compute", "compute_gated", "mac_gated")
SKIPPED_COMPUTE = ("skipped_compute", "compute_skipped", "mac_skipped")

OF_LEVELS = (
    *ENERGIES.values(),
    *dict.fromkeys(
        pattern.format(verb)
        for patterns in KINDS.values()
        for pattern in patterns
        for verbs in VERBS.values()
        for verb in verbs
    ),
    *COUNTED,
)
OF_UNITS = (COMPUTE, "leak", *GATED_COMPUTE, *SKIPPED_COMPUTE)
