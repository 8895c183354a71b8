"""Facts of devices in units of the H100's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.datasets import FAMILIES
from calibration.kernels.busiest import NOT_HELD
from calibration.kernels.hardware import REFERENCE_CLOCK, load_hardware
from calibration.kernels.inputs import prepare
from calibration.kernels.parameters import load_parameters
from calibration.kernels.predict import predict_table
from tests.calibration.tables import blank_table


def test_the_h100_is_its_own_reference() -> None:
    """The constants that everything was fitted with are still what its entry and that of its process state."""
    h100 = load_hardware(["h100-sxm"])
    assert (h100.energy[0], h100.matrix_energy[0]) == pytest.approx((1.0, 1.0), rel=1e-6)
    assert h100.clock[0] == pytest.approx(REFERENCE_CLOCK, rel=1e-3)


def test_the_gpu_of_a_system_on_chip_is_a_gpu() -> None:
    names = ["jetson-agx-thor-128gb", "jetson-nano", "h100-sxm", "epyc-9755", "inf2", "raspberry-pi-5", "tpu-v6e"]
    found = load_hardware(names)
    assert np.asarray(found.many_cores).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["cpu", "npu", "soc", "gpu", "tpu"])
def test_only_the_cache_of_a_gpu_spares_the_memory(kind: str) -> None:
    """16 rows of 128 elements fit the cache of every device."""
    devices = [name for name in hwspecs.names() if hwspecs.load(name).kind == kind]
    shape = {"rows": np.full(len(devices), 16.0), "columns": np.full(len(devices), 128.0)}
    prepared = prepare(blank_table("norm", shape, np.array(devices, object)))
    cached = np.asarray(load_hardware(devices).many_cores) > 0.0
    assert ((prepared.footprint < 0.0) == cached).all() and (prepared.footprint[~cached] == NOT_HELD).all()
    assert cached.all() if kind == "gpu" else not cached.all()


@pytest.mark.parametrize("device", ["tpu-v5e", "tpu-v6e", "trn2", "gaudi2"])
def test_what_is_cached_of_tokens_comes_from_the_memory(device: str) -> None:
    """67 MB of keys and values, as large as half the vector memory of a TPU, which nothing keeps them in."""
    stated = {"batch": 1.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "kv_len": 16384.0}
    names = [column.name for column in FAMILIES["attention_decode"]]
    shape = {name: np.array([stated.get(name, 0.0)]) for name in names}
    table = blank_table("attention_decode", shape, np.array([device], object))
    found = predict_table(table, load_parameters())
    assert (
        found["predicted_us"][0] > found["roofline_us"][0] > 0.9e6 * 67.1e6 / hwspecs.load(device).memory_bandwidth.si
    )


def test_no_clock_makes_a_product_slower(tmp_path: Path) -> None:
    """A chip under its power limit runs at the clock it can pay, however high its highest is."""
    spec, names = hwspecs.load("h100-sxm"), ("half", "same", "twice", "four-times")
    source = '[sources.me]\ntitle = "t"\npublisher = "me"\nkind = "estimate"\nyear = 2026\n'
    for name, times in zip(names, (0.5, 1.0, 2.0, 4.0), strict=True):

        def value(number: float, unit: str, times: float = times) -> str:
            return f'{{ quantity = "{times * number} {unit}", source = "me", confidence = "estimated", note = "if" }}\n'

        peaks = "".join(f"{each} = {value(peak.si, 'FLOP/s')}" for each, peak in spec.peak_flops.items())
        rates = f"vector_flops = {value(spec.vector_flops.si, 'FLOP/s')}clock_rate = {value(spec.clock_rate.si, 'Hz')}"
        (tmp_path / f"{name}.toml").write_text(
            f'name = "{name}"\nbase = "h100-sxm"\n{rates}[peak_flops]\n{peaks}{source}'
        )
    sizes = np.array([16.0, 512.0, 8192.0])
    wide, one = np.full(len(sizes), 8192.0), np.ones(len(sizes))
    sides = {"batch": one, "m": sizes, "n": wide, "k": wide}
    shape = {name: np.tile(each, len(names)) for name, each in sides.items()}
    table = blank_table("gemm", shape, np.repeat(np.array(names, object), len(sizes)))
    found = predict_table(table, load_parameters(None), [str(tmp_path)])["predicted_us"].reshape(len(names), -1)
    assert (np.diff(found, axis=0) <= 0.0).all()
