"""How a checkpoint stores its weights: number of bits, shared scales, and what is left unquantized.

Nothing here imports JAX, so the number formats are names; what a name costs is in `jaxperf.core.formats`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hwspecs.errors import InputError
from jaxperf.models.checks import check_flag, check_text, show

SCALE_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "e8m0": 8}


@dataclass(frozen=True)
class Quantization:
    """One quantization scheme, applied to the matrices of the layers except `excluded`, or to its `targets` alone.

    **Fields:** `method` the name people use ("gptq", "fp8"); `weights` the nearest name of
    `jaxperf.core.formats.FORMATS`; `bits` of one stored weight, a fraction for codebooks; `group_size` weights that
    share one scale (`None`: a whole row, column or tensor, whose scale weighs nothing); `scale_format` of that scale
    ("fp32", "fp16", "bf16", "fp8", "int8", "e8m0"); `zero_points` a second number of `bits` beside each scale;
    `activations` the format they are quantized to when multiplied, `None` when they are not; `kv_cache` the format
    the checkpoint asks for, `None` when it does not; `excluded` names or patterns of modules that are not quantized;
    `unquantized` the format of those, of tables, norms and biases; `targets` names or patterns of the only modules in
    this scheme, none where it is that of all that have no other; `others` the schemes of further modules, each with
    its targets, which come before those of this one.
    """

    method: str
    weights: str
    bits: int | Fraction
    group_size: int | None = None
    scale_format: str = "fp16"
    zero_points: bool = False
    activations: str | None = None
    kv_cache: str | None = None
    excluded: tuple[str, ...] = ()
    unquantized: str = "bf16"
    targets: tuple[str, ...] = ()
    others: tuple[Quantization, ...] = ()

    def __post_init__(self) -> None:
        check_text("Quantization.method", self.method)
        check_text("Quantization.weights", self.weights)
        check_text("Quantization.unquantized", self.unquantized)
        if isinstance(self.bits, bool) or not isinstance(self.bits, (int, Fraction)) or not 0 < self.bits <= 32:
            raise InputError(f"Quantization.bits is {show(self.bits)}; it must be a number above 0 and at most 32.")
        if self.group_size is not None and (type(self.group_size) is not int or self.group_size < 1):
            raise InputError(f"Quantization.group_size is {show(self.group_size)}; it must be an integer from 1.")
        if self.scale_format not in SCALE_BITS:
            raise InputError(
                f"Quantization.scale_format is {show(self.scale_format)}; it must be one of {', '.join(SCALE_BITS)}."
            )
        check_flag("Quantization.zero_points", self.zero_points)
        for name in ("activations", "kv_cache"):
            if getattr(self, name) is not None:
                check_text(f"Quantization.{name}", getattr(self, name))
        for name in ("excluded", "targets"):
            listed = getattr(self, name)
            if not isinstance(listed, tuple) or not all(isinstance(each, str) for each in listed):
                raise InputError(f"Quantization.{name} is {show(listed)}; it must be a tuple of texts.")
        if not isinstance(self.others, tuple) or not all(isinstance(each, Quantization) for each in self.others):
            raise InputError(f"Quantization.others is {show(self.others)}; it must be a tuple of Quantization.")
        if any(each.others or not each.targets for each in self.others):
            raise InputError("An item of Quantization.others has others itself, or no targets; it needs targets alone.")


def bits_per_weight(quantization: Quantization) -> Fraction:
    """Stored bits of one quantized weight with its share of the scales [bit]: `bits + (scale + zero point) / group`."""
    if quantization.group_size is None:
        return Fraction(quantization.bits)
    shared = SCALE_BITS[quantization.scale_format] + (quantization.bits if quantization.zero_points else 0)
    return Fraction(quantization.bits) + Fraction(shared, quantization.group_size)
