"""Which devices a kernel can run on, as far as the names of its software tell it.

A library of one maker's instructions runs on no other maker's devices, and on none before the instructions it is
written in. What is not named here may run anywhere. All recalled, none re-read: the README of FlashAttention (2:
Ampere, Ada, Hopper, AMD's since CDNA 2; 3: written for Hopper, built for Ampere and Ada too; 4: Hopper and Blackwell),
SGLang's check of its backend with FlashAttention 3 (SM>=80 and SM<=90), the READMEs of FlashMLA and DeepGEMM (Hopper,
Blackwell), FlashInfer (Turing and later) and Marlin (Ampere and later), TensorRT-LLM's support matrix (Ampere and
later), and the README of Triton with its backend for Intel's GPUs. Whoever measured a kernel on a device knows better
(`calibration.kernels.as_known`).
"""

from __future__ import annotations

NVIDIA = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "rubin")  # a generation after the other
AMD, INTEL = ("cdna1", "cdna2", "cdna3", "cdna4", "rdna3", "rdna4"), ("xe", "xe2")
SINCE_TURING, SINCE_AMPERE, SINCE_HOPPER = (NVIDIA[NVIDIA.index(name) :] for name in ("turing", "ampere", "hopper"))
FLASH_2 = (*SINCE_AMPERE, *AMD[AMD.index("cdna2") :])  # on ROCm by Composable Kernel or Triton
FLASH_3 = ("ampere", "ada", "hopper")
COMPILED = (*NVIDIA[NVIDIA.index("volta") :], *AMD, *INTEL)  # by Triton
# Part of a kernel's name in lower case -> the generations that have it; the first that is found.
BY_KERNEL = {
    "xpu": INTEL,
    "fa4": SINCE_HOPPER,
    "fa3": FLASH_3,
    "flashmla": SINCE_HOPPER,
    "deepgemm": SINCE_HOPPER,
    "flash_att": (*FLASH_2, *INTEL),
    "fa2": FLASH_2,
    "flashinfer": SINCE_TURING,
    "marlin": SINCE_AMPERE,
    "cutlass": NVIDIA,
    "triton": COMPILED,
    "fused_moe": COMPILED,
}
BY_FRAMEWORK = {"trtllm": SINCE_AMPERE, "vllm_tpu": ("tpu",)}
# Engines whose tables name no kernel of mixed steps: FlashAttention's, and of LLMServingSim's profiler a TPU's as well.
OF_MIXED_STEPS = {"vllm": SINCE_AMPERE, "v0": (*SINCE_AMPERE, "tpu")}
# GPUs whose kernels by NVIDIA's names are others: what is read off those (tiles, blocks, waits) says nothing of these.
# Intel's rows of `vllm_flash_attn` show it: by the reading of FlashAttention 2 they are 130 % off in the mean in decode
# and 41 % in prefill, by that of most kernels 62 % and 39 %.
OTHER_MAKERS = (*AMD, *INTEL)


def of_other_maker(architecture: str) -> bool:
    """Whether an architecture of hwspecs is of a GPU that no kernel of NVIDIA's runs on."""
    return architecture.partition("-")[0] in OTHER_MAKERS


def runs_on(family: str, framework: str, kernel: str, architecture: str) -> bool:
    """Whether devices of an architecture of hwspecs can run a kernel of a family."""
    generation = architecture.partition("-")[0]
    if framework in BY_FRAMEWORK and generation not in BY_FRAMEWORK[framework]:
        return False
    if family == "attention_mixed" and framework in OF_MIXED_STEPS:
        return generation in OF_MIXED_STEPS[framework]
    named = (generations for part, generations in BY_KERNEL.items() if part in kernel.lower())
    return generation in next(named, (generation,))
