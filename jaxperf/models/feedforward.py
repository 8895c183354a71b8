"""Feed-forward blocks of a described model, dense and with experts. Nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.checks import check_counts, check_flags, check_optional_counts


@dataclass(frozen=True)
class Mlp:
    """Dense feed-forward block of `intermediate` units; `gated` has a third matrix (SwiGLU); `bias` on all matrices."""

    intermediate: int
    gated: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "intermediate")
        check_flags(self, "gated", "bias")


@dataclass(frozen=True)
class Moe:
    """Mixture of experts: a linear router sends each token to `experts_per_token` of `experts` blocks.

    **Fields:** `intermediate` units of one expert; `gated` as in `Mlp`, shared expert included;
    `shared_intermediate` units of what every token visits: the shared experts together, or the dense block beside
    the experts (Arctic, Llama 4), 0 = none; `shared_gate` a scalar gate (one row of hidden weights) on it
    (Qwen2-MoE); `bias` on all matrices of the routed experts (gpt-oss); `router_bias` one for each expert in the
    router (gpt-oss); `correction_bias` one for each expert, used to choose and not to weigh (DeepSeek V3);
    `latent` width the routed experts read and write, projected from the hidden width and back, `None` for the
    hidden width itself (Nemotron 3); the experts lie in `groups` of equal size, of which a token uses
    `groups_per_token` (DeepSeek V2 and V3); `unvisited` weights of experts, with their router, that tokens of another
    kind visit (ERNIE 4.5 VL: those of images): stored, and idle for tokens of text; `zero_experts` further choices of
    the router that stand for no block and cost nothing (LongCat-Flash), `experts_per_token` is what is visited beside
    them in the mean.
    """

    experts: int
    experts_per_token: int
    intermediate: int
    gated: bool = True
    shared_intermediate: int = 0
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    latent: int | None = None
    groups: int = 1
    groups_per_token: int = 1
    unvisited: int = 0
    zero_experts: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "experts", "experts_per_token", "intermediate", "groups", "groups_per_token")
        check_counts(self, "shared_intermediate", "unvisited", "zero_experts", smallest=0)
        check_optional_counts(self, "latent")
        check_flags(self, "gated", "shared_gate", "bias", "router_bias", "correction_bias")
        if self.experts_per_token > self.experts:
            raise InputError(
                f"Moe.experts_per_token is {self.experts_per_token} and Moe.experts is {self.experts}; "
                "a token cannot visit more experts than there are."
            )
        check_groups(self.experts, self.experts_per_token, self.groups, self.groups_per_token)
        if self.shared_gate and not self.shared_intermediate:
            raise InputError("Moe.shared_gate is true but Moe.shared_intermediate is 0; a gate needs a shared expert.")

    @property
    def choices(self) -> int:
        """What the router chooses from: experts, and those that do nothing [1]."""
        return self.experts + self.zero_experts


def check_groups(
    experts: int,
    chosen: int,
    groups: int,
    allowed: int,
    names: tuple[str, str] = ("Moe.groups", "Moe.groups_per_token"),
) -> None:
    """Raises `InputError`, with the `names` of the two counts, for `groups` that do not divide the experts, and for
    `allowed` ones that are more than there are or have fewer experts than a token visits."""
    if experts % groups:
        raise InputError(f"{names[0]} is {groups}, which does not divide the {experts} experts.")
    if allowed > groups:
        raise InputError(f"{names[1]} is {allowed} and {names[0]} is {groups}; a token cannot use more than there are.")
    if chosen > allowed * experts // groups:
        raise InputError(
            f"{names[1]} is {allowed} and {names[0]} is {groups}: a token's groups have {allowed * experts // groups} "
            f"experts, fewer than the {chosen} that it visits."
        )


FeedForward = Mlp | Moe
