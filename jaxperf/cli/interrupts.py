"""Ctrl-C wherever it arrives: none is lost, and none ends in a traceback."""

from __future__ import annotations

import _thread
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130  # by Ctrl-C; what was finished is kept
AGAIN = 0.02  # s until an interrupt that came at a bad moment is tried again


@contextmanager
def interruptible() -> Iterator[None]:
    """A program that Ctrl-C ends with exit code 130.

    Three moments are waited for to pass: an import, in which modules in C make any other exception of it, or crash; a
    callback of the garbage collector, of which JAX has one that runs often, where Python drops all exceptions; and the
    evaluation of a text, after which Python 3.11 ends by the signal though it was caught.
    """

    def press(number: int, frame: FrameType | None) -> None:
        if not _is_bad_moment(frame):
            raise KeyboardInterrupt
        again = threading.Timer(AGAIN, _thread.interrupt_main)
        again.daemon = True
        again.start()

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as under nohup
        signal.signal(signal.SIGINT, press)
    try:
        yield
    except KeyboardInterrupt:
        print("\njaxperf: Interrupted.", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _is_bad_moment(frame: FrameType | None) -> bool:
    callbacks = [getattr(each, "__code__", None) for each in gc.callbacks]
    while frame is not None:
        file, outer = frame.f_code.co_filename, frame.f_back
        evaluated = file == "<string>" and outer is not None  # what `python -c` runs is a text too, the outermost
        if frame.f_code in callbacks or evaluated or file.startswith("<frozen importlib"):
            return True
        frame = outer
    return False
