"""Where an answer's numbers come from: the tier of every kernel family a model uses, on every device asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwspecs.changed import own_launch_latency
from jaxperf.core.device import stand_in_of
from jaxperf.core.efficiency import FAMILIES, PROVENANCE
from jaxperf.core.formats import FORMATS
from jaxperf.core.sustained import MATRIX_FAMILIES
from jaxperf.core.sustained_file import TIERS, Calibration, class_on
from jaxperf.models.config import Layer, ModelConfig, Moe
from jaxperf.models.mixers import Attention, CompressedAttention, Mla, ShortConv

NAMED = 4  # so many devices of a tier are named; more are counted
WIDTHS = (
    "90 % interval of kernels, their errors taken as fully correlated; links and host over the range assumed of them"
)
WHY = {
    "measured": "",
    "adapted": " (a few rows of this device)",
    "transfer": " (no row of this device)",
    "assumed": " (nothing alike was measured)",
}


@dataclass(frozen=True)
class Provenance:
    """`tiers`: device -> family -> tier; `created`: when the parameters were fitted; `path`: which they are;
    `as_shipped`: device -> families that one's own parameters do not cover; `changed`: device -> facts in which it is
    not the device that was measured; `others`: parameters beside the rates that these are not of;
    `unread`: devices whose user states a `launch_latency` that floors of all these families stand for."""

    tiers: Mapping[str, Mapping[str, str]]
    created: str
    path: str
    as_shipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    others: str = ""
    unread: Sequence[str] = ()

    @property
    def calibrated(self) -> bool:
        """Whether any family of any device has fitted numbers."""
        return any(tier != "assumed" for each in self.tiers.values() for tier in each.values())

    @property
    def sentence(self) -> str:
        """One sentence: tiers, when they were fitted, and what the interval means."""
        if not self.calibrated:
            return PROVENANCE
        told = _one(*self.tiers.values()) if len(self.tiers) == 1 else _many(self.tiers)
        beside = f"{self._taken_over()}{self._differing()}{self._unread()}{self._apart()}"
        return f"calibrated: {told}, fitted {self.created[:7]}{beside}; {WIDTHS}"

    @property
    def without_interval(self) -> str:
        """The sentence where no interval is told, as of step times that were fitted again."""
        return self.sentence.removesuffix(f"; {WIDTHS}")

    def _apart(self) -> str:
        """That the rates were made from other parameters than those that they lie beside."""
        return f" ({self.path} was made from other parameters than {self.others})" if self.others else ""

    def _differing(self) -> str:
        """Which devices are not those that were measured by their names."""
        differing = [f"{name} in {', '.join(facts)}" for name, facts in self.changed.items() if facts]
        return f" (not the measured device: {'; '.join(differing)})" if differing else ""

    def _unread(self) -> str:
        """Whose launch latency is not that of its kernels; small all-reduces of several ranks read it still."""
        said = "its launch_latency is not read by kernels: fitted floors stand for it"
        return f" ({', '.join(self.unread)}: {said})" if self.unread else ""

    def _taken_over(self) -> str:
        """What the shipped rates stand in for, of parameters that are not the shipped ones."""
        lacking = {name: families for name, families in self.as_shipped.items() if families}
        if not lacking:
            return ""
        if len(self.tiers) > 1:
            who = ", ".join(lacking) if len(lacking) <= NAMED else f"{len(lacking)} devices"
            return f" (shipped rates where {self.path} has none: {who})"
        ((name, families),) = lacking.items()
        covered = [family for family, tier in self.tiers[name].items() if tier != "assumed" and family not in families]
        which = ", ".join(family.replace("_", " ") for family in families) if covered else "all of them"
        return f" (shipped rates where {self.path} has none: {which})"

    def least(self, device: str) -> str:
        """The least certain tier of a device."""
        return max(self.tiers[device].values(), key=TIERS.index)

    @property
    def record(self) -> dict[str, Any]:
        """As plain data; `efficiencies` is the sentence."""
        tiers = {device: dict(families) for device, families in self.tiers.items()}
        record = {"efficiencies": self.sentence, "tiers": tiers, "fitted": self.created, "parameters": self.path}
        taken_over = {device: list(families) for device, families in self.as_shipped.items() if families}
        changed = {device: list(facts) for device, facts in self.changed.items() if facts}
        return (
            record
            | ({"as_shipped": taken_over} if taken_over else {})
            | ({"changed_facts": changed} if changed else {})
            | ({"other_parameters": self.others} if self.others else {})
            | ({"launch_latency_not_read": list(self.unread)} if self.unread else {})
        )


def provenance_of(model: ModelConfig, calibrations: Mapping[str, Calibration], weights: Sequence[str]) -> Provenance:
    """The tiers that count for a model in some weight formats; of several formats the least certain."""
    families = families_of(model)
    tiers = {
        device: {family: _tier(calibration, family, weights) for family in families}
        for device, calibration in calibrations.items()
    }
    as_shipped = {
        device: tuple(
            family for family in families if _forms(calibration, family, weights) & calibration.as_shipped[family]
        )
        for device, calibration in calibrations.items()
    }
    tables = [calibration.table for calibration in calibrations.values()]
    created = str(tables[0].card.get("created", "")) if tables else ""
    changed = {device: calibration.changed for device, calibration in calibrations.items()}
    path, others = (tables[0].path, tables[0].others) if tables else ("", "")
    fitted = (name for name, each in tiers.items() if "assumed" not in each.values())
    unread = tuple(name for name in fitted if own_launch_latency(calibrations[name].spec))
    return Provenance(tiers, created, path, as_shipped, changed, others, unread)


def families_of(model: ModelConfig) -> tuple[str, ...]:
    """The kernel families that a model's steps launch, in the order of `FAMILIES`."""
    layers = [*model.layers, *(layer for tower in model.encoders for layer in tower.layers)]
    used = {"gemm", "elementwise"}.union(*map(_families_of_layer, layers))
    return tuple(family for family in FAMILIES if family in used)


def _families_of_layer(layer: Layer) -> set[str]:
    found = {"moe"} if isinstance(layer.ffn, Moe) else set()
    for mixer in (layer.mixer, layer.beside, layer.cross):
        if isinstance(mixer, Attention):
            found |= {"attention_prefill", "attention_decode"}
        elif isinstance(mixer, Mla | CompressedAttention):
            found |= {"attention_prefill", "mla_decode"}
        elif mixer is not None and not isinstance(mixer, ShortConv):
            found.add("linear_attention")
    return found


def _tier(calibration: Calibration, family: str, weights: Iterable[str]) -> str:
    """The least certain tier among the format classes that kernels of the family have; of what is multiplied in a
    stand-in nothing was measured."""
    found = {calibration.tiers[family][form] for form in _forms(calibration, family, weights)}
    stands_in = any(stand_in_of(calibration.spec, name) for name in _computes(family, weights))
    return max(found | {"transfer"} if stands_in else found, key=TIERS.index)


def _forms(calibration: Calibration, family: str, weights: Iterable[str]) -> set[str]:
    """The format classes of a family's kernels in some weight formats."""
    return {class_on(calibration.spec, name) for name in _computes(family, weights)}


def _computes(family: str, weights: Iterable[str]) -> list[str]:
    facts = [FORMATS[name] for name in weights]
    return [each.compute if family in MATRIX_FAMILIES else FORMATS[each.activations].compute for each in facts]


def _one(tiers: Mapping[str, str]) -> str:
    """`measured tier`, or which families have which tier."""
    groups: dict[str, list[str]] = {}
    for tier in TIERS:
        names = [family.replace("_", " ") for family, each in tiers.items() if each == tier]
        groups |= {tier: names} if names else {}
    if len(groups) == 1:
        (tier,) = groups
        return f"{tier} tier{WHY[tier]}"
    return "; ".join(f"{tier} tier for {', '.join(names)}{WHY[tier]}" for tier, names in groups.items())


def _many(devices: Mapping[str, Mapping[str, str]]) -> str:
    """Which devices have which tiers."""
    groups: dict[str, list[str]] = {}
    for device, tiers in devices.items():
        different = sorted(set(tiers.values()), key=TIERS.index)
        groups.setdefault(" and ".join(different), []).append(device)
    parts = []
    for tier in sorted(groups, key=lambda text: [TIERS.index(word) for word in text.split(" and ")]):
        names = groups[tier]
        who = ", ".join(names) if len(names) <= NAMED else f"{len(names)} devices"
        parts.append(f"{tier} tier for {who}")
    return "; ".join(parts)
