"""Blocks that a checkpoint stores in several formats, of which `block_formats` reads one. Nothing here imports JAX."""

from __future__ import annotations

from jaxperf.models.block_formats import ATTENTION, DENSE, EXPERTS, SHARED, block_modules, scheme_of
from jaxperf.models.config import ModelConfig

_INTO_ATTENTION = (
    *("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "wqkv", "W_pack"),
    *("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
)
_INTO_DENSE = ("gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1", "dense_h_to_4h", "input_linear")
# Names of a block's last product -> names that the products before it have beside it, those of any architecture.
_BEFORE = {ATTENTION: _INTO_ATTENTION, **dict.fromkeys((DENSE, EXPERTS, SHARED), _INTO_DENSE)}

CALLED = {"mixer": "attention", "beside": "attention", "ffn": "feed-forward", "shared": "shared experts"}


def split_blocks(config: ModelConfig) -> dict[str, int]:
    """Block -> in how many layers the lists of the checkpoint say something else of its last product than of those
    before it; recurrent mixers are left out.

    Most of the names are of other architectures, which no list has: they are in the scheme of what is not listed. So a
    block whose last product is in that scheme is split where any other name is not, another where no other name is.
    """
    whole, found = config.quantization, dict[str, int]()
    if whole is None or not (whole.excluded or whole.targets or whole.others):
        return found
    usual = None if whole.targets else whole
    for index, layer in enumerate(config.layers):
        for block, last in block_modules(layer):
            if last not in _BEFORE:
                continue
            scheme = scheme_of(whole, index, last)
            before = [
                scheme_of(whole, index, (f"{parent}.{name}",)) for parent in _parents(last) for name in _BEFORE[last]
            ]
            if any(each != usual for each in before) if scheme == usual else scheme not in before:
                found[block] = found.get(block, 0) + 1
    return found


def _parents(modules: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(module.rpartition(".")[0] for module in modules if "." in module))
