"""Pictures from plain numbers, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.report.plots import MAX_COLORS, check_picture, pareto_figure, ranking_figure, roofline_figure, save


def test_a_ranking_has_a_bar_a_device() -> None:
    names = [f"device {index}" for index in range(45)]
    scores = np.linspace(100.0, 1.0, 45).tolist()
    figure = ranking_figure("title", "tokens/J", names, scores, [(score / 2, score * 2) for score in scores])
    (axes,) = figure.axes
    assert len(axes.patches) == 45 and "tokens/J" in axes.get_xlabel()


def test_a_front_names_no_more_than_ten_devices() -> None:
    labels = [f"device {index % 14}" for index in range(60)]
    x = np.geomspace(1e-3, 1.0, 60)
    (axes,) = pareto_figure("title", labels, x, x * 10, "tpot [s]", "tokens [1/s]").axes
    assert len(axes.get_legend().get_texts()) == MAX_COLORS


def test_a_roofline_skips_kernels_without_arithmetic() -> None:
    kernels = {"gemm": (1e12, 1e9, 2e-3), "copy": (0.0, 1e9, 1e-3)}
    (axes,) = roofline_figure("title", 1e15, 3e12, kernels).axes
    assert [text.get_text() for text in axes.texts] == ["gemm"]
    roof = axes.lines[0].get_ydata()
    assert max(roof) == pytest.approx(1e15)


def test_saving(tmp_path: Path) -> None:
    figure = roofline_figure("title", 1e15, 3e12, {"gemm": (1e12, 1e9, 2e-3)})
    save(figure, tmp_path / "roof.png")
    assert (tmp_path / "roof.png").stat().st_size > 1000
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="Cannot write"):
        save(figure, tmp_path / "folder.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.png", "roof.png"]


def test_checks_come_before_drawing(tmp_path: Path) -> None:
    check_picture(None)
    check_picture(tmp_path / "roof.svg")
    with pytest.raises(InputError, match="does not exist"):
        check_picture(tmp_path / "new" / "roof.svg")
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        check_picture(tmp_path / "roof.jpg")
    assert list(tmp_path.iterdir()) == []
