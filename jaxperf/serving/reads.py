"""What a model reads of a question about it: an argument that changes nothing is told, not answered in silence."""

from __future__ import annotations

from jaxperf.models.config import ModelConfig, Moe
from jaxperf.models.parameters import kv_bytes_per_token
from jaxperf.serving.study_values import LENGTHS, MEDIA


def makes_tokens(model: ModelConfig) -> bool:
    """Whether the model has an encoder that makes tokens of a prompt from images or sound."""
    return bool(model.layers) and any(
        tower.kind == "image" or (tower.kind == "audio" and not crosses(model)) for tower in model.encoders
    )


def crosses(model: ModelConfig) -> bool:
    """Whether any layer reads an encoder's tokens by cross-attention: they are no part of the prompt."""
    return any(layer.cross is not None for layer in model.layers)


def own_tokens(model: ModelConfig) -> dict[str, int]:
    """Tokens that a model reads whatever the prompt, by kind of input: those of encoders of fixed lengths that are all
    of it; empty for any other model."""
    found = {tower.kind: tower.length for tower in model.encoders if tower.length is not None}
    return {} if model.layers or any(tower.length is None for tower in model.encoders) else found


def unread(model: ModelConfig, name: str) -> str:
    """A sentence that an argument of a question changes nothing of the model, and why; empty where it is read."""
    own = " and ".join(f"{length:,} of {kind}" for kind, length in own_tokens(model).items())
    keeps = kv_bytes_per_token(model, 1) > 0 or crosses(model)
    found = {
        **{length: own and f"reads tokens of its own ({own})" for length in LENGTHS},
        MEDIA: "" if makes_tokens(model) else "has no encoder that makes tokens of a prompt",
        "source": "" if crosses(model) else "has no cross-attention",
        "outputs": "" if model.layers else "generates no tokens",
        "routing_skew": "" if any(isinstance(layer.ffn, Moe) for layer in model.layers) else "has no experts",
        "kv_cache": "" if keeps else "keeps no keys and values",
    }
    why = found.get(name, "")
    return why and f"'{name}' changes nothing of {model.name}, which {why}; leave it out."
