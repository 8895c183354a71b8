"""Readers of measured data, in the formats people have, into one schema."""

from calibration.datasets.files import data_hash
from calibration.datasets.kernel_times import KernelTimes
from calibration.datasets.nccl_tests import NcclLog, read_nccl_log
from calibration.datasets.nsys import read_nsys
from calibration.datasets.recognize import format_of, read_measured
from calibration.datasets.schema import FAMILIES, KernelTable, Problem, Read
from calibration.datasets.static_batch import StaticBatch, read_static_batches
from calibration.datasets.tables import iterate_table, read_table
from calibration.datasets.torch_profiler import read_torch_averages, read_torch_trace
from calibration.datasets.write import scatter, write_with

__all__ = [
    "FAMILIES",
    "KernelTable",
    "KernelTimes",
    "NcclLog",
    "Problem",
    "Read",
    "StaticBatch",
    "data_hash",
    "format_of",
    "iterate_table",
    "read_measured",
    "read_nccl_log",
    "read_nsys",
    "read_static_batches",
    "read_table",
    "read_torch_averages",
    "read_torch_trace",
    "scatter",
    "write_with",
]
